"""The stack as a whole: up, down, status. One process at a time per home, the services side by side."""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from remora_site.keeping import write_private
from remora_site.stack.addresses import FILE_NAME, Addresses
from remora_site.stack.openbao import OpenBao
from remora_site.stack.postgres import Postgres
from remora_site.stack.redis_server import RedisServer
from remora_site.stack.service import Deadline, Service, StackFailure, make_directory

START_S = 60.0
LOCK_POLL_S = 0.05
SERVICES: tuple[type[Service], ...] = (Postgres, RedisServer, OpenBao)


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """One service as a person or a program wants to see it."""

    name: str
    title: str
    state: str  # running | silent (alive, does not answer) | stopped | external
    pid: int | None = None
    port: int | None = None
    version: str | None = None
    uptime_s: int | None = None
    log: str | None = None
    why: str | None = None


def up(home: Path, timeout_s: float = START_S) -> list[ServiceReport]:
    """Make every service answer that is not somebody else's; a failed call stops what it started."""
    make_directory(home)
    services = [service for service in _services(home) if not _external(service)]
    abandoned = threading.Event()
    with _alone(home, timeout_s):
        deadline = Deadline.after(timeout_s, abandoned)
        try:
            _side_by_side(services, lambda service: service.start(deadline), abandoned)
        except BaseException:
            _forget_addresses_of_the_dead(home, services)
            raise
        known = Addresses()
        for service in services:
            own = {field: value for field, value in asdict(service.addresses()).items() if value}
            known = Addresses(**(asdict(known) | own))
        write_private(home / FILE_NAME, json.dumps(asdict(known)))
    return status(home)


def down(home: Path, timeout_s: float = START_S) -> list[str]:
    """Make sure that none of the services runs; the names of those that did."""
    if not home.is_dir():
        return []
    services = _services(home)
    with _alone(home, timeout_s):
        (home / FILE_NAME).unlink(missing_ok=True)
        ran = _side_by_side(services, lambda service: service.stop(), threading.Event())
    return [service.name for service in services if ran[service.name]]


def status(home: Path) -> list[ServiceReport]:
    return [_report(service) for service in _services(home)]


def _services(home: Path) -> list[Service]:
    fast = os.environ.get("REMORA_STACK_FAST", "") not in ("", "0", "no", "false", "off")
    return [service(home, fast) for service in SERVICES]


def _external(service: Service) -> bool:
    return bool(os.environ.get(service.variable))


def _report(service: Service) -> ServiceReport:
    if _external(service):
        return ServiceReport(service.name, service.title, "external", why=f"{service.variable} is set")
    if not service.is_alive():
        return ServiceReport(service.name, service.title, "stopped")
    facts = service.facts()
    answers = service.answers()
    return ServiceReport(
        service.name,
        service.title,
        "running" if answers else "silent",
        pid=facts.get("pid"),
        port=service.port,
        version=service.version() if answers else None,
        uptime_s=max(0, round(time.time() - facts.get("started_at", time.time()))),
        log=str(service.log),
    )


def _side_by_side(
    services: list[Service], act: Callable[[Service], bool], abandoned: threading.Event
) -> dict[str, bool]:
    """Do it to all at once. The first failure makes the others give up, and those already done are undone."""
    answers: dict[str, bool] = {}
    failures: list[BaseException] = []

    def one(service: Service) -> None:
        try:
            answers[service.name] = act(service)
        except BaseException as error:
            failures.append(error)
            abandoned.set()

    with ThreadPoolExecutor(max_workers=max(1, len(services))) as pool:
        try:
            list(pool.map(one, services))
        except BaseException as error:  # Ctrl-C reaches the thread that waits
            abandoned.set()
            failures.insert(0, error)
    if failures:
        for service in services:
            if answers.get(service.name):
                service.stop()
        raise failures[0]
    return answers


def _forget_addresses_of_the_dead(home: Path, services: list[Service]) -> None:
    if not all(service.is_alive() for service in services):
        (home / FILE_NAME).unlink(missing_ok=True)


@contextmanager
def _alone(home: Path, timeout_s: float) -> Iterator[None]:
    """Only one process at a time changes the stack of a home; a second `up` waits, then finds all running."""
    handle = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = Deadline.after(timeout_s)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.passed():
                    why = f"another process has been starting or stopping it for {timeout_s:.0f} s"
                    raise StackFailure("The stack", why, home / "stack.lock") from None
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(handle)
