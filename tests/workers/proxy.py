"""A TCP proxy between one worker and one store, so that a partition is real and hits only that worker."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards connections to `url`'s server, until it is cut; then new ones are refused and old ones hang
    or end.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._mutex = threading.Lock()
        self._passing = threading.Event()
        self._passing.set()
        self._hanging = threading.Event()
        self._hanging.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The same address by way of this proxy."""
        credentials, _, _ = self._parts.netloc.rpartition("@")
        host, port = self._server.getsockname()[:2]
        return urlunsplit(self._parts._replace(netloc=f"{credentials}@{host}:{port}"))

    def cut(self) -> None:
        """End every connection, and every new one at once."""
        self._passing.clear()
        with self._mutex:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open = []

    def hang(self) -> None:
        """Let every connection live, and let nothing through."""
        self._hanging.clear()

    def mend(self) -> None:
        self._hanging.set()
        self._passing.set()

    def close(self) -> None:
        self.cut()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if not self._passing.is_set():
                near.close()
                continue
            try:
                far = socket.create_connection((self._parts.hostname or "", self._parts.port or 0))
            except OSError:
                near.close()
                continue
            with self._mutex:
                self._open += [near, far]
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while True:
                readable, _, _ = select.select([near, far], [], [])
                self._hanging.wait()
                for source in readable:
                    data = source.recv(65536)
                    if not data:
                        return
                    (far if source is near else near).sendall(data)
        near.close()
        far.close()
