from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.contract import job_kinds
from service.config import Settings
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling import lease
from tests import made_up_kind
from tests.service.conftest import RecordingRing
from tilewright import Client
from tilewright import job_kinds as of_client
from tilewright.cli.commands import PANELS
from worker.attempt.context import WorkerContext
from worker.attempt.run import run


@pytest.mark.parametrize("kind", job_kinds.KINDS, ids=job_kinds.names())
def test_what_a_kinds_record_names_is_there(kind: job_kinds.JobKind) -> None:
    assert len(kind.name) <= 16, "the column of its name is no wider"
    assert callable(importlib.import_module(kind.work).work)
    assert callable(importlib.import_module(kind.stored).store)
    assert importlib.import_module(kind.routes).router.routes


def test_a_user_s_program_knows_every_kind() -> None:
    assert [kind.name for kind in of_client.KINDS] == [*job_kinds.names()]
    homes = {f"tilewright.cli.{one.home.partition(':')[0]}" for each in PANELS.values() for one in each}
    assert {kind.cli for kind in of_client.KINDS} <= homes
    assert all(callable(importlib.import_module(kind.cli).show) for kind in of_client.KINDS if kind.name != "compile")


def test_a_made_up_kind_runs_from_the_request_to_the_download(
    office: Any, context: WorkerContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own module and its registration are all that it takes, on a server, in a worker and in the client."""
    made_up_kind.register(monkeypatch)
    (context.scratch / "jobs").mkdir(parents=True)
    worker = dataclasses.replace(context, command=(sys.executable, "-c", made_up_kind.CHILD))
    settings = Settings(data_dir=office.folder, database_url=office.url)
    key = access.make_key(office.db, "local", ["read", "compile"], "test")
    with TestClient(create_app(settings, ring=RecordingRing(), inspector=Inspector(ready=0))) as http:
        with Client("http://testserver", key, transport=http._transport) as client:
            queued = client.change("turn", b"onnx", {"times": 3}, tags=["odd"])
            assert (queued.kind, queued.state, queued.made) == ("turn", "QUEUED", "")
            claim = lease.claim(worker.db, "tester", worker.queues, worker.lease_s)
            assert claim is not None
            assert run(worker, claim) == "succeeded", office.job(claim.job_id).problem
            (ended,) = client.jobs(kinds=["turn"], tags=["odd"])
            assert client.report(ended)["report"]["times"] == 3
            assert client.download_made(ended, tmp_path / "turned").read_bytes() == b"xnno"
        described = http.get("/openapi.json").json()
        assert described["components"]["schemas"]["JobKind"]["enum"] == [*job_kinds.names()]
        assert described["paths"]["/turns"]["post"]["operationId"] == "turn_model"
        assert described["components"]["schemas"]["TurnOptions"]["example"] == {"times": 3}
        lost = http.get("/jobs", params={"kind": "twist"}, headers={"Authorization": f"Bearer {key}"})
        assert lost.status_code == 400
