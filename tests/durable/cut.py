"""A relay in front of PostgreSQL that cuts a connection in the middle of COMMIT: before it, or before its
answer.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from django.db import connection

COMMIT = b"Q" + struct.pack("!I", 4 + len(b"COMMIT\0")) + b"COMMIT\0"


class CuttingRelay:
    """Passes bytes on. `cut_next("before" | "after")` cuts once: the next COMMIT is lost, or its answer."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self.cuts = 0
        self._next = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, when: str) -> None:
        self._next = when

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.upstream) as server:
            back = threading.Thread(target=self._pass, args=(server, client, False), daemon=True)
            back.start()
            self._pass(client, server, True)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if from_client and self._next and data.startswith(COMMIT):
                    self._cut(source, sink, data)
                    return
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        when, self._next = self._next, ""
        self.cuts += 1
        if when == "before":
            server.shutdown(socket.SHUT_RDWR)
        client.shutdown(socket.SHUT_RDWR)  # nobody hears the answer
        if when == "after":
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)  # read after the COMMIT, which is carried out


@contextlib.contextmanager
def through_relay() -> Iterator[CuttingRelay]:
    """This thread's connection goes through a relay meanwhile."""
    settings: dict[str, Any] = connection.settings_dict
    kept = {name: settings[name] for name in ("HOST", "PORT")}
    relay = CuttingRelay((kept["HOST"], int(kept["PORT"])))
    connection.close()
    settings.update(HOST="127.0.0.1", PORT=relay.port)
    try:
        yield relay
    finally:
        connection.close()
        settings.update(kept)
        relay.close()
