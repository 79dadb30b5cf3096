"""The durable store's bulk statements: many rows changed by one UPDATE, many inserted by one INSERT.

Only jobs.store and jobs.submission call these. No session state, no cursor that outlives its transaction: a
pooler that hands out a connection per transaction must not notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.db import connection, models

PARAMETERS_MAX: Final = 30_000
"""Bound on one statement; longer lists are cut into several."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row's new values, and those under which it was decided: another row there now is a violation."""

    pk: Any
    held: Mapping[str, Any]
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inserts:
    """Where rows of one shape are inserted."""

    model: type[models.Model]
    names: tuple[str, ...]
    tail: str = ""


def update_rows(model: type[models.Model], rows: Sequence[RowChange]) -> int:
    """Write only what changed, where it is still as it was held; the number of rows found.

    One UPDATE ... FROM (VALUES ...) for all rows in which the same columns change.
    """
    alike: dict[tuple[str, ...], list[RowChange]] = {}
    for row in rows:
        alike.setdefault(tuple(sorted(row.changes)), []).append(row)
    return sum(_update_alike(model, names, group) for names, group in alike.items())


def _update_alike(model: type[models.Model], names: tuple[str, ...], rows: Sequence[RowChange]) -> int:
    fence = tuple(rows[0].held)
    columns = ("pk", *(f"new_{name}" for name in names), *(f"held_{name}" for name in fence))
    casts = (_cast(model, "pk"), *(_cast(model, n) for n in names), *(_cast(model, n) for n in fence))
    sets = ", ".join(f'"{_column(model, name)}" = given."new_{name}"' for name in names)
    where = " AND ".join(f'target."{_column(model, name)}" = given."held_{name}"' for name in fence)
    head = f'UPDATE "{model._meta.db_table}" AS target SET {sets} FROM (VALUES '  # noqa: S608
    given = ", ".join(_quoted(columns))
    tail = f') AS given({given}) WHERE target."{_column(model, "pk")}" = given.pk AND {where}'
    tuples = [(row.pk, *(row.changes[name] for name in names), *row.held.values()) for row in rows]
    return _execute_values(head, casts, tuples, tail)


def insert_rows(
    model: type[models.Model], names: Sequence[str], rows: Sequence[Sequence[Any]], tail: str = ""
) -> int:
    """INSERT ... VALUES; the number of rows inserted."""
    if not rows:
        return 0
    columns = ", ".join(_quoted(_column(model, name) for name in names))
    head = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES '  # noqa: S608
    return _execute_values(head, tuple(_cast(model, name) for name in names), rows, tail)


def insert_returning(
    model: type[models.Model],
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    returning: Sequence[str],
    tail: str = "",
) -> list[tuple[Any, ...]]:
    """INSERT ... VALUES ... RETURNING; these columns of the rows that were inserted."""
    answers: list[tuple[Any, ...]] = []
    columns = ", ".join(_quoted(_column(model, name) for name in names))
    wanted = ", ".join(_quoted(_column(model, name) for name in returning))
    head = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES '  # noqa: S608
    casts = tuple(_cast(model, name) for name in names)
    _execute_values(head, casts, rows, f"{tail} RETURNING {wanted}", answers)
    return answers


def _execute_values(
    head: str,
    casts: Sequence[str],
    rows: Sequence[Sequence[Any]],
    tail: str,
    answers: list[tuple[Any, ...]] | None = None,
) -> int:
    done = 0
    template = f"({', '.join(casts)})"
    with connection.cursor() as cursor:
        for chunk in _chunks(rows, max(1, PARAMETERS_MAX // len(casts))):
            statement = head + ", ".join([template] * len(chunk)) + tail
            cursor.execute(statement, [_plain(value) for row in chunk for value in row])
            done += cursor.rowcount
            if answers is not None:
                answers.extend(cursor.fetchall())
    return done


def _chunks(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _quoted(names: Any) -> list[str]:
    return [f'"{name}"' for name in names]


def _column(model: type[models.Model], name: str) -> str:
    return str(_field(model, name).column)


def _field(model: type[models.Model], name: str) -> Any:
    return model._meta.pk if name == "pk" else model._meta.get_field(name)


@cache
def _cast(model: type[models.Model], name: str) -> str:
    field = _field(model, name)
    return f"%s::{field.target_field.db_type(connection) if field.is_relation else field.db_type(connection)}"
