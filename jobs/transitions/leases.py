"""RegrantLease, its durable half: the row is held while the script grants the lease again."""

from __future__ import annotations

from collections.abc import Callable

from jobs import protocol, store
from jobs.protocol import CoordinationRecord, Fence, JobView, LeaseRecord, Usage
from jobs.protocol.states import LeaseState
from jobs.store import Batch
from jobs.values import Answer, Declined


def regrant_lease(fence: Fence, grant: Callable[[], None]) -> Answer[JobView]:
    """Call `grant` (the script) for an attempt whose lease was lost, if it is still due, under the job's
    row lock.

    Without the lock a reaper could revoke the authority between the read and the script. Permits are the
    script's to count, so none are counted here. Writes nothing; `grant` may be called twice if the
    transaction is repeated.
    """

    def work(batch: Batch) -> Answer[JobView]:
        found = batch.find_attempt(fence)
        if isinstance(found, Declined):
            return found
        job, _ = found
        job.see(CoordinationRecord(leases=(LeaseRecord(fence.token, LeaseState.LOST),)))
        unused, limits = Usage(0, 0), job.limits(fence.token)
        decision = protocol.regrant_lease(job.view, fence.token, job.worker_of(fence.token), unused, limits)
        job.see(CoordinationRecord())
        if decision.accepted:
            grant()
        return decision

    return store.act([store.job_of(fence)], work, fences=[fence])
