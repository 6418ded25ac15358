from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
import pytest

from tests.tilewright.fake_server import ARTIFACT, BENCHMARK, INFERENCE, JOB, OTHER, REPORT, parts_of
from tests.tilewright.messages import message
from tilewright import follow
from tilewright.arrays import read_npz, write_npz
from tilewright.benchmark import Benchmark
from tilewright.client import Client
from tilewright.errors import BrokenDownload, JobFailed, RequestRefused, ServerUnreachable, UsageError, WaitTimeout
from tilewright.follow import FRUITLESS
from tilewright.wire import JobEvent

ID = JOB


def body(request: Any) -> Any:
    return json.loads(request.content)


def test_a_model_is_sent_once_and_compiled_by_its_digest(client: Client, server: Any, tmp_path: Path) -> None:
    content = message(b"onnx" * 1000)
    (tmp_path / "m.onnx").write_bytes(content)
    job = client.compile(tmp_path / "m.onnx", {"threads": 2}, fresh=True, priority=-1)
    assert (job.id, job.state, job.kind) == (ID, "QUEUED", "compile")
    (sent,) = server.sent("/models")
    assert sent.content == content
    assert sent.headers["content-length"] == str(len(content))
    assert {request.headers["authorization"] for request in server.seen} == {"Bearer twk_key"}
    (asked,) = server.sent("/compile")
    digest = hashlib.sha256(content).hexdigest()
    assert body(asked) == {"model": digest, "options": {"threads": 2}, "fresh": True, "priority": -1}

    client.compile(tmp_path / "m.onnx")
    client.compile(digest)
    assert len(server.sent("/models")) == 1
    assert len(server.sent("/compile")) == 3


def test_samples_go_in_a_form_beside_the_digest(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"of a file")
    arrays = {"x": np.arange(3.0)}
    job = client.compile(b"onnx", {"threads": 2}, samples=[tmp_path / "a.npz", arrays], fresh=True, priority=-1)
    assert job.id == ID
    (asked,) = server.sent("/compile")
    assert dict(asked.url.params) == {"fresh": "true", "priority": "-1"}
    digest, options, first, second = parts_of(asked)
    assert digest == ("digest", None, hashlib.sha256(b"onnx").hexdigest().encode())
    assert options[:2] == ("options", None)
    assert json.loads(options[2]) == {"threads": 2}
    assert first == ("samples", "1 a.npz", b"of a file")
    assert second[:2] == ("samples", "2.npz")
    assert read_npz(io.BytesIO(second[2]))["x"].tolist() == [0, 1, 2]


def test_a_submission_with_samples_is_repeated_under_one_idempotency_key(client: Client, server: Any) -> None:
    client.upload(b"onnx")
    server.seen, server.refusals = [], [0, 1, 503, 0, 0]
    client.compile(b"onnx", samples=[{"x": np.zeros(2)}])
    tried = server.sent("/compile")
    assert len(tried) == 3
    assert len({request.headers["idempotency-key"] for request in tried}) == 1
    assert {len(parts_of(request)) for request in tried} == {3}


def test_a_sample_that_cannot_be_read_is_named(client: Client) -> None:
    with pytest.raises(UsageError, match=r"cannot read /no/such\.npz"):
        client.compile(b"onnx", samples=["/no/such.npz"])


def test_several_options_make_one_request_and_a_job_each(client: Client, server: Any) -> None:
    jobs = client.compile(b"onnx", [{"target": "cpu:x86-64-v2"}, {"target": "cpu:x86-64-v3"}])
    assert [job.said["options"]["target"] for job in jobs] == ["cpu:x86-64-v2", "cpu:x86-64-v3"]
    assert len(server.sent("/compile")) == 1
    assert client.compile(b"onnx", MappingProxyType({"threads": 2})).id == ID
    with pytest.raises(UsageError, match="empty"):
        client.compile(b"onnx", [])


def test_a_submission_is_repeated_under_one_idempotency_key(client: Client, server: Any) -> None:
    client.upload(b"onnx")
    server.seen, server.refusals = [], [0, 1, 503, 1, 0, 0]
    client.compile(b"onnx")
    tried = server.sent("/compile")
    assert len(tried) == 4
    assert len({request.headers["idempotency-key"] for request in tried}) == 1
    assert len({request.content for request in tried}) == 1
    client.compile(b"onnx", idempotency_key="mine")
    assert server.seen[-1].headers["idempotency-key"] == "mine"


def test_a_model_given_by_digest_takes_no_external_data(client: Client, server: Any) -> None:
    with pytest.raises(UsageError, match="external data"):
        client.compile("0" * 64, data=["weights.bin"])
    assert server.seen == []


def test_a_file_that_is_not_there_is_a_usage_error(client: Client) -> None:
    with pytest.raises(UsageError, match="No such file"):
        client.compile("/no/such.onnx")


def test_a_broken_event_stream_goes_on_where_it_stopped(client: Client, server: Any) -> None:
    server.cuts = [75, 150, 0, None]
    seen: list[JobEvent] = []
    job = client.wait(ID, seen.append)
    assert [event.seq for event in seen] == [1, 2, 3, 4]
    assert [event.kind for event in seen] == ["state", "phase", "notice", "state"]
    assert job.state == "SUCCEEDED"
    resumed = [request.headers.get("last-event-id") for request in server.seen if request.url.path.endswith("events")]
    assert resumed[0] is None
    assert resumed[-1] not in (None, "0")


def test_a_server_that_stays_away_ends_the_waiting(client: Client, server: Any) -> None:
    server.refusals = [1] * 100
    with pytest.raises(ServerUnreachable, match="refused"):
        client.wait(ID)
    assert len(server.seen) == FRUITLESS


def test_waiting_ends_after_the_time_that_is_given_and_the_server_is_told_of_it(
    client: Client, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FRUITLESS", 1 << 30)  # its streams end at once; those of a server after the wait
    server.events = server.events[:-1]
    with pytest.raises(WaitTimeout, match="it goes on") as caught:
        client.wait(ID, timeout=0.05)
    assert caught.value.exit_status == 6
    assert {request.headers["prefer"] for request in server.seen} == {"wait=1"}
    server.seen.clear()
    with pytest.raises(WaitTimeout):
        client.wait(ID, timeout=0)
    assert server.seen == [], "there is no time to ask"


def test_what_is_said_of_a_job_goes_along_with_a_model_and_with_samples(
    client: Client, server: Any, tmp_path: Path
) -> None:
    beside: Any = {"name": "nightly", "tags": ("ci", "main"), "max_queue_s": 60.0}
    client.compile(b"onnx", **beside, fresh=True)
    client.compile(b"onnx", samples=[{"x": [1.0]}], **beside)
    plain, form = server.sent("/compile")
    assert json.loads(plain.content) | {**beside, "tags": ["ci", "main"], "fresh": True} == json.loads(plain.content)
    asked = form.url.params
    assert (asked["name"], asked.get_list("tag"), asked["fresh"]) == ("nightly", ["ci", "main"], "false")


def test_a_failed_job_raises_with_the_servers_reason(client: Client, server: Any) -> None:
    server.problem = {"code": "malformed_model", "message": "truncated", "fix": "send it whole"}
    server.events[-1] = ("state", {"state": "FAILED"})
    job = client.wait(ID)
    with pytest.raises(JobFailed, match="truncated") as caught:
        job.require_success()
    assert caught.value.fix == "send it whole"


def test_a_problem_document_becomes_an_error_with_code_and_fix(client: Client) -> None:
    with pytest.raises(RequestRefused, match="nothing here") as caught:
        client.report(ID)
    assert caught.value.problem["code"] == "no_such_route"
    assert caught.value.fix == "look elsewhere"


def test_records_are_read_page_by_page(client: Client, server: Any) -> None:
    server.pages = {
        "": {"records": [record(1), record(2)], "next_cursor": "c"},
        "c": {"records": [record(3)], "next_cursor": None},
    }
    assert [found.samples for found in client.tuning_records(operator="Conv")] == [1, 2, 3]
    assert server.seen[0].url.params["operator"] == "Conv"
    assert [found.samples for found in client.tuning_records(limit=2)] == [1, 2]


def test_a_misspelt_filter_is_a_usage_error_and_not_a_list_of_everything(client: Client, server: Any) -> None:
    with pytest.raises(UsageError, match="'opertor'"):
        next(client.tuning_records(opertor="Conv"))
    with pytest.raises(UsageError, match="'xml'"):
        client.records_to("records.xml", "xml")
    assert server.seen == []


def test_records_are_written_whole_or_not_at_all(client: Client, server: Any, tmp_path: Path) -> None:
    server.cuts = [4, None]
    target = client.records_to(tmp_path / "r.csv", operator="Conv")
    assert target.read_bytes() == b"id,seconds\n1,2\n"
    assert dict(server.seen[0].url.params) == {"operator": "Conv", "format": "csv"}
    server.cuts = [4] * 20
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.export_records(tmp_path / "all")
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.csv"]
    with pytest.raises(UsageError, match="cannot write"):
        client.records_to(tmp_path / "none" / "r.csv")


def test_json_records_are_gathered_page_by_page(client: Client, server: Any, tmp_path: Path) -> None:
    server.pages = {
        "": {"records": [record(1), record(2)], "next_cursor": "c"},
        "c": {"records": [record(3)], "next_cursor": None},
    }
    written = client.records_to(tmp_path / "r.json", "json")
    assert json.loads(written.read_text())["records"] == [record(1), record(2), record(3)]
    server.pages = {"": {"records": [], "next_cursor": None}}
    assert json.loads(client.records_to(tmp_path / "r.json", "json").read_text()) == {"records": []}


def test_an_import_that_broke_off_is_repeated_since_records_are_taken_once(
    client: Client, server: Any, tmp_path: Path
) -> None:
    (tmp_path / "records").write_bytes(b"{}\n")
    server.answers["/tuning-records/import"] = {"imported": 3, "known": 1}
    assert client.import_records(tmp_path / "records") == {"imported": 3, "known": 1}
    assert server.seen[0].content == b"{}\n"
    server.seen, server.refusals = [], [0, 1]
    client.import_records(tmp_path / "records")
    assert [request.content for request in server.seen] == [b"{}\n"] * 2
    with pytest.raises(UsageError, match="No such file"):
        client.import_records(tmp_path / "none")


def test_the_source_of_a_record_is_text_however_it_is_wrapped(client: Client, server: Any) -> None:
    server.answers[f"/tuning-records/{ID}/source"] = {"source": "int x;", "record": ID}
    assert client.record_source(ID) == "int x;"
    server.answers[f"/tuning-records/{ID}/source"] = httpx.Response(200, text="int y;")
    assert client.record_source(ID) == "int y;"


def record(samples: int) -> dict[str, Any]:
    reported = {"id": ID, "kind": "kernel", "operator": "Conv", "workload": "w", "target": "cpu", "hardware": "h"}
    return {**reported, "variant": {}, "threads": 1, "seconds": 1.0, "p10": 0.9, "p90": 1.1, "samples": samples}


def test_a_benchmark_is_waited_for_and_typed(client: Client, server: Any) -> None:
    queued = client.benchmark([client.job(ID), OTHER], {"seconds": 1})
    assert body(server.seen[-1]) == {"artifacts": [ARTIFACT, OTHER], "options": {"seconds": 1}, "priority": 0}
    assert (queued.id, queued.artifacts, queued.comparisons) == (BENCHMARK, (), ())
    found = client.wait(queued).require_success()
    assert [one.artifact for one in found.artifacts] == [ARTIFACT, OTHER]
    assert found.artifacts[0].warm_load_s == 0.012
    assert found.comparisons[0].verdict == "a is faster by 1.23x ± 0.02"
    assert found.said["report"] == REPORT
    assert client.wait(found) is found


def test_a_sample_goes_with_a_benchmark_in_a_form(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"of a file")
    queued = client.benchmark([ARTIFACT], {"seconds": 1}, samples=[tmp_path / "a.npz"], tags=["mine"])
    asked, sample = parts_of(server.seen[-1])
    assert asked[:2] == ("benchmark", None)
    wanted = {"artifacts": [ARTIFACT], "options": {"seconds": 1}, "priority": 0, "tags": ["mine"]}
    assert json.loads(asked[2]) == wanted
    assert sample == ("samples", "1 a.npz", b"of a file")
    assert queued.sample == ""
    report = {**REPORT, "inputs": {"from": "sample", "name": "1 a.npz", "sha256": "0" * 64}}
    assert Benchmark.from_json({**queued.said, "report": report}).sample == "1 a.npz"
    with pytest.raises(UsageError, match=r"cannot read /no/such\.npz"):
        client.benchmark([ARTIFACT], samples=["/no/such.npz"])


def test_parts_of_an_artifact_are_read_without_the_rest(client: Client, server: Any) -> None:
    of = f"/artifacts/{ARTIFACT}"
    server.answers[f"{of}/files"] = {"artifact": ARTIFACT, "files": [{"name": "source/kernel_0.c", "bytes": 7}]}
    server.answers[f"{of}/receipt"] = {"artifact": ARTIFACT, "receipt": {"attempt": 1}}
    server.answers[f"{of}/source/kernel 0.c"] = httpx.Response(200, text="int x;\n")
    job = client.job(ID)
    assert [(file.name, file.bytes) for file in client.files(job)] == [("source/kernel_0.c", 7)]
    assert client.receipt(ARTIFACT)["receipt"] == {"attempt": 1}
    assert client.source(job, "kernel 0.c") == client.source(job, "source/kernel 0.c") == "int x;\n"
    for name in ("", "../manifest.json", "source/", "a//b", "./a"):
        with pytest.raises(UsageError, match="no file below source/"):
            client.source(job, name)


def test_benchmarks_are_listed_without_their_figures(client: Client, server: Any) -> None:
    one = server.job(id=BENCHMARK, state="SUCCEEDED", artifacts=[ARTIFACT, OTHER])
    server.answers["/benchmarks"] = {"benchmarks": [one], "next_cursor": None}
    (found,) = client.benchmarks(limit=3)
    assert (found.id, found.state, found.artifacts) == (BENCHMARK, "SUCCEEDED", ())
    assert server.seen[-1].url.params["limit"] == "3"


def test_a_job_that_compiles_nothing_has_no_artifact(client: Client, server: Any) -> None:
    server.kind = "benchmark"
    job = client.job(ID)
    assert (job.kind, job.artifact_id) == ("benchmark", None)
    for use in (client.manifest, client.plan, lambda job: client.benchmark([job])):
        with pytest.raises(UsageError, match="makes no artifact"):
            use(job)


def test_inference_sends_and_receives_arrays(client: Client, server: Any) -> None:
    server.state = "SUCCEEDED"
    packed = io.BytesIO()
    write_npz(packed, {"a/b": np.arange(3, dtype=np.float32)})
    about = {"seconds": 0.1, "outputs": {"a/b": {"dtype": "float32", "shape": [3]}}}
    server.answers["/inferences"] = server.job(id=INFERENCE, artifact_id=None)
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, report=about)
    outputs = f"/inferences/{INFERENCE}/outputs"
    etag = f'"{hashlib.sha256(packed.getvalue()).hexdigest()}"'
    server.answers[outputs] = httpx.Response(200, content=packed.getvalue(), headers={"ETag": etag})

    found = client.infer(ARTIFACT, {"file": np.ones((2, 2))}, threads=3, seed=7)
    np.testing.assert_array_equal(found["a/b"], np.arange(3))
    asked = server.sent("/inferences")[0]
    assert dict(asked.url.params) == {"artifact": ARTIFACT, "threads": "3", "seed": "7"}
    np.testing.assert_array_equal(read_npz(io.BytesIO(asked.content))["file"], np.ones((2, 2)))

    server.answers[outputs] = httpx.Response(200, content=packed.getvalue(), headers={"ETag": f'"{"0" * 64}"'})
    with pytest.raises(BrokenDownload, match="announced"):
        client.infer(ARTIFACT, {"file": np.ones(1)})
    with pytest.raises(UsageError, match="'file' is no array"):
        client.infer(ARTIFACT, {"file": object()})


def told(*pieces: tuple[int, list[int]]) -> list[tuple[str, dict[str, Any]]]:
    """Events of an inference that generates: places and tokens."""
    return [("tokens", {"phase": "run", "data": {"first": first, "tokens": tokens}}) for first, tokens in pieces]


def generating(server: Any, tokens: list[int]) -> None:
    """The server has an inference that leaves these tokens."""
    packed = io.BytesIO()
    write_npz(packed, {"tokens": np.array(tokens)})
    server.kind = "inference"
    server.answers["/inferences"] = server.job(id=INFERENCE, artifact_id=None)
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, state="SUCCEEDED", report={})
    etag = f'"{hashlib.sha256(packed.getvalue()).hexdigest()}"'
    server.answers[f"/inferences/{INFERENCE}/outputs"] = httpx.Response(
        200, content=packed.getvalue(), headers={"ETag": etag}
    )


def test_tokens_come_once_each_also_those_of_a_second_attempt_and_those_that_no_event_told(
    client: Client, server: Any
) -> None:
    generating(server, [7, 8, 9, 10, 11])
    ended = ("state", {"state": "SUCCEEDED"})
    server.events = [*told((0, [7]), (1, [8, 9]), (0, [7, 8, 9, 10])), ended]
    server.cuts = [90, None]
    found = client.generate(ARTIFACT, [1, 2], max_tokens=5, temperature=0.5, stop=[3, 4], threads=1)
    assert list(found) == [7, 8, 9, 10, 11]
    (asked,) = server.sent("/inferences")
    assert asked.url.params.multi_items() == [
        ("artifact", ARTIFACT), ("threads", "1"), ("seed", "0"), ("max_tokens", "5"), ("temperature", "0.5"),
        ("stop", "3"), ("stop", "4"),
    ]  # fmt: skip
    assert read_npz(io.BytesIO(asked.content))["ids"].tolist() == [1, 2]
    assert server.sent(f"/jobs/{INFERENCE}/cancel") == []
    server.events = [*told((0, [7]), (2, [9])), ended]
    assert list(client.generate(ARTIFACT, [1, 2])) == [7, 8, 9, 10, 11]


def test_a_text_that_is_left_is_cancelled_and_one_that_failed_is_an_error(client: Client, server: Any) -> None:
    generating(server, [7, 8])
    server.events = [*told((0, [7, 8])), ("state", {"state": "FAILED"})]
    coming = client.generate(ARTIFACT, [1])
    assert next(coming) == 7
    coming.close()  # type: ignore[attr-defined]
    assert len(server.sent(f"/jobs/{INFERENCE}/cancel")) == 1
    problem = {"code": "invalid_inputs", "message": "the prompt has no tokens", "fix": "give one"}
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, state="FAILED", problem=problem)
    with pytest.raises(JobFailed, match="the prompt has no tokens"):
        list(client.generate(ARTIFACT, []))
    assert len(server.sent(f"/jobs/{INFERENCE}/cancel")) == 1
    with pytest.raises(UsageError, match="the prompt is no list of tokens"):
        list(client.generate(ARTIFACT, "words"))  # type: ignore[arg-type]


SOUND = np.arange(7, dtype=np.float32).reshape(1, 1, 7)


def piece(first: int, until: int) -> tuple[str, dict[str, Any]]:
    """An event that brings a part of `SOUND`."""
    part = SOUND[..., first:until]
    elements = base64.b64encode(part.astype("<f4").tobytes()).decode()
    said = {"output": "y", "axis": 2, "first": first, "shape": [*part.shape], "dtype": "float32", "elements": elements}
    return "piece", {"phase": "run", "data": said}


def speaking(server: Any) -> None:
    """The server has an inference whose output is `SOUND`."""
    packed = io.BytesIO()
    write_npz(packed, {"y": SOUND})
    about = {"outputs": {"y": {"dtype": "float32", "shape": [*SOUND.shape]}}}
    server.kind = "inference"
    server.answers["/inferences"] = server.job(id=INFERENCE, artifact_id=None)
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, state="SUCCEEDED", report=about)
    etag = f'"{hashlib.sha256(packed.getvalue()).hexdigest()}"'
    answer = httpx.Response(200, content=packed.getvalue(), headers={"ETag": etag})
    server.answers[f"/inferences/{INFERENCE}/outputs"] = answer


@pytest.mark.parametrize(
    ("told", "lengths"),
    [
        ([(0, 3), (3, 6), (6, 7)], [3, 3, 1]),  # all of them
        ([(0, 3), (3, 6), (0, 3), (3, 6), (6, 7)], [3, 3, 1]),  # a second attempt tells them again
        ([(0, 3)], [3, 4]),  # the log took no more
        ([], [7]),  # they have gone
    ],
)
def test_pieces_come_once_each_and_the_rest_with_the_outputs(
    client: Client, server: Any, told: list[tuple[int, int]], lengths: list[int]
) -> None:
    speaking(server)
    server.events = [*(piece(*one) for one in told), ("state", {"state": "SUCCEEDED"})]
    found = list(client.chunks(ARTIFACT, {"x": np.ones(2)}, threads=1, seed=3))
    assert [one.shape[2] for one in found] == lengths
    np.testing.assert_array_equal(np.concatenate(found, 2), SOUND)
    (asked,) = server.sent("/inferences")
    assert dict(asked.url.params) == {"artifact": ARTIFACT, "threads": "1", "seed": "3", "pieces": "true"}
    assert server.sent(f"/jobs/{INFERENCE}/cancel") == []


def test_sound_that_is_left_is_cancelled_and_what_gives_no_pieces_is_an_error(client: Client, server: Any) -> None:
    speaking(server)
    server.events = [piece(0, 3), piece(3, 6), ("state", {"state": "FAILED"})]
    coming = client.chunks(ARTIFACT, {"x": np.ones(2)})
    assert next(coming).shape == (1, 1, 3)
    coming.close()  # type: ignore[attr-defined]
    assert len(server.sent(f"/jobs/{INFERENCE}/cancel")) == 1
    problem = {"code": "invalid_inputs", "message": "the artifact gives no output in pieces", "fix": "compile"}
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, state="FAILED", problem=problem)
    server.events = [("state", {"state": "FAILED"})]
    with pytest.raises(JobFailed, match="no output in pieces"):
        list(client.chunks(ARTIFACT, {"x": np.ones(2)}))
    assert len(server.sent(f"/jobs/{INFERENCE}/cancel")) == 1


def test_what_the_server_is_comes_typed(client: Client, server: Any) -> None:
    worker = {"name": "w/1", "queues": ["cpu"], "hardware": {"cores": 2}, "compiler": "0.1.0", "busy": True}
    server.answers["/workers"] = {"workers": [worker]}
    server.answers["/targets"] = {"targets": [{"name": "cpu:x86-64-v4", "queued": 2}]}
    server.answers["/operators"] = {"operators": [{"name": "Conv", "opsets": [7, 28]}]}
    (found,) = client.workers()
    assert (found.name, found.queues, found.hardware, found.busy) == ("w/1", ("cpu",), {"cores": 2}, True)
    assert [(one.name, one.said["queued"]) for one in client.targets()] == [("cpu:x86-64-v4", 2)]
    assert [one.name for one in client.operators()] == ["Conv"]


def test_a_preflight_queues_nothing(client: Client, server: Any) -> None:
    refusal = {"reason": "unknown", "fix": "replace it", "node": "n", "operator": "Odd"}
    server.answers["/preflight"] = {"ok": False, "operators": [], "refusals": [refusal], "cached": None}
    found = client.preflight(b"onnx", {"threads": 1})
    assert (found.ok, found.cached, found.refusals) == (False, None, (refusal,))
    assert body(server.seen[-1])["options"] == {"threads": 1}
    assert server.sent("/compile") == []


def test_models_are_listed_and_deleted(client: Client, server: Any) -> None:
    kept = client.upload(b"onnx")
    assert [model.digest for model in client.models()] == [kept.digest]
    assert client.delete_model(kept)["deleted"]["jobs"] == 2
    with pytest.raises(RequestRefused) as caught:
        client.delete_model(kept.digest)
    assert caught.value.status == 404
    with pytest.raises(UsageError, match="not a digest"):
        client.delete_model("../jobs")


def test_finish_clone_and_log_speak_of_a_job(client: Client, server: Any) -> None:
    server.answers[f"/jobs/{ID}/log"] = httpx.Response(200, text="job went well")
    assert client.finish(ID).id == ID
    assert client.clone(ID, {"threads": 1}, fresh=True).said["options"] == {"threads": 1}
    assert server.seen[-1].headers["idempotency-key"]
    assert client.log(ID) == "job went well"


def test_an_id_that_is_none_never_reaches_a_path(client: Client, server: Any) -> None:
    with pytest.raises(UsageError, match="not an id"):
        client.job("../admin")
    assert server.seen == []


def test_a_download_is_checked_and_put_in_place(client: Client, server: Any, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    path = client.download(ID, tmp_path / "m.tw", lambda here, whole: steps.append((here, whole)))
    assert path.read_bytes() == server.artifact
    assert steps[-1] == (len(server.artifact), len(server.artifact))
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.tw"]


def test_a_broken_download_is_resumed_by_range(client: Client, server: Any, tmp_path: Path) -> None:
    server.cuts = [3000, 2000, None]
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact
    assert [request.headers.get("range") for request in server.seen] == [None, "bytes=3000-", "bytes=5000-"]


def test_a_download_outlasts_a_busy_server(client: Client, server: Any, tmp_path: Path) -> None:
    server.refusals = [0, 503, 429]
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact
    server.refusals = [0, 503, 429]
    assert client.records_to(tmp_path / "r.csv").read_bytes() == b"id,seconds\n1,2\n"
    server.refusals = [404]
    with pytest.raises(RequestRefused):
        client.download(ID, tmp_path / "other.tw")


def test_what_is_no_file_is_never_replaced(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is not a file"):
            client.download(ID, target)
        with pytest.raises(UsageError, match="is not a file"):
            client.records_to(target)
    assert (tmp_path / "pipe").is_fifo()


def test_a_download_given_up_is_resumed_by_the_next_one(client: Client, server: Any, tmp_path: Path) -> None:
    server.cuts = [3000, *[0] * 20]
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.download(ID, tmp_path / "m.tw")
    assert not (tmp_path / "m.tw").exists()
    server.cuts, server.seen = [], []
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact
    assert [request.headers.get("range") for request in server.seen] == ["bytes=3000-"]


def test_a_part_that_is_whole_already_is_only_checked(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / f".m.tw.{ID}.part").write_bytes(server.artifact)
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact


def test_damaged_bytes_are_refused_and_removed(client: Client, server: Any, tmp_path: Path) -> None:
    server.etag = f'"{hashlib.sha256(b"other").hexdigest()}"'
    with pytest.raises(BrokenDownload, match="announced"):
        client.download(ID, tmp_path / "m.tw")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_checksum_is_refused(client: Client, server: Any, tmp_path: Path) -> None:
    server.etag = '"weak"'
    with pytest.raises(BrokenDownload, match="no SHA-256"):
        client.download(ID, tmp_path / "m.tw")
    assert not (tmp_path / "m.tw").exists()


def test_importing_tilewright_loads_no_other_package_of_ours() -> None:
    program = (
        "import sys, tilewright, tilewright.cli\n"
        "print(sorted({n.partition('.')[0] for n in sys.modules} & {'compiler', 'service', 'worker', 'migrations', "
        "'celery'}))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
