"""The operators' pages: jobs and worker incarnations, to look at, and one thing to do: cancel.

Nothing of the protocol can be edited here; every change goes through jobs.transitions like everybody
else's. The pages live in this app because they show durable facts and Redis' hints side by side, and jobs
knows no Redis.
"""

from workers.admin.fleet import WorkerIncarnationAdmin
from workers.admin.jobs import JobAdmin

__all__ = ["JobAdmin", "WorkerIncarnationAdmin"]
