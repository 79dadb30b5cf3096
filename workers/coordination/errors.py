"""Errors of the CoordinationStore. Losing a race is a reply, not an error."""

from jobs.errors import RemoraError


class CoordinationUnavailable(RemoraError):
    """Redis could not be asked, or did not answer, or refuses to work: nothing is known of what it holds.

    A script may still have run: every action is safe to ask again.
    """


class CoordinationBroken(RemoraError):
    """Redis answered with an error that only a mistake in the scripts or in the deployment explains."""


class CoordinationMisuse(ValueError):
    """The caller's request cannot be written down: NUL in a name, a name too long, a number out of range."""
