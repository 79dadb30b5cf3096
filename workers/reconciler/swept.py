"""What a duty did, in counts; and how a duty goes through a batch that may hold a bad row."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError

from jobs.errors import DurableStoreUnavailable
from jobs.protocol import Accepted, Fence
from jobs.transitions import Offer
from jobs.values import Answer
from workers.coordination import CoordinationUnavailable
from workers.failpoints import failpoint

log = logging.getLogger(__name__)
R = TypeVar("R")

_NOTHING_DONE = frozenset({"seen", "grace", "epoch_too_young"})

# The last two are what a query that only reads raises when PostgreSQL is away.
Unavailable = (CoordinationUnavailable, DurableStoreUnavailable, OperationalError, InterfaceError)


@dataclass(frozen=True, slots=True)
class Swept:
    """One run of one duty. `counts` says what was seen and done; `set_aside` names rows that raised an
    error. `spare_offers` are for queues whose workers have nothing else to look at.
    """

    duty: str
    counts: Mapping[str, int] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()
    unavailable: str = ""
    dry_run: bool = False
    offers: tuple[Offer, ...] = ()
    spare_offers: tuple[Offer, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "duty": self.duty,
            **self.counts,
            "set_aside": list(self.set_aside),
            "unavailable": self.unavailable,
            "dry_run": self.dry_run,
        }


class Run:
    """One run being counted."""

    def __init__(self, duty: str, dry_run: bool) -> None:
        self.duty = duty
        self.dry_run = dry_run
        self.counts: Counter[str] = Counter()
        self.offers: list[Offer] = []
        self.spare_offers: list[Offer] = []
        self._set_aside: list[str] = []
        self._unavailable = ""

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] += number

    def set_aside(self, row: object, error: BaseException) -> None:
        """This row raised: it is reported, and the others go on. It is tried again with the next run."""
        log.error("RowSetAside", extra={"duty": self.duty, "row": str(row), "error": type(error).__name__})
        self._set_aside.append(f"{row}: {type(error).__name__}")

    def unavailable(self, error: BaseException) -> None:
        log.warning("DutyCutShort", extra={"duty": self.duty, "error": f"{type(error).__name__}: {error}"})
        self._unavailable = type(error).__name__

    def act(self, rows: Sequence[R], call: Callable[[Sequence[R]], list[Answer[Any]]], done: str) -> list[R]:
        """Act on a batch; if it raises, on each row by itself. Gives the rows that were accepted."""
        if not rows:
            return []
        if self.dry_run:
            self.count(f"would_{done}", len(rows))
            return []
        accepted: list[R] = []
        self._reach(f"{done}.before", rows)
        answers = self._answers(rows, call)
        self._reach(f"{done}.after", rows)
        for row, answer in answers:
            if isinstance(answer, Accepted):
                self.count(done)
                accepted.append(row)
            else:
                self.count(f"refused_{answer.reason}".lower())
        return accepted

    def _reach(self, point: str, rows: Sequence[R]) -> None:
        for row in rows:
            failpoint(point, row.job_id if isinstance(row, Fence) else row)

    def _answers(
        self, rows: Sequence[R], call: Callable[[Sequence[R]], list[Answer[Any]]]
    ) -> list[tuple[R, Answer[Any]]]:
        try:
            return list(zip(rows, call(rows), strict=True))
        except Unavailable:
            raise
        except Exception as error:
            if len(rows) == 1:
                self.set_aside(rows[0], error)
                return []
            return [pair for row in rows for pair in self._answers([row], call)]

    def swept(self) -> Swept:
        did = any(number for name, number in self.counts.items() if name not in _NOTHING_DONE)
        if did or self._set_aside:
            log.info(self.duty, extra={"counts": dict(self.counts), "dry_run": self.dry_run})
        return Swept(
            self.duty,
            dict(self.counts),
            tuple(self._set_aside),
            self._unavailable,
            self.dry_run,
            tuple(self.offers),
            tuple(self.spare_offers),
        )


def duty(name: str) -> Callable[[Callable[..., None]], Callable[..., Swept]]:
    """Make a duty of a function that counts into its first argument. Keyword arguments: rows_max, dry_run."""

    def wrap(body: Callable[..., None]) -> Callable[..., Swept]:
        def run(*args: Any, rows_max: int | None = None, dry_run: bool = False) -> Swept:
            from django.conf import settings

            counted = Run(name, dry_run)
            try:
                body(counted, *args, rows_max=rows_max or settings.REMORA_SWEEP_ROWS_MAX)
            except Unavailable as error:
                counted.unavailable(error)
            return counted.swept()

        run.__name__, run.__doc__ = body.__name__, body.__doc__
        return run

    return wrap
