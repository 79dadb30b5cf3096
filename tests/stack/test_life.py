"""The embedded stack is started, started again, stopped and hurt; what it holds is kept."""

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg2
import pytest
import redis

from remora_site import stack
from remora_site.stack.openbao import OpenBao
from remora_site.stack.postgres import Postgres
from remora_site.stack.redis_server import RedisServer
from tests.stack.conftest import Manage, one_line, pids
from tests.waiting import wait_until


def execute(home: Path, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(stack.read_addresses(home).database_url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_what_the_servers_hold_survives_a_restart(home: Path) -> None:
    stack.up(home)
    execute(home, "CREATE TABLE kept AS SELECT 7 AS n")
    bao = OpenBao(home, fast=True)
    bao._call("POST", "/v1/secret/data/kept", {"data": {"word": "otter"}})
    assert sorted(stack.down(home)) == ["openbao", "postgres", "redis"]
    assert stack.read_addresses(home) == stack.Addresses()

    reports = stack.up(home)

    assert {report.state for report in reports} == {"running"}
    assert execute(home, "SELECT n FROM kept") == [(7,)]
    assert bao._call("GET", "/v1/secret/data/kept")["data"]["data"] == {"word": "otter"}
    audited = (home / "openbao" / "audit.log").read_text()
    assert "secret/data/kept" in audited
    assert "otter" not in audited


def test_redis_keeps_its_keys_where_durability_is_not_traded_for_speed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMORA_STACK_FAST")
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/x")
    monkeypatch.setenv("VAULT_ADDR", "http://elsewhere")
    for word in ("first", "second"):
        stack.up(home)
        with redis.Redis.from_url(stack.read_addresses(home).redis_url) as client:
            assert client.get("word") == (b"first" if word == "second" else None)
            client.set("word", word)
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        stack.down(home)


def test_starting_twice_and_at_the_same_time_makes_one_stack(home: Path) -> None:
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: pids(stack.up(home)), range(2))
    assert first == second == pids(stack.up(home))
    assert None not in first.values()


def test_servers_killed_without_warning_start_again_with_their_data(home: Path) -> None:
    before = pids(stack.up(home))
    execute(home, "CREATE TABLE kept AS SELECT 7 AS n")
    for pid in before.values():
        os.kill(int(pid or 0), signal.SIGKILL)
    services = [service(home, True) for service in (Postgres, RedisServer, OpenBao)]
    wait_until(lambda: not any(service.is_alive() for service in services), 10, "the killed servers are gone")
    assert {report.state for report in stack.status(home)} == {"stopped"}

    after = pids(stack.up(home))

    assert not set(before.values()) & set(after.values())
    assert execute(home, "SELECT n FROM kept") == [(7,)]


def test_a_port_taken_meanwhile_is_chosen_again(home: Path) -> None:
    before = {report.name: report.port for report in stack.up(home)}
    stack.down(home)
    with socket.create_server(("127.0.0.1", int(before["redis"] or 0))):
        after = {report.name: report.port for report in stack.up(home)}
        assert after["redis"] != before["redis"]
        assert after["postgres"] == before["postgres"]
        with redis.Redis.from_url(stack.read_addresses(home).redis_url) as client:
            assert client.ping()


def test_down_leaves_no_process_and_says_what_it_stopped(home: Path, manage: Manage) -> None:
    started = pids(stack.up(home))
    assert sorted(one_line(manage("stack", "down", "--json"))["stopped"]) == sorted(started)  # type: ignore[call-overload]
    wait_until(lambda: not any(psutil.pid_exists(pid or 0) for pid in started.values()), 10, "all are gone")
    assert one_line(manage("stack", "down", "--json")) == {"stopped": []}


def test_nobody_else_may_read_what_is_secret(home: Path) -> None:
    stack.up(home)
    open_to_others = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.is_file()
        and path.stat().st_mode & 0o077
        and "data" not in path.parts
        and "raft" not in path.parts
    }
    assert not open_to_others
    for private in (home / "postgres" / "data", home / "openbao" / "raft"):
        assert private.stat().st_mode & 0o077 == 0
    with pytest.raises(psycopg2.OperationalError, match="password"):
        psycopg2.connect(stack.read_addresses(home).database_url.replace("remora:", "remora:x"))
    with redis.Redis(port=RedisServer(home, True).port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
