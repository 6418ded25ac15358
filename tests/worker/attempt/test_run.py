from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.devices.cpu import target as cpu
from service.db import kept, results
from service.db.models import Artifact, Job, JobState, TuningRecord, Workload
from service.errors import DatabaseUnavailable
from service.jobs.lifecycle.early_finish import finish
from service.jobs.scheduling import lease
from service.jobs.storage.integrity import Watched
from worker.attempt.context import WorkerContext
from worker.attempt.run import run
from worker.limits import Limits
from worker.processes import printed

pytestmark = pytest.mark.processes

DeskWith = Callable[..., WorkerContext]


def claimed(context: WorkerContext) -> lease.Claim:
    claim = lease.claim(context.db, "tester", context.queues, context.lease_s)
    assert claim is not None
    return claim


def rows(office: Any, table: Any) -> list[Any]:
    with office.db.read() as session:
        return list(session.scalars(sa.select(table)))


def test_success_leaves_artifact_receipt_records_and_events(
    office: Any, context_with: DeskWith, record: dict[str, Any]
) -> None:
    job_id = office.submit()
    context = context_with(
        f"""
event("load", 0.1)
event("tile", 0.5, "record", data={record!r})
event("tile", 0.6, "notice", "mind this")
succeed(b"bytes of " + open(given(), "rb").read())
"""
    )
    assert run(context, claimed(context)) == "succeeded"
    job = office.job(job_id)
    assert (job.state, job.fraction, job.report["kernels"]) == (JobState.SUCCEEDED, 1.0, 3)
    (artifact,) = rows(office, Artifact)
    assert office.blobs.path(artifact.blob_key).read_bytes() == b"bytes of the model"
    assert job.report["artifact_digest"] == artifact.sha256, "the child's own claim is not believed"
    assert artifact.receipt["fence"] == 1
    (measured,) = rows(office, TuningRecord)
    assert (measured.workload, measured.job_id) == ("w", job_id)
    assert office.said(job_id) == ["LEASED", "RUNNING", "load", "tile", "SUCCEEDED"]
    assert list((context.scratch / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "races", "compare"),
    [
        ({}, False, []),
        ({}, True, None),
        ({"compare": None}, False, []),
        ({"compare": ["openvino"]}, False, ["openvino"]),
        ({"compare": []}, True, []),
    ],
)
def test_a_job_that_does_not_say_is_raced_where_the_worker_does_so(
    office: Any, context_with: DeskWith, asked: dict[str, Any], races: bool, compare: list[str] | None
) -> None:
    job_id = office.submit(**asked)
    child = 'open(spec["output"], "wb").close(); send(kind="report", report={"given": spec["options"].get("compare")})'
    context = context_with(child, compare=races)
    assert run(context, claimed(context)) == "succeeded"
    assert office.job(job_id).report["given"] == compare


def test_what_a_job_prints_is_in_its_log_while_it_runs(
    office: Any,
    context_with: DeskWith,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(printed, "EVERY_S", 0.0)
    job_id = office.submit()
    done = tmp_path / "done"
    context = context_with(
        f"""
event("load", 0.1)
print("half of it", flush=True)
while not os.path.exists({str(done)!r}):
    time.sleep(0.01)
succeed()
"""
    )

    def reported() -> list[Any]:
        return [event for event in office.events(job_id) if event.kind == "printed"]

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, context, claimed(context))
        try:
            (event,) = eventually(reported)
            assert event.data["message"] == "half of it\n"
            assert (office.job(job_id).state, office.job(job_id).phase) == (JobState.RUNNING, "load")
        finally:
            done.touch()
        assert running.result() == "succeeded"


def test_what_is_measured_reaches_the_database_long_before_the_outcome(
    office: Any, context_with: DeskWith, record: dict[str, Any], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    job_id = office.submit()
    done = tmp_path / "done"
    context = context_with(
        f"""
event("tile", 0.5, "workload", data={{"workload": "w", "text": "kernel w"}})
event("tile", 0.5, "record", data={record!r})
while not os.path.exists({str(done)!r}): time.sleep(0.01)
event("tile", 0.6, "record", data={record!r})
os.kill(os.getpid(), signal.SIGSEGV)
"""
    )
    claim = claimed(context)
    thread = threading.Thread(target=run, args=(context, claim))
    thread.start()
    try:
        eventually(lambda: rows(office, TuningRecord))
        assert [(row.workload, row.text) for row in rows(office, Workload)] == [("w", "kernel w")]
        assert office.job(job_id).state in (JobState.LEASED, JobState.RUNNING)
    finally:
        done.touch()
        thread.join()
    assert office.job(job_id).state == JobState.FAILED
    assert len(rows(office, TuningRecord)) == 2, "what came last is kept with the outcome"


def test_the_wish_to_finish_reaches_a_job_that_runs(
    office: Any, context_with: DeskWith, eventually: Callable[..., Any]
) -> None:
    job_id = office.submit()
    context = context_with(
        """
event("tile", 0.5)
while not os.path.exists(spec["finish"]): time.sleep(0.01)
event("tile", 0.6, "notice", "finished early")
succeed()
"""
    )

    def ask() -> None:
        eventually(lambda: office.job(job_id).state == JobState.RUNNING)
        finish(office.db, office.owner, job_id)

    asking = threading.Thread(target=ask)
    asking.start()
    assert run(context, claimed(context)) == "succeeded"
    asking.join()
    assert "finished early" in [entry.data.get("message") for entry in office.events(job_id)]


def test_each_attempt_leaves_its_log(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    problem = {"code": "disk_full", "fault": "machine", "message": "full", "fix": "free some"}
    child = f"""
send(kind="sandbox", standing=["limits", "files"])
print("last words\\0 of " + str(os.getppid()), flush=True)
send(kind="problem", problem={problem!r})
"""
    context = context_with(child, max_attempts=2)
    assert [run(context, claimed(context)) for _ in range(2)] == ["retried", "failed"]
    first, second = office.attempts(job_id)
    assert (first.outcome, second.outcome) == ("QUEUED", "FAILED")
    for attempt in (first, second):
        walls, words = attempt.log.splitlines()
        assert walls == "sandbox: limits, files"
        assert words.startswith("last words\ufffd of ")
    reasons = [entry.data["reason"] for entry in office.events(job_id) if "reason" in entry.data]
    assert reasons == ["this machine was at fault: disk full; tried again"]


def test_the_log_of_a_job_that_was_stopped_is_kept(
    office: Any, context_with: DeskWith, eventually: Callable[..., Any]
) -> None:
    job_id = office.submit()
    context = context_with('print("so far", flush=True); event("tile", 0.5); time.sleep(600)')
    claim = claimed(context)
    with office.db.write() as session:
        session.execute(sa.update(Job).values(cancel_requested=True))
    assert run(context, claim) == "cancelled"
    (attempt,) = office.attempts(job_id)
    assert attempt.outcome == "CANCELLED"
    assert attempt.log.startswith("sandbox: none stood\n")


@pytest.mark.parametrize(
    ("kind", "made"), [("benchmark", "pass"), ("inference", 'open(spec["output"], "wb").write(b"npz")')]
)
def test_a_run_that_dies_is_said_to_have_crashed_and_makes_nothing(
    office: Any, context_with: DeskWith, kind: str, made: str
) -> None:
    job_id = office.run_of(kind)
    context = context_with(f'{made}\nevent("time", 0.5); os.kill(os.getpid(), signal.SIGSEGV)')
    assert run(context, claimed(context)) == "failed"
    problem = office.job(job_id).problem
    assert (problem["code"], problem["details"]["signal"]) == ("run_crashed", "SIGSEGV")
    with office.db.read() as session:
        assert results.benchmark(session, job_id) is None


@pytest.mark.parametrize("kind", ["benchmark", "inference"])
def test_going_down_gives_a_run_back(
    office: Any, context_with: DeskWith, eventually: Callable[..., Any], kind: str
) -> None:
    job_id = office.run_of(kind)
    context = context_with('event("time", 0.5); time.sleep(600)')

    def stop_when_running() -> None:
        eventually(lambda: office.job(job_id).state == JobState.RUNNING)
        context.stop.request()

    threading.Thread(target=stop_when_running).start()
    assert run(context, claimed(context)) == "released"
    assert office.job(job_id).state == JobState.QUEUED


def test_a_run_that_is_quiet_for_long_does_not_meet_the_limit_on_loading(office: Any, context_with: DeskWith) -> None:
    office.run_of("benchmark")
    context = context_with('time.sleep(0.8); send(kind="report", report={})', limits=Limits(wall_s=30.0, load_s=0.2))
    assert run(context, claimed(context)) == "succeeded"


def test_a_report_beyond_all_measure_is_garbled(office: Any, context_with: DeskWith) -> None:
    job_id = office.run_of("benchmark")
    context = context_with('send(kind="report", report={"x": "y" * (9 << 20)})')
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).problem["code"] == "run_crashed"
    assert "limit is 8388608" in office.job(job_id).problem["message"]


def test_what_a_child_claims_of_its_phases_is_checked_before_it_is_summed(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    claims = {"load": 1.5, "tile": "long", "emit": -1, "made up": 3.0}
    context = context_with(
        f'open(spec["output"], "w").close(); send(kind="report", report={{"phase_seconds": {claims!r}}})'
    )
    assert run(context, claimed(context)) == "succeeded"
    assert office.job(job_id).report["phase_seconds"] == {"load": 1.5}


def test_a_disk_that_has_no_room_for_the_jobs_folder_is_tried_again(
    office: Any, context_with: DeskWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = office.submit()
    context = context_with("succeed()")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        assert run(context, claimed(context)) == "retried"
    assert office.job(job_id).state == JobState.QUEUED
    assert run(context, claimed(context)) == "succeeded"


def test_a_problem_fails_the_job_and_keeps_what_was_measured(
    office: Any, context_with: DeskWith, record: dict[str, Any]
) -> None:
    job_id = office.submit()
    problem = {"code": "unsupported_model", "fault": "caller", "message": "no", "fix": "yes"}
    context = context_with(f'event("tile", 0.5, "record", data={record!r}); send(kind="problem", problem={problem!r})')
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).state == JobState.FAILED
    assert office.job(job_id).problem == problem
    assert len(rows(office, TuningRecord)) == 1


def test_a_crash_is_a_result_and_not_tried_again(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with("os.kill(os.getpid(), signal.SIGSEGV)")
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).problem["code"] == "compiler_crashed"
    assert office.job(job_id).lost_leases == 0


def test_this_machines_faults_are_tried_again_but_not_forever(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    problem = {"code": "disk_full", "fault": "machine", "message": "full", "fix": "free some"}
    context = context_with(f'send(kind="problem", problem={problem!r})', max_attempts=2)
    assert run(context, claimed(context)) == "retried"
    assert office.job(job_id).state == JobState.QUEUED
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).problem == problem


def test_a_job_that_somebody_else_kills_is_tried_again_as_often_as_one_whose_worker_is_lost(
    office: Any, context_with: DeskWith
) -> None:
    job_id = office.submit()
    context = context_with("os.kill(os.getpid(), signal.SIGKILL); time.sleep(600)", max_lost_leases=3, max_attempts=1)
    assert [run(context, claimed(context)) for _ in range(3)] == ["retried", "retried", "failed"]
    problem = office.job(job_id).problem
    assert (problem["code"], problem["fault"]) == ("job_killed", "machine")
    reasons = [entry.data["reason"] for entry in office.events(job_id) if "reason" in entry.data]
    assert reasons == ["this machine was at fault: job killed; tried again"] * 2


@pytest.mark.parametrize("who", ["os.getppid()", "os.getpid()"])
def test_a_job_of_which_the_launcher_or_the_child_is_killed_once_succeeds(
    office: Any, context_with: DeskWith, tmp_path: Path, who: str
) -> None:
    job_id, marker = office.submit(), tmp_path / "marker"
    child = f"""
if not os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w").close()
    os.kill({who}, signal.SIGKILL)
    time.sleep(600)
succeed()
"""
    context = context_with(child)
    assert [run(context, claimed(context)) for _ in range(2)] == ["retried", "succeeded"]
    assert office.job(job_id).state == JobState.SUCCEEDED


def test_a_model_that_is_not_read_in_time_is_tried_once_more(
    office: Any, context_with: DeskWith, limits_count_in: Callable[[str], None]
) -> None:
    limits_count_in("load")
    job_id = office.submit()
    context = context_with('event("load", 0.0); time.sleep(600)', limits=Limits(wall_s=30.0, load_s=0.1))
    assert [run(context, claimed(context)) for _ in range(2)] == ["retried", "failed"]
    assert office.job(job_id).problem["details"]["phase"] == "load"


def test_a_job_that_takes_too_long_after_its_model_was_read_is_not_tried_again(
    office: Any, context_with: DeskWith, limits_count_in: Callable[[str], None]
) -> None:
    limits_count_in("agree")
    job_id = office.submit()
    context = context_with('event("load", 0.0); event("agree", 0.9); time.sleep(600)', limits=Limits(wall_s=1.0))
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).problem["details"] == {"limit_s": 1.0, "phase": "agree"}


@pytest.mark.parametrize(("asked", "limit"), [(0.6, 0.6), (600.0, 1.0)])
def test_an_owner_may_ask_for_less_time_than_the_operator_allows_and_not_for_more(
    office: Any, context_with: DeskWith, limits_count_in: Callable[[str], None], asked: float, limit: float
) -> None:
    limits_count_in("agree")
    job_id = office.submit()
    with office.db.write() as session:
        session.get_one(Job, job_id).max_run_s = asked
    context = context_with('event("load", 0.0); event("agree", 0.9); time.sleep(600)', limits=Limits(wall_s=1.0))
    assert run(context, claimed(context)) == "failed"
    problem = office.job(job_id).problem
    assert (problem["code"], problem["details"]["limit_s"]) == ("time_limit", limit)


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_job_that_does_not_end_although_it_is_to_finish_is_ended(
    office: Any, context_with: DeskWith, eventually: Callable[..., Any], from_the_start: bool
) -> None:
    job_id = office.submit()
    context = context_with('event("agree", 0.9)\nwhile True: pass', limits=Limits(wall_s=600.0, finish_s=0.5))

    def ask() -> None:
        eventually(lambda: office.job(job_id).state == JobState.RUNNING)
        finish(office.db, office.owner, job_id)

    asking = threading.Thread(target=ask)
    if from_the_start:
        finish(office.db, office.owner, job_id)
    claim = claimed(context)
    if not from_the_start:
        asking.start()
    assert run(context, claim) == "failed"
    if not from_the_start:
        asking.join()
    problem = office.job(job_id).problem
    assert (problem["code"], problem["details"]) == ("time_limit", {"limit_s": 0.5, "phase": "agree"})


def test_cancelling_stops_the_job(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with('event("tile", 0.5); time.sleep(600)', lease_s=0.3)
    claim = claimed(context)
    with office.db.write() as session:
        session.execute(sa.update(Job).values(cancel_requested=True))
    assert run(context, claim) == "cancelled"
    assert office.job(job_id).state == JobState.CANCELLED


def test_going_down_gives_the_job_back(office: Any, context_with: DeskWith, eventually: Callable[..., Any]) -> None:
    job_id = office.submit()
    context = context_with('event("tile", 0.5); time.sleep(600)')

    def stop_when_running() -> None:
        eventually(lambda: office.job(job_id).state == JobState.RUNNING)
        context.stop.request()

    threading.Thread(target=stop_when_running).start()
    assert run(context, claimed(context)) == "released"
    job = office.job(job_id)
    assert (job.state, job.lost_leases, job.lease_owner) == (JobState.QUEUED, 0, None)


def test_a_lost_lease_kills_the_child_and_writes_nothing(
    office: Any, context_with: DeskWith, running: Callable[[int], bool], eventually: Callable[..., Any]
) -> None:
    job_id = office.submit()
    context = context_with('event("tile", 0.5, "notice", str(os.getpid())); time.sleep(600)', lease_s=0.6)
    pids: list[int] = []

    def lose_when_running() -> None:
        eventually(lambda: office.job(job_id).state == JobState.RUNNING)
        pids.append(int(office.events(job_id)[-1].data["message"]))
        with office.db.write() as session:
            session.execute(sa.update(Job).values(fence=Job.fence + 1, lease_owner="another"))

    thread = threading.Thread(target=lose_when_running)
    thread.start()
    assert run(context, claimed(context)) == "lost"
    thread.join()
    assert not running(pids[0])
    job = office.job(job_id)
    assert (job.state, job.lease_owner, job.problem) == (JobState.RUNNING, "another", None)


def test_a_result_that_comes_after_the_fence_was_raised_is_not_written(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with("succeed()", lease_s=600.0)
    claim = claimed(context)
    with office.db.write() as session:
        session.execute(sa.update(Job).values(fence=Job.fence + 1))
    assert run(context, claim) == "lost"
    assert office.job(job_id).state == JobState.LEASED
    assert rows(office, Artifact) == []


def test_the_lease_is_renewed_for_as_long_as_the_job_runs(
    office: Any, context_with: DeskWith, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The job ends when its lease was renewed three times."""
    office.submit()
    done = tmp_path / "done"
    context = context_with(f"while not os.path.exists({str(done)!r}): time.sleep(0.01)\nsucceed()", lease_s=0.6)
    claim = claimed(context)
    untils = [rows(office, Job)[0].lease_until]
    real = lease.heartbeat

    def noted(*arguments: Any, **named: Any) -> str:
        answer = real(*arguments, **named)
        untils.append(rows(office, Job)[0].lease_until)
        if len(untils) == 4:
            done.touch()
        return answer

    monkeypatch.setattr(lease, "heartbeat", noted)
    assert run(context, claim) == "succeeded"
    assert untils == sorted(set(untils))


@pytest.mark.parametrize(
    "trick",
    [
        'os.symlink("/etc/hostname", spec["output"])',
        'os.mkfifo(spec["output"])',
        'os.mkdir(spec["output"])',
        "pass",
        'open("x", "w").close(); os.link("x", spec["output"])',
    ],
)
def test_an_artifact_that_is_not_a_plain_file_is_refused(office: Any, context_with: DeskWith, trick: str) -> None:
    job_id = office.submit()
    context = context_with(f'{trick}\nsend(kind="report", report={{}})')
    assert run(context, claimed(context)) == "failed"
    assert office.job(job_id).problem["code"] == "compiler_crashed"


def test_a_malformed_record_fails_the_job_with_the_field(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with('event("tile", 0.5, "record", data={"kind": "kernel"}); time.sleep(600)')
    assert run(context, claimed(context)) == "failed"
    assert "workload" in office.job(job_id).problem["message"]


def test_the_job_sees_its_model_in_a_folder_without_the_models_of_others(office: Any, context_with: DeskWith) -> None:
    office.submit()
    context = context_with("import os; succeed(' '.join(os.listdir(os.path.dirname(given()))).encode())")
    assert run(context, claimed(context)) == "succeeded"
    (artifact,) = rows(office, Artifact)
    assert office.blobs.path(artifact.blob_key).read_text().split() == ["0"]


def test_a_missing_model_is_a_clear_failure(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    context = context_with("succeed()")
    claim = claimed(context)
    office.blobs.path(claim.inputs[0].key).unlink()
    assert run(context, claim) == "failed"
    assert office.job(job_id).problem["code"] == "inputs_missing"


def test_a_model_that_changed_at_the_same_length_fails_the_job_by_the_machines_fault_and_is_marked(
    office: Any, context_with: DeskWith
) -> None:
    job_id = office.submit()
    context = context_with("succeed(open(given(), 'rb').read())")
    claim = claimed(context)
    (key,) = (file.key for file in claim.inputs)
    model = office.blobs.path(key).read_bytes()
    with office.db.write() as session:
        kept.name(session, {key: len(model)})
    office.blobs.path(key).write_bytes(bytes([model[0] ^ 64]) + model[1:])
    assert run(replace(context, blobs=Watched(office.blobs, office.db)), claim) == "failed"
    problem = office.job(job_id).problem
    assert (problem["code"], problem["fault"], problem["details"]["key"]) == ("inputs_missing", "machine", key)
    assert key in problem["message"]
    with office.db.read() as session:
        assert kept.faults(session, [key]) == {key: "damaged"}
    office.blobs.put_bytes(model)
    again = office.submit()
    assert run(context, claimed(context)) == "succeeded"
    assert office.job(again).state == JobState.SUCCEEDED


def test_a_compiler_that_read_another_model_than_it_was_given_made_nothing(office: Any, context_with: DeskWith) -> None:
    job_id = office.submit()
    report = 'send(kind="report", report={"model_digest": "0" * 64})'
    context = context_with(f'open(spec["output"], "wb").write(b"artifact"); {report}')
    assert run(context, claimed(context)) == "failed"
    problem = office.job(job_id).problem
    assert (problem["code"], problem["fault"]) == ("inputs_missing", "machine")
    assert problem["details"] == {"given": office.model, "read": "0" * 64}
    assert rows(office, Artifact) == []


def test_the_outcome_waits_for_a_database_that_is_away(
    office: Any, context_with: DeskWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = office.submit()
    context = context_with("succeed()")
    real, away = lease.succeed, [True, True]

    def flaky(*arguments: Any, **named: Any) -> bool:
        if away:
            away.pop()
            raise DatabaseUnavailable("away")
        return real(*arguments, **named)

    monkeypatch.setattr(lease, "succeed", flaky)
    assert run(context, claimed(context)) == "succeeded"
    assert office.job(job_id).state == JobState.SUCCEEDED


def test_earlier_records_reach_the_child(office: Any, context_with: DeskWith, record: dict[str, Any]) -> None:
    here = cpu.this_machine()
    record |= {"target": here.name, "hardware": here.hardware}
    office.submit()
    context = context_with(f'event("tile", 0.5, "record", data={record!r}); succeed()')
    run(context, claimed(context))
    office.submit()
    context = context_with('assert spec["records"][0]["variant"] == {"tile": 4}, spec\nsucceed()')
    assert run(context, claimed(context)) == "succeeded"
