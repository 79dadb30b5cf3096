"""The handler "transfer": a directory tree to a directory tree, staged, sealed, resumable.

`run` lists the source, adopts what an earlier attempt's checkpoint proves, copies the rest, and seals the
manifest. What is kept of a tree: names as bytes, contents, permission bits, modification times, empty
directories, and links as links (never followed, dangling or not). Not kept: owners, set-id bits, extended
attributes, hard links between members. Sockets, pipes and devices are listed in the manifest as skipped.

A full disk is retryable and leaves the checkpoint as it is: what was sealed need not be sent again once
there is room. The stage is removed when the job no longer needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from django.conf import settings

from jobs.errors import SpecInvalid
from workers.files.walk import EntryKind
from workers.handlers import failures, transfer_spec
from workers.handlers.api import (
    AttemptContext,
    Disposition,
    FetchProgress,
    JsonMapping,
    ManifestDescriptor,
    MemberKind,
    Problem,
    StopRequested,
)
from workers.handlers.failures import PermanentFailure, RetryableFailure, SourceChanged
from workers.handlers.transfer_copy import Copier
from workers.handlers.transfer_ledger import Clock, Ledger, TransferLimits, kept_mode
from workers.handlers.transfer_resume import Adoption
from workers.handlers.transfer_spec import TransferSpec
from workers.sources.posix import Listing, PosixSource
from workers.targets import posix_result
from workers.targets.area import Area
from workers.targets.manifest import ManifestHeader, ManifestMember, SkippedEntry, write_manifest
from workers.targets.posix import Stage, target_failure

if TYPE_CHECKING:
    from jobs.protocol.records import Fence

# So much may be lost between the last checkpoint and the manifest; a small tree then needs none at all.
UNSAVED_BYTES_MAX: Final = 8 << 20


class TransferHandler:
    kind: Final = "transfer"

    def __init__(self, limits: TransferLimits | None = None, clock: Clock = time.monotonic) -> None:
        self._limits, self._clock = limits, clock

    def validate(self, spec: JsonMapping) -> JsonMapping:
        return transfer_spec.validate(spec)

    def area(self, spec: JsonMapping, fence: Fence) -> str:
        return Area.of(TransferSpec.parse(spec).target, fence.job_id, fence.token).path

    def run(self, ctx: AttemptContext) -> ManifestDescriptor:
        try:
            return self._run(ctx)
        except SourceChanged as exc:
            ctx.invalidate_checkpoint(exc.reason)
            raise
        except OSError as exc:
            raise target_failure(exc) from exc

    def classify(self, exc: BaseException) -> Disposition:
        return failures.classify(exc)

    def clean(self, spec: JsonMapping, area: str) -> None:
        """Remove exactly that area. NotAnArea if the path is not an area of this spec's target."""
        name = Area.parse(area)
        if name.target != TransferSpec.parse(spec).target:
            raise PermanentFailure(f"not an area of this job's target: {area}")
        name.remove()

    def verify(self, descriptor: ManifestDescriptor) -> Iterator[Problem]:
        return posix_result.verify(descriptor)

    def fetch(self, descriptor: ManifestDescriptor, dest: str, progress: FetchProgress) -> None:
        posix_result.fetch(descriptor, dest, progress)

    def _run(self, ctx: AttemptContext) -> ManifestDescriptor:
        spec = TransferSpec.parse(ctx.spec)
        try:
            transfer_spec.check_apart(spec)  # again: links may have changed since the submission
        except SpecInvalid as exc:
            raise PermanentFailure(str(exc)) from exc
        ctx.check()
        with PosixSource(spec.source) as source, Stage(Area.parse(ctx.staging)) as stage:
            ctx.advance(0, None, "listing")
            listing = source.list_into(stage.spool(), {stage.identity}, ctx.check)
            try:
                limits = self._limits or limits_from_settings()
                ledger = Ledger(ctx, stage, listing, limits, self._clock)
                try:
                    return _stage_all(ctx, source, stage, listing, ledger, limits, spec)
                finally:
                    ledger.close()
            finally:
                listing.close()


def limits_from_settings() -> TransferLimits:
    return TransferLimits(
        checkpoint_bytes=settings.REMORA_CHECKPOINT_BYTES, checkpoint_s=settings.REMORA_CHECKPOINT_S
    )


def _stage_all(
    ctx: AttemptContext, source: PosixSource, stage: Stage, listing: Listing, ledger: Ledger,
    limits: TransferLimits, spec: TransferSpec,
) -> ManifestDescriptor:  # fmt: skip
    if (resume := ctx.resume) is not None:
        Adoption(ctx, stage, listing, ledger, limits, spec.parallelism).run(resume)
    ledger.report("copying")
    try:
        Copier(ctx, source, stage, listing, ledger, limits, spec.parallelism).run()
    except StopRequested as stop:
        if stop.may_checkpoint:
            ledger.persist()
        raise
    except SourceChanged:
        raise  # nothing of this is worth keeping
    except RetryableFailure:
        with suppress(RetryableFailure, PermanentFailure):
            ledger.persist()  # the next attempt goes on from here, not from the last checkpoint
        raise
    if ledger.unsaved_bytes >= UNSAVED_BYTES_MAX:
        ledger.persist()
    ledger.report("sealing")
    return _seal(ctx, stage, listing, ledger)


def _seal(ctx: AttemptContext, stage: Stage, listing: Listing, ledger: Ledger) -> ManifestDescriptor:
    """Directories get their modes and times, the deepest first; then the manifest is written and gets its
    name.
    """
    for index in range(len(listing) - 1, -1, -1):
        entry = listing[index]
        if entry.kind is EntryKind.DIR:
            mtime_ns = stage.finish_dir(entry.path, entry.mode, entry.mtime_ns)
            ledger.log.put(index, mtime_ns, bytes(32))
        ctx.check()
    stage.sync_names()
    header = ManifestHeader(str(ctx.fence.job_id), ctx.attempt_id, ctx.fence.token, listing.identity)
    private = stage.new_private()
    fd = stage.open_private(private)
    with open(fd, "r+b", buffering=0):
        skipped = _skipped(listing)
        descriptor = write_manifest(fd, header, _members(ctx, listing, ledger), skipped, stage.area.path)
    ctx.check()
    stage.seal_manifest(private)
    return descriptor


def _members(ctx: AttemptContext, listing: Listing, ledger: Ledger) -> Iterator[ManifestMember]:
    for index, entry in enumerate(listing):
        ctx.check()
        if entry.kind is EntryKind.SKIPPED or not entry.path:
            continue
        sealed = ledger.log.get(index)
        if sealed is None:
            raise LookupError(f"row {index} of the listing was never sealed")
        mtime_ns, sha256 = sealed
        mode = kept_mode(entry)
        if entry.kind is EntryKind.FILE:
            yield ManifestMember(entry.path, MemberKind.FILE, mode, mtime_ns, entry.size, sha256.hex())
        elif entry.kind is EntryKind.DIR:
            yield ManifestMember(entry.path, MemberKind.DIR, mode, mtime_ns)
        else:
            yield ManifestMember(entry.path, MemberKind.SYMLINK, mode, mtime_ns, link_target=entry.link)


def _skipped(listing: Listing) -> Iterator[SkippedEntry]:
    for entry in listing:
        if entry.kind is EntryKind.SKIPPED:
            yield SkippedEntry(entry.path, entry.special)
