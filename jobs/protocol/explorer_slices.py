"""Each distinct slice of one job, numbered once, with all that was ever asked of it remembered by that
number.

A slice is judged once, when it is numbered, and a step of a slice once, when it is first taken. Components
that a step left alone are the same objects as before, so they are known by identity and need not be hashed
again.
"""

from array import array
from typing import Any, Final

from jobs.protocol import recovery
from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS
from jobs.protocol.explorer_steps import JobSteps, Labels, Steps
from jobs.protocol.invariants import broken, usage_of
from jobs.protocol.properties import broken_step
from jobs.protocol.quiescence import quiescent
from jobs.protocol.records import JobView, Usage, WorkerRecord

REFUSED: Final = -1
UNKNOWN: Final = -2
Flat = tuple[int, ...]
"""Steps as label, slice, label, slice, ...: an int object that is shared costs nothing."""


class Slices:
    """The slices found so far. `remember` is whether a slice can be met again in another world."""

    def __init__(self, bounds: Bounds, labels: Labels, *, remember: bool) -> None:
        self._steps = JobSteps(bounds, labels)
        self._limits, self._worker_ids, self._remember = bounds.limits, bounds.worker_ids, remember
        # With one job the permits in use follow from its slice, so remembering them apart gains nothing.
        self._remember_permits = remember and bounds.jobs > 1
        self._components: dict[Any, int] = {}
        self._by_identity: dict[int, int] = {}
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._usages: dict[int, int] = {}
        self._usages_seen: dict[int, list[Usage]] = {}
        self.views: list[JobView] = []
        self.usage: list[int] = []
        self.quiescent = bytearray()
        self.broken: dict[int, list[str]] = {}
        self.broken_steps: dict[tuple[int, int], list[str]] = {}
        self._of_view: list[Flat | None] = []
        self._of_worker: dict[int, Flat] = {}
        self._of_permits: dict[int, Flat] = {}
        self._ticked = array("q")
        self._lost = array("q")
        self._stopped = {worker_id: array("q") for worker_id in bounds.worker_ids}

    def number(self, view: JobView) -> int:
        """The number of this slice, which is given out and judged when it is first met."""
        # The identity of an object that is kept alive can belong to no other object.
        known = self._by_identity
        if (job := known.get(id(view.job))) is None:
            job = self._component(view.job)
        if (attempts := known.get(id(view.attempts))) is None:
            attempts = self._component(view.attempts)
        if (coordination := known.get(id(view.coordination))) is None:
            coordination = self._component(view.coordination)
        packed = job | attempts << 24 | coordination << 48
        number = self._numbers.get(packed)
        if number is None:
            kept = self._kept
            number = self._add(packed, JobView(kept[job], kept[attempts], kept[coordination]))
        return number

    def _component(self, part: Any) -> int:
        number = self._components.get(part)
        if number is None:
            number = self._components[part] = len(self._kept)
            self._by_identity[id(part)] = number
            self._kept.append(part)
        return number

    def _add(self, packed: int, view: JobView) -> int:
        number = self._numbers[packed] = len(self.views)
        self.views.append(view)
        self._of_view.append(None)
        for slices_after in (self._ticked, self._lost, *self._stopped.values()):
            slices_after.append(UNKNOWN)
        usage = self._packed_usage(view)
        self.usage.append(self._usages.setdefault(usage, usage))
        self.quiescent.append(quiescent(view))
        if names := broken(view, self._limits) + broken_step(view, view, self._limits):
            self.broken[number] = names
        return number

    def _packed_usage(self, view: JobView) -> int:
        """Permits taken, eight bits each: all of them lowest, then each worker's. Those of several jobs add
        up.
        """
        packed = 0
        for position, worker_id in enumerate(self._worker_ids, start=1):
            usage = usage_of(view, worker_id)
            packed |= usage.global_used | usage.local_used << 8 * position
        return packed

    def unpacked_usages(self, packed: int) -> list[Usage]:
        """The permits as each worker's request for one sees them."""
        found = self._usages_seen.get(packed)
        if found is None:
            found = self._usages_seen[packed] = [
                Usage(packed & 255, packed >> 8 * position & 255)
                for position in range(1, len(self._worker_ids) + 1)
            ]
        return found

    def of_view(self, number: int) -> Flat:
        found = self._of_view[number]
        if found is None:
            found = self._flat(number, self._steps.of_view(self.views[number]))
            if self._remember:
                self._of_view[number] = found
        return found

    def of_worker(self, number: int, record: int, worker: WorkerRecord) -> Flat:
        """`record` is the number of `worker`'s record among all that were met."""
        key = number << 12 | record
        found = self._of_worker.get(key)
        if found is None:
            found = self._flat(number, self._steps.of_worker(self.views[number], worker))
            if self._remember:
                self._of_worker[key] = found
        return found

    def of_permits(self, number: int, record: int, worker: WorkerRecord, usage: Usage) -> Flat:
        key = ((number << 12 | record) << 8 | usage.global_used) << 8 | usage.local_used
        found = self._of_permits.get(key)
        if found is None:
            found = self._flat(number, self._steps.of_permits(self.views[number], worker, usage))
            if self._remember_permits:
                self._of_permits[key] = found
        return found

    def _flat(self, number: int, steps: Steps) -> Flat:
        flat: list[int] = []
        for label, after in steps:
            flat += (label, self._stepped(number, after))
        return tuple(flat)

    def _stepped(self, number: int, view: JobView) -> int:
        after = self.number(view)
        if names := broken_step(self.views[number], self.views[after], self._limits):
            self.broken_steps[number, after] = names
        return after

    def ticked(self, number: int) -> int:
        """The slice one unit of time later, or REFUSED if no time can pass for it."""
        found = self._ticked[number]
        if found == UNKNOWN:
            decision = ACTIONS["Tick"].function(self.views[number], self._limits)
            found = self._stepped(number, decision.value) if decision.accepted else REFUSED
            self._ticked[number] = found
        return found

    def lost(self, number: int) -> int:
        """The slice after the CoordinationStore was wiped."""
        found = self._lost[number]
        if found == UNKNOWN:
            after = ACTIONS["LoseCoordinationState"].function(self.views[number])
            found = self._lost[number] = self._stepped(number, after)
        return found

    def stopped(self, number: int, worker_id: str) -> int:
        """The slice after `worker_id` has crashed."""
        found = self._stopped[worker_id][number]
        if found == UNKNOWN:
            after = recovery.stop_attempts_of(self.views[number], worker_id)
            found = self._stopped[worker_id][number] = self._stepped(number, after)
        return found
