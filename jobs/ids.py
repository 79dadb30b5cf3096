"""Where identity enters: UUIDv7, so that ids made one after another are neighbours in every index."""

from uuid import UUID

from uuid_utils.compat import uuid7

JobId = UUID
AttemptId = UUID
IncarnationId = UUID


def new_id() -> UUID:
    """An id never used before."""
    return UUID(int=uuid7().int)


def as_uuid(value: str | UUID) -> UUID:
    """The id that `value` spells, or ValueError."""
    return value if isinstance(value, UUID) else UUID(value)
