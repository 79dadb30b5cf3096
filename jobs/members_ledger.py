"""The ledger of staged members: recorded with the checkpoint that relies on them, gone with the stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.db import connection

from jobs.ids import AttemptId
from jobs.models import StagedMember
from jobs.sql import Inserts
from jobs.values import Member

# A member that is there already is the same one: a sealed member never changes.
MEMBERS: Final = Inserts(
    StagedMember,
    ("attempt", "path", "kind", "size", "sha256", "mode", "mtime_ns"),
    " ON CONFLICT (attempt_id, path) DO NOTHING",
)


def rows(attempt_id: AttemptId, members: Sequence[Member]) -> list[tuple[Any, ...]]:
    """These members as rows of MEMBERS."""
    return [(attempt_id, m.path, str(m.kind), m.size, m.sha256, m.mode, m.mtime_ns) for m in members]


def forget(attempt_ids: Sequence[AttemptId]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_stagedmember WHERE attempt_id = ANY(%s)", [list(attempt_ids)])


def read(attempt_id: AttemptId, *, rows_max: int) -> Iterator[Member]:
    """Bytewise by path, `rows_max` at a time, each page from where the last one ended."""
    after: bytes | None = None
    while True:
        page = StagedMember.objects.filter(attempt_id=attempt_id).order_by("path")
        if after is not None:
            page = page.filter(path__gt=after)
        found = list(page.values_list("path", "kind", "size", "sha256", "mode", "mtime_ns")[:rows_max])
        for path, kind, size, sha256, mode, mtime_ns in found:
            after = bytes(path)
            yield Member(after, kind, size, sha256, mode, mtime_ns)
        if len(found) < rows_max:
            return
