from __future__ import annotations

from collections.abc import Callable

from fastapi.testclient import TestClient

from compiler.contract import Event
from service.db.engine import Database
from service.jobs.lifecycle import job_log
from service.jobs.scheduling import lease

PROBLEM = {"code": "malformed_model", "fault": "caller", "message": "not ONNX", "fix": "x"}


def test_the_log_tells_attempts_events_and_what_was_printed_in_any_state(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    job = client.post("/compile", files={"model": "m"}).json()["id"]
    waiting = client.get(f"/jobs/{job}/log")
    assert waiting.headers["content-type"] == "text/plain; charset=utf-8"
    assert waiting.headers["x-content-type-options"] == "nosniff"
    assert waiting.text.startswith(f"job {job} is QUEUED\n")
    lease.release(db, claimed("w1"), log="first try\n")
    claim = claimed("w2")
    lease.heartbeat(db, claim, [Event("notice", "load", 0.1, "odd\nmodel é")])
    running = client.get(f"/jobs/{job}/log").text
    assert "attempt 2 by w2" in running
    assert "goes on" in running
    assert "odd\\nmodel \\u00e9" in running
    lease.fail(db, claim, PROBLEM, log="Segmentation fault\n")
    ended = client.get(f"/jobs/{job}/log").text
    order = ["is FAILED", "attempt 1 by w1", "attempt 2 by w2", "     1 state", "not ONNX", "attempt 1 printed"]
    order += ["first try", "attempt 2 printed:\nSegmentation fault"]
    assert [ended.index(part) for part in order] == sorted(ended.index(part) for part in order)


def test_the_log_as_json_holds_the_same(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], stranger: dict[str, str]
) -> None:
    job = client.post("/compile", files={"model": "m"}).json()["id"]
    lease.fail(db, claimed("w1"), PROBLEM, log="x\n")
    reported = client.get(f"/jobs/{job}/log?format=json").json()
    assert (reported["job"], reported["state"]) == (job, "FAILED")
    assert [(one["attempt"], one["worker"], one["outcome"], one["log"]) for one in reported["attempts"]] == [
        (1, "w1", "FAILED", "x\n")
    ]
    assert [event["seq"] for event in reported["events"]] == [1, 2, 3]
    assert reported["events"][-1]["problem"] == PROBLEM
    assert client.get(f"/jobs/{job}/log", headers=stranger).status_code == 404
    assert client.get(f"/jobs/{job}/log?format=xml").status_code == 400


def test_a_long_log_is_read_in_batches_without_a_gap(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    job = client.post("/compile", files={"model": "m"}).json()["id"]
    count = 2 * job_log.EVENTS_PER_READ
    lease.heartbeat(db, claimed(), [Event("progress", "tile", 0.5, str(n)) for n in range(count)])
    reported = client.get(f"/jobs/{job}/log?format=json").json()["events"]
    assert [event["seq"] for event in reported] == list(range(1, count + 4))
    assert client.get(f"/jobs/{job}/log").text.count("\n") >= count
