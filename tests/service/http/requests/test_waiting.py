"""`Prefer: wait=N`, and looking at a job without fetching it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.contract import Event
from service.config import Settings
from service.db.engine import Database
from service.http.app import create_app
from service.http.requests.waiting import MOST_S, wanted_s
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling import lease
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database

LONG = {"Prefer": f"wait={MOST_S}"}
"""Longer than any of these tests takes: what answers has been told that the job has ended."""


def submit(client: TestClient, model: bytes = b"m", prefer: str = "") -> Any:
    return client.post("/compile", files={"model": model}, headers={"Prefer": prefer})


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=10", 10),
        ("respond-async, wait=10", 10),
        ('Wait = "7"; x=1, other', 7),
        ("wait=999999", MOST_S),
        ("wait=0", 0),
        ("wait", 0),
        ("wait=-1", 0),
        ("wait=soon", 0),
        ("awaited=5", 0),
        (None, 0),
    ],
)
def test_the_header_is_read_as_the_rfc_writes_it_and_anything_else_is_passed_over(
    header: str | None, seconds: int
) -> None:
    assert wanted_s(header) == seconds


def when_it_is_rung(ring: RecordingRing, then: Callable[[], object]) -> threading.Thread:
    """What a worker does that is woken: it looks once."""
    rung = threading.Event()

    def note(queue: str) -> None:
        rung.set()

    ring.heard = note

    thread = threading.Thread(target=lambda: (rung.wait(120), then()))
    thread.start()
    return thread


def test_a_compilation_is_answered_when_it_has_ended_and_its_worker_is_woken_first(
    client: TestClient, ring: RecordingRing, finish: Callable[..., lease.Claim]
) -> None:
    worker = when_it_is_rung(ring, finish)
    answer = submit(client, prefer=LONG["Prefer"])
    worker.join()
    assert (answer.status_code, answer.json()["state"]) == (200, "SUCCEEDED")
    assert answer.headers["preference-applied"] == f"wait={MOST_S}"
    assert ring.rung == ["cpu"], "once"
    again = submit(client, prefer=LONG["Prefer"])
    assert (again.status_code, again.json()["cached"]) == (200, True)


def test_several_are_waited_for_together(
    client: TestClient, ring: RecordingRing, finish: Callable[..., lease.Claim]
) -> None:
    worker = when_it_is_rung(ring, lambda: (finish(b"1"), finish(b"2")))
    options = '[{"threads": 1}, {"threads": 2}]'
    answer = client.post("/compile", files={"model": b"m"}, data={"options": options}, headers=LONG)
    worker.join()
    assert answer.status_code == 200
    assert [job["state"] for job in answer.json()["jobs"]] == ["SUCCEEDED"] * 2


def test_who_has_waited_long_enough_is_told_how_far_it_is(client: TestClient) -> None:
    answer = submit(client, prefer="wait=1")
    assert (answer.status_code, answer.json()["state"]) == (202, "QUEUED")
    assert answer.headers["preference-applied"] == "wait=1"
    job = client.get(f"/jobs/{answer.json()['id']}", headers={"Prefer": "wait=1"})
    assert (job.status_code, job.json()["state"], job.headers["retry-after"]) == (200, "QUEUED", "2")


@any_database
def test_a_job_is_told_when_it_has_ended(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], stranger: dict[str, str]
) -> None:
    job = submit(client).json()["id"]
    claim = claimed()

    def work() -> None:
        for step in range(3):
            lease.heartbeat(db, claim, [Event("progress", "tile", step / 5, "")])
        lease.cancelled(db, claim)

    waiting = threading.Timer(0.3, work)
    waiting.start()
    answer = client.get(f"/jobs/{job}", headers=LONG)
    waiting.join()
    assert (answer.json()["state"], answer.headers["preference-applied"]) == ("CANCELLED", f"wait={MOST_S}")
    assert "retry-after" not in answer.headers
    assert "preference-applied" not in client.get(f"/jobs/{job}", headers=LONG).headers, "it had ended already"
    assert client.get(f"/jobs/{job}", headers={**LONG, **stranger}).status_code == 404


def test_a_job_that_is_removed_is_not_waited_for(client: TestClient) -> None:
    job = submit(client).json()["id"]
    threading.Timer(0.3, lambda: client.post(f"/jobs/{job}/purge")).start()
    assert client.get(f"/jobs/{job}", headers=LONG).status_code == 404


def test_those_who_wait_take_turns_with_event_streams_and_past_them_the_answer_comes_at_once(
    db: Database, settings: Settings, ring: RecordingRing
) -> None:
    narrow = settings.model_copy(update={"max_streams_per_owner": 1, "max_uploads_per_owner": 1})
    key = access.make_key(db, "ada", ["read", "compile"], "test")
    with TestClient(
        create_app(narrow, ring=ring, inspector=Inspector(ready=0)), headers={"Authorization": f"Bearer {key}"}
    ) as client:
        rung = threading.Event()
        ring.heard = lambda queue: rung.set()
        first: list[Any] = []
        waiting = threading.Thread(target=lambda: first.append(submit(client, b"1", LONG["Prefer"])))
        waiting.start()
        assert rung.wait(120)
        while (second := submit(client, b"2", prefer="wait=59")).status_code == 429:
            pass  # a moment later the first has given its turn among the uploads back
        assert (second.status_code, second.json()["state"]) == (202, "QUEUED"), "there is a turn for its upload"
        for job in client.get("/jobs").json()["jobs"]:
            client.post(f"/jobs/{job['id']}/cancel")
        waiting.join()
        assert (first[0].status_code, first[0].json()["state"]) == (200, "CANCELLED")


def test_a_job_that_has_not_changed_is_not_sent_again(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    path = f"/jobs/{submit(client).json()['id']}"
    seen = client.get(path)
    known = {"If-None-Match": seen.headers["etag"]}
    same = client.get(path, headers=known)
    assert (same.status_code, same.content, same.headers["retry-after"]) == (304, b"", "2")
    head = client.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", seen.headers["etag"])
    assert client.head(path, headers=known).status_code == 304
    lease.heartbeat(db, claimed(), [Event("phase", "tile", 0.25)])
    changed = client.get(path, headers=known)
    assert (changed.status_code, changed.json()["phase"]) == (200, "tile")
    assert client.head(path).headers["etag"] == changed.headers["etag"] != seen.headers["etag"]


def test_an_event_stream_ends_after_the_time_that_was_asked_for(client: TestClient) -> None:
    job = submit(client).json()["id"]
    with client.stream("GET", f"/jobs/{job}/events", headers={"Prefer": "wait=1"}) as answer:
        lines = list(answer.iter_lines())
    assert "event: state" in lines
    assert client.get(f"/jobs/{job}").json()["state"] == "QUEUED"


def test_lists_name_their_next_page_with_the_rest_of_what_was_asked(client: TestClient) -> None:
    jobs = [submit(client, bytes([n])).json()["id"] for n in range(3)][::-1]
    seen, path = [], "/jobs?state=QUEUED&kind=compile&limit=1"
    while path:
        page = client.get(path)
        seen += [job["id"] for job in page.json()["jobs"]]
        path = page.links.get("next", {}).get("url", "")
        assert bool(path) == (page.json()["next_cursor"] is not None)
        assert not path or "state=QUEUED" in path
    assert seen == jobs
    assert client.get("/models?limit=2").links["next"]["url"].startswith("/models?limit=2&cursor=")


def test_the_version_is_told_to_anybody(client: TestClient) -> None:
    reported = client.get("/version", headers={"Authorization": ""})
    assert (reported.status_code, sorted(reported.json())) == (200, ["api", "version"])
