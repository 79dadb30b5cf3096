"""A Redis of a test's own, to be wiped, restarted, filled up and frozen without anybody else noticing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import redis

from remora_site.stack.redis_server import program
from tests.freezing import freeze, thaw
from tests.waiting import wait_until

PASSWORD = "pa%ss/wörd"
START_S = 10.0


class PrivateRedis:
    """One redis-server on a socket in `directory`. What it saves stays there between its lives."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "redis.sock"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://:pa%25ss%2Fw%C3%B6rd@{self.socket}"

    @property
    def raw(self) -> redis.Redis:
        """A client of the test's own, past the store."""
        return redis.Redis(
            unix_socket_path=str(self.socket),
            password=PASSWORD,
            decode_responses=True,
            encoding_errors="surrogateescape",
        )

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(str(program("redis-server")), "--port", "0", "--unixsocket", str(self.socket)),
                *("--dir", str(self._directory), "--save", "", "--requirepass", PASSWORD),
                *("--maxmemory-policy", "noeviction"),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._answers, START_S, "a private Redis answers")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None
        self.socket.unlink(missing_ok=True)

    def freeze(self) -> None:
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        assert self._process is not None
        thaw(self._process.pid)

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self.kill()

    def _answers(self) -> bool:
        try:
            return bool(self.raw.ping())
        except redis.RedisError:
            return False
