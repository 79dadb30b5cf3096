"""Requests made to do harm: each is refused soon, by the name of its field."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import strict_json
from jobs.errors import SpecInvalid, SubmissionInvalid
from jobs.submission import JobRequest, submit_many
from tests.durable import driver


@pytest.fixture(autouse=True)
def _kind() -> None:
    driver.register()


def test_a_value_that_spells_far_more_than_it_holds_is_refused_soon() -> None:
    bomb: Any = []
    for _ in range(60):
        bomb = [bomb, bomb]
    with pytest.raises(SpecInvalid, match="spec"):
        strict_json.check(bomb, "spec", 100_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 10**5000),
        ("max_attempts", 10**5000),
        ("max_losses", [0] * 100_000),
        ("backoff_base_s", "1"),
        ("backoff_base_s", [1]),
        ("backoff_base_s", 10**5000),
        ("backoff_base_s", float("nan")),
        ("backoff_cap_s", {}),
        ("backoff_cap_s", -(10**5000)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_wrong_number_is_refused_by_name_and_in_few_words(field: str, value: Any) -> None:
    with pytest.raises(SubmissionInvalid) as refused:
        submit_many([JobRequest("probe", {}, **{field: value})])
    assert refused.value.field == f"[0].{field}"
    assert len(refused.value.message) < 200
