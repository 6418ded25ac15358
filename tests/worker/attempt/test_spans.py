"""One trace from a request to the phases of the process that does its job (OpenTelemetry)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service import traces
from service.config import Settings
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from tests.service.conftest import RecordingRing
from worker.attempt.context import WorkerContext
from worker.attempt.tasks import drain

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PHASES = 'event("load", 0.0); event("load", 0.1, kind="notice"); event("fuse", 0.5); succeed()'

DeskWith = Callable[..., WorkerContext]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What is recorded while the test runs; a provider can be set once a process, and here for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def client(office: Any) -> Iterator[TestClient]:
    """Of the API over the office's database."""
    settings = Settings(data_dir=office.folder, database_url=office.url)
    key = access.make_key(office.db, "local", ["read", "compile"], "test")
    app = create_app(settings, ring=RecordingRing(), inspector=Inspector(ready=0))
    with TestClient(app, headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


def recorded(kept: InMemorySpanExporter) -> dict[str, dict[str, Any]]:
    """Spans by their names, as JSON; each name once."""
    spans = [json.loads(span.to_json()) for span in kept.get_finished_spans()]
    found = {span["name"]: span for span in spans}
    assert len(found) == len(spans)
    return found


def place(span: dict[str, Any]) -> str:
    """Its `traceparent`."""
    return f"00-{span['context']['trace_id'][2:]}-{span['context']['span_id'][2:]}-01"


def test_a_trace_leads_from_the_caller_over_the_request_to_the_phases_of_the_job(
    office: Any, context_with: DeskWith, client: TestClient, kept: InMemorySpanExporter
) -> None:
    asked = client.post("/compile", json={"model": office.model}, headers={"traceparent": CALLER}).json()
    assert drain(context_with(PHASES), "cpu") == 1
    spans = recorded(kept)
    request, job, load, fuse = (spans[name] for name in ("POST /compile", "compile", "load", "fuse"))
    assert asked["traceparent"] == place(request)
    above = [(CALLER, request), (place(request), job), (place(job), load), (place(job), fuse)]
    for parent, span in above:
        assert parent.split("-")[1:3] == [span["context"]["trace_id"][2:], span["parent_id"][2:]]
    assert load["end_time"] <= fuse["start_time"] <= fuse["end_time"] <= job["end_time"]
    assert job["attributes"] == {
        "tilewright.job.id": asked["id"],
        "tilewright.job.kind": "compile",
        "tilewright.job.attempt": 1,
        "tilewright.job.became": "succeeded",
    }
    assert job["status"] == {"status_code": "UNSET"}
    assert traces.here() is None


def test_a_job_that_fails_is_a_span_with_the_code_of_its_problem(
    office: Any, context_with: DeskWith, kept: InMemorySpanExporter
) -> None:
    office.submit()
    said = 'send(kind="problem", problem=dict(code="unsupported_operator", fault="caller", message="m"))'
    assert drain(context_with(said), "cpu") == 1
    job = recorded(kept)["compile"]
    assert job["status"] == {"status_code": "ERROR", "description": "unsupported_operator"}
    assert job["parent_id"] is None


def test_without_a_collector_nothing_is_set_and_without_the_exporter_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace.get_tracer_provider()
    for name in traces.COLLECTORS:
        monkeypatch.delenv(name, raising=False)
    traces.export("tests")
    assert not capsys.readouterr().err
    monkeypatch.setenv(traces.COLLECTORS[0], "http://127.0.0.1:9/v1/traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    traces.export("tests")
    assert "pip install 'tilewright[traces]'" in capsys.readouterr().err
    assert trace.get_tracer_provider() is before
