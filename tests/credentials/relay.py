"""A real relay between Remora and Vault: it can lose an answer, pass nothing on, or hold a request and send
it late.

It speaks HTTP just well enough to tell one request from the next, and passes bytes on unchanged.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Held:
    """A request that was taken and not passed on. `send` passes it on and returns Vault's answer."""

    raw: bytes
    upstream: tuple[str, int]

    def send(self) -> bytes:
        with socket.create_connection(self.upstream, timeout=10) as server:
            server.sendall(self.raw)
            return read_message(server)


@dataclass
class Fault:
    """What to do with the next request that fits, once."""

    fits: Callable[[bytes], bool]
    kind: str  # "cut" before Vault, "lose" the answer, "hold" the request, "answer" with something else
    answer: bytes = b""
    done: threading.Event = field(default_factory=threading.Event)
    held: list[Held] = field(default_factory=list)


class Relay:
    def __init__(self, vault_addr: str) -> None:
        parts = urlsplit(vault_addr)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.faults: list[Fault] = []
        self.seen: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self, kind: str, method: str = "", part: str = "", answer: bytes = b"") -> Fault:
        """Put a fault on the next request with this method whose path has this part."""

        def fits(raw: bytes) -> bool:
            line = raw.split(b"\r\n", 1)[0].decode()
            return line.startswith(method.upper()) and part in line

        self.faults.append(Fault(fits, kind, answer))
        return self.faults[-1]

    def lines(self) -> list[str]:
        """The request lines that came, in order."""
        return [raw.split(b"\r\n", 1)[0].decode() for raw in self.seen]

    def close(self) -> None:
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with contextlib.suppress(OSError), client:
            while raw := read_message(client):
                self.seen.append(raw)
                fault = next((fault for fault in self.faults if fault.fits(raw)), None)
                if fault is None:
                    client.sendall(Held(raw, self.upstream).send())
                    continue
                self.faults.remove(fault)
                if not self._apply(fault, raw, client):
                    break
        self._open.discard(client)

    def _apply(self, fault: Fault, raw: bytes, client: socket.socket) -> bool:
        """False if the connection is to be closed without an answer."""
        held = Held(raw, self.upstream)
        if fault.kind == "answer":
            client.sendall(fault.answer)
        elif fault.kind == "lose":
            held.send()
        elif fault.kind == "hold":
            fault.held.append(held)
            fault.done.set()
            client.recv(1)  # until the client has given up: no answer, and no sign that there will be none
        fault.done.set()
        return fault.kind == "answer"


def read_message(source: socket.socket) -> bytes:
    """One HTTP message, request or answer."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        more = source.recv(65536)
        if not more:
            return b""
        raw += more
    head, _, body = raw.partition(b"\r\n\r\n")
    headers = head.lower()
    if b"transfer-encoding: chunked" in headers:
        while not body.endswith(b"0\r\n\r\n"):
            body += source.recv(65536)
        return head + b"\r\n\r\n" + body
    length = 0
    for line in headers.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = source.recv(65536)
        if not more:
            return b""
        body += more
    return head + b"\r\n\r\n" + body


def http_answer(status: int, body: str, *headers: str) -> bytes:
    """An answer that Vault might give, or something in front of it."""
    lines = [
        f"HTTP/1.1 {status} x",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()
