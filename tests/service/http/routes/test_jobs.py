from __future__ import annotations

import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.contract import Event
from service.db.engine import Database
from service.http.gate import GatedRoute
from service.http.routes import jobs
from service.jobs.accounts import access
from service.jobs.lifecycle.events import Feed
from service.jobs.scheduling import lease
from tests.service.databases import any_database

PROBLEM = {
    "code": "malformed_model",
    "fault": "caller",
    "message": "not ONNX",
    "fix": "x",
    "refusals": [],
    "details": {},
}


def submit(client: TestClient, model: bytes = b"m") -> dict[str, Any]:
    job: dict[str, Any] = client.post("/compile", files={"model": model}).json()
    return job


def stream(client: TestClient, job: str, after: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The events until the stream ends, and its comment lines."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    events: list[dict[str, Any]] = []
    comments: list[str] = []
    with client.stream("GET", f"/jobs/{job}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        current: dict[str, Any] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                comments.append(line)
            elif line:
                name, _, value = line.partition(": ")
                current[name] = value
            elif current:
                events.append({**current, "data": json.loads(current["data"])})
                current = {}
    return events, comments


def test_a_job_tells_where_it_is(client: TestClient, db: Database, claimed: Callable[..., lease.Claim]) -> None:
    first, second = submit(client, b"1"), submit(client, b"2")
    assert client.get(f"/jobs/{second['id']}").json()["queue_position"] == 1
    claim = claimed()
    lease.heartbeat(db, claim, [Event("phase", "tile", 0.25)])
    job = client.get(f"/jobs/{first['id']}").json()
    assert (job["state"], job["phase"], job["fraction"], job["attempt"]) == ("RUNNING", "tile", 0.25, 1)
    assert job["queue_seconds"] >= 0
    assert job["queue_position"] is None
    assert client.get(f"/jobs/{second['id']}").json()["queue_position"] == 0


def test_a_state_that_is_answered_ahead_of_the_router_is_the_one_that_the_route_gives(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    (route,) = (one for one in jobs.router.routes if isinstance(one, GatedRoute) and one.name == "get_job")
    handled: list[object] = []
    handle = GatedRoute.handle

    async def noted(self: GatedRoute, *given: Any) -> None:
        handled.append(self)
        await handle(self, *given)

    its = submit(client)["id"]
    blind = access.make_key(db, "local", ["compile"], "")
    monkeypatch.setattr(GatedRoute, "handle", noted)
    statuses = set()
    for key in (client.headers["Authorization"], f"Bearer {blind}", "Bearer twk_unknown", "Basic eDp5", ""):
        for job in (its, str(uuid.UUID(int=10)), "not-an-id"):
            for tags in ("", '"another"', "*"):
                headers = {"Authorization": key, "If-None-Match": tags}
                handled.clear()
                ahead = client.get(f"/v1/jobs/{job}", headers=headers)
                assert handled == ([route] if job == "not-an-id" else [])
                routed = client.get(f"/v1/jobs/{job}", headers={**headers, "Content-Length": "0"})
                assert handled[-1] is route, "what has a body is the router's"
                assert (ahead.status_code, ahead.content) == (routed.status_code, routed.content)
                assert set(ahead.headers) == set(routed.headers)
                statuses.add(ahead.status_code)
    assert statuses == {200, 304, 400, 401, 403, 404}
    counted = [line for line in client.get("/metrics").text.splitlines() if 'route="/jobs/{job_id}"' in line]
    assert sum(float(line.split()[-1]) for line in counted if "http_requests_total" in line) == 5 * 3 * 3 * 2


def test_jobs_are_listed_newest_first_in_pages(client: TestClient, db: Database, claimed: Callable[..., Any]) -> None:
    made = [submit(client, bytes([n]))["id"] for n in range(1, 6)][::-1]
    seen, cursor = [], None
    for _ in range(3):
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = client.get("/jobs", params=params).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert seen == made
    assert cursor is None
    lease.fail(db, claimed(), PROBLEM)
    assert [job["id"] for job in client.get("/jobs?state=FAILED").json()["jobs"]] == [made[-1]]
    both = client.get("/jobs?state=FAILED&state=QUEUED").json()["jobs"]
    assert len(both) == 5


@any_database
@pytest.mark.parametrize(
    "path", ["/jobs?cursor=%00", "/jobs?cursor=abc", "/jobs?limit=0", "/jobs?state=LOST", "/jobs/abc"]
)
def test_malformed_requests_are_named(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.json()["fix"]


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_through_its_worker(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    running = submit(client, b"1")["id"]
    claim = claimed()
    waiting = submit(client, b"2")["id"]
    answer = client.post(f"/jobs/{waiting}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "CANCELLED")
    answer = client.post(f"/jobs/{running}/cancel")
    assert (answer.status_code, answer.json()["cancel_requested"]) == (202, True)
    assert lease.heartbeat(db, claim, []) == "cancel"
    lease.cancelled(db, claim)
    assert client.post(f"/jobs/{running}/cancel").status_code == 200
    submit(client, b"3")
    failed = claimed()
    lease.fail(db, failed, PROBLEM)
    answer = client.post(f"/jobs/{failed.job_id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_finished")


def test_delete_deletes_what_waits_or_has_ended_and_stops_what_runs_first(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    running, waiting = submit(client, b"1")["id"], submit(client, b"2")["id"]
    claim = claimed()
    answer = client.delete(f"/jobs/{waiting}")
    assert (answer.status_code, answer.json()["stopping"]) == (200, False)
    answer = client.delete(f"/jobs/{running}")
    assert (answer.status_code, answer.json()["stopping"], answer.headers["retry-after"]) == (202, True, "2")
    lease.cancelled(db, claim)
    assert client.delete(f"/jobs/{running}").status_code == 200
    for gone in (running, waiting):
        assert client.get(f"/jobs/{gone}").status_code == 404


def test_the_report_is_there_for_success_and_failure_once_the_job_has_ended(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], finish: Callable[..., lease.Claim]
) -> None:
    job = submit(client, b"1")["id"]
    answer = client.get(f"/jobs/{job}/report")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_finished")
    assert "retry-after" in answer.headers
    finish()
    assert client.get(f"/jobs/{job}/report").json()["report"]["kernels"] == 3
    job = submit(client, b"2")["id"]
    lease.fail(db, claimed(), PROBLEM)
    body = client.get(f"/jobs/{job}/report").json()
    assert (body["state"], body["report"], body["problem"]) == ("FAILED", None, PROBLEM)
    assert client.get(f"/jobs/{job}").json()["problem"] == PROBLEM


def test_the_event_stream_tells_everything_from_the_start_and_ends(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    job = submit(client)["id"]
    claim = claimed()
    lease.heartbeat(db, claim, [Event("phase", "load", 0.0), Event("notice", "load", 0.1, "odd\nmodel", {"a": 1})])
    lease.fail(db, claim, PROBLEM)
    events, _ = stream(client, job)
    assert [event["id"] for event in events] == [str(n) for n in range(1, len(events) + 1)]
    assert [event["event"] for event in events] == ["state", "state", "state", "phase", "notice", "state"]
    assert events[4]["data"]["message"] == "odd\nmodel"
    assert events[4]["data"]["data"] == {"a": 1}
    assert (events[-1]["data"]["state"], events[-1]["data"]["problem"]) == ("FAILED", PROBLEM)


def test_a_broken_stream_goes_on_after_the_last_event_seen(
    client: TestClient, db: Database, finish: Callable[..., lease.Claim]
) -> None:
    job = submit(client)["id"]
    finish()
    everything, _ = stream(client, job)
    for after in range(len(everything) + 1):
        assert stream(client, job, after)[0] == everything[after:]
    assert client.get(f"/jobs/{job}/events", headers={"Last-Event-ID": "x"}).status_code == 400


def test_live_events_reach_open_streams_and_silence_is_bridged(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(client)["id"]
    heard: list[Any] = []
    bridged = threading.Event()
    follow = Feed.follow

    async def followed(feed: Feed, *asked: Any) -> AsyncIterator[Sequence[Any]]:
        async for batch in follow(feed, *asked):
            if not batch:
                bridged.set()
            yield batch

    monkeypatch.setattr(Feed, "follow", followed)

    def work() -> None:
        claim = claimed()
        bridged.wait(120)  # until somebody listens and nothing was told for as long as the settings' keep-alive
        for step in range(5):
            lease.heartbeat(db, claim, [Event("progress", "tile", step / 5, str(step))])
        lease.cancelled(db, claim)

    worker = threading.Thread(target=work)
    worker.start()
    heard, comments = stream(client, job)
    worker.join()
    assert [event["data"]["message"] for event in heard if event["event"] == "progress"] == list("01234")
    assert heard[-1]["data"]["state"] == "CANCELLED"
    assert [int(event["id"]) for event in heard] == list(range(1, len(heard) + 1))
    assert comments


def test_jobs_of_another_owner_do_not_exist(
    client: TestClient, finish: Callable[..., lease.Claim], stranger: dict[str, str], record: dict[str, object]
) -> None:
    job = submit(client)
    finish(records=(record,))
    measured = client.get("/tuning-records").json()["records"][0]["id"]
    paths = [
        f"/jobs/{job['id']}",
        f"/jobs/{job['id']}/events",
        f"/jobs/{job['id']}/report",
        f"/artifacts/{job['artifact_id']}",
        f"/artifacts/{job['artifact_id']}/receipt",
        f"/tuning-records/{measured}",
    ]
    for path in paths:
        assert client.get(path).status_code == 200, path
        answer = client.get(path, headers=stranger)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert client.delete(f"/jobs/{job['id']}", headers=stranger).status_code == 404
    assert client.get("/jobs", headers=stranger).json()["jobs"] == []
    assert client.get("/tuning-records", headers=stranger).json()["records"] == []


def test_what_does_not_exist_is_not_found(client: TestClient) -> None:
    for path in ("/jobs/{}", "/jobs/{}/events", "/artifacts/{}", "/tuning-records/{}"):
        assert client.get(path.format(uuid.uuid4())).status_code == 404
    assert client.get("/nothing").json()["code"] == "no_such_route"


def test_the_stream_of_a_job_that_is_removed_ends(client: TestClient, db: Database) -> None:
    job = submit(client)
    removed: list[str] = []
    last = ""
    with client.stream("GET", f"/jobs/{job['id']}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data") and not removed:
                removed.append(client.delete(f"/models/{job['model']}", params={"cancel": True}).json()["digest"])
            last = line or last
    assert removed == [job["model"]]
    assert last.startswith(": the job was removed")
    assert client.get(f"/jobs/{job['id']}/events").status_code == 404
