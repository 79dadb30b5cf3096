"""Waiting for what a test expects: until it is so, with a deadline, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")
POLL_S = 0.02


def wait_until(condition: Callable[[], Seen], timeout_s: float, what: str) -> Seen:
    """The first answer that counts as true; else the test fails and says what did not happen."""
    deadline = time.monotonic() + timeout_s
    pause = POLL_S
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {timeout_s} s: {what} (last seen: {seen!r})")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.2)
