"""The Celery configuration against a real broker that dies, comes back empty, and is shared."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from celery import Celery
from django.conf import settings
from kombu.exceptions import OperationalError

from remora_site import stack
from remora_site.celery import app as project_app
from remora_site.stack.redis_server import RedisServer
from remora_site.stack.service import Deadline
from tests.stack.conftest import PROJECT
from tests.waiting import wait_until

PORTABLE = (
    "broker_connection_retry", "broker_connection_retry_on_startup", "broker_connection_max_retries",
    "broker_transport_options", "task_publish_retry_policy", "accept_content", "task_serializer",
    "task_ignore_result", "task_acks_late", "worker_prefetch_multiplier", "worker_disable_prefetch",
    "worker_cancel_long_running_tasks_on_connection_loss", "task_default_queue",
)  # fmt: skip


@pytest.fixture
def broker(home: Path, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/x")
    monkeypatch.setenv("VAULT_ADDR", "http://elsewhere")
    stack.up(home)
    return RedisServer(home, fast=True)


def configuration(broker: RedisServer) -> dict[str, Any]:
    return {"broker_url": broker.addresses().redis_url} | {name: project_app.conf[name] for name in PORTABLE}


@contextmanager
def worker(broker: RedisServer, log: Path) -> Iterator[None]:
    variables = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    variables["ECHO_CONFIGURATION"] = json.dumps(configuration(broker))
    command = [sys.executable, "-m", "celery", "--app", "tests.stack.echo", "worker", "--concurrency", "1"]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=output, stderr=output)
    try:
        yield
    finally:
        family = [process, *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            member.kill()
        process.wait(20)


def said(broker: RedisServer) -> list[bytes]:
    with redis.Redis.from_url(broker.addresses().redis_url) as client:
        return list(client.lrange("said", 0, -1))


def test_a_worker_hears_again_after_redis_died_and_came_back_empty(
    broker: RedisServer, tmp_path: Path
) -> None:
    sender = Celery("sender")
    sender.conf.update(configuration(broker))
    log = tmp_path / "worker.log"
    with worker(broker, log):
        sender.send_task("echo.say", ("before",))
        wait_until(lambda: said(broker) == [b"before"], 30, f"the worker hears at all, see {log}")

        broker.stop()
        with pytest.raises(OperationalError):
            sender.send_task("echo.say", ("during",))
        broker.start(Deadline.after(20))

        sender.send_task("echo.say", ("after",))
        wait_until(lambda: said(broker) == [b"after"], 30, f"the worker hears again, see {log}")
    sender.close()


def test_two_deployments_on_one_redis_do_not_hear_each_other(broker: RedisServer) -> None:
    assert (
        configuration(broker)["broker_transport_options"]["global_keyprefix"] == settings.REMORA_BROKER_PREFIX
    )
    prefixes = ("one-broker:", "two-broker:")
    for prefix in prefixes:
        sender = Celery("sender")
        options = {**configuration(broker)["broker_transport_options"], "global_keyprefix": prefix}
        sender.conf.update(configuration(broker) | {"broker_transport_options": options})
        sender.send_task("echo.say", (prefix,))
        sender.close()
    with redis.Redis.from_url(broker.addresses().redis_url) as client:
        assert {key.decode().partition(":")[0] + ":" for key in client.scan_iter()} == set(prefixes)


def test_every_duty_is_sent_to_the_control_queue_and_its_ticks_do_not_pile_up() -> None:
    schedule = project_app.conf.beat_schedule
    assert set(schedule) >= {
        "workers.project_dispatch",
        "workers.reap_lost_attempts",
        "workers.schedule_retries",
        "workers.finalize_cancels",
        "workers.collect_garbage",
        "workers.clean_stages",
        "workers.watch_incarnations",
    }
    for name, entry in schedule.items():
        assert 0 < entry["schedule"] < entry["options"]["expire_seconds"] <= max(3 * entry["schedule"], 10)
        assert entry["task"] == name
        assert project_app.amqp.router.route({}, name)["queue"].name == "control"
    routed = project_app.amqp.router.route({"queue": "jobs.default"}, "workers.run_attempt")
    assert routed["queue"].name == "jobs.default"
