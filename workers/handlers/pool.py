"""A bounded pool of threads for pieces of work that wait for disks: small copies, and proofs of adopted
files.

The thread of `run` submits pieces and takes finished ones back in the order they finish; everything that
needs the attempt's context, or the directories, happens there. A piece never raises into the pool: it keeps
its failure.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final, Generic, Protocol, TypeVar

TAKE_WAIT_S: Final = 0.1
IN_FLIGHT_PER_THREAD: Final = 4


class Interrupted(Exception):
    """A piece gave up because the pool is closing."""


class Piece(Protocol):
    failure: Exception | None

    def work(self, stop: Event) -> None:
        """Do it. Looks at `stop` at least once a chunk and raises Interrupted."""

    def release(self) -> None:
        """Close what it holds open. Idempotent; also called for a piece that never began."""


PieceT = TypeVar("PieceT", bound=Piece)


class WaitingPool(Generic[PieceT]):
    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="transfer")
        self._finished: queue.SimpleQueue[PieceT] = queue.SimpleQueue()
        self._in_flight: dict[int, PieceT] = {}
        self._in_flight_max = threads * IN_FLIGHT_PER_THREAD
        self._stop = Event()

    def submit(self, piece: PieceT) -> None:
        self._in_flight[id(piece)] = piece
        self._executor.submit(self._work, piece)

    def finished(self, check: Callable[[], None], *, all_of_them: bool = False) -> Iterator[PieceT]:
        """Pieces that are done; waits only while there is no room for another (or for all, if so asked)."""
        room_at = 0 if all_of_them else self._in_flight_max - 1
        while self._in_flight:
            check()
            must_wait = len(self._in_flight) > room_at
            try:
                piece = self._finished.get(timeout=TAKE_WAIT_S) if must_wait else self._finished.get_nowait()
            except queue.Empty:
                if must_wait:
                    continue
                return
            del self._in_flight[id(piece)]
            yield piece

    def close(self) -> list[PieceT]:
        """Stop everything and wait until no thread touches a file any more; the pieces that nobody took
        back.
        """
        self._stop.set()
        self._executor.shutdown(wait=True, cancel_futures=True)
        left = list(self._in_flight.values())
        self._in_flight.clear()
        for piece in left:
            piece.release()
        return left

    def _work(self, piece: PieceT) -> None:
        try:
            piece.work(self._stop)
        except Exception as exc:
            piece.failure = exc
        finally:
            piece.release()
            self._finished.put(piece)
