"""Failures of an attempt, and the one table that maps exceptions to the protocol's failure outcomes.

A handler that knows what went wrong raises one of the three classes below. Everything else (an OSError from
deep inside a copy, say) is looked up here. A class of failure is *permanent* when trying the same thing
again, with nobody doing anything about it, cannot end differently; all else is *retryable*.
"""

from __future__ import annotations

import errno
from typing import Final

from jobs.protocol.states import OutcomeRequest
from workers.files.names import show_char, show_name
from workers.handlers.api import Disposition

REASON_CHARS_MAX: Final = 500


class AttemptFailure(Exception):
    """Base of the failures a handler names itself. Raise one of the subclasses."""

    outcome: OutcomeRequest = OutcomeRequest.RETRYABLE_FAILURE

    def __init__(self, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class RetryableFailure(AttemptFailure):
    """Another attempt may well succeed."""


class PermanentFailure(AttemptFailure):
    """No attempt can succeed until somebody changes something."""

    outcome = OutcomeRequest.PERMANENT_FAILURE


class SourceChanged(RetryableFailure):
    """The source is not what it was when this job began. The handler has invalidated the checkpoint."""


# What is in neither table is retryable: an unknown error is more often the world's than the job's.
PERMANENT_ERRNOS: Final = {
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "read-only file system",
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "not a directory",
    errno.EISDIR: "is a directory",
    errno.ELOOP: "too many symbolic links, or a link where a directory is needed",
    errno.ENAMETOOLONG: "name too long for the target",
    errno.EILSEQ: "the target cannot hold this name",
    errno.EINVAL: "the file system refuses this name or operation",
    errno.EFBIG: "file too large for the target",
    errno.EXDEV: "not on the same file system",
    errno.EMLINK: "too many links",
    errno.EOPNOTSUPP: "operation not supported by the file system",
}
RETRYABLE_ERRNOS: Final = {
    errno.ENOSPC: "no space left on the target",
    errno.EDQUOT: "disk quota exceeded",
    errno.EIO: "input/output error",
    errno.ESTALE: "stale file handle",
    errno.ETIMEDOUT: "timed out",
    errno.EMFILE: "too many open files in this process",
    errno.ENFILE: "too many open files on this machine",
    errno.ENOMEM: "out of memory",
    errno.EBUSY: "busy",
    errno.EAGAIN: "temporarily unavailable",
    errno.EEXIST: "something is already there",
    errno.ENOTEMPTY: "directory not empty",
}

PERMANENT_TYPES: Final[tuple[type[BaseException], ...]] = (
    TypeError,
    KeyError,
    AttributeError,
    NotImplementedError,
)


def classify(exc: BaseException) -> Disposition:
    """The table, applied. Total: every exception has exactly one disposition."""
    if isinstance(exc, AttemptFailure):
        return Disposition(exc.outcome, _bounded(exc.reason), exc.retry_after_s)
    if isinstance(exc, OSError) and exc.errno is not None:
        return _classify_errno(exc)
    if isinstance(exc, PERMANENT_TYPES):
        # A defect of the handler itself: the same input runs into it again.
        return Disposition(OutcomeRequest.PERMANENT_FAILURE, f"defect in the handler: {type(exc).__name__}")
    return Disposition(OutcomeRequest.RETRYABLE_FAILURE, f"unexpected {type(exc).__name__}")


def failure_from(exc: OSError, where: str, *, retryable: frozenset[int] = frozenset()) -> AttemptFailure:
    """The failure an OSError stands for, with the place said in words. `retryable` overrules the table."""
    number = exc.errno or 0
    name = errno.errorcode.get(number, str(number))
    if number in PERMANENT_ERRNOS and number not in retryable:
        return PermanentFailure(f"{where}: {PERMANENT_ERRNOS[number]} ({name})")
    text = RETRYABLE_ERRNOS.get(number) or PERMANENT_ERRNOS.get(number, "operating system error")
    return RetryableFailure(f"{where}: {text} ({name})")


def _classify_errno(exc: OSError) -> Disposition:
    where = show_name(exc.filename) if isinstance(exc.filename, bytes | str) else "operating system"
    failure = failure_from(exc, where)
    return Disposition(failure.outcome, _bounded(failure.reason))


def _bounded(reason: str) -> str:
    """PostgreSQL text holds neither NUL nor lone surrogates; and a reason is for reading, so it is short."""
    clean = "".join(char if char == "\n" or char.isprintable() else show_char(char) for char in reason)
    return clean if len(clean) <= REASON_CHARS_MAX else clean[: REASON_CHARS_MAX - 3] + "..."
