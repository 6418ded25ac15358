"""What was compiled is answered from the cache, and what was measured is not measured again.

Equal records give equal bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import models
from tilewright.client import Client
from tilewright.wire import Job

MEASURED = {"tuning_budget_s": models.ALL_CANDIDATES_S, "threads": 2}
UNMEASURED = {**MEASURED, "tuning_budget_s": 0}


@dataclass(frozen=True)
class First:
    """The compilation that measured every candidate."""

    job: Job
    report: dict[str, Any]


@pytest.fixture(scope="module")
def first(client: Client) -> First:
    job = client.wait(client.compile(models.tiny(models.QUICK), MEASURED)).require_success()
    return First(job, report_of(client, job))


def report_of(client: Client, job: Job) -> dict[str, Any]:
    report: dict[str, Any] = client.report(job)["report"]
    return report


def again(client: Client, options: dict[str, Any]) -> Job:
    return client.wait(client.compile(models.tiny(models.QUICK), options, fresh=True)).require_success()


def tiles_measured(client: Client, first: First) -> int:
    """Each once: what led was measured again."""
    records = list(client.tuning_records(job=first.job.id, kind="kernel"))
    assert len(records) == first.report["records_measured"]
    return sum(not record.variant.get("again") for record in records)


def digest(client: Client, job: Job, folder: Path) -> str:
    return hashlib.sha256(client.download(job, folder / f"{job.id}.tw").read_bytes()).hexdigest()


def test_the_same_model_and_options_are_answered_at_once(client: Client, first: First) -> None:
    assert first.report["records_measured"] > 0
    assert first.report["records_reused"] == 0
    job = client.compile(models.tiny(models.QUICK), MEASURED)
    assert (job.state, job.said["cached"]) == ("SUCCEEDED", True)
    assert job.id != first.job.id
    assert job.artifact_id == first.job.artifact_id
    assert report_of(client, job) == first.report
    assert [event.data["state"] for event in client.events(job)] == ["SUCCEEDED"]


def test_other_options_are_no_answer_of_the_cache(client: Client, first: First) -> None:
    job = client.compile(models.tiny(models.QUICK), {**MEASURED, "seed": 1})
    assert (job.state, job.said["cached"]) == ("QUEUED", False)
    client.cancel(job)
    assert client.wait(job).state == "CANCELLED"


def test_a_fresh_compilation_reuses_every_record_and_measures_none(client: Client, first: First) -> None:
    job = again(client, MEASURED)
    assert job.id != first.job.id
    report = report_of(client, job)
    assert report["records_measured"] == 0
    assert report["records_reused"] == tiles_measured(client, first)
    kinds = [record.kind for record in client.tuning_records(job=job.id)]
    assert kinds == [] or "handover" in kinds, (
        "only virtual cores that moved, near or far, make a plan worth measuring anew"
    )
    assert "kernel" not in kinds


def test_equal_records_give_equal_bytes(client: Client, first: First, tmp_path: Path) -> None:
    jobs = [again(client, UNMEASURED) for _ in range(2)]
    assert jobs[0].artifact_id != jobs[1].artifact_id
    digests = [digest(client, job, tmp_path) for job in jobs]
    assert digests[0] == digests[1]
    for job, found in zip(jobs, digests, strict=True):
        report = report_of(client, job)
        assert report["artifact_digest"] == found
        assert report["records_reused"] == tiles_measured(client, first)
