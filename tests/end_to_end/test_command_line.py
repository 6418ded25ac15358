"""From an ONNX file to outputs, with the command line alone."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tilewright
from bench.generate.codes import Coding
from bench.generate.decoder import PAST, SEQUENCE, TOTAL, Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from bench.zoo.voice import voice
from tests.compiler.accelerate.models import array, convolution, sample, tall
from tests.compiler.compress.models import cnn
from tests.compiler.compress.models import samples as cnn_samples
from tests.end_to_end import models
from tests.end_to_end.house import House
from tests.peers import exact_session
from tests.servers import GUARD_S
from tilewright.arrays import read_npz, write_npz
from worker.devices import npu

HOMES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
TARGETS = ("cpu:x86-64-v2", "cpu:x86-64-v3")


@dataclass(frozen=True)
class Compiled:
    """What `tilewright compile --json` made of a network of the zoo."""

    network: str
    said: dict[str, Any]

    @property
    def artifact(self) -> Path:
        return Path(self.said["artifact"])


@pytest.fixture(scope="module", params=models.TINY)
def compiled(request: pytest.FixtureRequest, house: House) -> Compiled:
    (house.folder / f"{request.param}.onnx").write_bytes(models.tiny(request.param))
    arguments = [f"{request.param}.onnx", "--json", "--budget", "0", "-o", str(house.folder / f"{request.param}.tw")]
    return Compiled(request.param, json.loads(house.command_line("compile", *arguments).stdout))


def test_an_artifact_of_the_command_line_agrees_with_onnx_runtime(
    house: House, compiled: Compiled, tmp_path: Path
) -> None:
    assert compiled.said["state"] == "SUCCEEDED"
    with tilewright.load(compiled.artifact) as model:
        inputs = model.random_inputs(seed=7)
        found = model.run(inputs)
    models.assert_agrees(found, models.reference(models.tiny(compiled.network), inputs))

    write_npz(tmp_path / "in.npz", inputs)
    arguments = ["--input", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"), "--json"]
    reported = json.loads(house.command_line("run", str(compiled.artifact), *arguments).stdout)
    assert reported["bench"] is None
    again = read_npz(tmp_path / "out.npz")
    assert {name: about["shape"] for name, about in reported["outputs"].items()} == {
        name: list(value.shape) for name, value in again.items()
    }
    for name, value in found.items():
        np.testing.assert_array_equal(again[name], value)


def test_an_artifact_runs_without_tilewright(compiled: Compiled, tmp_path: Path) -> None:
    with zipfile.ZipFile(compiled.artifact) as archive:
        archive.extractall(tmp_path / "model")
    with tilewright.load(compiled.artifact) as model:
        expected = {
            name: hashlib.sha256(value.tobytes()).hexdigest()
            for name, value in model.run(model.random_inputs(3)).items()
        }
    for program in (tmp_path / "model" / "loader.py", compiled.artifact):
        # -I: neither this folder, nor PYTHONPATH, nor the user's packages.
        command = [sys.executable, "-I", str(program), "--json", "--seed", "3"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=GUARD_S, check=False)
        assert done.returncode == 0, done.stderr
        outputs = json.loads(done.stdout)["outputs"]
        assert {name: about["sha256"] for name, about in outputs.items()} == expected


def test_a_job_that_asks_for_a_race_says_how_it_went(house: House, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.tiny(models.QUICK))
    asked = ["--fresh", "--budget", "0", "--option", 'compare=["onnxruntime"]', "--json", "-o", str(tmp_path / "m.tw")]
    said = json.loads(house.command_line("compile", str(tmp_path / "m.onnx"), *asked).stdout)
    (found,) = said["compared"]
    assert found["rounds"] > 0, found["said"]
    assert found["said"].split(";")[1].startswith(" ONNX Runtime ")
    with tilewright.load(tmp_path / "m.tw") as model:
        assert "compare" not in model.manifest["options"]


def test_quantize_and_int8_make_the_same_model_that_another_runtime_runs(house: House, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    source = tmp_path / "net.onnx"
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    source.write_bytes(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())
    x = np.random.default_rng(1).standard_normal((5, 2, 8), dtype=np.float32)
    np.savez(tmp_path / "s.npz", x=x)
    reported = house.command_line(
        "quantize", str(source), "--samples", str(tmp_path / "s.npz"), "--snr-db", "25", "--json"
    )
    report = json.loads(reported.stdout)
    assert [(row["node"], row["precision"]) for row in report["layers"]] == [("layer", "int8")]
    assert report["samples"] == 5
    assert Path(report["model"]) == tmp_path / "net.int8.onnx"
    session = exact_session(Path(report["model"]))
    np.testing.assert_allclose(session.run(None, {"x": x[0]})[0], x[0] @ weights, atol=0.1)
    given = ("--precision", "int8", "--samples", str(tmp_path / "s.npz"), "--option", "tuning_budget_s=0")
    job = json.loads(house.command_line("compile", str(source), *given, "--json").stdout)
    with zipfile.ZipFile(job["artifact"]) as packed:
        assert packed.read("model.int8.onnx") == Path(report["model"]).read_bytes()
        manifest = json.loads(packed.read("manifest.json"))
    assert manifest["quantised"]["count"] == 5
    assert manifest["quantised"]["layers"][0]["precision"] == "int8"
    assert manifest["model_digest"] == job["model"]
    with tilewright.load(job["artifact"]) as model:
        np.testing.assert_allclose(model.run({"x": x[0]})["y"], session.run(None, {"x": x[0]})[0], atol=1e-2)


def test_compress_makes_a_model_with_zeros_that_another_runtime_runs(house: House, tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    source.write_bytes(cnn().SerializeToString())
    archive = cnn_samples(tmp_path / "s.npz")
    given = ("--samples", str(archive), "--largest-error", "0.15", "--option", "tuning_budget_s=0")
    reported = house.command_line("compress", str(source), *given, "--json")
    report = json.loads(reported.stdout)
    assert 0 < report["error"] <= 0.15
    assert (report["sparsity"] > 0.2, report["samples"], report["held_out"]) == (True, 6, 2)
    unseen = np.load(archive)["x"][6:]
    both = []
    for file in (str(source), report["model"]):
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        both.append(np.stack([session.run(None, {"x": x})[0] for x in unseen]))
    assert np.linalg.norm(both[1] - both[0]) / np.linalg.norm(both[0]) == pytest.approx(report["error"], rel=1e-3)


def test_jobs_lists_them_and_download_fetches_one_again(house: House, compiled: Compiled, tmp_path: Path) -> None:
    listed = json.loads(house.command_line("jobs", "--json", "--limit", "0").stdout)["jobs"]
    (job,) = [job for job in listed if job["id"] == compiled.said["id"]]
    assert (job["state"], job["artifact_id"]) == ("SUCCEEDED", compiled.said["artifact_id"])
    assert compiled.said["id"] in house.command_line("jobs", "--limit", "0").stdout

    reported = house.command_line("download", compiled.said["id"], "-o", str(tmp_path / "again.tw"), "--json")
    assert Path(json.loads(reported.stdout)["artifact"]).read_bytes() == compiled.artifact.read_bytes()


def test_run_measures_the_latency(house: House) -> None:
    (house.folder / "relu.onnx").write_bytes(models.relu([64, 64]))
    house.command_line("compile", "relu.onnx", "--budget", "0", "-o", "relu.tw")
    reported = json.loads(house.command_line("run", "relu.tw", "--bench", "--json").stdout)
    assert reported["outputs"]["y"] == {"shape": [64, 64], "dtype": "float32"}
    bench = reported["bench"]
    assert bench["runs"] > 0
    assert 0 < bench["min"] <= bench["p10"] <= bench["median"] <= bench["p90"]


def test_a_refused_model_leaves_with_status_1_and_its_reasons(house: House) -> None:
    (house.folder / "foreign.onnx").write_bytes(models.foreign())
    reported = json.loads(house.command_line("compile", "foreign.onnx", "--json", status=1).stdout)
    assert reported["error"]["code"] == "unsupported_model"
    (refusal,) = reported["error"]["problem"]["refusals"]
    assert (refusal["node"], refusal["operator"]) == ("odd one", "Frobnicate")
    for_people = house.command_line("compile", "foreign.onnx", status=1).stderr
    assert "Frobnicate" in for_people
    assert not (house.folder / "foreign.tw").exists()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the targets are x86-64's")
def test_several_targets_are_one_request_and_run_against_each_other(house: House) -> None:
    (house.folder / "two.onnx").write_bytes(models.tiny(models.QUICK))
    targets = [argument for name in TARGETS for argument in ("--target", name)]
    reported = house.command_line("compile", "two.onnx", "--budget", "0", *targets, "-o", "two", "--json")
    jobs = json.loads(reported.stdout)["jobs"]
    assert [job["options"]["target"] for job in jobs] == list(TARGETS)
    assert all((house.folder / job["artifact"]).exists() for job in jobs)

    ids = [job["id"] for job in jobs]
    measured = json.loads(house.command_line("bench", *ids, "--seconds", "0.2", "--json").stdout)
    assert measured["artifacts"] == [job["artifact_id"] for job in jobs]
    report = measured["report"]
    assert [len(one["samples_s"]) > 10 for one in report["artifacts"]] == [True, True]
    assert measured["verdict"] == report["comparisons"][0]["verdict"]
    shown = house.command_line("watch", measured["id"]).stdout
    assert jobs[0]["artifact_id"] in shown
    assert "faster by" in shown or "cannot tell" in shown


def test_the_server_infers_what_the_artifact_infers_here(house: House, tmp_path: Path) -> None:
    (house.folder / "lstm.onnx").write_bytes(models.tiny(models.QUICK))
    said = json.loads(house.command_line("compile", "lstm.onnx", "--budget", "0", "--json").stdout)
    with tilewright.load(house.folder / "lstm.tw") as model:
        inputs = model.random_inputs(seed=11)
        expected = model.run(inputs)
    write_npz(tmp_path / "in.npz", inputs)
    arguments = [said["artifact_id"], str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"), "--json"]
    reported = json.loads(house.command_line("infer", *arguments).stdout)
    assert set(reported["report"]["outputs"]) == set(expected)
    for name, value in read_npz(tmp_path / "out.npz").items():
        np.testing.assert_array_equal(value, expected[name])

    write_npz(tmp_path / "wrong.npz", {"nobody": np.zeros(3)})
    refused = house.command_line("infer", said["id"], str(tmp_path / "wrong.npz"), "--json", status=1)
    assert json.loads(refused.stdout)["error"]["code"] == "invalid_inputs"


def test_the_server_gives_the_pieces_that_the_artifact_gives_here(house: House, tmp_path: Path) -> None:
    (house.folder / "voice.onnx").write_bytes(voice(8, 8).SerializeToString())
    arguments = ["voice.onnx", "--option", 'chunks={"sound": 2048}', "--budget", "0", "--json"]
    said = json.loads(house.command_line("compile", *arguments).stdout)
    write_npz(tmp_path / "in.npz", {"ids": np.arange(8)[None]})
    with tilewright.load(house.folder / "voice.tw") as model:
        pieces = [*model.chunks({"ids": np.arange(8)[None]})]
    given = str(tmp_path / "in.npz")
    for command in (("run", str(house.folder / "voice.tw"), "--input", given), ("infer", said["id"], given)):
        told = json.loads(house.command_line(*command, "--pieces", str(tmp_path / "sound"), "--json").stdout)
        assert (told["pieces"], told["dtype"]) == (len(pieces), "float32")
        assert 0 < told["first_s"] <= told["seconds"]
        assert (tmp_path / "sound").read_bytes() == b"".join(piece.tobytes() for piece in pieces)
    with house.client() as client:
        for here, there in zip(pieces, client.chunks(said["artifact_id"], {"ids": np.arange(8)[None]}), strict=True):
            np.testing.assert_array_equal(there, here)
    write_npz(tmp_path / "wrong.npz", {"nobody": np.zeros(3)})
    arguments = [said["id"], str(tmp_path / "wrong.npz"), "--pieces", str(tmp_path / "none"), "--json"]
    refused = house.command_line("infer", *arguments, status=1)
    assert json.loads(refused.stdout)["error"]["code"] == "invalid_inputs"
    assert not (tmp_path / "none").exists()


def test_the_server_generates_the_tokens_that_the_artifact_generates_here(house: House, tmp_path: Path) -> None:
    model = decoder(parts(Seeded(SHAPES["tiny"]), Coding.NBITS4), Attention.GROUPED, 24)
    (house.folder / "decoder.onnx").write_bytes(model.SerializeToString())
    dims = ("--dim", f"{SEQUENCE}=1,4", "--dim", f"{PAST}=24", "--dim", f"{TOTAL}=24", "--carry", "auto")
    said = json.loads(house.command_line("compile", "decoder.onnx", *dims, "--budget", "0", "--json").stdout)
    asked = ("--ids", "3,1,4,1,5", "--max-tokens", "8", "--json")
    here = json.loads(house.command_line("generate", str(house.folder / "decoder.tw"), *asked).stdout)
    there = json.loads(house.command_line("generate", said["id"], "--server", *asked).stdout)
    assert len(here["tokens"]) == 8
    same = ("prompt_tokens", "tokens", "text", "stopped")
    assert [there[name] for name in same] == [here[name] for name in same]
    refused = house.command_line("generate", said["id"], "--server", "--ids", "1,320", "--json", status=1)
    error = json.loads(refused.stdout)["error"]
    assert error["code"] == "invalid_inputs"
    assert "token 320 is not among the 320" in error["message"]


def test_an_npu_is_a_target_like_the_others(house: House, tmp_path: Path) -> None:
    if not npu.installed():
        pytest.skip("Vela or LiteRT is not installed (the extra npu)")
    model, given = convolution(house.folder / "small.onnx"), sample(tmp_path / "in.npz")
    asked = ("small.onnx", "--target", "npu:ethos-u55-128", "--samples", str(given), "--json")
    made = json.loads(house.command_line("compile", *asked).stdout)
    assert (made["queue"], made["state"]) == ("npu:ethos-u55-128", "SUCCEEDED")
    reported = json.loads(house.command_line("bench", made["id"], "--json").stdout)["report"]["artifacts"][0]
    assert (reported["runs"], reported["estimated"]) == (0, "estimated by Vela 5.2.0")
    house.command_line("infer", made["id"], str(given), "-o", str(tmp_path / "out.npz"))
    x, y = (read_npz(tmp_path / name) for name in ("in.npz", "out.npz"))
    (want,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, x)
    np.testing.assert_allclose(y["y"], want, atol=0.02 * want.max())
    with tilewright.load(house.folder / made["artifact"]) as loaded:
        np.testing.assert_array_equal(loaded.run(x)["y"], y["y"])


def test_a_pipeline_on_an_npu_and_a_cpu_is_compiled_and_streamed(house: House, tmp_path: Path) -> None:
    if not npu.installed():
        pytest.skip("Vela or LiteRT is not installed (the extra npu)")
    tall(house.folder / "tall.onnx", 64)
    frames = [{"x": array(1, 64, 8, 8) * np.float32(scale)} for scale in (1.0, 0.5, 0.25)]
    write_npz(tmp_path / "in.npz", frames[0])
    asked = ("tall.onnx", "--devices", "cpu:cortex-a53,npu:ethos-u65-256", "--objective", "throughput", "--json")
    made = json.loads(house.command_line("compile", *asked, "--samples", str(tmp_path / "in.npz")).stdout)
    assert (made["queue"], made["state"]) == ("npu:ethos-u65-256", "SUCCEEDED")
    with house.client() as client:
        report = client.report(made["id"])["report"]
    found = report["placement"]["pipeline"]
    assert [one["picked"] for one in found["curve"]].count(True) == 1
    assert 0 < found["period_s"] < found["latency_s"] == report["latency_s"]
    with tilewright.load(house.folder / made["artifact"]) as loaded:
        wanted = [loaded.run(one)["y"] for one in frames]
        for at, outputs in enumerate(loaded.stream(frames * 3)):
            np.testing.assert_array_equal(outputs["y"], wanted[at % 3])


def test_a_range_of_sizes_is_compiled_run_timed_and_inferred(house: House, tmp_path: Path) -> None:
    (house.folder / "ranged.onnx").write_bytes(models.relu(["n", "length", 3]))
    ranges = ["--dim", "n=1:2:5", "--dim", "length=1:9"]
    arguments = ["ranged.onnx", "--json", "--budget", "0", *ranges, "-o", str(tmp_path / "ranged.tw")]
    made = json.loads(house.command_line("compile", *arguments).stdout)
    reported = json.loads(house.command_line("run", str(tmp_path / "ranged.tw"), "--dim", "n=3", "--json").stdout)
    assert reported["outputs"]["y"]["shape"] == [3, 9, 3]

    write_npz(tmp_path / "in.npz", {"x": np.linspace(-1, 1, 84, dtype=np.float32).reshape(4, 7, 3)})
    house.command_line("infer", made["id"], str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"))
    np.testing.assert_array_equal(
        read_npz(tmp_path / "out.npz")["y"], np.maximum(read_npz(tmp_path / "in.npz")["x"], 0)
    )

    options = ["--seconds", "0.1", "--dim", "n=4", "--dim", "length=7", "--json"]
    (timed,) = json.loads(house.command_line("bench", made["id"], *options).stdout)["report"]["artifacts"]
    assert timed["dims"] == {"n": 4, "length": 7}
    assert timed["inputs"][0]["shape"] == [4, 7, 3]
    refused = house.command_line("bench", made["id"], "--seconds", "0.1", "--dim", "n=6", status=1)
    assert "has no binding at n=6" in refused.stderr


def test_a_preflight_says_beforehand_what_compile_says_afterwards(house: House) -> None:
    (house.folder / "foreign.onnx").write_bytes(models.foreign())
    (house.folder / "fine.onnx").write_bytes(models.relu([8, 8]))
    refused = json.loads(house.command_line("preflight", "foreign.onnx", "--json", status=1).stdout)
    assert (refused["ok"], refused["refusals"][0]["operator"]) == (False, "Frobnicate")
    assert "Frobnicate" in house.command_line("preflight", "foreign.onnx", status=1).stdout
    stopped = house.command_line("compile", "foreign.onnx", "--preflight", "--json", status=1)
    assert json.loads(stopped.stdout)["error"]["code"] == "unsupported_model"
    pipeline = ["--devices", "cpu:0,cpu:1", "--objective", "throughput", "--carry", "y=inputs"]
    refused = json.loads(house.command_line("preflight", "fine.onnx", *pipeline, "--json", status=1).stdout)
    assert "carry names 'inputs', which is no input of the model" in refused["problem"]["message"]
    found = json.loads(house.command_line("preflight", "fine.onnx", "--json").stdout)
    assert found["ok"]
    again = json.loads(house.command_line("compile", found["request"]["model"], "-o", "fine.tw", "--json").stdout)
    assert again["model"] == found["request"]["model"]


def test_records_are_listed_with_source_and_carried_as_files(house: House) -> None:
    (house.folder / "measured.onnx").write_bytes(models.tiny(models.QUICK))
    said = json.loads(
        house.command_line(
            "compile", "measured.onnx", "--fresh", "--budget", str(models.ALL_CANDIDATES_S), "--json"
        ).stdout
    )
    found = json.loads(house.command_line("records", "--model", said["model"], "-n", "0", "--json").stdout)["records"]
    assert found
    assert {record["model"] for record in found} == {said["model"]}
    kernel = next(record for record in found if record["kind"] == "kernel")
    assert "void" in house.command_line("records", "show", kernel["id"], "--source").stdout
    written = house.command_line("records", "--model", said["model"], "--csv").stdout
    assert len(written.splitlines()) == len(found) + 1
    house.command_line("records", "export", "all.jsonl")
    taken = json.loads(house.command_line("records", "import", "all.jsonl", "--json").stdout)
    assert taken["records"]["refused"] == 0
    assert said["id"] in house.command_line("log", said["id"]).stdout


def test_what_the_house_can_do_is_told(house: House) -> None:
    for command, name in (("workers", ""), ("targets", "cpu:x86-64-v3"), ("operators", "Conv")):
        found = json.loads(house.command_line(command, "--json").stdout)[command]
        assert found
        assert name in [one["name"] for one in found] or not name
        assert name in house.command_line(command).stdout


def test_a_job_is_cloned_finished_and_cancelled(house: House) -> None:
    (house.folder / "cloned.onnx").write_bytes(models.relu([4, 4]))
    said = json.loads(house.command_line("compile", "cloned.onnx", "--budget", "0", "--json").stdout)
    clone = json.loads(house.command_line("clone", said["id"], "--option", "seed=9", "--json").stdout)
    assert clone["options"] == {**said["options"], "seed": 9}
    assert clone["cloned_from"] == said["id"]
    house.command_line("cancel", clone["id"])
    house.command_line("watch", clone["id"], status=1)
    refused = json.loads(house.command_line("finish", clone["id"], "--json", status=4).stdout)
    assert refused["error"]["code"] == "job_finished"


def test_a_profile_stands_for_the_house(house: House, tmp_path: Path) -> None:
    environment = {**house.environment, **dict.fromkeys(HOMES, str(tmp_path))}

    def tilewright_(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "tilewright", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GUARD_S, check=False)

    assert tilewright_("workers").returncode == 3
    assert tilewright_("profiles", "add", "house", house.url, "--key", house.key).returncode == 0
    assert (tmp_path / "tilewright" / "config.toml").stat().st_mode & 0o777 == 0o600
    assert tilewright_("workers", "--profile", "house").returncode == 0
    assert tilewright_("profiles", "use", "house").returncode == 0
    assert tilewright_("workers").returncode == 0
