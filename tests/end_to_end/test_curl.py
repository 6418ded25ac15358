"""The service as curl sees it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.contract import PHASES
from tests.docs.pages import DOCS, blocks
from tests.end_to_end import models
from tests.end_to_end.house import House, eventually
from tests.servers import GUARD_S

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")

MEASURED = {"tuning_budget_s": models.ALL_CANDIDATES_S, "threads": 1}
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Answer:
    """What curl got: `headers` with small names, `body` where it was not written to a file."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Curl:
    """`curl` in a folder, with the key unless told otherwise."""

    house: House
    folder: Path

    def __call__(self, path: str, *arguments: str, key: bool = True) -> Answer:
        header = ["-H", self.house.header] if key else []
        head = self.folder / "head"
        head.unlink(missing_ok=True)
        command = ["curl", "-sS", "-N", "-D", str(head), *header, *arguments, f"{self.house.url}{path}"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=GUARD_S, check=False)
        assert done.returncode == 0, done.stderr
        first, *lines = [line for line in head.read_text("latin-1").splitlines() if line]
        pairs = [line.partition(":") for line in lines]
        return Answer(int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}, done.stdout)

    def upload(self, model: bytes, options: dict[str, Any], fresh: bool = True) -> Answer:
        """A form with the model and its options."""
        (self.folder / "model.onnx").write_bytes(model)
        form = ["-F", "model=@model.onnx", "-F", f"options={json.dumps(options)}"]
        return self(f"/compile?fresh={str(fresh).lower()}", *form)

    def events(self, job: str, *arguments: str) -> list[dict[str, Any]]:
        """The log to its end; the numbers of the stream are those in the data."""
        answer = self(f"/jobs/{job}/events", *arguments)
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in answer.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields:
                found.append(json.loads(fields["data"]))
                assert (fields["id"], fields["event"]) == (str(found[-1]["seq"]), found[-1]["kind"])
        return found


@pytest.fixture
def curl(house: House, tmp_path: Path) -> Curl:
    return Curl(house, tmp_path)


@pytest.fixture(scope="module")
def done(house: House, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job that was sent as a form, polled to its end, and measured every candidate."""
    curl = Curl(house, tmp_path_factory.mktemp("done"))
    answer = curl.upload(models.tiny(models.QUICK), MEASURED)
    assert answer.status == 202
    sent = answer.json
    assert answer.headers["location"] == sent["links"]["self"] == f"/jobs/{sent['id']}"

    def ended() -> dict[str, Any] | None:
        job: dict[str, Any] = curl(f"/jobs/{sent['id']}").json
        return job if job["state"] in ENDED else None

    job = eventually(ended, "the end of the job", pause_s=0.2)
    assert job["state"] == "SUCCEEDED", job["problem"]
    assert job["artifact_id"] == sent["artifact_id"]
    assert job["options"] | MEASURED == job["options"]
    assert (job["phase"], job["fraction"], job["attempt"], job["cached"]) == (PHASES[-1], 1.0, 1, False)
    return job


def assert_problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert problem["detail"]
    assert problem["fix"]
    return problem


def test_the_event_stream_counts_without_gaps_through_all_phases_to_the_end(curl: Curl, done: dict[str, Any]) -> None:
    events = curl.events(done["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["phase"] for event in events if event["kind"] == "phase"] == list(PHASES)
    states = [event["state"] for event in events if event["kind"] == "state"]
    assert states == ["QUEUED", "LEASED", "RUNNING", "SUCCEEDED"]
    assert events[-1]["kind"] == "state"
    fractions = [event["fraction"] for event in events if "fraction" in event]
    assert fractions == sorted(fractions)
    assert curl.events(done["id"], "-H", "Last-Event-ID: 4") == events[4:]


def test_a_raw_body_is_followed_live_to_its_end(curl: Curl) -> None:
    (curl.folder / "model.onnx").write_bytes(models.relu([3, 5]))
    options = "%7B%22threads%22%3A1%2C%22tuning_budget_s%22%3A0%7D"
    raw = ["-H", "Content-Type: application/octet-stream", "--data-binary", "@model.onnx"]
    sent = curl(f"/compile?options={options}", *raw)
    assert sent.status == 202
    assert (sent.json["options"]["threads"], sent.json["options"]["tuning_budget_s"]) == (1, 0)
    assert curl.events(sent.json["id"])[-1]["state"] == "SUCCEEDED"


def test_the_artifact_arrives_under_its_name_whole_in_parts_or_not_at_all(curl: Curl, done: dict[str, Any]) -> None:
    path = f"/artifacts/{done['artifact_id']}"
    name = f"{done['artifact_id']}.tw"
    whole = curl(path, "-O", "-J")
    file = curl.folder / name
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert whole.headers["etag"] == f'"{digest}"'

    unchanged = curl(path, "-H", f'If-None-Match: "{digest}"')
    assert (unchanged.status, unchanged.body) == (304, b"")

    (curl.folder / "part.tw").write_bytes(curl(path, "-r", "0-999").body)
    assert (curl.folder / "part.tw").stat().st_size == 1000
    rest = curl(path, "-C", "-", "-o", "part.tw")
    assert rest.status == 206
    assert (curl.folder / "part.tw").read_bytes() == file.read_bytes()

    beyond = curl(path, "-r", f"{file.stat().st_size}-")
    assert beyond.status == 416


def test_report_receipt_and_records_tell_of_the_same_compilation(curl: Curl, done: dict[str, Any]) -> None:
    said = curl(f"/jobs/{done['id']}/report").json
    report = said["report"]
    assert list(report["phase_seconds"]) == list(PHASES)
    assert report["model_digest"] == done["model"] == hashlib.sha256(models.tiny(models.QUICK)).hexdigest()
    assert report["errors"]
    assert all(error["max_relative"] <= report["tolerance"] for error in report["errors"])

    receipt = curl(f"/artifacts/{done['artifact_id']}/receipt").json
    assert (receipt["job"], receipt["sha256"]) == (done["id"], report["artifact_digest"])
    assert receipt["receipt"]["report"] == report
    assert "limits" in receipt["receipt"]["sandbox"]

    records = curl(f"/tuning-records?job={done['id']}&kind=kernel").json["records"]
    assert len(records) == report["records_measured"] > 0
    assert {record["job"] for record in records} == {done["id"]}
    assert len({(record["workload"], json.dumps(record["variant"])) for record in records}) == len(records)
    assert all(0 < record["p10"] <= record["seconds"] <= record["p90"] for record in records)
    one = curl(f"/tuning-records/{records[0]['id']}").json
    assert {name: one[name] for name in records[0]} == records[0]
    assert one["workload_text"].startswith("workload")
    assert b"void " in curl(one["links"]["source"]).body
    other = curl("/tuning-records?job=00000000-0000-7000-8000-000000000000")
    assert other.json["records"] == []


def test_a_job_is_cancelled_while_it_runs_and_another_while_it_waits(curl: Curl) -> None:
    runs = curl.upload(models.tiny(models.LONG), MEASURED).json
    waits = curl.upload(models.tiny(models.LONG), {**MEASURED, "seed": 1}).json
    running = eventually(lambda: curl(f"/jobs/{runs['id']}").json["state"] == "RUNNING", "a job that runs")
    assert running
    too_early = assert_problem(curl(f"/artifacts/{runs['artifact_id']}"), 409, "job_not_finished")
    assert runs["id"] in json.dumps(too_early)

    at_once = curl(f"/jobs/{waits['id']}/cancel", "-X", "POST")
    assert (at_once.status, at_once.json["state"]) == (200, "CANCELLED")
    asked = curl(f"/jobs/{runs['id']}/cancel", "-X", "POST")
    assert (asked.status, asked.json["cancel_requested"]) == (202, True)

    for job in (runs, waits):
        events = curl.events(job["id"])
        assert [event["state"] for event in events if event["kind"] == "state"].count("CANCELLED") == 1
        assert events[-1]["state"] == "CANCELLED"
        assert_problem(curl(f"/artifacts/{job['artifact_id']}"), 410, "artifact_never_made")
    eventually(lambda: not curl.house.compiling(), f"no process of {runs['id']}")


def test_every_refusal_is_a_problem_document(curl: Curl, done: dict[str, Any]) -> None:
    nobody = "00000000-0000-7000-8000-000000000000"
    assert_problem(curl("/jobs", key=False), 401, "not_authenticated")
    assert_problem(curl(f"/jobs/{nobody}"), 404, "not_found")
    assert_problem(curl("/nowhere"), 404, "no_such_route")
    assert_problem(curl("/jobs?limit=0"), 400, "bad_request")
    assert_problem(curl("/compile", "-F", "options={}"), 400, "bad_request")
    wrong = assert_problem(curl.upload(b"x", {"threads": 0}), 422, "invalid_options")
    assert "threads" in wrong["detail"]
    assert_problem(curl(f"/jobs/{done['id']}/cancel", "-X", "POST"), 409, "job_finished")


def shell(house: House, folder: Path, text: str, model: bytes) -> list[int]:
    """Run a page's commands in one shell, with this house's address and key; the status of each request.

    The files `model.onnx` and `inputs.npz` are there, as the pages presume.
    """
    (folder / "model.onnx").write_bytes(model)
    arrays: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in inputs_of(model).items()}
    np.savez(folder / "inputs.npz", **arrays)
    text = text.replace("http://127.0.0.1:8750", house.url)
    text = text.replace("~/.local/share/tilewright/api_key", str(house.data / "api_key"))
    assert house.url in text
    assert str(house.data) in text
    spy = f"curl() {{ command curl -w '%{{stderr}}\nHTTP %{{http_code}}\\n' \"$@\"; }}\nset -u\n{text}"
    done = subprocess.run(["bash", "-c", spy], cwd=folder, capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    return [int(status) for status in re.findall(r"^HTTP (\d+)$", done.stderr, re.MULTILINE)]


def inputs_of(model: bytes) -> dict[str, list[int]]:
    """The shapes of a model's inputs, all of float32; an open dimension is 1."""
    reported = onnx.load_from_string(model).graph.input
    assert {value.type.tensor_type.elem_type for value in reported} == {onnx.TensorProto.FLOAT}
    return {value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim] for value in reported}


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")


@needs_bash
def test_the_commands_of_the_first_steps_do_what_they_say(house: House, tmp_path: Path) -> None:
    (page,) = [block for block in blocks((DOCS / "start.md").read_text(), "sh") if "curl" in block]
    assert shell(house, tmp_path, page, models.tiny(models.QUICK)) == [202, 200, 200, 200]
    digest = hashlib.sha256((tmp_path / "model.tw").read_bytes()).hexdigest()
    curl = Curl(house, tmp_path)
    job = json.loads((tmp_path / "job.json").read_text())
    assert curl(f"/artifacts/{job['artifact_id']}/receipt").json["sha256"] == digest


@needs_bash
def test_the_commands_of_the_further_pages_do_what_they_say(house: House, tmp_path: Path) -> None:
    before, *_ = blocks((DOCS / "api.md").read_text(), "sh")
    pages = [(DOCS / f"api-{name}.md").read_text() for name in ("work", "webhooks")]
    page = "\n".join([before, *(block for text in pages for block in blocks(text, "sh"))])
    page = page.replace("ci.example.org", "localhost")  # which is looked up, and refused, without a network
    statuses = shell(house, tmp_path, page, models.tiny(models.QUICK))
    assert len(statuses) == page.count("\ncurl ")
    assert set(statuses) <= {200, 201, 202, 204}
    assert json.loads((tmp_path / "job.json").read_text())["state"] == "SUCCEEDED"
    assert json.loads((tmp_path / "limited.json").read_text())["max_run_s"] == 60.0


@needs_bash
def test_the_commands_of_the_api_pages_do_what_they_say(house: House, tmp_path: Path) -> None:
    pages = [(DOCS / name).read_text() for name in ("api.md", "api-runs.md", "api-administration.md")]
    page = "\n".join(block for text in pages for block in blocks(text, "sh"))
    unmeasured = models.tiny(models.QUICK, hidden=24)  # the pages look at records of their own job
    statuses = shell(house, tmp_path, page, unmeasured)
    assert len(statuses) == page.count("\ncurl ")
    nothing_left = 416
    assert set(statuses) <= {200, 201, 202, 204, 206, nothing_left}
    assert json.loads((tmp_path / "bench.json").read_text())["blocked_by"] <= 1
    with np.load(tmp_path / "outputs.npz") as outputs:
        assert all(np.isfinite(outputs[name]).all() for name in outputs.files)
        assert outputs.files
    assert (tmp_path / "records.csv").read_text().count("\n") > 1
    assert (tmp_path / "records.parquet").read_bytes()[:4] == b"PAR1"
