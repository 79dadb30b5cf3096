"""The admin's pages: who may see and do what, odd names, and that nothing of the protocol can be edited."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.models import Job, ProtocolEvent
from tests.durable import driver
from tests.operators import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("coordination_prefix")]

LIST = "/admin/jobs/job/"
WORKERS = "/admin/jobs/workerincarnation/"
ODD = ["<script>alert(1)</script>", "right\u202eleft", "bell\x07", "'\"&amp;", "{{ 7*7 }}", "ü😀"]


def user(name: str, *permissions: str) -> Client:
    """A client that is signed in as a member of staff with just these permissions."""
    account = User.objects.create_user(name, password="of no matter", is_staff=True)
    account.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(HTTP_HOST="localhost")
    client.force_login(account)
    return client


@pytest.fixture
def viewer() -> Client:
    return user("viewer", "view_job", "view_workerincarnation")


@pytest.fixture
def operator() -> Client:
    return user("operator", "view_job", "view_workerincarnation", "change_job")


def page_of(job_id: object) -> str:
    return f"{LIST}{job_id}/change/"


def text_of(client: Client, address: str, **data: Any) -> str:
    response = client.get(address, data)
    assert response.status_code == 200, response
    return response.content.decode()


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_escaped_on_every_page(viewer: Client, name: str) -> None:
    job_id = driver.accept(label=name, spec={"what": name})
    worker = driver.start_worker()
    fence = driver.run(job_id, worker)
    driver.settle(driver.failure(fence, reason=f"could not open {name}"))
    for address in (LIST, page_of(job_id), WORKERS, f"{WORKERS}{worker}/change/"):
        text = text_of(viewer, address)
        assert "<script>alert(1)" not in text
        assert "\u202e" not in text
        assert "\x07" not in text
        assert ">49<" not in text


def test_the_job_page_shows_attempts_journal_checkpoint_and_result(viewer: Client) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    driver.checkpoint(fence, 40, driver.member("a", 40))
    driver.reap(fence)
    page = text_of(viewer, page_of(job_id))
    assert "authority lost, stop not confirmed" in page.lower()
    assert "AuthorizeAttempt" in page
    assert "40 B" in page
    driver.retry_now(job_id)
    second = driver.succeed(job_id, worker)
    page = text_of(viewer, page_of(job_id))
    assert driver.result(second).manifest_digest in page
    assert "40 B of attempt 1" in page


def test_the_list_shows_progress_phase_and_why_a_job_waits(viewer: Client) -> None:
    driver.accept(label="waits here")
    fence = world.run_under_lease(driver.accept())
    world.report(fence, 30 * 2**20, 100 * 2**20, "copying")
    text = text_of(viewer, LIST)
    assert "30.0 MiB of 100.0 MiB (30 %)" in text
    assert "remora-running" in text
    assert "offered to the workers" in text


def test_the_refreshing_view_says_what_moves(viewer: Client) -> None:
    fence = world.run_under_lease(driver.accept())
    address = f"{LIST}{fence.job_id}/live/"
    world.report(fence, 10, 100, "copying")
    first = viewer.get(address).json()
    world.report(fence, 60, 100, "copying")
    second = viewer.get(address).json()
    assert (first["percent"], second["percent"]) == (10, 60)
    assert first["version"] == second["version"]
    driver.reap(fence)
    third = viewer.get(address).json()
    assert third["live"] is None
    assert third["version"] != second["version"]


def test_jobs_are_found_by_id_its_beginning_key_and_label(viewer: Client) -> None:
    wanted = driver.accept(label="nightly copy", key="k-17")
    other = driver.accept(label="other")
    for text in (str(wanted), "k-17", "nightly"):
        found = text_of(viewer, LIST, q=text)
        assert str(wanted) in found
        assert str(other) not in found
    assert str(wanted) in text_of(viewer, LIST, q=str(wanted)[:8])
    assert str(wanted) not in text_of(viewer, LIST, q="nothing such")


@pytest.mark.parametrize(
    ("narrowing", "shown"),
    [
        ({"phase": "Queued"}, True),
        ({"phase": "Failed"}, False),
        ({"kind": "nope"}, False),
        ({"queue": "q1"}, True),
    ],
)
def test_the_list_is_narrowed(viewer: Client, narrowing: dict[str, str], shown: bool) -> None:
    job_id = driver.accept(queue="q1")
    assert (str(job_id) in text_of(viewer, LIST, **narrowing)) is shown


def test_the_list_asks_a_fixed_number_of_questions_and_counts_no_whole_table(viewer: Client) -> None:
    def questions() -> list[str]:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            text_of(viewer, LIST)
        return [query["sql"] for query in asked]

    driver.accept()
    few = questions()
    for _ in range(10):
        driver.accept()
    many = questions()
    assert len(many) == len(few)
    counts = [sql for sql in many if "COUNT(" in sql and "jobs_job" in sql]
    assert counts
    assert all("LIMIT" in sql for sql in counts)


def test_cancelling_asks_for_a_reason_and_is_on_record_twice(operator: Client) -> None:
    job_id = driver.accept()
    address = f"{LIST}{job_id}/cancel/"
    assert address in text_of(operator, page_of(job_id))
    assert "Reason" in text_of(operator, address)
    refused = operator.post(address, {"reason": "   "})
    assert "Say why." in refused.content.decode()
    assert driver.job(job_id).phase == "Queued"
    done = operator.post(address, {"reason": "wrong source"}, follow=True)
    assert "Cancel requested" in done.content.decode()
    assert (driver.job(job_id).phase, driver.job(job_id).cancel_reason) == ("Cancelled", "wrong source")
    event = ProtocolEvent.objects.get(job_id=job_id, action="RequestCancel")
    assert (event.actor_kind, event.actor_id) == ("user", "operator")
    entry = LogEntry.objects.get(object_id=str(job_id))
    assert entry.user.username == "operator"
    assert "wrong source" in entry.change_message


@pytest.mark.parametrize("reason", ["a\0b", "x" * 10_000, "<b>", "\u202e"])
def test_any_reason_can_be_recorded(operator: Client, reason: str) -> None:
    job_id = driver.accept()
    done = operator.post(f"{LIST}{job_id}/cancel/", {"reason": reason}, follow=True)
    assert done.status_code == 200
    assert driver.job(job_id).phase == "Cancelled"
    assert len(driver.job(job_id).cancel_reason) <= 2_000


def test_several_jobs_are_cancelled_at_once_and_the_finished_one_is_told_apart(operator: Client) -> None:
    waiting, finished = driver.accept(), driver.accept()
    driver.succeed(finished, driver.start_worker())
    chosen = {"action": "cancel_selected", "_selected_action": [str(waiting), str(finished)]}
    assert "Reason" in operator.post(LIST, chosen).content.decode()
    assert driver.job(waiting).phase == "Queued"
    done = operator.post(LIST, chosen | {"asked": "yes", "reason": "no longer wanted"}, follow=True)
    text = done.content.decode()
    assert f"Cancel requested for {waiting}" in text
    assert f"Too late to cancel {finished}" in text
    assert (driver.job(waiting).phase, driver.job(finished).phase) == ("Cancelled", "Succeeded")


def test_a_viewer_cannot_cancel(viewer: Client) -> None:
    job_id = driver.accept()
    assert "/cancel/" not in text_of(viewer, page_of(job_id))
    address = f"{LIST}{job_id}/cancel/"
    assert viewer.get(address).status_code == 403
    assert viewer.post(address, {"reason": "because"}).status_code == 403
    chosen = {
        "action": "cancel_selected",
        "_selected_action": [str(job_id)],
        "asked": "y",
        "reason": "because",
    }
    viewer.post(LIST, chosen)
    assert driver.job(job_id).phase == "Queued"


def test_without_a_permission_nothing_is_seen() -> None:
    job_id = driver.accept()
    nobody = user("nobody")
    for address in (LIST, page_of(job_id), f"{LIST}{job_id}/live/", f"{LIST}{job_id}/cancel/", WORKERS):
        assert nobody.get(address).status_code == 403, address


def test_who_is_not_signed_in_is_sent_to_the_login() -> None:
    job_id = driver.accept()
    for address in (LIST, page_of(job_id), f"{LIST}{job_id}/live/"):
        response = Client(HTTP_HOST="localhost").get(address)
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")


def test_nothing_can_be_added_changed_or_deleted() -> None:
    """Not even by a superuser."""
    root = User.objects.create_superuser("root", password="of no matter")
    client = Client(HTTP_HOST="localhost")
    client.force_login(root)
    job_id = driver.accept()
    kept = json.dumps(list(Job.objects.values()), default=str)
    for address in (f"{LIST}add/", f"{WORKERS}add/", f"{LIST}{job_id}/delete/"):
        assert client.get(address).status_code == 403, address
        assert client.post(address, {"phase": "Failed", "post": "yes"}).status_code == 403, address
    assert client.post(page_of(job_id), {"phase": "Failed", "label": "x"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": [str(job_id)], "post": "yes"})
    assert json.dumps(list(Job.objects.values()), default=str) == kept


def test_a_post_without_the_token_of_its_form_is_refused() -> None:
    job_id = driver.accept()
    account = User.objects.create_superuser("root", password="of no matter")
    client = Client(HTTP_HOST="localhost", enforce_csrf_checks=True)
    client.force_login(account)
    assert client.post(f"{LIST}{job_id}/cancel/", {"reason": "because"}).status_code == 403
    assert driver.job(job_id).phase == "Queued"


@pytest.mark.parametrize("text", ["nonsense", "00000000-0000-7000-8000-000000000000", "%00", "_5F"])
def test_a_job_that_is_not_there_is_not_found(viewer: Client, text: str) -> None:
    assert viewer.get(page_of(text)).status_code == 404


def test_the_journal_is_paged(viewer: Client) -> None:
    job_id, worker = driver.accept(max_attempts=100, max_losses=100), driver.start_worker()
    for _ in range(20):
        driver.reap(driver.run(job_id, worker))
        driver.retry_now(job_id)
    newest = text_of(viewer, page_of(job_id))
    assert ">Older<" in newest
    oldest_shown = min(driver_seq(job_id)[-50:])
    older = text_of(viewer, page_of(job_id), before=str(oldest_shown))
    assert "<strong>Init</strong>" in older
    assert "<strong>Init</strong>" not in newest
    assert text_of(viewer, page_of(job_id), before="nonsense")


def driver_seq(job_id: UUID) -> list[int]:
    return list(ProtocolEvent.objects.filter(job_id=job_id).order_by("seq").values_list("seq", flat=True))
