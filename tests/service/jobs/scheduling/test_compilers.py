"""Jobs that ask for a version of the compiler: who takes them, what they are told, and what the cache answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from compiler.contract import COMPILER_VERSION
from service.db.engine import Database
from service.db.models import Event, Job
from service.jobs.operations import reconcile
from service.jobs.scheduling import lease
from service.jobs.submission.job_terms import COMPILER, allows


def compiled(client: TestClient, compiler: str | None, **wanted: Any) -> dict[str, Any]:
    model = client.post("/models", content=b"a model").json()["digest"]
    answer = client.post("/compile", json={"model": model, "compiler": compiler, **wanted})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def taken(db: Database, compiler: str) -> str | None:
    found = lease.claim(db, "w", ["cpu"], 60.0, compiler=compiler)
    return None if found is None else str(found.job_id)


def test_a_job_is_taken_by_workers_of_its_version_alone(client: TestClient, db: Database) -> None:
    pinned, free = compiled(client, "0.2.*"), compiled(client, None)
    assert (pinned["compiler"], free["compiler"]) == ("0.2.*", None)
    assert taken(db, "0.1.0") == free["id"], "an older job waits, and is passed over"
    assert taken(db, "0.1.0") is None
    assert taken(db, "0.20.1") is None
    assert taken(db, "0.2.7") == pinned["id"]


@pytest.mark.parametrize("pin", ["0.1.0", "0.1.*", "0.*"])
@pytest.mark.parametrize("version", ["0.1.0", "0.1.1", "0.11.0", "0.2.0", "1.0.1", "10.1.0"])
def test_the_database_decides_as_the_function_does(client: TestClient, db: Database, pin: str, version: str) -> None:
    assert re.fullmatch(COMPILER, pin)
    compiled(client, pin)
    assert (taken(db, version) is not None) == allows(pin, version)


def test_a_job_whose_version_no_live_worker_has_is_told_so_until_one_does(client: TestClient, db: Database) -> None:
    def rounds() -> int:
        silent: Any = lambda queue, job=None: None  # noqa: E731
        limits: dict[str, Any] = {"ring_again_after_s": 60, "max_lost_leases": 3, "worker_alive_s": 60}
        return reconcile.reconcile(db, silent, **limits).unserved

    lease.seen(db, "old", ["cpu"], {}, "0.1.0")
    job = compiled(client, "0.2.*")
    compiled(client, "0.1.*")
    assert [rounds(), rounds()] == [1, 0]
    with db.read() as session:
        said = session.scalars(sa.select(Event).where(Event.kind == "notice")).all()
    assert [event.data["message"] for event in said] == [
        "no live worker with compiler 0.2.* serves cpu: the job waits until one does"
    ]
    assert client.get(f"/jobs/{job['id']}").json()["unserved_since"] is not None
    lease.seen(db, "new", ["cpu"], {}, "0.2.0")
    assert rounds() == 0
    assert client.get(f"/jobs/{job['id']}").json()["unserved_since"] is None


def test_another_version_has_a_place_of_its_own_in_the_cache(client: TestClient, db: Database) -> None:
    for pin in (COMPILER_VERSION, None, "0.99.*", "0.98.*"):
        compiled(client, pin)
    with db.read() as session:
        own, free, newer, other = session.scalars(sa.select(Job.cache_key).order_by(Job.id)).all()
    assert own == free
    assert len({own, newer, other}) == 3


@pytest.mark.parametrize("pin", ["*", "0.1", "0.1.%", "0.1.0+abc", "latest", "0.1.*.*", ""])
def test_what_is_no_version_is_refused(client: TestClient, pin: str) -> None:
    model = client.post("/models", content=b"a model").json()["digest"]
    answer = client.post("/compile", json={"model": model, "compiler": pin})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "compiler" in answer.json()["detail"]
    assert client.get("/jobs").json()["jobs"] == []
