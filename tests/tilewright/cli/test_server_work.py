"""Commands that make a server's device work: compile for several targets, bench, infer, preflight, clone, finish."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.tilewright.fake_server import ARTIFACT, BENCHMARK, INFERENCE, JOB, OTHER, REPORT, parts_of
from tilewright.arrays import read_npz, write_npz
from tilewright.benchmark import Comparison
from tilewright.cli.bench import verdict

Command = Callable[..., Any]


def body(server: Any, path: str) -> Any:
    return json.loads(server.sent(path)[-1].content)


def test_several_targets_make_one_request_and_a_file_each(command: Command, server: Any, model: Path) -> None:
    targets = ("--target", "cpu:x86-64-v2", "--target", "cpu:x86-64-v3")
    done = command("compile", model, *targets, "--threads", 2, "--precision", "fp32", "--json")
    assert done.exit_code == 0, done.output
    reported = json.loads(done.stdout)["jobs"]
    assert [Path(one["artifact"]).name for one in reported] == ["net.cpu-x86-64-v2.tw", "net.cpu-x86-64-v3.tw"]
    assert [Path(one["artifact"]).read_bytes() for one in reported] == [server.artifact] * 2
    assert len(server.sent("/compile")) == 1
    assert body(server, "/compile")["options"] == [
        {"threads": 2, "precision": "fp32", "target": target} for target in targets[1::2]
    ]


def test_compile_sends_samples_with_every_target(command: Command, server: Any, model: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.npz").write_bytes(name.encode())
    samples = [part for name in "ab" for part in ("--samples", str(tmp_path / f"{name}.npz"))]
    done = command("compile", model, *samples, "--target", "cpu:x86-64-v2", "--no-wait")
    assert done.exit_code == 0, done.output
    parts = parts_of(server.sent("/compile")[-1])
    assert [(name, content) for name, _, content in parts[2:]] == [("samples", b"a"), ("samples", b"b")]
    assert json.loads(parts[1][2]) == {"target": "cpu:x86-64-v2"}


def test_of_several_targets_one_failure_is_exit_status_1(command: Command, server: Any, model: Path) -> None:
    server.problem = {"code": "unsupported_model", "message": "not so", "fix": "mend it"}
    server.events[-1] = ("state", {"state": "FAILED"})
    targets = ("--target", "cpu:x86-64-v2", "--target", "cpu:x86-64-v3")
    done = command("compile", model, *targets, "--json")
    assert done.exit_code == 1
    assert [job["state"] for job in json.loads(done.stdout)["jobs"]] == ["FAILED", "FAILED"]
    assert command("compile", model, *targets).stderr.count("not so") == 2


def test_one_file_is_no_place_for_several_artifacts(command: Command, server: Any, model: Path) -> None:
    arguments = ("--target", "cpu", "--target", "cpu:x86-64-v3", "-o", model, "--json")
    assert command("compile", model, *arguments).exit_code == 2
    assert command("compile", model, "--target", "cpu", "--target", "cpu").exit_code == 2
    assert server.seen == []


def test_compile_with_preflight_queues_nothing_that_would_be_refused(
    command: Command, server: Any, model: Path
) -> None:
    refusal = {"reason": "it is unknown", "fix": "use Relu", "node": "n7", "operator": "Bogus"}
    problem = {"code": "unsupported_model", "message": "no", "fix": "mend it", "refusals": [refusal]}
    server.answers["/preflight"] = {"ok": False, "operators": [], "refusals": [refusal], "problem": problem}
    done = command("compile", model, "--preflight", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == "unsupported_model"
    assert server.sent("/compile") == []
    server.answers["/preflight"] = {"ok": True, "operators": [], "refusals": []}
    assert command("compile", model, "--preflight", "--json").exit_code == 0
    assert len(server.sent("/models")) == 1


PREFLIGHT: dict[str, Any] = {
    "ok": False,
    "problem": {"code": "unsupported_model", "message": "1 node cannot be compiled", "fix": "mend them"},
    "operators": [
        {"operator": "Conv", "domain": "ai.onnx", "count": 12, "verdict": "supported", "reasons": []},
        {"operator": "Odd", "domain": "my.ops", "count": 1, "verdict": "refused", "reasons": ["it is unknown"]},
    ],
    "refusals": [{"reason": "it is unknown", "fix": "use Relu", "node": "n7", "operator": "Odd"}],
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3, None]}],
    "proof": {"seconds": 90.0, "bytes": 3 << 30},
    "memory_bytes": {"compile": 700 << 20, "run": 24 << 20},
    "weight_bytes": 5 << 20,
    "parameters": 1234567,
    "gflop": {"value": 1.5, "counts": "..."},
    "notices": ["batch was taken as 1"],
    "corrected": {"dims": {"batch": 1}},
    "cached": None,
    "queue": {"name": "cpu", "position": 3, "workers": 1},
    "estimate": {"median_s": 12.5, "p90_s": 19.0, "jobs": 4},
}


def test_preflight_shows_verdicts_reasons_memory_and_estimate(command: Command, server: Any, model: Path) -> None:
    server.answers["/preflight"] = PREFLIGHT
    done = command("preflight", model, "--dim", "batch=1")
    assert done.exit_code == 1
    shown = done.stdout
    for part in ("Conv", "supported", "my.ops::Odd", "it is unknown", "batchx3x?", "700.0 MiB to compile", "12.500 s",
                 "proof: about 90.000 s and 3.0 GiB for each case",
                 "1.5 GFLOP", "3 jobs before it, 1 live worker", "batch was taken as 1",
                 '{"dims": {"batch": 1}}'):  # fmt: skip
        assert part in shown, part
    assert "Odd 'n7': it is unknown; use Relu" in shown
    assert body(server, "/preflight")["options"] == {"dims": {"batch": 1}}
    assert json.loads(command("preflight", model, "--json").stdout) == PREFLIGHT


def test_preflight_shows_ranges_of_inputs_and_for_whose_sake_samples_are_wanted(
    command: Command, server: Any, model: Path
) -> None:
    drawn = {"name": "ids", "dtype": "i64", "shape": [5], "bound": True, "range": [0, 8], "why": "Gather 'lookup'"}
    half = {"name": "x", "dtype": "f32", "shape": [2], "bound": True, "range": [0, None], "why": "Log 'log'"}
    wanted = {"node": "n3", "operator": "Gather", "reason": "it is computed", "fix": "give samples", "inputs": ["x"]}
    server.answers["/preflight"] = {**PREFLIGHT, "inputs": [drawn, half], "samples": [wanted]}
    shown = command("preflight", model).stdout
    assert "input ids: i64 5, drawn from 0 to 8: Gather 'lookup'" in shown
    assert "input x: f32 2, drawn from 0 to any: Log 'log'" in shown
    assert "samples are wanted: Gather 'n3': it is computed. Fix: give samples" in shown


def test_preflight_shows_weights_of_few_values(command: Command, server: Any, model: Path) -> None:
    one = {"name": "w", "shape": [64, 128], "values": 16, "bits": 4, "axis": None, "saved_bytes": 28 << 10}
    own = {"name": "v", "shape": [8, 8], "values": 3, "bits": 2, "axis": 1, "saved_bytes": 2048}
    server.answers["/preflight"] = {**PREFLIGHT, "shared": [one, own]}
    shown = command("preflight", model).stdout
    assert "w 64x128: 16 values, 4 bits each, 28.0 KiB less than in fp32" in shown
    assert "v 8x8: 3 values for each index of axis 1, 2 bits each, 2.0 KiB less than in fp32" in shown


def test_preflight_shows_weights_of_few_bits(command: Command, server: Any, model: Path) -> None:
    one = {"name": "w", "shape": [64, 128], "bits": 4, "block": 32, "axis": 0, "zero_points": True, "saved_bytes": 2048}
    server.answers["/preflight"] = {**PREFLIGHT, "quantised": [one]}
    shown = command("preflight", model).stdout
    assert "w 64x128: codes of 4 bits, a scale and a zero point for each 32, 2.0 KiB less than in fp32" in shown


def test_preflight_asks_for_states_and_shows_which_are_carried(command: Command, server: Any, model: Path) -> None:
    known = {"output": "next", "input": "h", "dtype": "f32", "shape": [4, 24]}
    unknown = {"output": "cell", "input": "c", "dtype": None, "shape": None}
    other = {**known, "output": "hn", "input": "h0"}
    server.answers["/preflight"] = {**PREFLIGHT, "carried": [known, unknown], "suggested_states": [other]}
    words = ["--devices", "cpu:0,cpu:1", "--objective", "throughput", "--carry", "next=h", "--carry", "cell=c"]
    shown = " ".join(command("preflight", model, *words).stdout.split())
    assert "carried: next is h of the next inference, f32 4x24" in shown
    assert "could be carried (--carry auto): hn is h0 of the next inference, f32 4x24" in shown
    assert "carried: cell is c of the next inference, of unknown type of unknown shape" in shown
    assert body(server, "/preflight")["options"]["carry"] == {"next": "h", "cell": "c"}


def test_a_preflight_without_objection_is_exit_status_0(command: Command, server: Any, model: Path) -> None:
    server.answers["/preflight"] = {**PREFLIGHT, "ok": True, "refusals": [], "problem": None, "estimate": None}
    assert command("preflight", model, "--target", "cpu:x86-64-v3").exit_code == 0
    assert command("preflight", model, "--json").exit_code == 0


def test_bench_shows_times_and_the_verdict(command: Command, server: Any) -> None:
    done = command("bench", JOB, OTHER, "--seconds", 1, "--seed", 3, "--dim", "batch=7")
    assert done.exit_code == 0, done.output
    assert body(server, "/benchmarks") == {
        "artifacts": [ARTIFACT, OTHER],
        "options": {"seconds": 1.0, "seed": 3, "profile": False, "dims": {"batch": 7}},
        "priority": 0,
    }
    for part in (ARTIFACT, "4.100 ms", "3.690 ms - 4.510 ms", "5.330 ms", "31.000 ms", "12.000 ms", "20.00 us"):
        assert part in done.stdout, part
    assert "A is faster by 1.23x ± 0.02 than B" in done.stdout
    assert "note: artifact B runs 4 lanes on 2 cores" in done.stdout
    assert "Conv+Relu" not in done.stdout
    assert "A with many" not in done.stdout
    assert "B with many inferences in flight: 781.8 a second, one each 1.280 ms (predicted 1.050 ms)" in done.stdout
    assert "devices are idle for 17% of the time" in done.stdout
    for cells in (("cpu:0 ", "91%", "23", "100%"), ("cpu:1@x86-64-v2", "75%", "9", "25%")):
        assert any(all(cell in line for cell in cells) for line in done.stdout.splitlines()), cells


def test_bench_times_on_a_sample_and_says_on_which(
    command: Command, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "scan.npz", x=np.zeros(3, np.float32))
    monkeypatch.setitem(REPORT, "inputs", {"from": "sample", "name": "1 scan.npz", "sha256": "0" * 64})
    done = command("bench", ARTIFACT, "--samples", tmp_path / "scan.npz")
    assert done.exit_code == 0, done.output
    assert "timed on the sample 1 scan.npz" in done.stdout
    (asked,) = server.sent("/benchmarks")
    assert b'filename="1 scan.npz"' in asked.content
    missing = command("bench", ARTIFACT, "--samples", tmp_path / "none.npz")
    assert (missing.exit_code, "cannot read" in missing.output) == (2, True), missing.output


def test_bench_shows_kernels_when_asked_and_prints_everything_as_json(command: Command, server: Any) -> None:
    shown = command("bench", ARTIFACT, OTHER, "--kernels").stdout
    assert body(server, "/benchmarks")["options"]["profile"] is True
    assert "kernels of B" in shown
    assert "Conv+Relu" in shown
    assert "50.0%" in shown
    assert "conv_1" in shown
    assert "\x1b[31m" not in shown, "a model's names drive no terminal"
    assert json.loads(command("bench", ARTIFACT, OTHER, "--json").stdout)["report"] == REPORT
    assert command("bench", ARTIFACT, "--no-wait").stdout.strip() == BENCHMARK


def test_bench_tells_what_a_million_inferences_cost(command: Command, server: Any) -> None:
    medians = [one["median_s"] for one in REPORT["artifacts"]]
    wanted = [1e6 * median / 3600.0 * 1.8 for median in medians]
    shown = command("bench", ARTIFACT, OTHER, "--price", 1.8).stdout
    for name, cost in zip("AB", wanted, strict=True):
        assert f"{name}: a million inferences cost {cost:.4g}" in shown
    reported = json.loads(command("bench", ARTIFACT, OTHER, "--price", 1.8, "--json").stdout)
    assert list(reported["cost_of_a_million"].values()) == wanted
    assert command("bench", ARTIFACT, OTHER, "--price", -1).exit_code == 2


def test_a_failed_benchmark_is_exit_status_1(command: Command, server: Any) -> None:
    server.problem = {"code": "artifact_never_made", "message": "its job failed", "fix": "compile again"}
    server.events[-1] = ("state", {"state": "FAILED"})
    done = command("bench", ARTIFACT)
    assert done.exit_code == 1
    assert "its job failed" in done.stderr


def comparison(faster: str | None, text: str) -> Comparison:
    return Comparison("x", "y", 1.0, 0.98, 1.03, 0.95, faster, text, {})


def test_a_verdict_names_who_is_faster_than_whom() -> None:
    names = {"x": "A", "y": "C"}
    assert verdict(comparison("a", "a is faster by 1.23x ± 0.02"), names) == "A is faster by 1.23x ± 0.02 than C"
    assert verdict(comparison("b", "b is faster by 2.00x ± 0.10"), names) == "C is faster by 2.00x ± 0.10 than A"
    said = verdict(comparison(None, "cannot tell"), names)
    assert said == "A against C: cannot tell (C takes 0.980 to 1.030 of A's time, 95%)"


def test_infer_writes_what_came_out(command: Command, server: Any, tmp_path: Path) -> None:
    write_npz(tmp_path / "in.npz", {"x": np.ones(3, np.float32)})
    packed = io.BytesIO()
    write_npz(packed, {"y/0": np.full(3, 2.0, np.float32)})
    server.state = "SUCCEEDED"
    report = {"seconds": 0.0043, "outputs": {"y/0": {"dtype": "float32", "shape": [3]}}}
    server.answers["/inferences"] = server.job(id=INFERENCE, artifact_id=None)
    server.answers[f"/inferences/{INFERENCE}"] = server.job(id=INFERENCE, report=report)
    etag = f'"{hashlib.sha256(packed.getvalue()).hexdigest()}"'
    server.answers[f"/inferences/{INFERENCE}/outputs"] = httpx.Response(
        200, content=packed.getvalue(), headers={"ETag": etag}
    )
    server.answers["/inferences"]["state"] = "QUEUED"

    done = command("infer", ARTIFACT, tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--threads", 2)
    assert done.exit_code == 0, done.output
    assert "y/0: float32 [3]" in done.stdout
    assert "4.300 ms" in done.stdout
    np.testing.assert_array_equal(read_npz(tmp_path / "out.npz")["y/0"], np.full(3, 2.0))
    reported = json.loads(command("infer", ARTIFACT, tmp_path / "in.npz", "--json").stdout)
    assert (reported["report"], reported["output"]) == (report, None)


def test_inputs_that_are_none_are_exit_status_2_and_nothing_is_sent(
    command: Command, server: Any, model: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    for wrong in (model, tmp_path / "none.npz", tmp_path / "one.npy"):
        assert command("infer", ARTIFACT, wrong, "--json").exit_code == 2
    assert server.seen == []


def test_clone_replaces_only_what_is_given(command: Command, server: Any) -> None:
    assert command("clone", JOB, "--threads", 1, "--fresh").stdout.strip() == f"{JOB} QUEUED"
    assert body(server, f"/jobs/{JOB}/clone") == {"options": {"threads": 1}, "fresh": True}
    command("clone", JOB, "--target", "cpu:x86-64-v3")
    assert body(server, f"/jobs/{JOB}/clone")["options"] == {"target": "cpu:x86-64-v3"}


BATCH = "01980000-0000-7000-8000-0000000000b1"
COMPARED: dict[str, Any] = {
    "jobs": [
        {
            "job": JOB,
            "state": "SUCCEEDED",
            "options": {"threads": 4},
            "figures": {"latency_s": 0.0041, "artifact_bytes": 3 << 20, "kernels": 3.0, "largest_error": 3e-7},
            "problem": None,
            "benchmarks": [{"benchmark": BENCHMARK, "ended_at": "2026-11-21T04:01:09Z", "median_s": 0.0039}],
        },
        {
            "job": OTHER,
            "state": "FAILED",
            "options": {"threads": 1},
            "figures": {},
            "problem": {"message": "too long\nfor this"},
            "benchmarks": [],
        },
    ],
    "fastest": JOB,
}


def test_compilations_and_batches_are_shown_beside_each_other(command: Command, server: Any) -> None:
    said = {"id": BATCH, "model": "9f" * 32, "states": {"SUCCEEDED": 1, "FAILED": 1}, "ended": True}
    server.answers |= {
        "/comparison": COMPARED,
        "/batches": {"batches": [said], "next_cursor": None},
        f"/batches/{BATCH}": {**said, "jobs": []},
        f"/batches/{BATCH}/comparison": COMPARED,
        f"/batches/{BATCH}/cancel": {**said, "jobs": []},
    }
    for shown in (command("compare", JOB, OTHER).stdout, command("batches", "show", BATCH).stdout):
        for part in (f"{JOB} *", "threads=4", "4.100 ms", "3.900 ms", "3.0e-07", "FAILED", "too long"):
            assert part in shown, part
    assert server.sent("/comparison")[-1].url.params.get_list("job") == [JOB, OTHER]
    assert json.loads(command("batches", "show", BATCH, "--json").stdout) == COMPARED
    assert "1 SUCCEEDED 1 FAILED" in command("batches").stdout
    assert json.loads(command("batches", "--json").stdout) == {"batches": [said]}
    assert command("batches", "cancel", BATCH).stdout.strip() == f"{BATCH}: 1 SUCCEEDED, 1 FAILED"
    assert command("batches", "show", "latest").exit_code == 2


def test_finish_says_what_became_of_the_job(command: Command, server: Any) -> None:
    assert command("finish", JOB).stdout.strip() == f"{JOB} QUEUED"
    assert json.loads(command("finish", JOB, "--json").stdout)["id"] == JOB


def test_watching_a_benchmark_ends_with_its_figures(command: Command, server: Any) -> None:
    server.kind = "benchmark"
    assert "A is faster by 1.23x" in command("watch", BENCHMARK).stdout
    *events, job = command("watch", BENCHMARK, "--json").stdout.splitlines()
    assert len(events) == 4
    assert json.loads(job)["kind"] == "benchmark"


QUANTIZED: dict[str, Any] = {
    "layers": [
        {"node": "stem", "operator": "Conv", "weights": [8, 3, 3, 3], "precision": "int8", "weights_db": 41.26},
        {"node": "head", "operator": "Gemm", "weights": [8, 5], "precision": "float32", "reason": "too costly"},
    ],
    "outputs": [{"name": "y", "snr_db": 33.33}, {"name": "z", "snr_db": None}],
    "samples": 4,
    "bytes": 2048,
    "model_bytes": 8192,
    "notices": ["random inputs"],
    "quantized_model": "0" * 64,
}


def quantizing(server: Any, content: bytes) -> None:
    """The server does what is asked of it."""
    server.kind = "quantization"
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    links = {"quantized": f"/models/{'0' * 64}/file"}
    server.answers["/quantizations"] = server.job(state="QUEUED")
    server.links = links
    server.answers[f"/jobs/{JOB}/report"] = {"report": QUANTIZED}
    server.answers[links["quantized"]] = httpx.Response(200, content=content, headers={"etag": etag})


def test_quantize_sends_samples_and_options_and_fetches_the_model(
    command: Command, server: Any, model: Path, tmp_path: Path
) -> None:
    quantizing(server, b"quantised")
    (tmp_path / "s.npz").write_bytes(b"arrays")
    given = ("--samples", tmp_path / "s.npz", "--ranges", "entropy", "--snr-db", 30, "--keep", "head", "--dim", "n=2")
    done = command("quantize", model, *given, "--equalise", "-o", tmp_path / "q.onnx", "--json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "q.onnx").read_bytes() == b"quantised"
    assert json.loads(done.stdout) == {**QUANTIZED, "job": JOB, "model": str(tmp_path / "q.onnx")}
    parts = {name: content for name, _, content in parts_of(server.sent("/quantizations")[-1])}
    assert parts["samples"] == b"arrays"
    assert json.loads(parts["options"]) == {
        "ranges": "entropy",
        "snr_db": 30.0,
        "equalise": True,
        "keep": ["head"],
        "dims": {"n": 2},
    }


def test_quantize_shows_every_layer_and_output(command: Command, server: Any, model: Path) -> None:
    quantizing(server, b"quantised")
    done = command("quantize", model)
    assert done.exit_code == 0, done.output
    assert model.with_suffix(".int8.onnx").read_bytes() == b"quantised"
    assert body(server, "/quantizations")["options"] == {}
    for said in ("stem", "8x3x3x3", "41.3", "too costly", "y: 33.3 dB", "z: no difference", "2.0 KiB", "random inputs"):
        assert said in done.stdout
    assert "float32" in command("watch", JOB).stdout


COMPRESSED: dict[str, Any] = {
    "layers": [
        {"node": "stem", "operator": "Conv", "weights": [8, 3, 3, 3], "sparsity": 0.0, "reason": "it is the first"},
        {"node": "middle", "operator": "Conv", "sparsity": 0.9, "us": 12.5, "dense_us": 50.25, "error": 0.0123},
    ],
    "curve": [{"sparsity": 0.5, "predicted_ms": 1.25, "expected_error": 0.031, "error": 0.029}],
    "outputs": [{"name": "y", "error": 0.029, "agree": 0.75}, {"name": "z", "error": 0.01, "agree": None}],
    "sparsity": 0.52,
    "dense_ms": 2.5,
    "predicted_ms": 1.25,
    "samples": 6,
    "held_out": 2,
    "notices": ["only a test on your own data can tell"],
    "compressed_model": "0" * 64,
}


LEGALISED = {
    "profile": "edgetpu",
    "before": {"share": 0.5, "nodes": 4, "handovers": 3},
    "after": {"share": 0.75, "nodes": 8, "handovers": 1},
    "left": [
        {"node": "mid", "operator": "Sin", "where": "cpu", "reason": "edgetpu has no Sin"},
        {"node": "head", "operator": "TopK", "where": "cpu", "reason": "edgetpu has no TopK"},
    ],
    "placement": [
        {"node": "stem", "operator": "Conv", "where": "accelerator", "rules": [], "reason": None},
        {"node": "mid", "operator": "Conv", "where": "accelerator", "rules": ["relu_sum"], "reason": None},
        {"node": "mid", "operator": "Relu", "where": "accelerator", "rules": ["relu_sum"], "reason": None},
        {
            **{"node": "mid", "operator": "Conv", "where": "accelerator", "rules": ["relu_sum"], "reason": None},
            **{"bound": 0.012, "error": 0.011, "domain": [-2, 2.5]},
        },
        {"node": "head", "operator": "TopK", "where": "cpu", "rules": [], "reason": "edgetpu has no TopK; it sorts"},
    ],
    "outputs": [{"name": "y", "proved": None, "sampled": 0.0125, "largest": 3.5}],
    "notices": ["no [samples] were given"],
    "legalised_model": "0" * 64,
}
PLACED = {
    "platform": "a board",
    "about": "predicted",
    "objective": "latency",
    "chosen": {
        "latency_ms": 2.5,
        "frames_per_second": 400.0,
        "placement": [{"devices": ["dsp"], "units": ["a", "b"], "begin_ms": 0.0, "end_ms": 2.5}],
    },
    "alone": {"dsp": {"latency_ms": 2.5, "frames_per_second": 400.0}, "tpu": None},
    "svg": "<svg/>",
}


def compressing(server: Any, content: bytes) -> None:
    """The server does what is asked of it."""
    server.kind = "compression"
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    links = {"compressed": f"/models/{'0' * 64}/file"}
    server.answers["/compressions"] = server.job(state="QUEUED")
    server.links = links
    server.answers[f"/jobs/{JOB}/report"] = {"report": COMPRESSED}
    server.answers[links["compressed"]] = httpx.Response(200, content=content, headers={"etag": etag})


def test_compress_sends_samples_and_options_and_fetches_the_model(
    command: Command, server: Any, model: Path, tmp_path: Path
) -> None:
    compressing(server, b"pruned")
    (tmp_path / "s.npz").write_bytes(b"arrays")
    given = ("--samples", tmp_path / "s.npz", "--largest-error", 0.05, "--form", "4x16", "--keep", "head", "--ends")
    others = ("--method", "wanda", "--precision", "int8")
    done = command("compress", model, *given, *others, "-o", tmp_path / "p.onnx", "--json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "p.onnx").read_bytes() == b"pruned"
    assert json.loads(done.stdout) == {**COMPRESSED, "job": JOB, "model": str(tmp_path / "p.onnx")}
    parts = {name: content for name, _, content in parts_of(server.sent("/compressions")[-1])}
    assert parts["samples"] == b"arrays"
    options = {"largest_error": 0.05, "form": "4x16", "method": "wanda", "precision": "int8"}
    options |= {"keep": ["head"], "ends": True}
    assert json.loads(parts["options"]) == options


def test_compress_says_what_is_saved_and_the_rank_of_a_layer(command: Command, server: Any, model: Path) -> None:
    compressing(server, b"two nodes")
    layer = {"node": "middle", "operator": "Conv", "sparsity": 0.9, "us": 12.5, "rank": 17, "reason": None}
    report = {**COMPRESSED, "layers": [layer], "saved": "weights saved"}
    server.answers[f"/jobs/{JOB}/report"] = {"report": report}
    done = command("compress", model, "--sparsity", 0.5, "--form", "low_rank")
    assert done.exit_code == 0, done.output
    assert body(server, "/compressions")["options"] == {"sparsity": 0.5, "form": "low_rank"}
    assert all(said in done.stdout for said in ("rank 17", "52.0% weights saved; 1.25 ms"))
    assert "zeros" not in done.stdout


def test_compress_shows_every_layer_the_curve_and_each_output(command: Command, server: Any, model: Path) -> None:
    compressing(server, b"pruned")
    done = command("compress", model, "--sparsity", 0.5)
    assert done.exit_code == 0, done.output
    assert model.with_suffix(".compressed.onnx").read_bytes() == b"pruned"
    assert body(server, "/compressions")["options"] == {"sparsity": 0.5}
    for said in ("middle", "90%", "12.5", "50.25", "it is the first", "0.031", "75.0% of decisions", "2 held out"):
        assert said in done.stdout
    assert "your own data" in command("watch", JOB).stdout


def test_legalise_sends_a_profile_s_file_and_says_what_stays_on_the_cpu(
    command: Command, server: Any, model: Path, tmp_path: Path
) -> None:
    server.kind, server.links = "legalisation", {"legalised": f"/models/{'0' * 64}/file"}
    server.answers["/legalisations"] = server.job(state="QUEUED")
    server.answers[f"/jobs/{JOB}/report"] = {"report": LEGALISED}
    headers = {"etag": f'"{hashlib.sha256(b"legal").hexdigest()}"'}
    server.answers[f"/models/{'0' * 64}/file"] = httpx.Response(200, content=b"legal", headers=headers)
    (tmp_path / "mine.toml").write_text('about = "my accelerator"')
    done = command("legalise", model, "--for", tmp_path / "mine.toml", "--server", "--dim", "n=2")
    assert done.exit_code == 0, done.output
    assert model.with_suffix(".legal.onnx").read_bytes() == b"legal"
    options = body(server, "/legalisations")["options"]
    assert (options["profile"], options["dims"]) == ({"name": "mine", "about": "my accelerator"}, {"n": 2})
    for said in (
        "TopK head: CPU, edgetpu has no TopK",
        "  mid: accelerator, 3 nodes, by relu_sum, wrong by at most 0.012 on -2 ... 2.5, sampled 0.011\n",
        "  head: cpu, edgetpu has no TopK; it sorts\n  1 as they were, on edgetpu\n",
        "output y: no bound, sampled 0.0125, of 3.5",
        "after: 75 % of 8 nodes on edgetpu, 1 hand-overs",
        "note: no [samples] were given",
    ):
        assert said in done.stdout
    lost = command("legalise", model, "--for", tmp_path / "none.toml", "--server")
    assert lost.exit_code == 2
    assert "none.toml" in lost.output


def test_place_sends_the_files_that_a_platform_names_and_writes_the_drawing(
    command: Command, server: Any, model: Path, tmp_path: Path
) -> None:
    server.kind = "placement"
    server.answers["/placements"] = server.job(state="QUEUED")
    server.answers[f"/jobs/{JOB}/report"] = {"report": PLACED}
    (tmp_path / "times.json").write_text('{"conv1": 0.5}')
    (tmp_path / "mine.toml").write_text('about = "my accelerator"')
    devices = '[devices.dsp.records]\nfile = "times.json"\n[devices.tpu.accelerator]\nprofile = "mine.toml"\n'
    (tmp_path / "p.toml").write_text(devices)
    given = ("place", model, "--platform", tmp_path / "p.toml", "--server", "--svg", tmp_path / "lanes.svg")
    done = command(*given, "--carry", "out=in")
    assert done.exit_code == 0, done.output
    options = body(server, "/placements")["options"]
    assert options["carry"] == {"out": "in"}
    assert options["platform"]["devices"] == {
        "dsp": {"records": {"times": {"conv1": 0.5}}},
        "tpu": {"accelerator": {"profile": {"name": "mine", "about": "my accelerator"}}},
    }
    assert (tmp_path / "lanes.svg").read_text() == "<svg/>"
    for said in ("0.000 to     2.500 ms  dsp: 2 units, a ... b", "dsp alone: 2.500 ms", "tpu alone: cannot run it"):
        assert said in done.stdout
    (tmp_path / "times.json").unlink()
    lost = command(*given)
    assert lost.exit_code == 2
    assert "times.json" in lost.output
