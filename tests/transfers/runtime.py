"""A runtime for one job without servers: what was made durable is kept in memory, as text, and checked as it
comes.

It stands in for the runtime alone. Sources, targets, and all that a handler does to them are real.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.protocol.records import Fence
from tests.transfers.trees import KIB
from workers.files.names import decode_name
from workers.handlers.api import ManifestDescriptor, ResumePoint, SealedMember
from workers.handlers.transfer import TransferHandler
from workers.handlers.transfer_ledger import TransferLimits

SMALL = TransferLimits(
    checkpoint_bytes=64 * KIB, checkpoint_s=1e9, chunk_bytes=16 * KIB, stream_bytes_min=128 * KIB
)


class Killed(BaseException):
    """The process ends here and now."""


@dataclass
class Checkpoint:
    token: int
    progress: int
    proof: str
    staging: str


@dataclass
class DurableJob:
    """What PostgreSQL would hold of one job."""

    spec: Mapping[str, Any]
    job_id: uuid.UUID = field(default_factory=uuid.uuid4)
    token: int = 0
    checkpoint: Checkpoint | None = None
    ledgers: dict[int, dict[bytes, SealedMember]] = field(default_factory=dict)
    invalidations: list[str] = field(default_factory=list)
    handler: TransferHandler = field(default_factory=lambda: TransferHandler(SMALL))

    def attempt(self, *, at_checkpoint: Callable[[int], None] | None = None,
                at_check: Callable[[int], None] | None = None) -> Attempt:  # fmt: skip
        self.token += 1
        return Attempt(self, self.token, at_checkpoint or _nothing, at_check or _nothing)

    def area(self, token: int) -> str:
        return self.handler.area(self.spec, Fence(self.job_id, token))

    def clean(self, token: int) -> None:
        self.handler.clean(self.spec, self.area(token))

    def files(self, token: int) -> str:
        return os.path.join(self.area(token), "files")


def _nothing(_: int) -> None:
    """No event is to happen."""


class Attempt:
    """The context of one attempt, with a place to kill it at every checkpoint and every check."""

    def __init__(
        self,
        job: DurableJob,
        token: int,
        at_checkpoint: Callable[[int], None],
        at_check: Callable[[int], None],
    ) -> None:
        self._job, self._at_checkpoint, self._at_check = job, at_checkpoint, at_check
        self.fence = Fence(job.job_id, token)
        self.attempt_id = str(uuid.uuid4())
        self.spec = job.spec
        self.staging = job.area(token)
        self.sent = self.checks = self.checkpoints = 0
        self.progress: list[tuple[int, int | None, str]] = []
        self.saved_progress: list[int] = []

    @property
    def resume(self) -> ResumePoint | None:
        point = self._job.checkpoint
        if point is None:
            return None
        members = iter(sorted(self._job.ledgers[point.token].values(), key=lambda member: member.path))
        return ResumePoint(point.progress, json.loads(point.proof), point.token, point.staging, members)

    def run(self) -> ManifestDescriptor:
        return self._job.handler.run(self)

    def check(self) -> None:
        self.checks += 1
        self._at_check(self.checks)

    def advance(self, progress: int, total: int | None, phase: str) -> None:
        self.progress.append((progress, total, phase))

    def count_sent(self, nbytes: int) -> None:
        self.sent += nbytes

    def invalidate_checkpoint(self, why: str) -> None:
        self._job.invalidations.append(why)
        self._job.checkpoint = None
        self._job.ledgers.pop(self.fence.token, None)

    def persist_checkpoint(
        self, progress: int, proof: Mapping[str, Any], members: Sequence[SealedMember]
    ) -> None:
        ledger = self._job.ledgers.setdefault(self.fence.token, {})
        for member in members:
            assert member.path not in ledger, "a member was recorded twice"
            ledger[member.path] = member
        self._assert_target_holds(progress, proof, ledger)
        text = json.dumps(proof, allow_nan=False)
        self._job.checkpoint = Checkpoint(self.fence.token, progress, text, self.staging)
        self.saved_progress.append(progress)
        self.checkpoints += 1
        self._at_checkpoint(self.checkpoints)

    def _assert_target_holds(
        self, progress: int, proof: Mapping[str, Any], ledger: Mapping[bytes, SealedMember]
    ) -> None:
        """A checkpoint never says more than the attempt's own area holds."""
        for member in ledger.values():
            full = os.path.join(os.fsencode(self.staging), b"files", member.path)
            assert os.path.lexists(full), "a checkpoint names a member that is not there"
            if member.kind == "file":
                assert os.path.getsize(full) == member.size
        partial = proof["partial"]
        offset = 0
        if partial is not None:
            offset = partial["offset"]
            assert decode_name("path", partial) not in ledger
            with open(os.path.join(self.staging, "partial", partial["private"]), "rb") as file:
                assert hashlib.sha256(file.read(offset)).hexdigest() == partial["sha256"]
        assert progress == offset + sum(member.size for member in ledger.values())


def kill_at(event: int) -> Callable[[int], None]:
    def kill(number: int) -> None:
        if number == event:
            raise Killed

    return kill


def run_until_done(job: DurableJob, kills: Iterator[Callable[[int], None]]) -> tuple[ManifestDescriptor, int]:
    """Attempt after attempt, killed at checks as `kills` says, until one succeeds; and all that was sent."""
    sent = 0
    while True:
        attempt = job.attempt(at_check=next(kills, _nothing))
        try:
            return attempt.run(), sent + attempt.sent
        except Killed:
            sent += attempt.sent


def killed_at_checkpoint(job: DurableJob, number: int) -> Attempt:
    """An attempt that dies right after its checkpoint of that number."""
    attempt = job.attempt(at_checkpoint=kill_at(number))
    try:
        attempt.run()
    except Killed:
        return attempt
    raise AssertionError(f"there was no checkpoint {number}")
