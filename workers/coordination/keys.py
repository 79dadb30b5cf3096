"""Every Redis key of the CoordinationStore, all with one hash tag, built here and nowhere else.

Facts of all jobs share a few keys instead of having keys of their own, so that a script's KEYS never depend
on what it finds, a job that is gone leaves no key behind, and garbage is found by scanning these keys and
not the whole server.

* permits   hash: `lease/<job>`, `reservation/<job>` -> fact; `@epoch`. THE truth about permits. The epoch
            lives in the key whose loss it witnesses: whatever takes the leases takes the epoch too.
* index     sorted set of what permits holds, by queue, concurrency key and incarnation: to count by range
* lease_due, reservation_due   sorted sets of the jobs in permits, by deadline: to find what has lapsed
* markers   hash: job -> the offer of its next attempt
* notices   hash: job -> the token that was told of a cancel
* progress  hash: job -> the last report
* presence  hash: incarnation -> deadline; `@watch` -> since when, and when it was last looked at

`index` and the two `due` can be rebuilt from `permits` at any time, and are, whenever their sizes disagree
with it.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES = ("permits", "index", "lease_due", "reservation_due", "markers", "notices", "progress", "presence")
JOB_HASHES = ("permits", "markers", "notices", "progress")
"""The keys whose fields name jobs."""


@dataclass(frozen=True, slots=True)
class CoordinationKeys:
    """The keys under one prefix, such as `{remora}:`. The braces make them one slot of a cluster."""

    prefix: str

    def __post_init__(self) -> None:
        opened, closed = self.prefix.find("{"), self.prefix.find("}")
        if opened < 0 or closed <= opened + 1:
            raise ValueError(f"The prefix {self.prefix!r} has no hash tag, such as {{remora}}:.")

    def key(self, name: str) -> str:
        if name not in NAMES:
            raise ValueError(f"There is no coordination key named {name!r}.")
        return self.prefix + name

    def all(self) -> tuple[str, ...]:
        return tuple(self.key(name) for name in NAMES)
