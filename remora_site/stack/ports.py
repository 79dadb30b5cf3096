"""Free ports of 127.0.0.1: those kept from the last start if nobody has taken them since, else new ones."""

import socket
import threading
from contextlib import ExitStack

HOST = "127.0.0.1"
_given_out: set[int] = set()
_one_at_a_time = threading.Lock()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lingering connections do not count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose(count: int, kept: list[int]) -> list[int]:
    """As many ports as asked for; services that start side by side never get the same one."""
    with _one_at_a_time:
        if len(kept) == count and all(is_free(port) and port not in _given_out for port in kept):
            _given_out.update(kept)
            return kept
        chosen: list[int] = []
        with ExitStack() as held:
            while len(chosen) < count:
                probe = held.enter_context(socket.socket())
                probe.bind((HOST, 0))
                port: int = probe.getsockname()[1]
                if port not in _given_out:
                    chosen.append(port)
        _given_out.update(chosen)
        return chosen


def forget(ports: list[int]) -> None:
    """The service that held these is gone."""
    with _one_at_a_time:
        _given_out.difference_update(ports)
