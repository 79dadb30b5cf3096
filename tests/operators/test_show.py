"""`show`, `jobs`, `cancel`, `result`, `watch`: what they say of jobs in every situation."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import Job, ProtocolEvent
from tests.conftest import delete_own_keys
from tests.durable import driver
from tests.operators import world
from tests.operators.shell import run, run_process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("coordination_prefix")]


def show(job_id: object) -> dict[str, Any]:
    report: dict[str, Any] = run("show", str(job_id), "--json").json
    return report


def waiting_code(job_id: object) -> str:
    return str(show(job_id)["waiting"]["code"])


def test_a_job_that_nobody_serves_says_so() -> None:
    assert waiting_code(driver.accept()) == "no_worker"


def test_a_job_that_is_offered_says_so_and_one_whose_offer_was_wiped_too(redis_url: str) -> None:
    world.serve("jobs.default")
    job_id = driver.accept()
    assert waiting_code(job_id) == "offered"
    delete_own_keys(redis_url)
    assert waiting_code(job_id) == "not_offered"


def test_show_says_what_an_attempt_did_and_where_the_next_one_starts() -> None:
    job_id = driver.accept()
    fence = driver.run(job_id, driver.start_worker())
    driver.checkpoint(fence, 40, driver.member("a", 40))
    driver.reap(fence)
    report = show(job_id)
    assert (report["phase"], report["token"], report["authority"]) == ("RetryWait", 1, 0)
    assert report["checkpoint"]["progress"] == 40
    (attempt,) = report["attempts"]
    assert attempt["outcome"] == "lost"
    assert attempt["zombie"] is True
    assert attempt["note"] == "authority lost, stop not confirmed"
    assert report["waiting"]["code"] == "backoff"


def test_progress_is_shown_with_its_age_and_only_while_its_attempt_has_authority() -> None:
    job_id = driver.accept()
    fence = world.run_under_lease(job_id)
    world.report(fence, 30, 100, "copying")
    report = show(job_id)
    live = report["live"]
    assert (live["token"], live["progress"], live["total"], live["phase"]) == (1, 30, 100, "copying")
    assert 0 <= live["age_s"] < 5
    assert report["waiting"] is None
    assert report["attempts"][0]["lease"] == "live"
    driver.reap(fence)
    assert show(job_id)["live"] is None


def test_a_result_is_shown_and_only_a_committed_one() -> None:
    job_id = driver.accept()
    worker = driver.start_worker()
    said = run("result", str(job_id), "--json")
    assert said.code == 1
    assert "no committed result, it is Queued" in said.json["error"]["message"]
    fence = driver.succeed(job_id, worker)
    answer = run("result", str(job_id), "--json").json
    assert (answer["token"], answer["members"], answer["bytes"]) == (fence.token, 1, 100)


def test_cancel_needs_a_reason_and_is_on_record() -> None:
    job_id = driver.accept()
    said = run("cancel", str(job_id), "--reason", "  ", "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "reason")
    assert run("cancel", str(job_id), "--reason", "wrong source", "--json").json["phase"] == "Cancelled"
    job = Job.objects.get(id=job_id)
    assert (job.phase, job.cancel_reason) == ("Cancelled", "wrong source")
    event = ProtocolEvent.objects.get(job_id=job_id, action="RequestCancel")
    assert (event.actor_kind, event.actor_id) == ("command", "cancel")


def test_it_is_too_late_to_cancel_what_is_over() -> None:
    job_id = driver.accept()
    driver.succeed(job_id, driver.start_worker())
    said = run("cancel", str(job_id), "--reason", "late", "--json")
    assert said.code == 1
    assert "Succeeded" in said.json["error"]["message"]


def test_watch_of_a_job_that_is_over_answers_at_once() -> None:
    job_id = driver.accept()
    driver.succeed(job_id, driver.start_worker())
    said = run("watch", str(job_id), "--json")
    assert (said.code, said.json["phase"]) == (0, "Succeeded")
    cancelled = driver.accept()
    run("cancel", str(cancelled), "--reason", "r")
    assert run("watch", str(cancelled)).code == 1


def test_jobs_are_listed_newest_first_and_narrowed() -> None:
    first, second = driver.accept(queue="one"), driver.accept(queue="two")
    listed = run("jobs", "--json").json
    assert [row["job"] for row in listed["jobs"]] == [str(second), str(first)]
    assert [row["job"] for row in run("jobs", "--queue", "one", "--json").json["jobs"]] == [str(first)]
    assert run("jobs", "--limit", "1", "--json").json["more"] is True
    assert run("jobs", "--phase", "running", "--json").json["jobs"] == []


@pytest.mark.parametrize("text", ["nonsense", "", "ffffffff-ffff-7fff-bfff-ffffffffffff", "a\0b", "'; --"])
def test_a_job_that_is_not_there_is_named(text: str) -> None:
    driver.accept()
    said = run("show", text, "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "job")


def test_a_beginning_of_an_id_is_enough() -> None:
    job_id = driver.accept()
    assert show(str(job_id)[:13])["job"] == str(job_id)


def test_an_unknown_phase_is_refused_with_those_there_are() -> None:
    said = run("jobs", "--phase", "done", "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "phase")
    assert "Succeeded" in said.json["error"]["message"]


@pytest.mark.parametrize("text", ["a\0b", "half \ud800"])
def test_texts_that_no_store_can_hold_are_refused_or_escaped(text: str) -> None:
    said = run("jobs", "--queue", text, "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "queue")
    job_id = driver.accept()
    assert run("cancel", str(job_id), "--reason", text).code == 0
    assert "\\" in driver.job(job_id).cancel_reason


def test_without_redis_the_durable_facts_are_shown(process_environment: dict[str, str]) -> None:
    job_id = driver.accept(label="known")
    environment = process_environment | {"REDIS_URL": "redis://127.0.0.1:9/0"}
    report = run_process(environment, "show", str(job_id), "--json").json
    assert (report["label"], report["coordination_reachable"], report["live"]) == ("known", False, None)


@pytest.mark.parametrize(
    "label", ["<b>bold</b>", "right\u202eleft", "bell\x07", "line\nbreak", "ü😀", "[red]x"]
)
def test_odd_names_are_shown_as_one_harmless_line(label: str) -> None:
    job_id = driver.accept(label=label)
    assert show(job_id)["label"] == label
    text = run("show", str(job_id)).out
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len([line for line in text.splitlines() if line.startswith("label")]) == 1
