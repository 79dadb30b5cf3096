"""Acceptance: idempotent, all or nothing, and refused with the field's name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from jobs import requests
from jobs.errors import SpecInvalid, SubmissionConflict, SubmissionInvalid
from jobs.models import Job, ProtocolEvent
from jobs.signals import job_accepted
from jobs.submission import JobRequest, Submitted, submit, submit_many
from tests.durable import driver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _kind() -> None:
    driver.register()


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> dict[str, Any]:
    spec: dict[str, Any] = {}
    spec["self"] = spec
    return spec


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"a": {"b": ["x", "y\0z"]}}, "spec.a.b[1]"),
        ({"a": "\ud800"}, "spec.a"),
        ({"a": float("nan")}, "spec.a"),
        ({"a": float("inf")}, "spec.a"),
        ({"a": 2**53}, "spec.a"),
        ({"a": -(2**70)}, "spec.a"),
        ({"a": {1: "x"}}, "spec.a"),
        ({"a\0": 1}, "spec: a key"),
        ({"a": b"bytes"}, "spec.a"),
        ({"a": {"b": object()}}, "spec.a.b"),
        ({"odd key!": {"b": object()}}, "spec['odd key!'].b"),
        ({"a": "x" * 2_000_000}, "spec"),
        ([], "spec"),
        ("{}", "spec"),
    ],
)
def test_a_spec_that_not_every_store_can_hold_is_refused_by_its_field(spec: Any, field: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        submit(driver.KIND, spec)
    assert refused.value.field == field
    assert not Job.objects.exists()


@pytest.mark.parametrize("spec", [{"a": nested(63)}, cyclic()])
def test_a_bottomless_spec_is_refused(spec: Any) -> None:
    with pytest.raises(SpecInvalid, match="nested deeper than 64 levels"):
        submit(driver.KIND, spec)


def test_the_deepest_allowed_spec_is_accepted() -> None:
    assert submit(driver.KIND, {"a": nested(62)}).created


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"key": ""}, "key"),
        ({"key": "k" * 256}, "key"),
        ({"key": "a\0"}, "key"),
        ({"queue": "no spaces"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"priority": 1001}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 10**9}, "max_attempts"),
        ({"max_failures": -1}, "max_failures"),
        ({"max_losses": 0}, "max_losses"),
        ({"backoff_base_s": -1}, "backoff_base_s"),
        ({"backoff_base_s": float("nan")}, "backoff_base_s"),
        ({"backoff_base_s": 10, "backoff_cap_s": 5}, "backoff_cap_s"),
        ({"backoff_cap_s": float("inf")}, "backoff_cap_s"),
        ({"label": "x\0"}, "label"),
        ({"concurrency_key": "x" * 256}, "concurrency_key"),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SubmissionInvalid) as refused:
        submit(driver.KIND, {}, **fields)
    assert refused.value.field == field
    assert not Job.objects.exists()


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SubmissionInvalid, match=r"known kinds: .*probe") as refused:
        submit("tranfser", {})
    assert refused.value.field == "kind"


def test_a_handlers_refusal_names_the_field_inside_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        raise SpecInvalid("source", "is missing")

    monkeypatch.setitem(requests._validators, "strict", refuse)
    with pytest.raises(SpecInvalid, match=r"spec\.source: is missing"):
        submit("strict", {})


def test_the_same_key_and_body_give_the_same_job_and_another_body_a_conflict() -> None:
    first = submit(driver.KIND, {"a": 1, "b": 2}, key="k")
    again = submit(driver.KIND, {"b": 2, "a": 1}, key="k")
    assert (first.created, again) == (True, Submitted(first.job_id, created=False))
    with pytest.raises(SubmissionConflict) as conflict:
        submit(driver.KIND, {"a": 2}, key="k")
    with pytest.raises(SubmissionConflict):
        submit(driver.KIND, {"a": 1, "b": 2}, key="k", max_attempts=3)
    assert conflict.value.job_id == first.job_id
    assert ProtocolEvent.objects.count() == 1


def test_keys_are_case_sensitive_and_an_owners_own() -> None:
    ada, bob = (User.objects.create_user(name) for name in ("ada", "bob"))
    jobs = {
        submit(driver.KIND, {}, key="k").job_id,
        submit(driver.KIND, {}, key="K").job_id,
        submit(driver.KIND, {}, key="k", owner=ada).job_id,
        submit(driver.KIND, {}, key="k", owner=bob).job_id,
    }
    assert len(jobs) == 4
    assert submit(driver.KIND, {}, key="k", owner=ada).created is False


def test_many_are_accepted_together_or_not_at_all() -> None:
    good = JobRequest(driver.KIND, {}, key="a")
    with pytest.raises(SpecInvalid) as refused:
        submit_many([good, JobRequest(driver.KIND, {"x": float("nan")})])
    assert refused.value.field == "[1].spec.x"
    assert not Job.objects.exists()
    answers = submit_many([good, JobRequest(driver.KIND, {"n": 1}), good])
    assert [answer.created for answer in answers] == [True, True, False]
    assert answers[0].job_id == answers[2].job_id


def test_a_submission_is_undone_with_the_callers_transaction() -> None:
    class Undo(Exception):
        pass

    def submit_and_undo() -> None:
        with transaction.atomic():
            submit(driver.KIND, {}, key="k")
            raise Undo

    announced: list[Any] = []

    def receive(job_ids: list[Any], **_: Any) -> None:
        announced.extend(job_ids)

    job_accepted.connect(receive)
    try:
        with pytest.raises(Undo):
            submit_and_undo()
        assert (Job.objects.count(), announced) == (0, [])
        kept = submit(driver.KIND, {}, key="k")
        submit(driver.KIND, {}, key="k")
        assert announced == [kept.job_id]
    finally:
        job_accepted.disconnect(receive)


def test_a_conflict_leaves_the_callers_transaction_usable() -> None:
    submit(driver.KIND, {}, key="k")
    with transaction.atomic():
        with pytest.raises(SubmissionConflict):
            submit(driver.KIND, {"other": 1}, key="k")
        other = submit(driver.KIND, {}, key="other")
    assert Job.objects.filter(id=other.job_id).exists()


def test_a_receiver_that_fails_spoils_nothing() -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no broker")

    job_accepted.connect(fail)
    try:
        assert submit(driver.KIND, {}).created
    finally:
        job_accepted.disconnect(fail)


def test_equal_submissions_at_once_make_one_job() -> None:
    threads_n = 8
    start = threading.Barrier(threads_n)
    answers: list[Submitted] = []

    def one() -> None:
        try:
            start.wait(10)
            with transaction.atomic():  # the caller's own transaction, which must stay usable
                answers.append(submit(driver.KIND, {"n": 1}, key="same"))
                Job.objects.count()
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(threads_n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == threads_n
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert ProtocolEvent.objects.count() == 1
