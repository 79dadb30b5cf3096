"""The line between a supervisor and its host, or a worker's main process and its slots: JSON objects, one a
line.

Both ends belong to one deployment on one machine, so a line that is too long or is not JSON is a defect and
ends the connection; it is never skipped.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from typing import Any, Final

Message = dict[str, Any]
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024


class LineClosed(Exception):
    """The other end is gone."""


class Line:
    """One end. Any thread may send; one thread reads."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._pending = bytearray()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send one message, waiting while the other end does not read; LineClosed when there is none."""
        data = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        if len(data) > LINE_BYTES_MAX:
            raise ValueError(f"a message of {len(data)} bytes is longer than a line may be")
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            raise LineClosed from error

    def read(self) -> list[Message]:
        """Wait for bytes, then give the messages that are complete, maybe none; LineClosed at the end."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise LineClosed from error
        if not data:
            raise LineClosed
        self._pending += data
        if b"\n" not in data:
            if len(self._pending) > LINE_BYTES_MAX:
                raise LineClosed
            return []
        *complete, rest = self._pending.split(b"\n")
        self._pending = bytearray(rest)
        return [json.loads(line) for line in complete]

    def wait(self, timeout_s: float) -> list[Message]:
        """The messages that arrive within `timeout_s`, at least one; LineClosed at the end, TimeoutError if
        none.
        """
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([self], [], [], left_s)
            if readable and (messages := self.read()):
                return messages
        raise TimeoutError

    def close(self) -> None:
        self._socket.close()
