"""The admin in a real browser, while a real fleet carries out a transfer.

With UPDATE_SCREENSHOTS=1 the picture in the README is taken anew.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, Page, sync_playwright

from jobs.protocol.states import Phase
from jobs.submission import submit
from remora_site import processes
from remora_site.processes import Programs
from tests.browser_setup import find_browser
from tests.operators.shell import PROJECT
from tests.waiting import wait_until
from tests.workers.fleet import Fleet, database_environment

pytestmark = pytest.mark.browser
Answer = TypeVar("Answer")

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PASSWORD = "of no matter"
MIB = 2**20
SMALL_FILES = 9_000
PICTURE = PROJECT / "docs/img/admin-job.png"


@pytest.fixture(scope="module")
def web(fleet: Fleet) -> Iterator[str]:
    """The web process as it is deployed."""
    port = processes.free_port()
    with Programs(database_environment(), logs=fleet.home) as programs:
        programs.start([processes.web(f"127.0.0.1:{port}")])
        wait_until(lambda: processes.answers(port), 30, "the web process answers")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def browser() -> Iterator[Browser]:
    executable = find_browser()
    assert executable, "no chromium: `make test` installs it where it may (tests/browser_setup.py)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Enough to look at for several seconds: a large file, and many small ones."""
    root = tmp_path_factory.mktemp("source")
    chance = random.Random(1)
    with (root / "large.bin").open("wb") as file:
        for _ in range(128):
            file.write(chance.randbytes(MIB))
    for number in range(SMALL_FILES):
        directory = root / f"part-{number % 30:02}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number}.dat").write_bytes(chance.randbytes(8_192))
    yield root
    shutil.rmtree(root)


def elsewhere(call: Callable[[], Answer]) -> Answer:
    """Playwright keeps an event loop in this thread, where Django asks no database: ask in another."""

    def ask() -> Answer:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


def ensure_watcher() -> None:
    if not User.objects.filter(username="watcher").exists():
        User.objects.create_superuser("watcher", password=PASSWORD)


def sign_in(browser: Browser, web: str, address: str) -> Page:
    elsewhere(ensure_watcher)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{web}/admin/login/?next={address}")
    page.fill("#id_username", "watcher")
    page.fill("#id_password", PASSWORD)
    page.click("input[type=submit]")
    return page


def percent(page: Page) -> int | None:
    """What the page shows, without asking the server again; None while it shows no live progress."""
    found = re.search(
        r"\((\d+) %\)", page.inner_text("#live-progress") if page.is_visible(".remora-live") else ""
    )
    return int(found.group(1)) if found else None


def badge(page: Page) -> str:
    return page.inner_text(".remora-head .remora-phase")


@pytest.mark.slow
def test_progress_moves_on_the_page_until_the_result_is_there(
    fleet: Fleet, web: str, browser: Browser, source: Path, tmp_path: Path
) -> None:
    fleet.worker("copier")
    spec = {"source": str(source), "target": f"{tmp_path}/out"}
    accepted = elsewhere(lambda: submit("transfer", spec, label="nightly copy"))
    errors: list[str] = []
    page = sign_in(browser, web, f"/admin/jobs/job/{accepted.job_id}/change/")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request", lambda request: errors.append(request.url) if not request.url.startswith(web) else None
    )

    first = wait_until(lambda: percent(page) or 0, 60, "the page shows live progress")
    assert badge(page) == Phase.RUNNING
    take_picture(page, tmp_path)
    wait_until(lambda: (percent(page) or 0) > first, 30, "progress moves, without loading the page again")
    wait_until(lambda: badge(page) == Phase.SUCCEEDED, 90, "the page shows the end by itself")

    assert "Nothing is published" not in page.inner_text("#remora-job")
    digest = elsewhere(lambda: str(fleet.wait_for(accepted.job_id).result.manifest_digest))
    assert digest in page.inner_text("#remora-job")
    assert not errors


def test_a_job_is_cancelled_by_hand(fleet: Fleet, web: str, browser: Browser) -> None:
    name = "<img src=x onerror=alert(1)>"
    spec = {"target": "/tmp/unused", "steps": []}
    job_id = elsewhere(lambda: submit("probe", spec, label=name, queue="nobody")).job_id
    page = sign_in(browser, web, "/admin/jobs/job/?q=" + str(job_id))
    page.on("dialog", lambda dialog: pytest.fail(f"a name was run: {dialog.message}"))
    assert name in page.inner_text("#result_list")
    page.click("#result_list th a")
    assert "no worker that is up takes from queue" in page.inner_text("#remora-job")
    page.click("text=Cancel this job")
    page.fill("#reason", "not needed")
    page.click("input[type=submit]")
    assert badge(page) == Phase.CANCELLED
    assert "not needed" in page.inner_text("#remora-job")


def take_picture(page: Page, directory: Path) -> None:
    """Once a checkpoint is on the page as well."""
    wait_until(lambda: "None yet" not in page.inner_text("#remora-job"), 30, "a checkpoint is on the page")
    path = PICTURE if os.environ.get("UPDATE_SCREENSHOTS") else directory / "admin-job.png"
    page.screenshot(path=str(path))
    assert path.stat().st_size > 10_000
