"""The connection to Redis: bounded in time, retried a little, never shared across a fork, its errors made
ours.

Every script is safe to run again, so a lost answer is asked for anew. What stays without an answer after
that is CoordinationUnavailable, with neither address nor password in its text.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from workers.coordination.errors import CoordinationBroken, CoordinationUnavailable
from workers.coordination.scripts import Script

UNAVAILABLE: Final = (
    "OOM ",
    "LOADING ",
    "READONLY ",
    "BUSY ",
    "MASTERDOWN ",
    "NOREPLICAS ",
    "MISCONF ",
    "CLUSTERDOWN ",
    "TRYAGAIN ",
    "NOAUTH ",
    "WRONGPASS ",
    "NOPERM ",
    "max number of clients",
)
"""What a server says that is up and will not work now. Inside a script the same words come with a prefix."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call may take: (retries + 1) tries of `timeout_ms`, with short pauses in between."""

    connect_ms: int = 1_000
    timeout_ms: int = 2_000
    retries: int = 1
    pause_ms: int = 50
    pause_max_ms: int = 500


@dataclass(frozen=True, slots=True)
class Call:
    """One script with its keys and arguments."""

    script: Script
    keys: Sequence[str]
    argv: Sequence[str | int]


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """A pool of connections to one server. Threads may share it."""

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        self._url = url
        self._patience = patience or Patience()
        self._made: redis.Redis | None = None
        _connections.add(self)

    def run(self, call: Call) -> Any:
        """One script call. A server that does not know the script yet (or any more) is sent its text."""
        with self._errors_made_ours():
            try:
                return self._redis.evalsha(call.script.sha, len(call.keys), *call.keys, *call.argv)
            except NoScriptError:
                return self._redis.eval(call.script.source, len(call.keys), *call.keys, *call.argv)

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Several script calls in one round trip, in order, each atomic by itself."""
        with self._errors_made_ours():
            answers = self._pipeline(calls)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                for script in {call.script.sha: call.script for call in calls}.values():
                    self._redis.script_load(script.source)
                answers = self._pipeline(calls)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers

    def close(self) -> None:
        """Close what is idle. The next call connects anew."""
        if self._made is not None:
            self._made.close()
            self._made.connection_pool.disconnect()

    def forget_after_fork(self) -> None:
        """In the child: the parent's sockets, and locks that its threads may hold, are not ours."""
        self._made = None

    def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for call in calls:
            pipeline.evalsha(call.script.sha, len(call.keys), *call.keys, *call.argv)
        return list(pipeline.execute(raise_on_error=False))

    @property
    def _redis(self) -> redis.Redis:
        if self._made is None:
            self._made = self._connect()
        return self._made

    def _connect(self) -> redis.Redis:
        patience = self._patience
        pause = ExponentialBackoff(cap=patience.pause_max_ms / 1000, base=patience.pause_ms / 1000)
        client: redis.Redis = redis.Redis.from_url(
            self._url,
            protocol=2,
            decode_responses=True,
            encoding_errors="surrogateescape",  # foreign bytes come in, and go out again as they were
            socket_connect_timeout=patience.connect_ms / 1000,
            socket_timeout=patience.timeout_ms / 1000,
            retry=Retry(pause, patience.retries, (RedisConnectionError, RedisTimeoutError)),
            driver_info=None,
        )
        return client

    @contextmanager
    def _errors_made_ours(self) -> Iterator[None]:
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise CoordinationUnavailable(self._scrubbed(error)) from None
        except ResponseError as error:
            text = self._scrubbed(error)
            if any(word in text for word in UNAVAILABLE):
                raise CoordinationUnavailable(text) from None
            raise CoordinationBroken(text) from None
        except RedisError as error:
            raise CoordinationBroken(self._scrubbed(error)) from None

    def _scrubbed(self, error: Exception) -> str:
        text = f"Redis: {error}" if str(error) else f"Redis: {type(error).__name__}"
        parts = urlsplit(self._url)
        secrets = [self._url, parts.netloc, parts.password or "", unquote(parts.password or "")]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "(redis)")
        return text[:500]


def _forget_all_after_fork() -> None:
    for connection in list(_connections):
        connection.forget_after_fork()


os.register_at_fork(after_in_child=_forget_all_after_fork)
