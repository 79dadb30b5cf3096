"""Asks from another connection whether a row is locked."""

from __future__ import annotations

import threading

from django.db import connection, transaction

from jobs.ids import JobId
from jobs.models import Job


def is_locked(job_id: JobId) -> bool:
    found: list[bool] = []

    def look() -> None:
        try:
            with transaction.atomic():
                rows = Job.objects.filter(id=job_id).select_for_update(skip_locked=True)
                found.append(not rows.values_list("id"))
        finally:
            connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]
