"""What each role may do, over all routes that there are: a new route is part of these walks, or the walk fails."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from httpx import Response

from compiler.contract.job_kinds import PLACEMENT
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db.engine import Database
from service.db.models import Row
from service.http.app import create_app
from service.http.routes import routers
from service.jobs.accounts import access
from service.jobs.accounts.access import ROLES
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling import lease
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database

CHANGING = sorted(
    (method, route.path)
    for router in routers()
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
    if method not in ("GET", "HEAD")
)
HARMLESS = {("POST", "/preflight")}
"""It answers a question and keeps a model that is sent along; it needs the scope of what it asks about."""
SIGNING_IN = {("POST", "/session"), ("POST", "/session/links"), ("DELETE", "/session")}
"""For every key: what is made allows no more than the key, and ends with it."""
NOBODY = "00000000-0000-7000-8000-000000000000"


def headers(db: Database, owner: str, role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.make_key(db, owner, ROLES[role], role)}"}


def filled(path: str) -> str:
    path = path.replace("{digest}", "0" * 64).replace("{name}", "eve")
    return re.sub(r"\{[^}]*\}", NOBODY, path)


def everything(db: Database) -> dict[str, list[Any]]:
    """All rows but those of the audit log, which tells of refusals."""
    with db.read() as session:
        return {
            table.name: [tuple(row) for row in session.execute(sa.select(table))]
            for table in Row.metadata.sorted_tables
            if table.name != "audit"
        }


@pytest.fixture
def server(db: Database, settings: Settings, ring: RecordingRing) -> Iterator[TestClient]:
    """A client without a key."""
    with TestClient(create_app(settings, ring=ring, inspector=Inspector(ready=0))) as made:
        yield made


@any_database
def test_a_reader_can_change_nothing(server: TestClient, db: Database) -> None:
    reader = headers(db, "eve", "reader")
    before = everything(db)
    for method, path in set(CHANGING) - SIGNING_IN:
        sent: dict[str, Any] = {} if method == "DELETE" else {"json": {}}
        answer = server.request(method, filled(path), headers={**reader, "Upload-Offset": "0"}, **sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (method, path)
    assert everything(db) == before
    reported = server.get("/audit?outcome=not_allowed&limit=500", headers=reader).json()["entries"]
    assert reported, "refusals are told, if not all of so many"
    assert {one["owner"] for one in reported} == {"eve"}


@any_database
def test_only_an_operator_reaches_owners(server: TestClient, db: Database) -> None:
    managing = [(method, path) for method, path in CHANGING if path.startswith("/owners")]
    managing += [("GET", "/owners"), ("GET", "/owners/{name}")]
    assert len(managing) == 5
    headers(db, "eve", "reader")
    compiler, operator = headers(db, "ada", "compiler"), headers(db, "ops", "operator")
    for method, path in managing:
        answer = server.request(method, filled(path), headers=compiler, params={"confirm": "eve"})
        assert answer.status_code == 403, (method, path)
    assert [one["name"] for one in server.get("/owners", headers=operator).json()["owners"]] == ["ada", "eve", "ops"]


@any_database
def test_no_key_of_another_owner_sees_or_changes_keys_quotas_or_audit(server: TestClient, db: Database) -> None:
    mine, hers = headers(db, "ada", "manager"), headers(db, "eve", "manager")
    made = server.post("/keys", json={"label": "private label"}, headers=mine).json()
    before = everything(db)
    shown: list[Response] = [
        server.get(path, headers=hers)
        for path in ("/me", "/keys", "/keys?owner=ada", "/audit", "/audit?owner=ada", "/owners", "/owners/ada")
    ]
    shown += [
        server.delete(f"/keys/{made['id']}", headers=hers),
        server.post(f"/keys/{made['id']}/rotate", json={}, headers=hers),
        server.post("/keys", json={"owner": "ada"}, headers=hers),
        server.patch("/owners/ada", json={"quotas": {"stored_bytes": 1}}, headers=hers),
        server.delete("/owners/ada?confirm=ada", headers=hers),
    ]
    for answer in shown:
        assert "private label" not in answer.text
        assert '"ada"' not in answer.text
        assert answer.status_code in (200, 403, 404)
    assert [answer.status_code for answer in shown if answer.status_code == 200] == [200] * 3, "her own"
    assert everything(db) == before


@any_database
def test_an_operator_sees_no_models_jobs_or_artifacts_of_others(
    server: TestClient, db: Database, blobs: LocalBlobs
) -> None:
    mine, operator = headers(db, "ada", "compiler"), headers(db, "ops", "operator")
    job = server.post("/compile", files={"model": b"m"}, headers=mine).json()
    claim = lease.claim(db, "w", ["cpu"], 60.0)
    assert claim is not None
    assert lease.succeed(db, claim, made=blobs.put_bytes(b"a"), report={}, circumstances={})
    for path in (
        f"/jobs/{job['id']}",
        f"/jobs/{job['id']}/log",
        f"/models/{job['model']}",
        f"/models/{job['model']}/file",
        f"/artifacts/{job['artifact_id']}",
    ):
        assert server.get(path, headers=mine).status_code == 200, path
        assert server.get(path, headers=operator).status_code == 404, path
    for path, name in (("/jobs", "jobs"), ("/models", "models"), ("/tuning-records", "records")):
        assert server.get(path, headers=operator).json()[name] == []


def signed_out(client: TestClient) -> Response:
    """The answer to whoever signs in and out of the page."""
    cookie = str(client.post("/session").headers["set-cookie"]).partition(";")[0]
    answer: Response = client.delete("/session", headers={"Cookie": cookie})
    return answer


@any_database
def test_every_call_that_changes_something_leaves_an_entry(server: TestClient, db: Database, blobs: LocalBlobs) -> None:
    client = server
    client.headers.update(headers(db, "ada", "operator"))

    def compiled() -> dict[str, Any]:
        reported: dict[str, Any] = client.post("/compile?fresh=true", files={"model": b"m"}).json()
        return reported

    def ended() -> dict[str, Any]:
        job = compiled()
        claim = lease.claim(db, "w", ["cpu"], 60.0)
        assert claim is not None
        assert lease.succeed(db, claim, made=blobs.put_bytes(b"a"), report={}, circumstances={})
        return job

    def failed() -> dict[str, Any]:
        job = client.post("/compile", files={"model": b"wrong"}).json()
        while (claim := lease.claim(db, "w", ["cpu"], 60.0)) is not None and str(claim.job_id) != job["id"]:
            pass
        assert claim is not None
        assert lease.fail(db, claim, {"code": "unsupported_model", "message": "no"})
        return dict(job)

    def upload() -> str:
        return str(client.post("/uploads", json={"bytes": 3}).json()["id"])

    def webhook() -> str:
        return str(client.post("/webhooks", json={"url": "https://localhost/"}).json()["id"])

    def share() -> str:
        return str(client.post(f"/jobs/{done['id']}/shares", json={}).json()["id"])

    def workload() -> str:
        path = f"/models/{done['model']}/workloads/w"
        assert client.put(path, json={"dims": {"seq": 32}}).status_code == 200
        return path

    def key() -> str:
        return str(client.post("/keys", json={}).json()["id"])

    def batch() -> str:
        form = {"options": '[{"threads": 1}, {"threads": 2}]'}
        made = client.post("/compile?fresh=true", files={"model": b"m"}, data=form).json()
        return str(made["batch"])

    def cancelled_batch() -> Response:
        name = batch()
        client.post(f"/batches/{name}/cancel")
        answer: Response = client.post(f"/batches/{name}/retry")
        return answer

    def owner() -> str:
        name = f"o{uuid.uuid4().hex}"
        client.post("/owners", json={"name": name})
        return name

    records = '{"format":"tilewright-records","version":1}\n{"type":"workload","workload":"w","text":"t"}\n'
    done = ended()
    calls: dict[tuple[str, str], tuple[str, Callable[[], Response]]] = {
        ("POST", "/models"): ("create", lambda: client.post("/models", content=b"new")),
        ("DELETE", "/models/{digest}"): (
            "delete",
            lambda: client.delete(f"/models/{client.post('/models', content=b'gone').json()['digest']}"),
        ),
        ("POST", "/compile"): ("create", lambda: client.post("/compile?fresh=true", files={"model": b"m"})),
        ("POST", "/compressions"): (
            "create",
            lambda: client.post("/compressions", files={"model": b"m"}, data={"options": '{"sparsity": 0.5}'}),
        ),
        ("POST", "/legalisations"): (
            "create",
            lambda: client.post("/legalisations", files={"model": b"m"}, data={"options": '{"profile": "edgetpu"}'}),
        ),
        ("POST", "/placements"): (
            "create",
            lambda: client.post("/placements", files={"model": b"m"}, data={"options": json.dumps(PLACEMENT.example)}),
        ),
        ("POST", "/quantizations"): ("create", lambda: client.post("/quantizations", files={"model": b"m"})),
        ("POST", "/uploads"): ("create", lambda: client.post("/uploads", json={"bytes": 3})),
        ("PATCH", "/uploads/{upload_id}"): (
            "append",
            lambda: client.patch(f"/uploads/{upload()}", content=b"x", headers={"Upload-Offset": "0"}),
        ),
        ("DELETE", "/uploads/{upload_id}"): ("delete", lambda: client.delete(f"/uploads/{upload()}")),
        ("DELETE", "/jobs/{job_id}"): ("purge", lambda: client.delete(f"/jobs/{compiled()['id']}")),
        ("POST", "/batches/{batch_id}/cancel"): ("cancel", lambda: client.post(f"/batches/{batch()}/cancel")),
        ("POST", "/batches/{batch_id}/retry"): ("create", cancelled_batch),
        ("POST", "/jobs/{job_id}/cancel"): ("cancel", lambda: client.post(f"/jobs/{compiled()['id']}/cancel")),
        ("PATCH", "/jobs/{job_id}"): (
            "label",
            lambda: client.patch(f"/jobs/{done['id']}", json={"name": "nightly"}),
        ),
        ("PATCH", "/models/{digest}"): (
            "label",
            lambda: client.patch(f"/models/{done['model']}", json={"tags": ["x"]}),
        ),
        ("POST", "/jobs/{job_id}/purge"): ("purge", lambda: client.post(f"/jobs/{compiled()['id']}/purge")),
        ("POST", "/jobs/{job_id}/finish"): ("finish", lambda: client.post(f"/jobs/{compiled()['id']}/finish")),
        ("POST", "/jobs/{job_id}/clone"): (
            "create",
            lambda: client.post(f"/jobs/{done['id']}/clone", json={"fresh": True}),
        ),
        ("POST", "/jobs/{job_id}/minimise"): (
            "create",
            lambda: client.post(f"/jobs/{failed()['id']}/minimise", json={"seconds": 5.0}),
        ),
        ("POST", "/benchmarks"): (
            "create",
            lambda: client.post("/benchmarks", json={"artifacts": [done["artifact_id"]]}),
        ),
        ("POST", "/inferences"): (
            "create",
            lambda: client.post(f"/inferences?artifact={done['artifact_id']}", content=b"npz"),
        ),
        ("POST", "/tuning-records/import"): (
            "import",
            lambda: client.post("/tuning-records/import", content=records),
        ),
        ("POST", "/webhooks"): ("create", lambda: client.post("/webhooks", json={"url": "https://localhost/"})),
        ("DELETE", "/webhooks/{webhook_id}"): ("delete", lambda: client.delete(f"/webhooks/{webhook()}")),
        ("POST", "/webhooks/{webhook_id}/test"): ("test", lambda: client.post(f"/webhooks/{webhook()}/test")),
        ("POST", "/jobs/{job_id}/shares"): ("share", lambda: client.post(f"/jobs/{done['id']}/shares", json={})),
        ("DELETE", "/jobs/{job_id}/shares/{share_id}"): (
            "revoke",
            lambda: client.delete(f"/jobs/{done['id']}/shares/{share()}"),
        ),
        ("PUT", "/models/{digest}/workloads/{workload}"): (
            "put",
            lambda: client.put(f"/models/{done['model']}/workloads/v", json={"dims": {"seq": 32}}),
        ),
        ("DELETE", "/models/{digest}/workloads/{workload}"): ("delete", lambda: client.delete(workload())),
        ("POST", "/keys"): ("create", lambda: client.post("/keys", json={})),
        ("POST", "/keys/{key_id}/rotate"): ("rotate", lambda: client.post(f"/keys/{key()}/rotate", json={})),
        ("POST", "/session"): ("create", lambda: client.post("/session")),
        ("POST", "/session/links"): ("create", lambda: client.post("/session/links")),
        ("DELETE", "/session"): ("revoke", lambda: signed_out(client)),
        ("DELETE", "/keys/{key_id}"): ("revoke", lambda: client.delete(f"/keys/{key()}")),
        ("POST", "/owners"): ("create", lambda: client.post("/owners", json={"name": "bob"})),
        ("PATCH", "/owners/{name}"): (
            "suspend",
            lambda: client.patch(f"/owners/{owner()}", json={"suspended": True}),
        ),
        ("DELETE", "/owners/{name}"): (
            "delete",
            lambda: client.delete(f"/owners/{(name := owner())}", params={"confirm": name}),
        ),
    }
    assert calls.keys() == set(CHANGING) - HARMLESS, "every route that changes something is tried here"
    for (method, path), (verb, call) in calls.items():
        with db.write() as session:  # the queue of this owner is short
            session.execute(sa.text("UPDATE jobs SET state = 'CANCELLED' WHERE state = 'QUEUED'"))
        answer = call()
        assert answer.status_code < 300, (method, path, answer.text)
        (entry, *_) = client.get("/audit?limit=1").json()["entries"]
        expected = verb if verb != "rotate" else "revoke"
        assert (entry["verb"], entry["outcome"]) == (expected, "done"), (method, path)
        assert entry["request_id"] == answer.headers["X-Request-Id"], (method, path)
        assert entry["owner"] == "ada"
        assert entry["address"]
    assert "rotate" in json.dumps(client.get("/audit?verb=rotate").json())
