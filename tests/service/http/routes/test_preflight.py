from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import onnx
import pytest
import sqlalchemy as sa
import structlog
from fastapi.testclient import TestClient

from bench.zoo import build
from compiler.contract.preflight import ModelAnswer
from compiler.errors import InternalError
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import workers
from service.db.engine import Database, clock
from service.db.models import Job, JobState
from service.http.app import create_app
from service.http.schemas.preflight import PREFLIGHT_EXAMPLE, PreflightOut
from service.jobs.accounts import access
from service.jobs.inspection.inspector import BUSY, Inspector
from service.jobs.scheduling import lease
from service.jobs.storage import models
from tests.compiler.test_preflight import recurrent
from tests.service.databases import any_database
from tests.service.http.routes.test_compile import RAW, problem

PRELUDE = "import json, os, sys, signal; order = json.loads(sys.stdin.readline())\n"
ANSWER = {name: PREFLIGHT_EXAMPLE[name] for name in ModelAnswer.model_fields}
FINE = {**ANSWER, "ok": True, "problem": None, "corrected": None}

Asking = Callable[[str], TestClient]


def printing(answer: Any) -> str:
    """A process that answers with this."""
    return f"print({json.dumps(json.dumps(answer))})"


@pytest.fixture
def asking(db: Database, settings: Settings, ring: Any) -> Iterator[Asking]:
    """Makes clients of owner `ada`, of services whose process that reads models runs these lines of Python."""
    with ExitStack() as made:

        def of(program: str) -> TestClient:
            key = access.make_key(db, "ada", ["compile"], "test")
            inspector = Inspector(ready=0, command=(sys.executable, "-I", "-c", PRELUDE + program))
            app = create_app(settings, ring=ring, inspector=inspector)
            return made.enter_context(TestClient(app, headers={"Authorization": f"Bearer {key}"}))

        yield of


def job_count(db: Database) -> int:
    with db.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Job)) or 0


def test_the_example_of_the_documentation_is_an_answer() -> None:
    assert PreflightOut.model_validate(PREFLIGHT_EXAMPLE).model_dump(mode="json") == PREFLIGHT_EXAMPLE


def test_the_process_is_shown_the_model_with_its_external_data_and_the_options(
    asking: Asking, db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    model, data = blobs.put_bytes(b"the model"), blobs.put_bytes(b"the data")
    digest = models.keep(db, owner, model, {"w/data.bin": data}).digest
    reading = (
        "order['model'] = open(order['model']).read()\n"
        "order['data'] = {name: open(path).read() for name, path in order['data'].items()}\n"
        f"print(json.dumps({{**json.loads({json.dumps(json.dumps(FINE))}), 'notices': [json.dumps(order)]}}))"
    )
    answer = asking(reading).post("/preflight", json={"model": digest, "options": {"threads": 3}})
    assert answer.status_code == 200, answer.text
    order = json.loads(answer.json()["notices"][0])
    assert (order["order"], order["model"], order["data"]) == ("preflight", "the model", {"w/data.bin": "the data"})
    assert order["options"]["threads"] == 3
    assert order["limits"]["cpu_s"] > 0


def test_the_process_works_on_copies_and_whatever_it_does_to_them_the_blobs_stay_as_they_were(
    asking: Asking, db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    kept = {"model": blobs.put_bytes(b"the model"), "w.bin": blobs.put_bytes(b"the data")}
    digest = models.keep(db, owner, kept["model"], {"w.bin": kept["w.bin"]}).digest
    before = {name: blobs.path(blob.key).stat() for name, blob in kept.items()}
    spoiling = (
        "paths = [order['model'], *order['data'].values()]\n"
        "told = [[os.stat(path).st_ino, oct(os.stat(path).st_mode & 0o777)] for path in paths]\n"
        "for path in paths:\n"
        "    os.chmod(path, 0o600); os.utime(path, (1, 1)); open(path, 'w').write('spoilt')\n"
        f"print(json.dumps({{**json.loads({json.dumps(json.dumps(FINE))}), 'notices': [json.dumps(told)]}}))"
    )
    answer = asking(spoiling).post("/preflight", json={"model": digest, "options": {}})
    assert answer.status_code == 200, answer.text
    seen = json.loads(answer.json()["notices"][0])
    assert [mode for _, mode in seen] == ["0o400", "0o400"]
    assert {inode for inode, _ in seen}.isdisjoint(facts.st_ino for facts in before.values())
    after = {name: blobs.path(blob.key).stat() for name, blob in kept.items()}
    assert [(one.st_mode, one.st_mtime) for one in after.values()] == [
        (one.st_mode, one.st_mtime) for one in before.values()
    ]
    assert [blobs.path(blob.key).read_bytes() for blob in kept.values()] == [b"the model", b"the data"]
    assert list(blobs.temporary.iterdir()) == [], "the copies are gone"


def test_a_model_whose_bytes_are_lost_is_told_and_no_copy_is_left(
    asking: Asking, db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    data = blobs.put_bytes(b"the data")
    digest = models.keep(db, owner, blobs.put_bytes(b"the model"), {"w.bin": data}).digest
    blobs.path(data.key).unlink()
    answer = asking(printing(FINE)).post("/preflight", json={"model": digest, "options": {}})
    assert (answer.status_code, answer.json()["code"]) == (507, "blob_lost")
    assert list(blobs.temporary.iterdir()) == []


def test_an_uploaded_model_is_kept_and_the_request_can_be_sent_on(asking: Asking, db: Database) -> None:
    client = asking(printing(FINE))
    for sent in (
        {"files": {"model": b"onnx bytes"}, "data": {"options": '{"threads": 2}'}},
        {"content": b"onnx bytes", "params": {"options": '{"threads": 2}'}, "headers": RAW},
    ):
        answer = client.post("/preflight", **sent)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert {name: found[name] for name in FINE} == FINE
        assert found["request"]["options"]["threads"] == 2
    again = client.post("/preflight", json=found["request"]).json()
    assert again["request"] == found["request"]
    assert job_count(db) == 0


def test_the_request_that_comes_back_is_the_corrected_one(asking: Asking) -> None:
    corrected = {"target": "cpu:x86-64-v3", "dims": {"height": 224}}
    client = asking(printing({**ANSWER, "corrected": corrected}))
    found = client.post("/preflight", files={"model": b"m"}).json()
    assert not found["ok"]
    assert found["request"]["options"]["dims"] == {"height": 224}
    assert found["queue"]["name"] == "cpu:x86-64-v3"


def test_it_says_which_artifact_would_answer_at_once(
    asking: Asking, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    client = asking(printing(FINE))
    job = queued(b"m", threads=2)
    options = json.dumps({"threads": 2})
    assert client.post("/preflight", files={"model": b"m"}, data={"options": options}).json()["cached"] is None
    finish()
    found = client.post("/preflight", files={"model": b"m"}, data={"options": options}).json()
    assert found["cached"] == str(job.artifact_id)
    assert client.post("/preflight", files={"model": b"m"}).json()["cached"] is None


def test_it_says_how_many_jobs_and_workers_there_are(asking: Asking, db: Database, queued: Callable[..., Job]) -> None:
    client = asking(printing(FINE))
    queued(b"a")
    queued(b"b", priority=5)
    queued(b"c", priority=-5)
    queued(b"d", target="cpu:x86-64-v3")
    with db.write() as session:
        workers.report(session, "here", ["cpu", "run:cpu"], {}, "0", None)
        workers.report(session, "elsewhere", ["cpu:aarch64"], {}, "0", None)
    found = client.post("/preflight", files={"model": b"m"}).json()
    assert found["queue"] == {"name": "cpu", "position": 2, "workers": 1, "notice": None}


@pytest.mark.parametrize(
    ("target", "start"),
    [
        ("cuda", "python -m worker --queue cuda:0 on a machine with an NVIDIA GPU"),
        (
            "cuda:sm_90",
            "python -m worker --queue cuda:0 on a machine with an NVIDIA GPU of sm_90, or a builder with NVRTC",
        ),
        ("cpu", "python -m worker --queue cpu"),
    ],
)
def test_it_says_what_to_start_for_a_target_that_nobody_serves(asking: Asking, target: str, start: str) -> None:
    sent = {"files": {"model": b"m"}, "data": {"options": f'{{"target": "{target}"}}'}}
    queue = asking(printing(FINE)).post("/preflight", **sent).json()["queue"]
    assert (queue["name"], queue["workers"]) == (target, 0)
    assert queue["notice"] == (
        f"no worker that is alive compiles for {target}: jobs wait until one is started, such as {start}"
    )


def succeeded(db: Database, job: Job, nodes: int | None, seconds: float) -> None:
    """The job as it is after it took this long."""
    with db.write() as session:
        values = {
            "state": JobState.SUCCEEDED,
            "report": {} if nodes is None else {"nodes": nodes},
            "started_at": clock() - seconds,
            "finished_at": clock(),
        }
        session.execute(sa.update(Job).where(Job.id == job.id).values(values))


def test_the_estimate_rests_on_the_owners_jobs_of_this_queue_with_models_alike(
    asking: Asking, db: Database, queued: Callable[..., Job], stranger: dict[str, str]
) -> None:
    client = asking(printing({**FINE, "nodes": 100}))
    assert client.post("/preflight", files={"model": b"m"}).json()["estimate"]["jobs"] == 0
    for number, (nodes, seconds) in enumerate([(60, 10), (100, 20), (150, 30), (49, 1000), (201, 1000), (None, 1000)]):
        succeeded(db, queued(f"m{number}".encode()), nodes, seconds)
    succeeded(db, queued(b"m9", target="cpu:x86-64-v3"), 100, 1000)
    found = client.post("/preflight", files={"model": b"m"}).json()["estimate"]
    assert found["jobs"] == 3
    assert (found["median_s"], found["p90_s"]) == (pytest.approx(20, abs=0.5), pytest.approx(30, abs=0.5))
    assert client.post("/preflight", files={"model": b"m"}, headers=stranger).json()["estimate"]["jobs"] == 0


@any_database
def test_without_such_jobs_the_estimate_goes_by_size_proof_and_budget(asking: Asking) -> None:
    def estimate(options: dict[str, Any], **answer: Any) -> Any:
        client = asking(printing({**FINE, **answer}))
        form = {"options": json.dumps(options)}
        return client.post("/preflight", files={"model": b"m"}, data=form).json()["estimate"]

    proof = {"seconds": 0.5, "bytes": 1}
    unmeasured = estimate({"tuning_budget_s": 0}, nodes=313, proof=proof)
    assert unmeasured["median_s"] == pytest.approx(1.5 + 313 * 0.018 + 0.5)  # 7.1 s were measured, and the proof
    measured = estimate({"tuning_budget_s": 60}, nodes=313, proof=proof)
    assert measured["median_s"] == pytest.approx(unmeasured["median_s"] + 60)
    small = estimate({"tuning_budget_s": 600}, nodes=65, proof=proof)
    assert 10 < small["median_s"] < 60 < 600 < small["p90_s"]  # a small model's search ends before
    assert estimate({"tuning_budget_s": 0}, nodes=313, ok=False) is None
    assert estimate({"tuning_budget_s": 0}, nodes=313, proof={"seconds": None, "bytes": None}) is None
    assert estimate({"target": "cuda:sm_90"}, nodes=313, proof=proof) is None


@any_database
@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("print('nonsense')", "not one"),
        (printing({"ok": True}), "answered with something else"),
        (printing({**FINE, "nodes": "many"}), "answered with something else"),
        (printing({**FINE, "problem": "none"}), "answered with something else"),
    ],
)
def test_a_model_that_kills_or_takes_over_the_process_is_answered(program: str, says: str, asking: Asking) -> None:
    answer = asking(program).post("/preflight", files={"model": b"m"})
    assert answer.status_code == 200
    found = answer.json()
    assert not found["ok"]
    assert found["problem"]["code"] == "preflight_failed"
    assert says in found["problem"]["message"]
    assert found["request"]["model"]


def test_text_that_no_database_or_answer_can_hold_does_no_harm(asking: Asking) -> None:
    client = asking(printing({**FINE, "notices": ["half \ud800 and nul \x00"]}))
    answer = client.post("/preflight", files={"model": b"m"})
    assert answer.status_code == 200
    assert "\x00" not in answer.json()["notices"][0]


def test_a_model_of_another_owner_or_none_is_not_found(asking: Asking, stranger: dict[str, str]) -> None:
    client = asking(printing(FINE))
    mine = client.post("/preflight", files={"model": b"m"}).json()["request"]["model"]
    problem(client.post("/preflight", json={"model": mine}, headers=stranger), 404, "not_found")
    problem(client.post("/preflight", json={"model": "0" * 64}), 404, "not_found")


@any_database
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_request"),
        (b"{", 400, "bad_request"),
        (b"[]", 400, "bad_request"),
        (b"{}", 400, "bad_request"),
        (b'{"model": "../../etc/passwd"}', 400, "bad_request"),
        (b'{"model": 5}', 400, "bad_request"),
        (b'{"model": "' + b"0" * 64 + b'", "colour": 1}', 400, "bad_request"),
        (b'{"model": "' + b"0" * 64 + b'", "options": {"colour": 1}}', 422, "invalid_options"),
        (b'{"model": "' + b"0" * 64 + b'", "options": []}', 422, "invalid_options"),
        (b'{"model": "' + b"0" * 64 + b'", "options": {"tolerance": NaN}}', 400, "bad_request"),
        (b'{"model": "' + b"0" * 2_000_000 + b'"}', 413, "body_too_large"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, status: int, code: str, asking: Asking) -> None:
    answer = asking(printing(FINE)).post("/preflight", content=body, headers={"Content-Type": "application/json"})
    problem(answer, status, code)


def test_options_given_twice_are_refused(asking: Asking) -> None:
    client = asking(printing(FINE))
    twice = {"params": {"options": "{}"}}
    problem(client.post("/preflight", json={"model": "0" * 64, "options": {}}, **twice), 400, "bad_request")
    sent = {"files": {"model": b"m"}, "data": {"options": "{}"}}
    problem(client.post("/preflight", **sent, **twice), 400, "bad_request")


def test_a_list_of_options_is_refused(asking: Asking) -> None:
    answer = asking(printing(FINE)).post("/preflight", json={"model": "0" * 64, "options": [{}, {"threads": 2}]})
    assert "one object" in problem(answer, 400, "bad_request")["fix"]


def test_a_key_is_needed(asking: Asking) -> None:
    client = asking(printing(FINE))
    problem(client.post("/preflight", files={"model": b"m"}, headers={"Authorization": ""}), 401, "not_authenticated")


def test_a_real_model_is_looked_at_by_the_real_process(client: TestClient, db: Database) -> None:
    data = build("tiny_cnn").SerializeToString()
    found = client.post("/preflight", files={"model": data}, data={"options": '{"target": "cpu:x86-64-v33"}'}).json()
    assert not found["ok"]
    assert found["problem"]["code"] == "target_unavailable"
    assert found["request"]["options"]["target"] == "cpu:x86-64-v3"
    again = client.post("/preflight", json=found["request"]).json()
    assert again["ok"], again["problem"]
    assert again["nodes"] == len(onnx.load_from_string(data).graph.node)
    assert job_count(db) == 0


def test_the_real_process_tells_states_that_are_carried_and_refuses_others(client: TestClient, db: Database) -> None:
    data = recurrent().SerializeToString()
    pipeline = {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}
    wrong = {**pipeline, "carry": {"nxt": "h"}}
    found = client.post("/preflight", files={"model": data}, data={"options": json.dumps(wrong)}).json()
    assert (found["ok"], found["carried"], found["problem"]["code"]) == (False, [], "invalid_options")
    assert found["problem"]["message"] == "carry names 'nxt', which is no output of the model"
    assert "'next'" in found["problem"]["fix"]
    again = client.post("/preflight", json=found["request"]).json()
    assert again["ok"], again["problem"]
    assert again["carried"] == [{"output": "next", "input": "h", "dtype": "f32", "shape": [2, 3]}]
    alone = {"model": found["request"]["model"], "options": {"carry": {"next": "h"}}}
    assert client.post("/preflight", json=alone).json()["carried"] == again["carried"]
    alone["options"]["target"] = "cuda:sm_90"
    assert "applies to one CPU" in problem(client.post("/preflight", json=alone), 422, "invalid_options")["detail"]
    assert job_count(db) == 0


@any_database
def test_that_many_ask_at_once_is_told_as_no_error(asking: Asking) -> None:
    busy = {"problem": {"code": BUSY, "fault": "machine", "message": "m", "fix": "f", "refusals": [], "details": {}}}
    client = asking(printing(busy))
    with structlog.testing.capture_logs() as lines:
        answer = client.post("/preflight", files={"model": b"m"})
    problem(answer, 503, "busy")
    assert int(answer.headers["retry-after"]) > 0
    assert [line for line in lines if line["log_level"] == "error"] == []


@any_database
def test_a_fault_of_ours_is_told_without_its_cause(asking: Asking) -> None:
    ours = InternalError("the model cannot be judged: OSError: /srv/secret").to_json()
    client = asking(printing({**FINE, "ok": False, "problem": {**ours, "refusals": []}}))
    answer = client.post("/preflight", files={"model": b"m"})
    assert answer.json()["problem"]["code"] == "internal"
    assert "secret" not in answer.text
    assert answer.json()["request"]["model"] in answer.json()["problem"]["fix"]


def test_it_counts_the_workers_of_the_version_that_is_asked_for(asking: Asking, db: Database) -> None:
    client = asking(printing(FINE))
    lease.seen(db, "w1", ["cpu"], {}, "0.1.0")
    model = client.post("/models", content=b"m").json()["digest"]
    old = client.post("/preflight", json={"model": model, "compiler": "0.1.*"}).json()
    assert (old["queue"]["workers"], old["queue"]["notice"]) == (1, None)
    new = client.post("/preflight", json={"model": model, "compiler": "0.2.*"}).json()
    assert new["queue"]["workers"] == 0
    assert new["queue"]["notice"].startswith("no live worker with compiler 0.2.* serves cpu")
    assert new["request"]["compiler"] == "0.2.*"
