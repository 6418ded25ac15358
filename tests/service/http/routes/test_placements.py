"""`POST /placements`: what becomes of the request, and of a report without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from compiler.contract import job_kinds
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tests.service.http.routes.test_compile import problem

PLATFORM = job_kinds.PLACEMENT.example["platform"]


def sent(client: TestClient, **options: Any) -> Any:
    given = {"platform": PLATFORM, **options}
    return client.post("/placements", files={"model": b"onnx"}, data={"options": json.dumps(given)})


@any_database
def test_the_report_is_all_that_a_job_makes(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    said = sent(client, objective="latency_ms=30", carry={"out": "in"}).json()
    assert (said["kind"], said["options"]["carry"]) == ("placement", {"out": "in"})
    claim = claimed()
    assert (claim.kind, claim.options) == ("placement", said["options"])
    assert lease.succeed(db, claim, report={"chosen": {"latency_ms": 2.5}})
    found = client.get(f"/jobs/{said['id']}").json()
    assert (found["state"], [*found["links"]]) == ("SUCCEEDED", [*said["links"]])
    assert client.get(found["links"]["report"]).json()["report"] == {"chosen": {"latency_ms": 2.5}}
    assert [one["id"] for one in client.get("/jobs?kind=placement").json()["jobs"]] == [said["id"]]


@any_database
def test_a_platform_that_is_wrong_is_refused_field_by_field(client: TestClient) -> None:
    devices, recorded = PLATFORM["devices"], {"file": "times.json"}
    for platform, said in (
        ({**PLATFORM, "colour": 1}, "colour is no field"),
        ({**PLATFORM, "links": {}}, "nothing leads from arm to tpu"),
        ({**PLATFORM, "devices": {**devices, "arm": {"records": recorded}}}, "names a file"),
        ({**PLATFORM, "devices": {**devices, "arm": {"records": {}}}}, "devices.arm.records has no times"),
        ({**PLATFORM, "devices": {**devices, "arm": {"records": {**recorded, "times": {}}}}}, "times twice"),
    ):
        assert said in str(problem(sent(client, platform=platform), 422, "invalid_options"))
    assert "objective" in problem(sent(client, objective="fast"), 422, "invalid_options")["detail"]
    with_samples = [("model", ("m.onnx", b"onnx")), ("samples", ("a.npz", b"one"))]
    answer = client.post("/placements", files=with_samples, data={"options": json.dumps({"platform": PLATFORM})})
    assert "samples" in problem(answer, 400, "bad_request")["detail"]
    assert not client.get("/jobs").json()["jobs"]
