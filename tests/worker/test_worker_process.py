"""Real processes: `python -m worker`, a Valkey server on a Unix socket, SQLite, and a scripted child."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import COMPILER_VERSION
from compiler.devices.cpu import target as cpu
from service.db import workers
from service.db.models import Artifact, Job, JobState, Worker
from service.jobs.operations.reconcile import reconcile
from service.jobs.scheduling.doorbell import NO_BROKER, CeleryRing
from tests.cuda_double.double import build_runtime, compiler_there
from tests.servers import GUARD_S
from tests.worker.valkey import Valkey
from worker.devices import device

ONCE_SLOW = """
open(spec["scratch"] + "/pid", "w").write(str(os.getpid()))
event("tile", 0.5)
if spec["options"].get("seed") == {seed!r} and not os.path.exists({marker!r}):
    open({marker!r}, "w").write(str(os.getpid()))
    time.sleep(600)
succeed()
"""


def alive(office: Any) -> list[Worker]:
    """The workers that have reported."""
    with office.db.read() as session:
        return list(workers.alive(session, 30.0))


class Silent:
    """A broker that loses every message."""

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        pass

    def check(self) -> None:
        pass


@pytest.fixture
def reconciler(office: Any) -> Iterator[None]:
    """The service's loop that returns expired leases; its doorbells are all lost."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(0.2):
            reconcile(office.db, Silent())

    thread = threading.Thread(target=loop)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_a_doorbell_wakes_a_worker_that_would_not_look_by_itself(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any]
) -> None:
    job_id = office.submit("later")
    worker = start_worker("succeed()", broker, TILEWRIGHT_LOOK_EVERY_S="600")
    looked = office.submit()
    eventually(lambda: office.job(looked).state == JobState.SUCCEEDED)
    with office.db.write() as session:  # no new job, of which the database would tell
        session.execute(sa.update(Job).where(Job.id == job_id).values(queue="cpu"))
    CeleryRing(broker)("cpu")
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)
    (row,) = alive(office)
    assert {"cpu", "run:cpu"} <= set(row.queues)
    assert row.hardware["cores"] >= 1
    worker.process.terminate()
    assert worker.process.wait(GUARD_S) == 0, worker.text()


def test_a_doorbell_of_any_of_its_queues_wakes_a_worker(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any]
) -> None:
    start_worker('send(kind="report", report={"verdict": "fast"})', broker, TILEWRIGHT_LOOK_EVERY_S="600")
    eventually(lambda: alive(office))
    job_id = office.run_of("benchmark")
    CeleryRing(broker)("run:cpu")
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)


def test_a_builder_works_beside_the_device_and_takes_nothing_that_runs_on_it(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    profile = cpu.this_machine().name
    foreign = office.run_of("benchmark")
    (tmp_path / "scratch").mkdir(mode=0o700)
    with device.hold(tmp_path / "scratch", "cpu") as lock:
        assert lock is not None
        start_worker("assert not spec['measures']; succeed()", broker, ("--queue", "build"))
        job_id = office.submit(profile)
        eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)
    assert office.job(foreign).state == JobState.QUEUED
    (row,) = alive(office)
    assert profile in row.queues
    assert (row.hardware["measures"], row.hardware["device"], row.hardware["fingerprint"]) == (False, "", "")
    assert row.compiler == COMPILER_VERSION
    assert row.name.startswith("build@")


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
def test_a_worker_for_a_gpu_holds_it_and_gives_it_to_the_job_alone(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    child = """
assert spec["measures"] and spec["gpu"], spec
assert os.environ["CUDA_VISIBLE_DEVICES"] == "5", os.environ
assert "CUDA_DEVICE_ORDER" not in os.environ, os.environ  # the numbers are the user's
from compiler.devices.cuda.measure.driver import gpu_here
assert gpu_here() is not None
succeed()
"""
    there = {"LD_LIBRARY_PATH": str(build_runtime().parent), "CUDA_VISIBLE_DEVICES": "4,5"}
    (tmp_path / "scratch").mkdir(mode=0o700)
    with device.hold(tmp_path / "scratch", "cuda:0") as other, device.hold(tmp_path / "scratch", "cpu") as cores:
        assert other is not None
        assert cores is not None
        # The lock of its own GPU is free.
        start_worker(child, broker, ("--queue", "cuda:1"), **there)
        run = office.submit("run:cuda:sm_90", target="cuda")
        eventually(lambda: office.job(run).state == JobState.SUCCEEDED)
    (row,) = alive(office)
    assert {"run:cuda", "run:cuda:sm_90"} <= set(row.queues)
    assert (row.hardware["device"], row.hardware["target"]) == ("cuda:1", "cuda:sm_90")
    assert row.hardware["fingerprint"].startswith("cuda:sm_90/")
    assert row.hardware["gpu"]["name"] == "CUDA double sm_90"


def test_a_worker_looks_by_itself_and_a_broker_that_is_lost_with_all_its_messages_loses_no_job(
    office: Any, start_worker: Callable[..., Any], valkey: Valkey, eventually: Callable[..., Any]
) -> None:
    worker = start_worker("succeed()", valkey.url)
    first = office.submit()
    eventually(lambda: office.job(first).state == JobState.SUCCEEDED)
    valkey.kill()
    second = office.submit()
    valkey.start()
    eventually(lambda: office.job(second).state == JobState.SUCCEEDED)
    assert worker.process.poll() is None


def test_jobs_run_while_the_broker_is_dead_and_stays_dead(
    office: Any, start_worker: Callable[..., Any], valkey: Valkey, eventually: Callable[..., Any]
) -> None:
    worker = start_worker("succeed()", valkey.url)
    first = office.submit()
    eventually(lambda: office.job(first).state == JobState.SUCCEEDED)
    valkey.kill()
    second = office.submit()
    eventually(lambda: office.job(second).state == JobState.SUCCEEDED)
    third = office.submit()
    eventually(lambda: office.job(third).state == JobState.SUCCEEDED)
    worker.process.terminate()
    assert worker.process.wait(GUARD_S) == 0, worker.text()


def test_the_database_tells_an_idle_worker_of_a_job_where_nobody_rings(
    office: Any, start_worker: Callable[..., Any], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    start_worker("succeed()", f"redis+socket://{tmp_path}/nobody", TILEWRIGHT_LOOK_EVERY_S="600")
    for _ in range(3):
        job_id = office.submit()
        eventually(lambda job_id=job_id: office.job(job_id).state == JobState.SUCCEEDED)


@pytest.mark.parametrize("url", ["redis+socket:///nobody/broker", NO_BROKER])
def test_a_worker_that_never_met_its_broker_works_and_gives_its_job_back_when_it_is_terminated(
    office: Any,
    start_worker: Callable[..., Any],
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
    tmp_path: Path,
    url: str,
) -> None:
    marker = tmp_path / "marker"
    job_id = office.submit(seed=0)
    child = ONCE_SLOW.format(seed=0, marker=str(marker))
    worker = start_worker(child, url, TILEWRIGHT_LEASE_S="600")
    eventually(lambda: office.job(job_id).state == JobState.RUNNING and marker.exists() and marker.read_text())
    worker.process.terminate()
    assert worker.process.wait(GUARD_S) == 0, worker.text()
    assert not running(int(marker.read_text()))
    job = office.job(job_id)
    assert (job.state, job.lost_leases, job.lease_owner) == (JobState.QUEUED, 0, None)


def test_a_worker_refuses_a_database_that_a_newer_program_has_changed(
    office: Any, start_worker: Callable[..., Any], broker: str
) -> None:
    with office.db.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = 'of a later day'"))
    job_id = office.submit()
    worker = start_worker("succeed()", broker)
    assert worker.process.wait(GUARD_S) == os.EX_CONFIG
    assert "of a later day" in worker.text()
    assert "start the newer version" in worker.text()
    assert office.job(job_id).state == JobState.QUEUED
    assert alive(office) == []


def test_a_worker_refuses_to_start_without_the_walls_that_are_demanded(
    start_worker: Callable[..., Any], broker: str
) -> None:
    worker = start_worker("succeed()", broker, TILEWRIGHT_REQUIRE_WALLS="limits,moat")
    assert worker.process.wait(GUARD_S) == os.EX_CONFIG
    assert "there is no wall moat" in worker.text()


def test_a_job_whose_worker_is_killed_is_done_by_another(
    office: Any,
    start_worker: Callable[..., Any],
    broker: str,
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
    reconciler: None,
    tmp_path: Path,
) -> None:
    marker = tmp_path / "marker"
    child = ONCE_SLOW.format(seed=0, marker=str(marker))
    job_id = office.submit(seed=0)
    # The lease outlasts any delay of a living worker; that of the dead one is made to run out.
    first = start_worker(child, broker, TILEWRIGHT_LEASE_S="600")
    eventually(lambda: office.job(job_id).state == JobState.RUNNING and marker.exists() and marker.read_text())
    second = start_worker(child, broker, TILEWRIGHT_LEASE_S="600")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    eventually(lambda: not running(int(marker.read_text())))
    with office.db.write() as session:
        session.execute(sa.update(Job).values(lease_until=1.0))
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)
    job = office.job(job_id)
    assert (job.attempts, job.lost_leases, job.fence) == (2, 1, 2)
    assert office.said(job_id).count("SUCCEEDED") == 1
    second.process.terminate()
    assert second.process.wait(GUARD_S) == 0, second.text()
    assert list((tmp_path / "scratch" / "jobs").iterdir()) == [], "what the first left was cleared away by the second"


def test_a_terminated_worker_gives_its_job_back_and_leaves_no_process(
    office: Any,
    start_worker: Callable[..., Any],
    broker: str,
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
    tmp_path: Path,
) -> None:
    marker = tmp_path / "marker"
    child = ONCE_SLOW.format(seed=0, marker=str(marker))
    job_id = office.submit(seed=0)
    worker = start_worker(child, broker, TILEWRIGHT_LEASE_S="600")
    eventually(lambda: office.job(job_id).state == JobState.RUNNING and marker.exists() and marker.read_text())
    worker.process.terminate()
    assert worker.process.wait(GUARD_S) == 0, worker.text()
    assert not running(int(marker.read_text()))
    job = office.job(job_id)
    assert (job.state, job.lost_leases, job.lease_owner) == (JobState.QUEUED, 0, None)
    start_worker(child, broker)
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)


def test_a_segfaulting_model_fails_and_the_worker_lives_on(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any]
) -> None:
    worker = start_worker('succeed() if spec["options"].get("seed") else os.kill(os.getpid(), signal.SIGSEGV)', broker)
    bad, good = office.submit(seed=0), office.submit(seed=1)
    eventually(lambda: office.job(good).state == JobState.SUCCEEDED)
    job = office.job(bad)
    assert (job.state, job.problem["code"], job.attempts) == (JobState.FAILED, "compiler_crashed", 1)
    assert worker.process.poll() is None


def test_jobs_survive_workers_that_are_killed_again_and_again(
    office: Any, start_worker: Callable[..., Any], broker: str, eventually: Callable[..., Any]
) -> None:
    """Every message is lost, two workers are killed in turn at points spread over their lives.

    Each job is done, once.
    """
    child = 'event("tile", 0.2); time.sleep(0.15); succeed(os.urandom(10))'
    settings = {"TILEWRIGHT_LEASE_S": "1", "TILEWRIGHT_LOOK_EVERY_S": "0.1"}
    count = 12
    for _ in range(count):
        office.submit()
    workers_now = [start_worker(child, broker, **settings) for _ in range(2)]
    random = Random(1)

    def done() -> int:
        reconcile(office.db, Silent(), max_lost_leases=1000)
        with office.db.read() as session:
            return session.scalar(sa.select(sa.func.count()).where(Job.state == JobState.SUCCEEDED)) or 0

    for kill in range(4):
        eventually(lambda least=2 * kill + 1: done() >= least)
        time.sleep(random.uniform(0.0, 0.3))
        victim = kill % 2
        workers_now[victim].process.kill()
        workers_now[victim].process.wait()
        workers_now[victim] = start_worker(child, broker, **settings)
    eventually(lambda: done() == count)
    with office.db.read() as session:
        jobs = list(session.scalars(sa.select(Job)))
        artifacts = {row.job_id: row for row in session.scalars(sa.select(Artifact))}
    assert len(artifacts) == count
    for job in jobs:
        assert office.said(job.id).count("SUCCEEDED") == 1
        assert artifacts[job.id].receipt["fence"] == job.fence, "the artifact is of the attempt that won"
        assert office.blobs.path(artifacts[job.id].blob_key).stat().st_size == 10
