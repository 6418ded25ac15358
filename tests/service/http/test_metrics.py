from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from service.config import Settings
from service.db.engine import Database
from service.db.models import Job
from service.http.app import create_app
from service.jobs.scheduling import lease


def scrape(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name.removeprefix("tilewright_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def labelled(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def test_the_life_of_jobs_is_counted(
    client: TestClient, db: Database, queued: Callable[..., Job], finish: Callable[..., Any], record: dict[str, Any]
) -> None:
    queued(b"1"), queued(b"2")
    before = scrape(client)
    assert before["jobs", labelled(kind="compile", state="QUEUED", queue="cpu")] == 2
    assert before["jobs_accepted_total", labelled(kind="compile", queue="cpu")] == 2
    assert before["queue_age_seconds", labelled(queue="cpu")] >= 0
    finish(records=(record,))
    queued(b"1", fresh=False)
    after = scrape(client)
    assert after["jobs", labelled(kind="compile", state="QUEUED", queue="cpu")] == 1
    assert after["jobs_ended_total", labelled(kind="compile", state="SUCCEEDED", queue="cpu")] == 1
    assert after["cache_hits_total", labelled()] == 1
    assert after["tuning_records_total", labelled(kind="kernel", target="cpu:x86-64-v4")] == 1
    assert after["device_seconds_total", labelled(queue="cpu")] >= 0


def test_requests_are_counted_by_route_not_by_path(client: TestClient, queued: Callable[..., Job]) -> None:
    for _ in range(2):
        client.get(f"/jobs/{queued().id}")
    client.get("/nowhere/at/all")
    reported = scrape(client)
    assert reported["http_requests_total", labelled(method="GET", route="/jobs/{job_id}", status="200")] == 2
    assert reported["http_requests_total", labelled(method="GET", route="none", status="404")] == 1
    assert reported["http_seconds_count", labelled(method="GET", route="/jobs/{job_id}")] == 2


def test_workers_are_counted_by_what_they_do(client: TestClient, db: Database, queued: Callable[..., Job]) -> None:
    lease.seen(db, "w1", ["cpu"], {}, "0.1.0", queued().id)
    lease.seen(db, "w2", ["cpu"], {}, "0.1.0")
    reported = scrape(client)
    assert reported["workers", labelled(state="busy")] == reported["workers", labelled(state="idle")] == 1


def test_metrics_can_be_switched_off(settings: Settings, ring: Any) -> None:
    with TestClient(create_app(settings.model_copy(update={"metrics": False}), ring=ring)) as client:
        assert client.get("/metrics").status_code == 404
