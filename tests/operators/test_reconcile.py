"""`reconcile`: every duty by its name, once, here; a dry run changes nothing."""

from __future__ import annotations

import pytest

from jobs.models import Job
from tests.conftest import delete_own_keys
from tests.durable import driver
from tests.operators import world
from tests.operators.shell import run, run_process
from workers.coordination import coordination

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("coordination_prefix")]

DUTIES = [
    *("incarnations", "reaper", "outcomes", "cancels", "retries"),
    *("dispatch", "coordination", "stages", "credentials"),
]


def test_all_duties_run_in_the_order_in_which_one_feeds_the_next() -> None:
    said = run("reconcile", "--json")
    assert said.code == 0
    assert [duty["name"] for duty in said.json["duties"]] == DUTIES


def test_one_duty_does_only_its_own_work(redis_url: str) -> None:
    job_id = driver.accept()
    delete_own_keys(redis_url)
    run("reconcile", "--only", "retries")
    assert coordination().snapshot([job_id]).facts[job_id].marker is None
    said = run("reconcile", "--only", "dispatch", "--json")
    assert said.json["duties"][0]["counts"]["enqueued"] == 1
    assert coordination().snapshot([job_id]).facts[job_id].marker is not None


def test_a_dry_run_says_what_would_be_done_and_does_nothing() -> None:
    job_id = driver.accept(max_losses=9, backoff_base_s=0.0, backoff_cap_s=0.0)
    driver.reap(driver.run(job_id, world.serve("jobs.default")))
    before = list(Job.objects.values())
    said = run("reconcile", "--dry-run", "--json")
    assert said.json["dry_run"] is True
    assert list(Job.objects.values()) == before
    run("reconcile")
    assert driver.job(job_id).phase == "Queued"


def test_an_unknown_duty_is_refused_with_those_there_are() -> None:
    said = run("reconcile", "--only", "sweeper", "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "only")
    assert "reaper" in said.json["error"]["message"]


def test_without_redis_it_says_which_duties_were_cut_short(process_environment: dict[str, str]) -> None:
    environment = process_environment | {"REDIS_URL": "redis://127.0.0.1:9/0"}
    said = run_process(environment, "reconcile", "--only", "dispatch", "--only", "retries", "--json")
    assert said.code == 3
    cut_short = {duty["name"]: bool(duty["unavailable"]) for duty in said.json["duties"]}
    assert cut_short == {"retries": False, "dispatch": True}
