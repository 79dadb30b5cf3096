"""What each script answers for one element, by name. The scripts' headers list the same names; a test
compares them.
"""

from enum import StrEnum


class EnqueueReply(StrEnum):
    """Enqueue. After ENQUEUED and REOFFERED the caller publishes the offer; after the others it does not."""

    ENQUEUED = "enqueued"
    REOFFERED = "reoffered"  # the marker was there and nobody took it for long enough: offer it again
    MARKER_PRESENT = "marker_present"
    MARKER_FOR_NEWER_TOKEN = "marker_for_newer_token"  # noqa: S105
    RESERVED = "reserved"


class ReserveReply(StrEnum):
    """Reserve. Only RESERVED and ALREADY_YOURS give the right to go on to AuthorizeAttempt."""

    RESERVED = "reserved"
    ALREADY_YOURS = "already_yours"  # the same claim asked again, its first answer was lost
    NO_MARKER = "no_marker"
    MARKER_FOR_OTHER_TOKEN = "marker_for_other_token"  # noqa: S105
    TAKEN = "taken"
    SETTLING = "settling"  # a wipe just now: permits are kept for the attempts that lost theirs
    GLOBAL_LIMIT = "global_limit"
    QUEUE_LIMIT = "queue_limit"
    KEY_LIMIT = "key_limit"
    LOCAL_LIMIT = "local_limit"

    @property
    def granted(self) -> bool:
        return self in (ReserveReply.RESERVED, ReserveReply.ALREADY_YOURS)


class ActivateReply(StrEnum):
    """ActivateAttempt."""

    ACTIVATED = "activated"
    ALREADY_ACTIVE = "already_active"
    NOT_RESERVED = "not_reserved"
    RESERVED_BY_ANOTHER = "reserved_by_another"  # another incarnation, claim or token
    SUPERSEDED = "superseded"

    @property
    def granted(self) -> bool:
        return self in (ActivateReply.ACTIVATED, ActivateReply.ALREADY_ACTIVE)


class RenewReply(StrEnum):
    """RenewLease. LEASE_LOST may be granted again; LEASE_EXPIRED and SUPERSEDED are final."""

    RENEWED = "renewed"
    LEASE_LOST = "lease_lost"
    LEASE_EXPIRED = "lease_expired"
    SUPERSEDED = "superseded"


class RegrantReply(StrEnum):
    """RegrantLease. The three limits are worth asking again; LEASE_EXPIRED and SUPERSEDED are final."""

    REGRANTED = "regranted"
    ALREADY_LIVE = "already_live"
    LEASE_EXPIRED = "lease_expired"
    SUPERSEDED = "superseded"
    GLOBAL_LIMIT = "global_limit"
    QUEUE_LIMIT = "queue_limit"
    KEY_LIMIT = "key_limit"

    @property
    def granted(self) -> bool:
        return self in (RegrantReply.REGRANTED, RegrantReply.ALREADY_LIVE)


class ReleaseReservationReply(StrEnum):
    """ReleaseReservation."""

    RELEASED = "released"
    NOT_RESERVED = "not_reserved"
    RESERVED_BY_ANOTHER = "reserved_by_another"


class ReleaseLeaseReply(StrEnum):
    """ReleaseLease."""

    RELEASED = "released"
    LEASE_NOT_LIVE = "lease_not_live"
    SUPERSEDED = "superseded"


class ReportReply(StrEnum):
    """ReportProgress. UNCHANGED still refreshes the report's age, total and phase."""

    REPORTED = "reported"
    UNCHANGED = "unchanged"
    LEASE_NOT_LIVE = "lease_not_live"


class NoticeReply(StrEnum):
    """PublishCancelNotice."""

    PUBLISHED = "published"
    NOTICE_PRESENT = "notice_present"


class ClearProgressReply(StrEnum):
    """ClearStaleLiveProgress."""

    CLEARED = "cleared"
    NO_LIVE_PROGRESS = "no_live_progress"
    PROGRESS_IS_BACKED = "progress_is_backed"
    NEWER_THAN_READ = "newer_than_read"


class CleanReply(StrEnum):
    """CleanTerminalCoordination. With NEWER_THAN_READ nothing was deleted."""

    CLEANED = "cleaned"
    COORDINATION_CLEAN = "coordination_clean"
    NEWER_THAN_READ = "newer_than_read"


class DiscardReply(StrEnum):
    """Deleting a field that no script can read."""

    DISCARDED = "discarded"
    WELL_FORMED = "well_formed"
    ABSENT = "absent"


class SweepReply(StrEnum):
    """The expire scripts as a whole."""

    SWEPT = "swept"
    GRACE = "grace"  # nobody could sweep for too long, so nobody could renew either: nothing is removed yet
