from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import CompileOptions
from compiler.errors import OptionsError
from service.blobs.local import LocalBlobs
from service.db import events
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import IdempotencyKeyReused, NotFound, QueueFull
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.scheduling import catalogue, lease
from service.jobs.storage import models
from service.jobs.submission.minimisations import MinimiseOptions
from service.jobs.submission.submit import Submission, submit


@pytest.fixture
def ask(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> Callable[..., Any]:
    def send(model: bytes = b"model", threads: int | None = None, **more: Any) -> Any:
        limit = more.pop("max_queued", 100)
        whose = more.pop("owner", owner)
        submission = Submission(
            owner=whose,
            model=models.keep(db, whose, blobs.put_bytes(model)).digest,
            options=CompileOptions(threads=threads, compare=more.pop("compare", None)),
            **more,
        )
        return submit(db, submission, limits=Limits(queued_jobs=limit))

    return send


def test_a_key_repeated_gives_the_same_job(ask: Callable[..., Any]) -> None:
    first = ask(idempotency_key="k")
    again = ask(idempotency_key="k")
    assert (again.job.id, again.replayed) == (first.job.id, True)


@pytest.mark.parametrize("change", [{"model": b"other"}, {"threads": 3}, {"fresh": True}])
def test_a_key_repeated_with_another_body_is_refused(ask: Callable[..., Any], change: dict[str, Any]) -> None:
    ask(idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        ask(**{"idempotency_key": "k", **change})


def test_a_key_sent_many_times_at_once_makes_one_job(ask: Callable[..., Any], db: Database) -> None:
    start = threading.Barrier(6)

    def send(_: int) -> Any:
        start.wait()
        return ask(idempotency_key="k").job.id

    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(send, range(6)))
    assert len(ids) == 1
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 1


def test_the_cache_answers_with_the_artifact_that_is_there(ask: Callable[..., Any], finish: Callable[..., Any]) -> None:
    first = ask().job
    finish()
    hit = ask().job
    assert (hit.state, hit.cached, hit.artifact_id) == (JobState.SUCCEEDED, True, first.artifact_id)
    assert hit.id != first.id
    assert hit.report is not None
    assert hit.report["kernels"] == 3
    assert hit.finished_at is not None
    assert ask().job.artifact_id == first.artifact_id


def test_the_cache_answers_nothing_else(ask: Callable[..., Any], finish: Callable[..., Any], db: Database) -> None:
    ask()
    assert ask().job.state == JobState.QUEUED, "the first has not finished"
    finish()
    assert ask(threads=3).job.state == JobState.QUEUED
    assert ask(model=b"other").job.state == JobState.QUEUED
    assert ask(fresh=True).job.state == JobState.QUEUED


@pytest.mark.parametrize(
    ("kept", "asked", "said"),
    [
        ([], None, None),
        ([], (), None),
        ([], ("onnxruntime",), "without a race with ONNX Runtime: `fresh` compiles and races"),
        (
            None,
            ("onnxruntime", "openvino"),
            "without a race with ONNX Runtime and OpenVINO: `fresh` compiles and races",
        ),
        (["onnxruntime"], ("onnxruntime",), "the comparison is of its own compilation: `fresh` races anew"),
        (["onnxruntime"], ("onnxruntime", "openvino"), "without a race with OpenVINO: `fresh` compiles and races"),
    ],
)
def test_an_answer_from_the_cache_says_that_it_races_nothing_and_has_the_race_that_was_kept(
    ask: Callable[..., Any],
    finish: Callable[..., Any],
    db: Database,
    kept: list[str] | None,
    asked: tuple[str, ...] | None,
    said: str | None,
) -> None:
    first = ask().job
    finish()
    races = None if kept is None else [{"peer": peer, "said": "twice as fast"} for peer in kept]
    with db.write() as session:
        session.execute(sa.update(Job).where(Job.id == first.id).values(report={"kernels": 3, "compared": races}))
    hit = ask(compare=asked).job
    assert (hit.cached, hit.report["compared"]) == (True, races)
    with db.read() as session:
        lines = events.after(session, hit.id, 0, 10)
    assert lines[-1].kind == "state", "whoever follows the job has read the notice by then"
    notices = [line.data["message"] for line in lines[:-1]]
    assert len(notices) == (said is not None)
    assert all(str(said) in one for one in notices)


def test_a_failure_is_not_cached(ask: Callable[..., Any], claimed: Callable[..., lease.Claim], db: Database) -> None:
    ask()
    lease.fail(db, claimed(), {"code": "x"})
    assert ask().job.state == JobState.QUEUED


def test_a_full_queue_refuses_and_leaves_nothing(ask: Callable[..., Any], finish: Callable[..., Any]) -> None:
    ask(model=b"1", max_queued=2)
    ask(model=b"2", max_queued=2)
    with pytest.raises(QueueFull):
        ask(model=b"3", max_queued=2)
    finish()
    assert ask(model=b"3", max_queued=2).job.state == JobState.QUEUED
    assert ask(model=b"1", max_queued=2).job.cached, "an answer from the cache takes no place in the queue"


def test_the_limit_is_exact_when_many_ask_at_once(ask: Callable[..., Any]) -> None:
    start = threading.Barrier(8)

    def send(number: int) -> bool:
        start.wait()
        try:
            ask(model=bytes([number]), max_queued=3)
        except QueueFull:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(send, range(8))) == 3


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
def test_the_target_is_the_queue(owner: uuid.UUID, target: str) -> None:
    assert Submission(owner, "digest", CompileOptions(target=target)).queue == target


@pytest.mark.parametrize(
    ("devices", "queue"),
    [
        (("cpu:0", "cpu:1"), "cpu"),
        (("cpu:0", "cuda:0"), "cuda"),
        (("npu:ethos-u65-256", "cpu"), "npu:ethos-u65-256"),
    ],
)
def test_of_several_devices_the_one_beside_the_cpu_is_the_queue(
    owner: uuid.UUID, devices: tuple[str, ...], queue: str
) -> None:
    options = CompileOptions(devices=devices)
    assert Submission(owner, "digest", options).queue == queue
    assert MinimiseOptions(1.0, options.to_json()).held == queue


def test_a_target_that_no_worker_has_told_of_is_refused(db: Database, owner: uuid.UUID, blobs: LocalBlobs) -> None:
    model = models.keep(db, owner, blobs.put_bytes(b"model")).digest
    asked = Submission(owner, model, CompileOptions(target="cpu:x86-64-v33"), fresh=True)
    assert submit(db, asked, limits=UNLIMITED).job.state == JobState.QUEUED, "nobody has told of any yet"
    catalogue.publish(db, "targets", "0.1.0", [{"name": "cpu"}, {"name": "cpu:x86-64-v3"}])
    with pytest.raises(OptionsError) as refused:
        submit(db, asked, limits=UNLIMITED)
    assert "'cpu:x86-64-v3'" in refused.value.fix
    for known in ("cpu", "cpu:x86-64-v3"):
        submit(db, Submission(owner, model, CompileOptions(target=known)), limits=UNLIMITED)


def test_a_model_that_was_not_uploaded_is_not_compiled(db: Database, owner: uuid.UUID) -> None:
    with pytest.raises(NotFound, match="there is no model"):
        submit(db, Submission(owner, "0" * 64, CompileOptions()), limits=UNLIMITED)
