"""One artifact for several bindings of a model's dimensions, from options to runs."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import pipeline
from compiler.contract import BenchmarkOptions, CompileOptions, CompileReport, Event
from compiler.errors import InputsError, InternalError, ModelTooLarge, OptionsError
from compiler.pack.join import join
from compiler.pack.loader import ArtifactError, InputError, Model, NoSuchBinding, RunError
from compiler.preflight import preflight
from compiler.runner import benchmark, infer
from tests.compiling import compile_file

OPTIONS = {"threads": 1, "tuning_budget_s": 0, "dims": {"batch": [1, 3], "length": [4, 9]}}
SHAPES = ((1, 4), (1, 9), (3, 4), (3, 9))
"""Of the bindings of OPTIONS, in order."""
WIDTH = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax over a product that is normalised, with batch and length left open."""
    random = np.random.default_rng(3)
    constants = {
        "w": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "scale": random.standard_normal(WIDTH).astype(np.float32),
        "bias": random.standard_normal(WIDTH).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "scale", "bias"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=1),
        helper.make_node("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
    ]
    shape: list[Any] = ["batch", "length", WIDTH]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "mean")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path_factory.mktemp("open") / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def report(model: Path, events: list[Event]) -> CompileReport:
    options = CompileOptions.from_json(OPTIONS)
    return compile_file(model, model.with_name("open.tw"), options, observe=events.append)


@pytest.fixture(scope="module")
def artifact(model: Path, report: CompileReport) -> Path:
    return model.with_name("open.tw")


def given(shape: tuple[int, int]) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(8).standard_normal((*shape, WIDTH)).astype(np.float32)}


def test_each_binding_gives_what_another_runtime_gives_in_any_order(model: Path, artifact: Path) -> None:
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with Model(artifact) as ours:
        for shape in (*SHAPES, *reversed(SHAPES)):
            found = ours.run(given(shape))
            for got, want in zip(found.values(), theirs.run(None, given(shape)), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            flat = ours.run_flat([given(shape)["x"]])
            np.testing.assert_array_equal(flat[0], found["y"])


def test_the_manifest_lists_the_bindings_and_the_first_lies_where_an_only_one_does(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        described = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
    listed = described["bindings"]
    assert [one["dims"] for one in listed] == [{"batch": batch, "length": length} for batch, length in SHAPES]
    assert [one["inputs"][0]["shape"] for one in listed] == [[*shape, WIDTH] for shape in SHAPES]
    assert described["inputs"] == listed[0]["inputs"]
    assert described["options"]["dims"] == [one["dims"] for one in listed]
    assert set(described["files"]) == {*names} - {"manifest.json"}
    for one in listed:
        assert {one["folder"] + name for name in ("model.so", "model.h", "plan.json", "report.html")} <= {*names}
    assert len({*names}) == len(names)
    assert [name for name in names if name.endswith("weights.bin")] == ["weights.bin"]


def test_weights_that_bindings_share_are_stored_once(model: Path, report: CompileReport, tmp_path: Path) -> None:
    alone = {**OPTIONS, "dims": {"batch": 1, "length": 4}}
    one = compile_file(model, tmp_path / "one.tw", CompileOptions.from_json(alone))
    assert one.weight_bytes <= report.weight_bytes < len(SHAPES) * one.weight_bytes


def test_the_report_tells_each_binding_and_progress_never_goes_back(report: CompileReport, events: list[Event]) -> None:
    assert [one.dims for one in report.bindings] == [{"batch": b, "length": n} for b, n in SHAPES]
    assert all(max(error.max_relative for error in one.errors) <= one.tolerance for one in report.bindings)
    assert report.to_json()["bindings"][3]["dims"] == {"batch": 3, "length": 9}
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert [event.phase for event in events if event.kind == "phase"].count("load") == len(SHAPES)


def test_equal_options_give_equal_bytes(model: Path, artifact: Path, report: CompileReport, tmp_path: Path) -> None:
    again = compile_file(model, tmp_path / "again.tw", CompileOptions.from_json(OPTIONS))
    assert (tmp_path / "again.tw").read_bytes() == artifact.read_bytes()
    assert again.artifact_digest == report.artifact_digest


def test_a_single_binding_in_a_list_is_an_ordinary_artifact(model: Path, tmp_path: Path) -> None:
    plain, listed = ({**OPTIONS, "dims": dims} for dims in ({"batch": 1, "length": 4}, [{"batch": [1], "length": 4}]))
    for name, options in (("plain.tw", plain), ("listed.tw", listed)):
        compile_file(model, tmp_path / name, CompileOptions.from_json(options))
    assert (tmp_path / "plain.tw").read_bytes() == (tmp_path / "listed.tw").read_bytes()


def test_shapes_of_no_binding_are_refused_with_those_that_there_are(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=given((2, 4))["x"])
    with Model(artifact) as ours:
        with pytest.raises(InputError, match=r"'x' \[2, 4, 24\]. Fix: give shapes of \(batch=1, length=4\) or"):
            ours.run(given((2, 4)))
        with pytest.raises(NoSuchBinding, match="no binding 5"):
            ours.at(5)
        with pytest.raises(InputError, match="unknown input 'z'"):
            ours.run({"z": np.zeros(1)})
        with pytest.raises(InputError, match="missing"):
            ours.run({})
    with pytest.raises(InputsError, match="none of the model's 4 bindings"):
        infer(artifact, tmp_path / "x.npz", tmp_path / "y.npz")
    with pytest.raises(NoSuchBinding):
        Model(artifact, binding=0)


def test_inferences_and_benchmarks_run_the_binding_that_is_meant(artifact: Path, tmp_path: Path) -> None:
    for shape in SHAPES:
        np.savez(tmp_path / "x.npz", x=given(shape)["x"])
        reported = infer(artifact, tmp_path / "x.npz", tmp_path / "y.npz")
        assert reported["outputs"]["y"]["shape"] == [*shape, WIDTH]
    timed = benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05, binding=4))
    assert timed["artifacts"][0]["dims"] == {"batch": 3, "length": 9}
    assert timed["artifacts"][0]["inputs"][0]["shape"] == [3, 9, WIDTH]
    assert timed["artifacts"][0]["kernels"]
    with pytest.raises(OptionsError, match="no binding 5"):
        benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05, binding=5))


def test_what_takes_inputs_goes_to_their_binding_and_one_can_be_asked_for(artifact: Path) -> None:
    with Model(artifact) as ours:
        assert ours.inputs[0].shape == (1, 4, WIDTH)
        third = ours.at(3)
        assert third is ours.at(3)
        assert third.inputs[0].shape == (3, 4, WIDTH)
        outputs = [np.zeros(spec.shape, spec.numpy) for spec in third.outputs]
        run = ours.bind([given((3, 4))["x"]], outputs)
        assert run() > 0
        np.testing.assert_array_equal(outputs[0], third.run(given((3, 4)))["y"])
        assert len(ours.profile(given((3, 9)), repeats=1)) == len(ours.at(4).plan_json()["calls"])
        assert len(ours.trace(given((3, 9)), repeats=1)) == ours.at(4).plan.tasks
        assert ours.bench(0.01, given((1, 9)))["runs"] >= 10
        with Model(artifact, binding=3) as alone:
            assert alone.inputs == third.inputs
            with pytest.raises(InputError, match="shape"):
                alone.run(given((1, 4)))
    with pytest.raises(RunError, match="closed"):
        third.run(given((3, 4)))


def test_damaged_files_of_a_binding_are_refused_when_it_is_needed(artifact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(folder)
    with Model(folder) as whole:
        np.testing.assert_array_equal(whole.run(given((3, 9)))["y"].shape, (3, 9, WIDTH))
    library = folder / "bindings" / "4" / "model.so"
    library.write_bytes(library.read_bytes()[:-1] + b"!")
    with Model(folder) as damaged:
        assert damaged.run(given((1, 4)))
        with pytest.raises(ArtifactError, match=r"bindings/4/model\.so"):
            damaged.run(given((3, 9)))


def test_a_binding_that_cannot_be_compiled_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    dims = [{"batch": 1, "length": 4}, {"batch": 1, "length": 10**9}]
    with pytest.raises(ModelTooLarge):
        compile_file(model, tmp_path / "open.tw", CompileOptions.from_json({**OPTIONS, "dims": dims}))
    assert not [*tmp_path.iterdir()]


def test_a_binding_whose_results_change_in_the_common_artifact_is_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def mixed_up(parts: list[Any], weights: bytes, *rest: Any) -> Any:
        return join(parts, bytes(len(weights)), *rest)

    monkeypatch.setattr("compiler.steps.joining.join", mixed_up)
    with pytest.raises(InternalError, match="binding 1 gives other results"):
        compile_file(model, tmp_path / "open.tw", CompileOptions.from_json(OPTIONS))
    assert not [*tmp_path.iterdir()]


def test_preflight_judges_the_largest_binding_and_corrects_all(model: Path) -> None:
    answer = preflight(model, CompileOptions.from_json(OPTIONS))
    assert answer["ok"]
    assert answer["corrected"] is None
    assert answer["outputs"][0]["shape"] == [3, 9, WIDTH]
    odd = preflight(model, CompileOptions.from_json({**OPTIONS, "dims": {"batch": [1, 2], "depth": 3}}))
    assert not odd["ok"]
    assert odd["corrected"]["dims"] == [{"batch": batch, "length": 128} for batch in (1, 2)]


def test_bindings_are_in_the_order_in_which_they_are_spelled_out() -> None:
    options = CompileOptions.from_json({"dims": {"a": [2, 1], "b": [5, 7]}, "tuning_budget_s": 8, "tuning_trials": 6})
    expected = [{"a": a, "b": b} for a, b in itertools.product((2, 1), (5, 7))]
    assert [dict(one.binding) for one in options.bindings] == expected
    assert {(one.tuning_budget_s, one.tuning_trials) for one in options.bindings} == {(2.0, 2)}
    assert CompileOptions.from_json(options.to_json()) == options


def test_what_one_binding_was_made_of_is_gone_when_the_next_is_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []
    real = pipeline.front_of

    def watched(*given: Any) -> Any:
        gc.collect()
        alive.append(sum(one() is not None for one in made))
        front = real(*given)
        made.append(weakref.ref(front.fused.kernels))
        return front

    monkeypatch.setattr(pipeline, "front_of", watched)
    compile_file(
        model, tmp_path / "m.tw", CompileOptions.from_json({**OPTIONS, "dims": {"batch": 1, "length": [4, 6, 9]}})
    )
    assert alive == [0, 0, 0]
