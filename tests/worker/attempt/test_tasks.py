from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from service.db.models import JobState, Worker
from service.errors import DatabaseUnavailable
from service.jobs.scheduling import lease
from service.jobs.scheduling.doorbell import TASK
from worker.attempt import tasks
from worker.attempt.context import WorkerContext
from worker.attempt.tasks import TASKS, drain
from worker.devices import device

DeskWith = Callable[..., WorkerContext]


def test_the_task_has_the_name_that_the_service_sends() -> None:
    assert TASKS[TASK] is drain


def test_one_doorbell_is_enough_for_every_queued_job(office: Any, context_with: DeskWith) -> None:
    ids = [office.submit() for _ in range(3)]
    assert drain(context_with("succeed()"), "cpu") == 3
    assert {office.job(job_id).state for job_id in ids} == {JobState.SUCCEEDED}


def test_a_crashing_model_does_not_keep_the_next_from_running(office: Any, context_with: DeskWith) -> None:
    bad, good = office.submit(tuning_budget_s=0.0), office.submit()
    context = context_with('os.abort() if spec["options"].get("tuning_budget_s") == 0.0 else succeed()')
    assert drain(context, "cpu") == 2
    assert office.job(bad).state == JobState.FAILED
    assert office.job(good).state == JobState.SUCCEEDED


def test_nothing_is_claimed_while_another_process_uses_the_device_and_the_workers_table_says_so(
    office: Any, context_with: DeskWith, eventually: Callable[..., Any]
) -> None:
    def told() -> tuple[bool, int | None] | None:
        with office.db.read() as session:
            row = session.get(Worker, "tester")
            return None if row is None else (row.hardware.get("device_taken"), row.hardware.get("device_holder"))

    job_id = office.submit()
    context = context_with("succeed()")
    with device.hold(context.scratch, "cpu") as lock:
        assert lock is not None
        assert drain(context, "cpu") == 0
        context.status.start()
        assert eventually(told) == (True, None), "found once, which may be for a moment"
        assert drain(context, "cpu") == 0
        eventually(lambda: told() == (True, os.getpid()))
    assert office.job(job_id).attempts == 0
    assert drain(context, "cpu") == 1
    eventually(lambda: told() == (False, None))
    context.status.stop(60.0)


def test_nothing_is_claimed_by_a_worker_that_goes_down(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with("succeed()")
    context.stop.request()
    assert drain(context, "cpu") == 0
    assert office.job(job_id).state == JobState.QUEUED


def test_other_queues_are_left_alone(office: Any, context_with: DeskWith) -> None:
    office.submit()
    assert drain(context_with("succeed()"), "cuda") == 0


def test_a_database_that_is_away_is_survived(context_with: DeskWith, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(lease, "claim", away)
    assert drain(context_with("succeed()"), "cpu") == 0


def test_a_full_disk_is_given_time_between_attempts(
    office: Any, context_with: DeskWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = office.submit()
    monkeypatch.setattr(tasks, "RETRY_PAUSE_S", 0.0)
    assert (
        drain(
            context_with('raise_ = send(kind="problem", problem=dict(code="disk_full", fault="machine", message="m"))'),
            "cpu",
        )
        == 3
    )
    job = office.job(job_id)
    assert (job.state, job.attempts) == (JobState.FAILED, 3)
