"""A kind that does what it is told, also what no job should do: for tests and chaos, on where REMORA_PROBE
is set.

Spec: {"target": "/abs/dir", "steps": [{"do": NAME, ...}, ...], "time_limit_s": 0}. Steps run in order;
`write` stages and seals a member, `checkpoint` persists what was staged so far. An attempt that resumes
links the members of the checkpoint into its own area and does not write them again; every other step it
takes again, but those that only hit given tokens.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from jobs.errors import SpecInvalid
from jobs.protocol import Fence
from workers.handlers import failures
from workers.handlers.api import (
    AttemptContext,
    Disposition,
    FetchProgress,
    JsonMapping,
    ManifestDescriptor,
    MemberKind,
    Problem,
    SealedMember,
)

STEPS_MAX: Final = 10_000
BYTES_MAX: Final = 1 << 30
POLL_S: Final = 0.02
_FIELDS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "sleep": {"s": (int, float)},
    "hold_gil": {"s": (int, float)},
    "write": {"bytes": int},
    "checkpoint": {},
    "fail": {"how": str},
    "spawn": {"s": (int, float)},
    "die": {"signal": int},
    "ignore_stop": {"s": (int, float)},
    "eat_memory": {"bytes": int},
}


class Probe:
    """One attempt's run."""

    def __init__(self, ctx: AttemptContext) -> None:
        self._ctx = ctx
        self._area = Path(ctx.staging)
        self._progress = 0
        self._members: list[SealedMember] = []
        self._unrecorded: list[SealedMember] = []
        self._adopted: dict[bytes, SealedMember] = {}

    def run(self) -> ManifestDescriptor:
        self._area.mkdir(parents=True, exist_ok=True)
        (self._area / "files").mkdir(exist_ok=True)
        self._adopt()
        for number, step in enumerate(self._ctx.spec["steps"]):
            self._ctx.check()
            if self._ctx.fence.token in step.get("tokens", [self._ctx.fence.token]):
                self._take(number, step)
        return self._seal_manifest()

    def _adopt(self) -> None:
        resume = self._ctx.resume
        if resume is None:
            return
        for member in resume.members:
            source = Path(resume.staging, "files", os.fsdecode(member.path))
            os.link(source, self._area / "files" / os.fsdecode(member.path))
            self._adopted[member.path] = member

    def _take(self, number: int, step: Mapping[str, Any]) -> None:
        actions: dict[str, Callable[[], None]] = {
            "sleep": lambda: self._sleep(step["s"]),
            "hold_gil": lambda: hold_gil(step["s"]),
            "write": lambda: self._write(number, step["bytes"]),
            "checkpoint": self._checkpoint,
            "fail": lambda: fail(step["how"]),
            "spawn": lambda: spawn(step["s"]),
            "die": lambda: os.kill(os.getpid(), step["signal"]),
            "ignore_stop": lambda: ignore_stop(step["s"]),
            "eat_memory": lambda: eat_memory(step["bytes"]),
        }
        actions[step["do"]]()

    def _sleep(self, seconds: float) -> None:
        """Check for a stop all the while, as a good handler does, and say where it is."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._ctx.advance(self._progress, None, "sleep")
            time.sleep(min(POLL_S, left_s))

    def _write(self, number: int, size: int) -> None:
        name = f"{number:05d}".encode()
        member = self._adopted.get(name)
        if member is None:
            content = content_of(number, size)
            partial = self._area / f"partial-{number}"
            partial.write_bytes(content)
            partial.rename(self._area / "files" / os.fsdecode(name))
            self._ctx.count_sent(size)
            digest = hashlib.sha256(content).hexdigest()
            member = SealedMember(name, MemberKind.FILE, size, digest, 0o644, 0)
        self._members.append(member)
        self._unrecorded.append(member)
        self._progress += size
        self._ctx.advance(self._progress, None, "write")

    def _checkpoint(self) -> None:
        self._ctx.persist_checkpoint(self._progress, {"members": len(self._members)}, self._unrecorded)
        self._unrecorded = []

    def _seal_manifest(self) -> ManifestDescriptor:
        listed = [
            {"path": os.fsdecode(member.path), "size": member.size, "sha256": member.sha256}
            for member in self._members
        ]
        text = json.dumps({"token": self._ctx.fence.token, "members": listed}, sort_keys=True).encode()
        location = self._area / "manifest.json"
        location.write_bytes(text)
        digest = hashlib.sha256(text).hexdigest()
        return ManifestDescriptor(digest, len(text), len(listed), self._progress, str(location))


def content_of(number: int, size: int) -> bytes:
    """What member `number` holds, whoever writes it."""
    pattern = hashlib.sha256(str(number).encode()).digest()
    return (pattern * (size // len(pattern) + 1))[:size]


def hold_gil(seconds: float) -> None:
    """As a native call that never lets go of the interpreter."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def ignore_stop(seconds: float) -> None:
    """As a handler that neither checks nor gives in to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        time.sleep(min(0.1, left_s))


def spawn(seconds: float) -> None:
    """Leave a process behind that has a session of its own."""
    subprocess.Popen(["sleep", str(seconds)], start_new_session=True)


def eat_memory(size: int) -> None:
    """Take and touch it, and keep it until the process ends."""
    _eaten.append(bytearray(size))


_eaten: list[bytearray] = []


def fail(how: str) -> None:
    if how == "retryable":
        raise failures.RetryableFailure("told to fail")
    if how == "permanent":
        raise failures.PermanentFailure("told to fail for good")
    raise RuntimeError("told to crash")


class ProbeHandler:
    """The handler. Holds no state."""

    kind = "probe"

    def validate(self, spec: JsonMapping) -> JsonMapping:
        unknown = set(spec) - {"target", "steps", "time_limit_s"}
        if unknown:
            raise SpecInvalid(sorted(unknown)[0], "unknown key")
        target, steps = spec.get("target"), spec.get("steps")
        if not isinstance(target, str) or not os.path.isabs(target) or "\0" in target:
            raise SpecInvalid("target", "must be an absolute path")
        if not isinstance(steps, list) or len(steps) > STEPS_MAX:
            raise SpecInvalid("steps", f"must be a list of at most {STEPS_MAX} steps")
        for number, step in enumerate(steps):
            _validate_step(f"steps[{number}]", step)
        limit = spec.get("time_limit_s", 0)
        if not isinstance(limit, int | float) or isinstance(limit, bool) or limit < 0:
            raise SpecInvalid("time_limit_s", "must be a number of seconds")
        return {"target": os.path.normpath(target), "steps": steps} | (
            {"time_limit_s": limit} if limit else {}
        )

    def time_limit_s(self, spec: JsonMapping) -> float | None:
        """How long one attempt may take."""
        limit = spec.get("time_limit_s")
        return None if limit is None else float(limit)

    def area(self, spec: JsonMapping, fence: Fence) -> str:
        return os.path.join(spec["target"], str(fence.job_id), str(fence.token))

    def run(self, ctx: AttemptContext) -> ManifestDescriptor:
        return Probe(ctx).run()

    def classify(self, exc: BaseException) -> Disposition:
        return failures.classify(exc)

    def clean(self, spec: JsonMapping, area: str) -> None:
        shutil.rmtree(area, ignore_errors=False) if os.path.isdir(area) else None
        try:
            os.rmdir(os.path.dirname(area))
        except OSError:
            return

    def verify(self, descriptor: ManifestDescriptor) -> Iterator[Problem]:
        manifest = Path(descriptor.location)
        text = manifest.read_bytes() if manifest.exists() else b""
        if hashlib.sha256(text).hexdigest() != descriptor.digest:
            yield Problem("manifest.json", "is not what was committed")
            return
        for member in json.loads(text)["members"]:
            file = manifest.parent / "files" / member["path"]
            if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != member["sha256"]:
                yield Problem(member["path"], "is not what the manifest says")

    def fetch(self, descriptor: ManifestDescriptor, dest: str, progress: FetchProgress) -> None:
        shutil.copytree(Path(descriptor.location).parent / "files", dest, dirs_exist_ok=True)
        progress(descriptor.bytes, descriptor.bytes)


def _validate_step(field: str, step: object) -> None:
    if not isinstance(step, dict) or step.get("do") not in _FIELDS:
        raise SpecInvalid(field, f"must be an object whose `do` is one of {', '.join(_FIELDS)}")
    fields = _FIELDS[step["do"]]
    for name in step:
        if name not in fields and name not in ("do", "tokens"):
            raise SpecInvalid(f"{field}.{name}", "unknown key")
    for name, kinds in fields.items():
        value = step.get(name)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise SpecInvalid(f"{field}.{name}", "is missing or of the wrong type")
        if isinstance(value, int | float) and not 0 <= value <= BYTES_MAX:
            raise SpecInvalid(f"{field}.{name}", f"must be within 0 and {BYTES_MAX}")
