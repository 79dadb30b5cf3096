"""The audit looks at the target too: what was deleted is gone, what was committed is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import transitions
from jobs.protocol import Fence
from jobs.transitions import InvalidateRequest, StopReport
from tests.durable import driver
from workers import ledgers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def _areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locate(kind: str, spec: Mapping[str, Any], fence: Fence) -> str:
        area = tmp_path / str(fence.job_id) / str(fence.token)
        area.mkdir(parents=True)
        return str(area)

    monkeypatch.setattr(driver, "locate", locate)


@pytest.mark.usefixtures("_areas")
def test_an_area_that_was_recorded_as_deleted_and_is_there_is_found() -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    driver.checkpoint(fence, 5, driver.member("a"))
    transitions.invalidate_checkpoint([InvalidateRequest(job_id, "test")])
    driver.reap(fence)
    transitions.cooperative_stop([StopReport(fence)])
    assert list(ledgers.areas_not_cleaned()) == []
    assert transitions.cleanup_stage([fence])[0].accepted
    assert list(ledgers.areas_not_cleaned()) == [
        f"the area of attempt 1 of job {job_id} was deleted and is there"
    ]
    Path(driver.attempt(fence).stage_location).rmdir()
    assert list(ledgers.areas_not_cleaned()) == []


@pytest.mark.usefixtures("_areas")
def test_a_committed_result_that_is_gone_is_found() -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    manifest = Path(driver.attempt(fence).stage_location) / "manifest.json"
    request = replace(driver.success(fence), result=driver.result_at(fence, str(manifest)))
    assert driver.settle(request).accepted
    assert list(ledgers.results_not_there()) == [f"the result of job {job_id} is not there"]
    manifest.touch()
    assert list(ledgers.results_not_there()) == []
