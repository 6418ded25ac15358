"""A worker as users of Celery meet it: its command line, its events as Flower reads them, remote control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from service.db import workers
from service.db.models import JobState
from service.jobs.scheduling.doorbell import TASK, CeleryRing
from tests.servers import GUARD_S
from worker.app import make_app

SLOW = """
open({marker!r}, "w").close()
time.sleep(600)
"""


@pytest.fixture
def operator(broker: str, monkeypatch: pytest.MonkeyPatch) -> Celery:
    """What `celery -A worker.app ...` looks at the workers with."""
    monkeypatch.setenv("TILEWRIGHT_BROKER_URL", broker)
    return make_app()


@pytest.fixture
def heard(operator: Celery) -> Iterator[list[dict[str, Any]]]:
    """All that workers tell, as Flower hears it."""
    reported: list[dict[str, Any]] = []
    with operator.connection_for_read() as connection:
        receiver = operator.events.Receiver(connection, handlers={"*": reported.append})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        thread.start()
        yield reported
        receiver.should_stop = True
        thread.join(GUARD_S)


def test_a_worker_tells_what_it_does_answers_while_it_works_and_is_shut_down_from_afar(
    office: Any,
    start_worker: Callable[..., Any],
    broker: str,
    operator: Celery,
    heard: list[dict[str, Any]],
    eventually: Callable[..., Any],
    tmp_path: Path,
) -> None:
    marker = tmp_path / "marker"
    settings = {"TILEWRIGHT_LOOK_EVERY_S": "600", "TILEWRIGHT_LEASE_S": "600"}
    worker = start_worker(SLOW.format(marker=str(marker)), broker, ("--queue", "cpu", "--name", "one@here"), **settings)
    eventually(lambda: any(event["type"] == "worker-heartbeat" for event in heard))
    job_id = office.submit()
    CeleryRing(broker)("cpu", job_id)
    eventually(marker.exists)
    inspect = operator.control.inspect(timeout=GUARD_S, limit=1)
    assert inspect.ping() == {"one@here": {"ok": "pong"}}
    (active,) = inspect.active()["one@here"]
    assert (active["name"], active["args"], active["kwargs"]) == (TASK, ["cpu"], {"job": str(job_id)})
    assert {queue["name"] for queue in inspect.active_queues()["one@here"]} >= {"cpu", "run:cpu"}
    eventually(lambda: any(event["type"] == "task-started" for event in heard))
    (received,) = [event for event in heard if event["type"] == "task-received"]
    assert (received["hostname"], received["name"]) == ("one@here", TASK)
    assert str(job_id) in received["kwargs"]
    operator.control.shutdown()
    assert worker.process.wait(GUARD_S) == 0, worker.text()
    job = office.job(job_id)
    assert (job.state, job.lost_leases, job.lease_owner) == (JobState.QUEUED, 0, None)


def test_the_command_of_celery_starts_a_worker_that_works(
    office: Any, broker: str, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    settings = {
        "TILEWRIGHT_DATA_DIR": str(tmp_path),
        "TILEWRIGHT_DATABASE_URL": office.url,
        "TILEWRIGHT_BLOB_DIR": str(office.blobs.root),
        "TILEWRIGHT_BROKER_URL": broker,
        "TILEWRIGHT_SCRATCH_DIR": str(tmp_path / "scratch"),
        "TILEWRIGHT_LOOK_EVERY_S": "600",
    }
    command = [sys.executable, "-P", "-m", "celery", "-A", "worker.app"]
    environment = {**os.environ, **settings}
    refused = subprocess.run(
        [*command, "worker", "-Q", "cuda:7"], env=environment, capture_output=True, timeout=GUARD_S, text=True
    )
    assert refused.returncode == 1
    assert "worker: " in refused.stderr
    assert "Traceback" not in refused.stderr
    with (tmp_path / "celery.log").open("wb") as log:
        process = subprocess.Popen([*command, "worker", "-Q", "cpu"], env=environment, stdout=log, stderr=log)
    try:

        def alive() -> list[str]:
            with office.db.read() as session:
                return [row.name for row in workers.alive(session, 30.0)]

        (name,) = eventually(alive)
        assert name.startswith("cpu@"), "two with Celery's own name must not be taken for one"
        job_id = office.submit()
        called = [*command, "call", TASK, "--args", json.dumps(["cpu"]), "--kwargs", json.dumps({"job": str(job_id)})]
        subprocess.run(called, env=environment, check=True, timeout=GUARD_S, capture_output=True)
        eventually(lambda: office.job(job_id).state == JobState.FAILED)
        assert office.job(job_id).problem["code"] == "malformed_model", "a real child has read it"
    finally:
        process.terminate()
        assert process.wait(GUARD_S) == 0, (tmp_path / "celery.log").read_text()
