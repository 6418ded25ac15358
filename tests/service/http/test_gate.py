"""Every route of the app, found through its OpenAPI document, lets through only what it should."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from compiler.contract.job_kinds import PLACEMENT
from service.config import Settings
from service.db.engine import Database
from service.db.models import ApiKey, TuningRecord
from service.http.admission.limits import JSON_BYTES, ROUTES
from service.http.app import create_app
from service.http.gate import GatedRoute
from service.http.routes import routers
from service.http.schemas.common import RequestBody
from service.jobs.accounts import access
from service.jobs.scheduling import lease
from tests import seeds
from tests.service.databases import any_database
from tests.service.http.asgi import CHUNK, ask, endless

OPEN = {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics"), ("get", "/version")}
"""Operations that ask for no key, beside the pages for people, which the document does not have."""
PAGES = {"/", "/web/{name:path}", "/docs", "/docs/errors/{code}", "/openapi.json"}
JSON = "application/json"
RAW = "application/octet-stream"
OF_BODIES = ("/benchmarks", "/compile", "/preflight", "/inferences")
"""Paths whose POST names an object in body or query."""
ENDS = "2099-11-20T09:00:00Z"
GRANTS = {"stored_bytes": 5, "queued_jobs": None, "concurrent_jobs": 0, "device_seconds": 1.5}
ENDS_SOONER = {"append_to_upload"}
"""What takes a body of any length up to a number that was announced, and refuses the byte after it."""


@cache
def document() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data_dir=Path(folder)))
        reported: dict[str, Any] = json.loads(json.dumps(app.openapi()))
        app.state.tilewright.db.dispose()
    return reported


@dataclass(frozen=True)
class Operation:
    method: str
    path: str

    @property
    def reported(self) -> dict[str, Any]:
        found: dict[str, Any] = document()["paths"][self.path][self.method]
        return found

    @property
    def route(self) -> GatedRoute:
        routes = [route for router in routers() for route in router.routes]
        (found,) = [one for one in routes if isinstance(one, GatedRoute) and one.name == self.name]
        return found

    @property
    def name(self) -> str:
        return str(self.reported["operationId"])

    @property
    def media(self) -> dict[str, Any]:
        found: dict[str, Any] = self.reported.get("requestBody", {}).get("content", {})
        return found

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


OPERATIONS = [Operation(method, path) for path, item in document()["paths"].items() for method in item]
KEYED = [one for one in OPERATIONS if (one.method, one.path) not in OPEN]
WITH_BODY = [one for one in KEYED if one.media]
WITH_JSON = [one for one in WITH_BODY if JSON in one.media]
FOR_EVERY_KEY = ("get_me", "begin_session", "end_session", "make_session_link")
MANAGED = [one for one in KEYED if one.path.startswith("/owners")]
"""What an operator does with owners; `test_roles` shows that nobody else does."""
OBJECTS = [
    one for one in KEYED if one not in MANAGED and ("{" in one.path or (one.method == "post" and one.path in OF_BODIES))
]


def each(operations: Iterable[Operation]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One app, database and owner for all operations: what is refused leaves nothing behind."""
    return seeds.each(operations, "operation")


@pytest.fixture
def there(
    client: TestClient, db: Database, finish: Callable[..., lease.Claim], record: dict[str, object]
) -> dict[str, str]:
    """An object of owner `ada` for every parameter that names one."""
    job = client.post("/compile", files={"model": b"m"}).json()
    finish(records=(record,))
    inference = client.post(f"/inferences?artifact={job['artifact_id']}", content=b"x", headers={"Content-Type": RAW})
    batch = client.post("/compile", files={"model": b"m"}, data={"options": '[{"threads": 1}]'}).json()["batch"]
    access.make_key(db, "bob", ["read"], "")
    with db.read() as session:
        found = session.scalars(sa.select(TuningRecord.id)).one()
    return {
        "job_id": job["id"],
        "batch_id": batch,
        "artifact_id": job["artifact_id"],
        "digest": job["model"],
        "benchmark_id": client.post("/benchmarks", json={"artifacts": [job["artifact_id"]]}).json()["id"],
        "inference_id": inference.json()["id"],
        "upload_id": client.post("/uploads", json={"bytes": 50_000}).json()["id"],
        "record_id": str(found),
        "key_id": client.get("/me").json()["key"]["id"],
        "webhook_id": client.post("/webhooks", json={"url": "https://localhost/"}).json()["id"],
        "share_id": client.post(f"/jobs/{job['id']}/shares", json={}).json()["id"],
        "name": "k0.c",
        "workload": client.put(f"/models/{job['model']}/workloads/short", json={"dims": {"n": 1}}).json()["name"],
        "owner": "bob",
    }


def place(operation: Operation, there: dict[str, str]) -> str:
    """The operation's path with the objects that are there; the query that it cannot do without."""
    path = operation.path
    for parameter in operation.reported.get("parameters", ()):
        if parameter["in"] == "path":
            whose = "owner" if operation in MANAGED else parameter["name"]
            assert whose in there, f"give {operation} an object that there is"
            path = path.replace(f"{{{parameter['name']}}}", there[whose])
    return f"{path}?artifact={there['artifact_id']}" if operation.path == "/inferences" else path


def filled(operation: Operation, there: dict[str, str]) -> dict[str, Any]:
    """A JSON body whose every field is sound."""
    sound: dict[str, dict[str, Any]] = {
        "compile_model": {"model": there["digest"], "options": {}, "fresh": False, "priority": 0},
        "quantize_model": {"model": there["digest"], "options": {}, "priority": 0},
        "compress_model": {"model": there["digest"], "options": {"sparsity": 0.5}, "priority": 0},
        "legalise_model": {"model": there["digest"], "options": {"profile": "edgetpu"}, "priority": 0},
        "place_model": {"model": there["digest"], "options": PLACEMENT.example, "priority": 0},
        "preflight_model": {"model": there["digest"], "options": {}},
        "make_benchmark": {"artifacts": [there["artifact_id"]], "options": {}, "priority": 0, "workload": None},
        "clone_job": {"options": {}, "fresh": False, "priority": 0},
        "minimise_job": {"seconds": 60.0, "priority": 0},
        "begin_upload": {"bytes": 5, "media_type": RAW, "sha256": "0" * 64},
        "label_job": {"name": "n", "note": "o", "tags": ["t"]},
        "label_model": {"name": "n", "note": "o", "tags": ["t"]},
        "share_job": {"expires_at": (datetime.now(UTC) + timedelta(days=7)).isoformat(), "download": False},
        "put_workload": {"dims": {"seq": 32}},
        "make_webhook": {"url": "https://localhost/", "secret": None, "states": []},
        "make_key": {"label": "l", "role": "reader", "scopes": ["read"], "expires_at": ENDS, "owner": "ada"},
        "rotate_key": {"grace_s": 5, "expires_at": ENDS},
        "make_owner": {"name": "carol", "quotas": GRANTS},
        "change_owner": {"suspended": False, "quotas": GRANTS},
    }
    return sound[operation.name]


def headers(key: str | None, operation: Operation, **more: str) -> dict[str, str]:
    given = {"Upload-Offset": "0"} if operation.name == "append_to_upload" else {}
    given |= {} if key is None else {"Authorization": f"Bearer {key}"}
    return {**given, "Content-Type": JSON if JSON in operation.media else RAW, **more}


def test_the_app_has_no_other_routes_than_gated_ones() -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data_dir=Path(folder)))
        routes = list(app.routes)
        app.state.tilewright.db.dispose()
    assert routes
    assert all(isinstance(route, GatedRoute) for route in routes), routes
    without = {route.path for route in routes if isinstance(route, GatedRoute) and route.demands is None}
    assert without == PAGES | {path for _, path in OPEN}


def test_the_table_of_limits_names_routes_that_there_are() -> None:
    names = [route.name for router in routers() for route in router.routes if isinstance(route, APIRoute)]
    assert set(ROUTES) <= set(names)


def test_every_json_body_is_strict_about_types_and_names() -> None:
    fields = [route.body_field for router in routers() for route in router.routes if isinstance(route, APIRoute)]
    kinds = [field.field_info.annotation for field in fields if field is not None]
    assert kinds
    for kind in kinds:
        assert isinstance(kind, type), kind
        assert issubclass(kind, RequestBody), kind
        assert (kind.model_config["strict"], kind.model_config["extra"]) == (True, "forbid")


@any_database
@each(KEYED)
def test_without_a_key_not_a_byte_of_the_body_is_read(operation: Operation, client: TestClient) -> None:
    path = operation.path.replace("{", "").replace("}", "")
    answer = ask(client.app, operation.method.upper(), path, headers(None, operation), endless())
    assert (answer.status, answer.problem["code"]) == (401, "not_authenticated")
    assert (answer.read, answer.asked) == (0, 0)


@any_database
@each(KEYED)
def test_an_unknown_or_revoked_key_is_no_key(operation: Operation, client: TestClient, db: Database) -> None:
    revoked = access.make_key(db, "ada", ["admin"], "revoked")
    with db.write() as session:
        session.execute(sa.update(ApiKey).where(ApiKey.label == "revoked").values(revoked_at=1.0))
    path = operation.path.replace("{", "").replace("}", "")
    for key in (revoked, "twk_unknown"):
        answer = ask(client.app, operation.method.upper(), path, headers(key, operation), endless())
        assert (answer.status, answer.problem["code"], answer.asked) == (401, "not_authenticated", 0)


@any_database
@each([one for one in KEYED if one.name not in ("export_records", "import_records", *FOR_EVERY_KEY)])
def test_a_key_without_the_scope_has_no_body_read(operation: Operation, client: TestClient, db: Database) -> None:
    key = access.make_key(db, "ada", ["compile" if (operation.method, operation.path) in READS else "read"], "")
    path = operation.path.replace("{", "").replace("}", "")
    answer = ask(client.app, operation.method.upper(), path, headers(key, operation), endless())
    assert (answer.status, answer.problem["code"], answer.asked) == (403, "not_allowed", 0)


READS = {
    (method.lower(), route.path_format)
    for router in routers()
    for route in router.routes
    if isinstance(route, GatedRoute) and route.demands == "read"
    for method in route.methods or ()
}


@any_database
@each(OBJECTS)
def test_what_another_owner_has_is_not_there(
    operation: Operation, client: TestClient, there: dict[str, str], stranger: dict[str, str], db: Database
) -> None:
    if operation.path.startswith("/keys"):  # those of all owners are there for an operator's key
        stranger = {"Authorization": f"Bearer {access.make_key(db, 'eve', ['read', 'compile', 'keys'], '')}"}
    body = json.dumps(filled(operation, there)).encode() if operation in WITH_JSON else b"x"
    asked = {**headers(None, operation), **stranger}
    answer = ask(client.app, operation.method.upper(), place(operation, there), asked, [body])
    assert answer.status == 404, answer
    assert operation.method == "head" or answer.problem["code"] == "not_found"


@any_database
@each(KEYED)
def test_a_body_that_is_announced_too_large_is_refused_unread(
    operation: Operation, client: TestClient, there: dict[str, str], db: Database
) -> None:
    key = access.make_key(db, "ada", ["admin"], "")
    asked = headers(key, operation, **{"Content-Length": str(1 << 40)})
    answer = ask(client.app, operation.method.upper(), place(operation, there), asked, endless())
    assert (answer.status, answer.problem["code"], answer.asked) == (413, "body_too_large", 0)
    assert answer.problem["details"]["limit_bytes"] in (JSON_BYTES, 1 << 20, 100_000)


@any_database
@each(WITH_BODY)
def test_a_body_that_does_not_end_is_read_up_to_its_limit(
    operation: Operation, client: TestClient, there: dict[str, str], db: Database, settings: Settings
) -> None:
    key = access.make_key(db, "ada", ["admin"], "")
    answer = ask(client.app, operation.method.upper(), place(operation, there), headers(key, operation), endless())
    refused = (400, "bad_request") if operation.name in ENDS_SOONER else (413, "body_too_large")
    assert (answer.status, answer.problem["code"]) == refused
    most = operation.route.terms.body.most(settings)
    assert 0 < answer.read <= most + CHUNK


def wrong() -> Iterator[tuple[Operation, str, object]]:
    for operation in WITH_JSON:
        schema = operation.media[JSON]["schema"]
        if "$ref" in schema:
            schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        for name, field in schema["properties"].items():
            yield operation, name, [["wrong"]]
            if field.get("type") in ("integer", "boolean", "number"):
                yield operation, name, "1"


@any_database
@seeds.each(list(wrong()), "case")
def test_a_field_of_another_type_is_refused(
    case: tuple[Operation, str, object], client: TestClient, there: dict[str, str], db: Database
) -> None:
    operation, field, value = case
    key = access.make_key(db, "ada", ["admin"], "")
    body = json.dumps({**filled(operation, there), field: value}).encode()
    answer = ask(client.app, operation.method.upper(), place(operation, there), headers(key, operation), [body])
    assert answer.status in (400, 422)
    assert answer.problem["fix"]


@any_database
@each(WITH_JSON)
def test_what_is_no_json_object_is_refused(
    operation: Operation, client: TestClient, there: dict[str, str], db: Database
) -> None:
    key = access.make_key(db, "ada", ["admin"], "")
    for body in (b"{", b"[]", b"5", b"null", b"\xff", b"[" * 60_000):
        answer = ask(client.app, operation.method.upper(), place(operation, there), headers(key, operation), [body])
        assert answer.status in (400, 422), (body[:10], answer)
        assert answer.problem["code"] in ("bad_request", "invalid_options")


@any_database
def test_a_body_that_breaks_off_is_no_fault_of_ours(client: TestClient, db: Database) -> None:
    key = access.make_key(db, "ada", ["admin"], "")
    operation = next(one for one in KEYED if one.name == "make_benchmark")
    answer = ask(client.app, "POST", "/benchmarks", headers(key, operation), [b"{", b'"artifacts'])
    assert (answer.status, answer.problem["code"]) == (400, "bad_request")
