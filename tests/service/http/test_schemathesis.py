"""Requests that were made from the OpenAPI document, good and bad, are answered as the document says."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.schemas import OpenApiSchema

from service.config import Settings
from service.db import workers
from service.db.engine import Database
from service.http.app import create_app
from service.http.routes.graphs import EXAMPLE
from service.http.schemas.preflight import PREFLIGHT_EXAMPLE
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector, Order
from service.jobs.scheduling import catalogue, lease
from tests.service.conftest import RecordingRing

EXAMPLES = 30
"""Random requests of each operation, beside those that cover its parameters one by one."""

ALONE: dict[str, Any] = {"extra-data-sources": {"responses": False}}
"""No request is made from earlier answers, whose ids are never the same twice."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "missing_required_header",
)


IDS = (
    "job",
    "artifact",
    "benchmark",
    "inference",
    "record",
    "upload",
    "doomed upload",
    "key",
    "doomed key",
    "webhook",
    "doomed webhook",
    "share",
)
KNOWN = {name: str(uuid.UUID(int=number)) for number, name in enumerate(IDS, start=1)} | {
    "file": "known.c",
    "workload": "known-workload",
    "model": "1" * 64,
    "doomed model": "2" * 64,
    "owner": "known-owner",
    "doomed owner": "doomed-owner",
}
"""Values that stand in generated requests for those of things that are there.

The real ones are not known before the tests run.
"""


@schemathesis.serializer("application/zip", "application/x-npz", "application/x-ndjson")
def _as_it_is(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


class Foreteller(Inspector):
    """Says at once what the process that reads models might say."""

    def ask(self, order: Order, wall_s: float, memory_bytes: int = 0) -> dict[str, Any]:
        if isinstance(order, Mapping):
            return {"source": "void k0(void);"}
        with order as plain:
            if plain["order"] == "graph":
                return {"graph": EXAMPLE}
        return {name: PREFLIGHT_EXAMPLE[name] for name in PREFLIGHT_EXAMPLE if name != "queue"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[FastAPI]:
    folder = tmp_path_factory.mktemp("fuzzed")
    shutil.copy(migrated, folder / "tilewright.db")
    chosen = Settings(
        data_dir=folder,
        max_model_bytes=10_000,
        max_queued_per_owner=1_000_000,
        reconcile_every_s=3600.0,
        worker_alive_s=3600.0,
    )
    made = create_app(chosen, ring=RecordingRing(), inspector=Foreteller(ready=0))
    yield made
    made.state.tilewright.db.dispose()


@pytest.fixture(scope="module")
def key(app: FastAPI) -> str:
    return access.make_key(app.state.tilewright.db, "ada", ["read", "compile", "admin"], "test")


@pytest.fixture(scope="module")
def there(app: FastAPI, key: str, zipped: Callable[..., bytes]) -> dict[str, str]:
    """What is there, by the names of `KNOWN`."""
    state = app.state.tilewright
    db: Database = state.db
    client = TestClient(app, headers={"Authorization": f"Bearer {key}"})
    files = {
        "manifest.json": b"{}",
        "plan.json": b"{}",
        "graph.json": b"{}",
        "trace.json": b"{}",
        "plan.svg": b"<svg/>",
        "report.html": b"<p>",
        "source/k0.c": b"int x;",
    }
    compiled = client.post("/compile", files={"model": b"first"}).json()
    claim = lease.claim(db, "w1", ["cpu"], 600.0)
    assert claim is not None
    record = {
        "kind": "kernel",
        "workload": "b7c4f1",
        "operator": "Conv",
        "description": "Conv",
        "target": "cpu",
        "hardware": "hw-1",
        "variant": {"algorithm": "direct"},
        "threads": 4,
        "seconds": 2e-4,
        "p10": 1.9e-4,
        "p90": 2.3e-4,
        "samples": 31,
        "compiler": "0.1.0",
    }
    artifact = state.blobs.put_bytes(zipped(files))
    measured = lease.Measured((record,), {"b7c4f1": "workload text"})
    assert lease.succeed(db, claim, made=artifact, report={"kernels": 3}, circumstances={"x": 1}, measured=measured)
    benchmark = client.post("/benchmarks", json={"artifacts": [compiled["artifact_id"]]}).json()
    claim = lease.claim(db, "w1", ["run:cpu"], 600.0)
    assert claim is not None
    assert lease.succeed(db, claim, {"artifacts": [{"samples_s": [0.1]}], "comparisons": []})
    inference = client.post(f"/inferences?artifact={compiled['artifact_id']}", content=b"inputs").json()
    claim = lease.claim(db, "w1", ["run:cpu"], 600.0)
    assert claim is not None
    assert lease.succeed(db, claim, made=state.blobs.put_bytes(b"outputs"), report={"seconds": 0.1})
    with db.write() as session:
        workers.report(session, "w1", ["cpu", "run:cpu"], {"cpu": "test"}, "0.1.0", None)
    catalogue.publish(db, "targets", "0.1.0", [{"name": "cpu", "description": "x"}])
    catalogue.publish(db, "operators", "0.1.0", [{"name": "Conv", "opsets": [1, 22], "limits": ""}])
    (found,) = client.get("/tuning-records").json()["records"]
    uploads = [client.post("/uploads", json={"bytes": 9}).json()["id"] for _ in range(2)]
    return {
        KNOWN["job"]: compiled["id"],
        KNOWN["artifact"]: compiled["artifact_id"],
        KNOWN["benchmark"]: benchmark["id"],
        KNOWN["inference"]: inference["id"],
        KNOWN["record"]: found["id"],
        KNOWN["model"]: compiled["model"],
        KNOWN["doomed model"]: client.post("/models", content=b"second").json()["digest"],
        KNOWN["upload"]: uploads[0],
        KNOWN["doomed upload"]: uploads[1],
        KNOWN["file"]: "k0.c",
        KNOWN["workload"]: client.put(
            f"/models/{compiled['model']}/workloads/short", json={"dims": {"seq": 32}}
        ).json()["name"],
        KNOWN["webhook"]: client.post("/webhooks", json={"url": "https://localhost/"}).json()["id"],
        KNOWN["doomed webhook"]: client.post("/webhooks", json={"url": "https://localhost/"}).json()["id"],
        KNOWN["share"]: client.post(f"/jobs/{compiled['id']}/shares", json={}).json()["id"],
        KNOWN["key"]: client.post("/keys", json={"label": "kept"}).json()["id"],
        KNOWN["doomed key"]: client.post("/keys", json={"label": "doomed"}).json()["id"],
        KNOWN["owner"]: client.post("/owners", json={"name": "bob"}).json()["name"],
        KNOWN["doomed owner"]: client.post("/owners", json={"name": "cyd"}).json()["name"],
    }


def _bound(parameter: str, *known: str) -> dict[str, Any]:
    """Half of the time a parameter is one of these."""
    return {parameter: {"dictionary": "-".join(known).replace(" ", "-"), "probability": 0.5}}


def _config() -> SchemathesisConfig:
    bound = [
        ("path.job_id", "job", "benchmark"),
        ("path.artifact_id", "artifact"),
        ("path.benchmark_id", "benchmark"),
        ("path.inference_id", "inference"),
        ("path.record_id", "record"),
        ("path.digest", "model"),
        ("path.upload_id", "upload"),
        ("path.name", "file"),
        ("query.artifact", "artifact"),
        ("body.artifacts[*]", "artifact"),
        ("body.model", "model"),
        ("path.key_id", "key"),
        ("path.webhook_id", "webhook"),
        ("path.share_id", "share"),
        ("path.workload", "workload"),
        ("path.digest", "doomed model"),
        ("path.upload_id", "doomed upload"),
        ("path.key_id", "doomed key"),
        ("path.webhook_id", "doomed webhook"),
        ("path.name", "owner"),
        ("path.name", "doomed owner"),
        ("query.confirm", "doomed owner"),
    ]
    dictionaries = {
        "-".join(names).replace(" ", "-"): {"values": [KNOWN[name] for name in names]} for _, *names in bound
    }
    parameters: dict[str, Any] = {}
    for parameter, *names in bound[:-7]:
        parameters |= _bound(parameter, *names)
    return SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "dictionaries": dictionaries,
            "parameters": parameters,
            "operations": [
                {"include-operation-id": "delete_model", "parameters": _bound("path.digest", "doomed model")},
                {"include-operation-id": "delete_upload", "parameters": _bound("path.upload_id", "doomed upload")},
                {"include-operation-id": "revoke_key", "parameters": _bound("path.key_id", "doomed key")},
                {
                    "include-operation-id": "delete_webhook",
                    "parameters": _bound("path.webhook_id", "doomed webhook"),
                },
                {"include-operation-id": ["get_owner", "change_owner"], "parameters": _bound("path.name", "owner")},
                {
                    "include-operation-id": "delete_owner",
                    "parameters": _bound("path.name", "doomed owner") | _bound("query.confirm", "doomed owner"),
                },
                {  # any bytes are a model or arrays to these; what is no such thing fails as a job
                    "include-operation-id": ["compile_model", "upload_model", "preflight_model", "make_inference"],
                    "checks": {"negative_data_rejection": {"enabled": False}},
                },
                {  # GET of this path is that of a record with a malformed id
                    "include-operation-id": "import_records",
                    "checks": {"unsupported_method": {"enabled": False}},
                },
            ],
            "generation": {
                "deterministic": True,
                "max-examples": EXAMPLES,
                "with-security-parameters": False,
                "database": "none",
            },
            "analysis": {"constants": {"enabled": False}},  # of whatever modules are loaded, so never the same twice
            "phases": {
                "examples": ALONE,
                "coverage": ALONE,
                "fuzzing": {**ALONE, "error-feedback": {"enabled": False}},
            },
            "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}},
        }
    )


@pytest.fixture(scope="module")
def schema(app: FastAPI) -> OpenApiSchema:
    made = schemathesis.openapi.from_dict(app.openapi(), config=_config())
    made.app = app
    return made


def _named(part: Any, there: dict[str, str]) -> Any:
    """Part of a request with the values of `KNOWN` replaced."""
    if isinstance(part, dict):
        return {name: _named(value, there) for name, value in part.items()}
    if isinstance(part, list):
        return [_named(value, there) for value in part]
    return there.get(part, part) if isinstance(part, str) else part


def _asked(schema: OpenApiSchema, operation: APIOperation[Any, Any, Any, Any], there: dict[str, str], key: str) -> None:
    """All requests that are made for an operation. They are made here, since the plugin makes them when collecting."""

    def answered_as_described(case: schemathesis.Case[Any]) -> None:
        for part in ("path_parameters", "query", "body"):
            setattr(case, part, _named(getattr(case, part), there))
        for name in [name for name in case.headers or {} if name.lower() == "prefer"]:
            del case.headers[name]  # waiting is tested in test_waiting
        case.call_and_validate(headers={"Authorization": f"Bearer {key}"})

    build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=answered_as_described,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


def test_answers_about_a_job_are_as_described(schema: OpenApiSchema, there: dict[str, str], key: str) -> None:
    _asked(schema, schema["/jobs/{job_id}"]["GET"], there, key)


@pytest.mark.slow
def test_every_answer_is_as_described(
    schema: OpenApiSchema, there: dict[str, str], key: str, subtests: pytest.Subtests
) -> None:
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        with subtests.test(operation.label):
            _asked(schema, operation, there, key)
