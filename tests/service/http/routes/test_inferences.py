from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from compiler.contract import Event
from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.conftest import RecordingRing

REPORT = {"seconds": 0.004, "load_s": 0.01, "lanes": 1, "outputs": {"y": {"dtype": "float32", "shape": [1, 10]}}}
INPUTS = b"PK\x03\x04 not read by the service"


@pytest.fixture
def artifact(client: TestClient, finish: Callable[..., lease.Claim]) -> str:
    made: str = client.post("/compile", files={"model": "m"}).json()["artifact_id"]
    finish()
    return made


def run(db: Database) -> lease.Claim:
    claim = lease.claim(db, "w1", ["run:cpu"], 60.0)
    assert claim is not None
    return claim


def test_inputs_go_in_and_outputs_come_out(
    client: TestClient, db: Database, blobs: LocalBlobs, artifact: str, ring: RecordingRing
) -> None:
    headers = {"Content-Type": "application/x-npz"}
    answer = client.post(f"/inferences?artifact={artifact}&threads=2", content=INPUTS, headers=headers)
    made = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/inferences/{made['id']}")
    assert (made["state"], made["artifacts"], made["options"]) == ("QUEUED", [artifact], {"threads": 2})
    assert (made["input_bytes"], made["output_bytes"], made["report"]) == (len(INPUTS), None, None)
    assert ring.rung[-1] == "run:cpu"
    outputs = f"/inferences/{made['id']}/outputs"
    early = client.get(outputs)
    assert (early.status_code, early.json()["code"]) == (409, "job_not_finished")
    assert "retry-after" in early.headers
    claim = run(db)
    assert [given.name for given in claim.inputs] == [artifact, "inputs"]
    assert b"".join(blobs.read(claim.inputs[1].key)) == INPUTS
    lease.succeed(db, claim, made=blobs.put_bytes(b"0123456789"), report=REPORT)
    ended = client.get(f"/inferences/{made['id']}").json()
    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert (ended["state"], ended["report"], ended["output_sha256"]) == ("SUCCEEDED", REPORT, digest)
    whole = client.get(outputs)
    assert (whole.status_code, whole.content, whole.headers["etag"]) == (200, b"0123456789", f'"{digest}"')
    assert whole.headers["content-type"] == "application/x-npz"
    part = client.get(outputs, headers={"Range": "bytes=4-6", "If-Range": f'"{digest}"'})
    assert (part.status_code, part.content) == (206, b"456")
    assert client.get(outputs, headers={"If-None-Match": f'"{digest}"'}).status_code == 304
    assert client.get(outputs, headers={"Range": "bytes=10-"}).status_code == 416


def test_inputs_may_come_as_a_part_and_without_a_type(
    client: TestClient, db: Database, blobs: LocalBlobs, artifact: str
) -> None:
    path = f"/inferences?artifact={artifact}"
    for answer in (client.post(path, files={"inputs": INPUTS}), client.post(path, content=INPUTS)):
        assert answer.status_code == 202
        assert b"".join(blobs.read(run(db).inputs[1].key)) == INPUTS


def test_an_inference_that_fails_has_no_outputs_and_says_why(client: TestClient, db: Database, artifact: str) -> None:
    made = client.post(f"/inferences?artifact={artifact}", content=INPUTS).json()["id"]
    problem = {"code": "invalid_inputs", "fault": "caller", "message": "x is missing", "fix": "send x"}
    lease.fail(db, run(db), problem)
    answer = client.get(f"/inferences/{made}/outputs")
    assert (answer.status_code, answer.json()["fix"]) == (410, "send x")
    assert "x is missing" in answer.json()["detail"]
    assert client.get(f"/inferences/{made}").json()["problem"] == problem


def test_one_key_makes_one_inference(client: TestClient, artifact: str) -> None:
    path, key = f"/inferences?artifact={artifact}", {"Idempotency-Key": "k"}
    first = client.post(path, content=INPUTS, headers=key).json()
    again = client.post(path, content=INPUTS, headers=key)
    assert (again.json()["id"], again.headers["idempotent-replayed"]) == (first["id"], "true")
    assert client.post(path, content=b"other", headers=key).json()["code"] == "idempotency_key_reused"


def test_an_inference_waits_for_an_artifact_in_the_making(client: TestClient, ring: RecordingRing) -> None:
    promised = client.post("/compile", files={"model": "m"}).json()["artifact_id"]
    rung = len(ring.rung)
    made = client.post(f"/inferences?artifact={promised}", content=INPUTS).json()
    assert (made["blocked_by"], len(ring.rung)) == (1, rung)


def test_bodies_of_another_form_are_refused(client: TestClient, blobs: LocalBlobs, artifact: str) -> None:
    path = f"/inferences?artifact={artifact}"
    part = b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\nx\r\n'
    multipart = {"Content-Type": "multipart/form-data; boundary=b"}
    kept = len(list(blobs.keys()))
    refused = [
        client.post(path, content=b""),
        client.post(path, content=b"x", headers={"Content-Type": "text/plain"}),
        client.post(path, files={"input": b"x"}),
        client.post(path, files=[("inputs", b"x"), ("inputs", b"y")]),
        client.post(path, content=part, headers=multipart),
        client.post(path, content=b"nonsense", headers=multipart),
        client.post(path, content=part, headers={"Content-Type": "multipart/form-data"}),
        client.post(path, content=part, headers={"Content-Type": f"multipart/form-data; boundary={'b' * 300}"}),
    ]
    assert [(one.status_code, one.json()["code"]) for one in refused] == [(400, "bad_request")] * len(refused)
    endless = itertools.chain([part + b"--b--\r\n"], itertools.repeat(b"behind the end", 20_000))
    large = [
        client.post(path, content=b"x" * 100_001),
        client.post(path, files={"inputs": b"x" * 100_001}),
        client.post(path, content=endless, headers=multipart),
    ]
    assert [one.json()["code"] for one in large] == ["body_too_large"] * 3
    assert len(list(blobs.keys())) == kept
    assert list(blobs.temporary.iterdir()) == []


def test_what_is_not_there_or_not_allowed_is_refused(
    client: TestClient, artifact: str, stranger: dict[str, str]
) -> None:
    made = client.post(f"/inferences?artifact={artifact}", content=INPUTS).json()["id"]
    for path in (f"/inferences/{made}", f"/inferences/{made}/outputs"):
        assert client.get(path, headers=stranger).status_code == 404
    assert client.post(f"/inferences?artifact={artifact}", content=b"x", headers=stranger).status_code == 404
    assert client.post(f"/inferences?artifact={uuid.uuid4()}", content=b"x").status_code == 404
    assert client.post(f"/inferences?artifact={artifact}&priority=1", content=b"x").status_code == 403
    assert client.post(f"/inferences?artifact={artifact}&threads=0", content=b"x").status_code == 400
    benchmark = client.post("/benchmarks", json={"artifacts": [artifact]}).json()["id"]
    assert client.get(f"/inferences/{benchmark}").status_code == 404


def test_an_output_in_pieces_is_asked_for_and_the_log_keeps_no_elements(
    client: TestClient, db: Database, artifact: str
) -> None:
    path = f"/inferences?artifact={artifact}"
    made = client.post(f"{path}&pieces=true&seed=3", content=INPUTS).json()
    assert made["options"] == {"threads": None, "seed": 3, "pieces": True}
    assert "pieces" not in client.post(f"{path}&pieces=false", content=INPUTS).json()["options"]
    both = client.post(f"{path}&pieces=true&max_tokens=3", content=INPUTS)
    assert (both.status_code, both.json()["code"]) == (400, "bad_request")
    told = {"output": "y", "axis": 0, "first": 0, "shape": [1], "dtype": "uint8", "elements": "AA=="}
    assert lease.heartbeat(db, run(db), [Event("piece", "run", 0.0, data=told)]) == "ok"
    log = f"/jobs/{made['id']}/log"
    (line,) = (one for one in client.get(f"{log}?format=json").json()["events"] if one["kind"] == "piece")
    del told["elements"]
    assert line["data"] == told
    text = client.get(log).text
    assert '"output"' in text
    assert "AA==" not in text


def test_a_decoder_is_told_how_to_go_on_with_a_prompt(client: TestClient, db: Database, artifact: str) -> None:
    path = f"/inferences?artifact={artifact}"
    wanted = "&max_tokens=9&temperature=0.5&top_k=40&top_p=0.9&stop=2&stop=11&seed=3"
    made = client.post(path + wanted, content=INPUTS).json()
    how = {"max_tokens": 9, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "stop": [2, 11]}
    assert made["options"] == {"threads": None, "seed": 3, "generate": how}
    assert run(db).options["generate"] == how
    assert "generate" not in client.post(f"{path}&top_k=40", content=INPUTS).json()["options"]
    for wrong in ("max_tokens=0", "max_tokens=8193", "top_p=0", "top_p=1.5", "top_k=-1", "temperature=nan", "stop=-1"):
        answer = client.post(f"{path}&max_tokens=1&{wrong}", content=INPUTS)
        assert answer.json()["code"] == "bad_request", wrong
    many = "&stop=1" * 65
    assert client.post(f"{path}&max_tokens=1{many}", content=INPUTS).json()["code"] == "bad_request"
