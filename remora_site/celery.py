"""The Celery application: queues, reliability settings, and the names on the beat schedule. No logic.

A message is a hint. It may be lost, doubled or late; the durable store says what is true and the duties below
offer again what was lost. So messages are acknowledged early, results are not kept, and missed ticks expire.
"""

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")

from django.conf import settings

CONTROL_QUEUE = "control"

DUTIES_S = {
    "workers.project_dispatch": settings.REMORA_DISPATCH_S,
    "workers.reap_lost_attempts": settings.REMORA_REAPER_S,
    "workers.schedule_retries": settings.REMORA_RETRY_S,
    "workers.finalize_cancels": settings.REMORA_REAPER_S,
    "workers.collect_garbage": settings.REMORA_GC_S,
    "workers.clean_stages": settings.REMORA_STAGE_S,
    "workers.watch_incarnations": settings.REMORA_WATCHDOG_S,
    "credentials.reconcile_credentials": settings.REMORA_CREDENTIAL_S,
}

DUTY_LATE_S = 10

app = Celery("remora")
app.conf.update(
    broker_url=settings.REDIS_URL or "redis://127.0.0.1:1/0",
    broker_connection_retry=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # for ever: a worker must hear again whenever Redis returns
    broker_transport_options={
        "global_keyprefix": settings.REMORA_BROKER_PREFIX,
        "socket_timeout": 10,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 5,
        "visibility_timeout": 300,
    },
    # A publish fails within seconds while Redis is away; the dispatch duty offers again what got lost.
    task_publish_retry_policy={
        "max_retries": 1,
        "interval_start": 0.1,
        "interval_step": 0.2,
        "interval_max": 0.3,
    },
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_acks_late=False,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,  # take a message only when a process is free for it
    worker_concurrency=settings.REMORA_LOCAL_LIMIT,
    worker_cancel_long_running_tasks_on_connection_loss=False,  # losing Redis must not kill what is running
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    task_default_queue=CONTROL_QUEUE,
    task_create_missing_queues=True,
    task_routes={name: {"queue": CONTROL_QUEUE} for name in DUTIES_S},
    timezone="UTC",
    enable_utc=True,
    beat_scheduler="django_celery_beat.schedulers:DatabaseScheduler",
    beat_max_loop_interval=5,
    beat_schedule={
        name: {
            "task": name,
            "schedule": float(period_s),
            # Ticks that nobody took pile up no further than this, and a control worker that is late by a few
            # seconds still runs each duty. The word is the database scheduler's for `expires`.
            "options": {"queue": CONTROL_QUEUE, "expire_seconds": max(3 * period_s, DUTY_LATE_S)},
        }
        for name, period_s in DUTIES_S.items()
    },
)
app.autodiscover_tasks()


@setup_logging.connect(weak=False)
def use_the_projects_logging(**_: Any) -> None:
    """Celery would otherwise put its own handlers and format on every process."""
    logging.config.dictConfig(settings.LOGGING)
