"""Runs scripts over batches: one call per chunk, keys from keys.py, a fresh nonce for an epoch that may
have to begin.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from workers.coordination.connection import Call, Connection
from workers.coordination.facts import Epoch
from workers.coordination.keys import CoordinationKeys
from workers.coordination.scripts import Script, load_scripts

Element: TypeAlias = dict[str, str | int]
"""The arguments of one element, by the names in the script's header."""

NO_EPOCH = Epoch("", 0, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply per element, and the epoch they were given in: of several chunks, the youngest."""

    epoch: Epoch
    replies: list[Any]


class ScriptRunner:
    """The scripts, bound to one server and one prefix."""

    def __init__(self, connection: Connection, prefix: str, batch_max: int) -> None:
        if batch_max < 1:
            raise ValueError(f"batch_max={batch_max} is too small: at least 1.")
        self._connection = connection
        self._keys = CoordinationKeys(prefix)
        self.batch_max = batch_max

    def batch(self, name: str, given: Mapping[str, str | int], elements: Iterable[Element]) -> Answer:
        """Run a script over all elements, chunk by chunk. Without elements nothing is run."""
        epoch, replies = NO_EPOCH, []
        waiting = iter(elements)
        while chunk := list(islice(waiting, self.batch_max)):
            answer = read_answer(self._connection.run(self.call(name, given, chunk)))
            epoch = max(epoch, answer.epoch, key=lambda one: one.since_ms)
            replies.extend(answer.replies)
        return Answer(epoch, replies)

    def once(self, name: str, given: Mapping[str, str | int]) -> Answer:
        """Run a script that takes no elements."""
        return read_answer(self._connection.run(self.call(name, given, ())))

    def together(self, calls: Sequence[Call]) -> list[Answer]:
        """Run several calls in one round trip."""
        return [read_answer(raw) for raw in self._connection.run_together(calls)]

    def call(self, name: str, given: Mapping[str, str | int], elements: Iterable[Element]) -> Call:
        """One call, to be run together with others."""
        script: Script = load_scripts()[name]
        keys = [self._keys.key(key) for key in script.contract.keys]
        return Call(script, keys, script.arguments({"nonce": secrets.token_hex(8)} | dict(given), elements))


def read_answer(raw: Any) -> Answer:
    """What each() in lua/include/base.lua returns."""
    value, since_ms, now_ms, replies = raw
    return Answer(Epoch(value, since_ms, now_ms), replies)
