"""One artifact for all sizes in a range, from options to runs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from compiler.contract import BenchmarkOptions, CompileOptions, CompileReport
from compiler.errors import Disagreement, InputsError, OptionsError
from compiler.frontend import Loaded, load
from compiler.ir.graph import Node
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from compiler.runner import benchmark, infer
from tests.compiling import compile_file
from tilewright.cli.run import drawn
from tilewright.errors import UsageError

BATCH, LENGTH = {"min": 1, "opt": 2, "max": 5}, {"min": 1, "opt": 4, "max": 9}
OPTIONS = {"threads": 1, "tuning_budget_s": 0, "dims": {"batch": BATCH, "length": LENGTH}}
WIDTH = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product and its sum along the open length; what the bias adds beyond it must not count."""
    random = np.random.default_rng(3)
    constants: dict[str, np.ndarray] = {
        "w": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "bias": random.standard_normal(WIDTH).astype(np.float32),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axis"], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "total")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path_factory.mktemp("open") / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def report(model: Path) -> CompileReport:
    return compile_file(model, model.with_name("open.tw"), CompileOptions.from_json(OPTIONS))


@pytest.fixture(scope="module")
def artifact(model: Path, report: CompileReport) -> Path:
    return model.with_name("open.tw")


def given(batch: int, length: int, seed: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, length, WIDTH)).astype(np.float32)}


def test_every_size_in_the_range_gives_what_another_runtime_gives_in_any_order(model: Path, artifact: Path) -> None:
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    sizes = [(batch, length) for batch in range(1, 6) for length in range(1, 10)]
    order = np.random.default_rng(1).permutation(2 * len(sizes)) % len(sizes)
    with Model(artifact) as ours:
        for seed, at in enumerate(order):
            inputs = given(*sizes[int(at)], seed)
            found = ours.run(inputs)
            for got, want in zip(found.values(), theirs.run(None, inputs), strict=True):
                assert got.flags.c_contiguous
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            flat = ours.run_flat([inputs["x"]])
            np.testing.assert_array_equal(flat[1], found["total"])


def test_the_manifest_says_which_axes_are_open_and_where_their_sizes_are(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        described = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
    exact, ranged = described["bindings"]
    assert (exact["dims"], ranged["dims"]) == ({"batch": 2, "length": 4}, {"batch": BATCH, "length": LENGTH})
    assert described["options"]["dims"] == ranged["dims"]
    assert "open" not in exact
    assert ranged["open"] == {
        "dimensions": [{"name": "batch", **BATCH}, {"name": "length", **LENGTH}],
        "inputs": [[0, 1, None]],
        "outputs": [[2, 3, None], [2, None]],
    }
    assert [one["shape"] for one in (*ranged["inputs"], *ranged["outputs"])] == [
        [5, 9, WIDTH],
        [5, 9, WIDTH],
        [5, WIDTH],
    ]
    assert [name for name in names if name.endswith("weights.bin")] == ["weights.bin"]


def test_the_report_says_at_which_sizes_the_program_was_proved(report: CompileReport) -> None:
    exact, ranged = report.bindings
    assert not exact.sizes
    judged = [(one.dims["batch"], one.dims["length"]) for one in ranged.sizes]
    assert judged[:3] == [(2, 4), (1, 1), (5, 9)]
    assert len(judged) > 3
    assert len(set(judged)) == len(judged)
    assert all(1 <= batch <= 5 and 1 <= length <= 9 for batch, length in judged)
    for at, error in enumerate(ranged.errors):
        assert error.max_relative == max(one.errors[at].max_relative for one in ranged.sizes) <= ranged.tolerance
    assert report.to_json()["bindings"][1]["sizes"][0]["dims"] == {"batch": 2, "length": 4}


def test_exact_shapes_run_the_program_that_was_made_for_them(artifact: Path) -> None:
    with Model(artifact) as ours, Model(artifact, binding=1) as exact:
        np.testing.assert_array_equal(ours.run(given(2, 4))["y"], exact.run(given(2, 4))["y"])
        assert [str(one) for one in ours.bindings] == ["batch=2, length=4", "batch=1..5, length=1..9"]
        assert str(ours.at(2).inputs[0]) == "float32[batch=1..5, length=1..9, 24]"
        assert ours.at(2).run(given(2, 4))["y"].shape == (2, 4, WIDTH)
        with pytest.raises(InputError, match="shape"):
            exact.run(given(3, 4))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ((6, 4, WIDTH), r"'x' has 6 along axis 0, and its dimension 'batch' has 1..5. Fix: give 1 to 5"),
        ((2, 0, WIDTH), r"'x' has 0 along axis 1, and its dimension 'length' has 1..9. Fix: give 1 to 9"),
        ((2, 4, 3), r"'x' has 3 along axis 2. Fix: give 24"),
        ((4, WIDTH), r"'x' has shape \(4, 24\). Fix: give float32\[batch=1..5, length=1..9, 24\]"),
    ],
)
def test_sizes_out_of_range_are_refused_by_input_axis_and_range(
    x: tuple[int, ...], said: str, artifact: Path, tmp_path: Path
) -> None:
    array = np.zeros(x, np.float32)
    np.savez(tmp_path / "x.npz", x=array)
    with Model(artifact) as ours:
        for run in (
            lambda: ours.run({"x": array}),
            lambda: ours.run_flat([array]),
            lambda: ours.at(2).run_flat([array]),
        ):
            with pytest.raises(InputError, match=said):
                run()
    with pytest.raises(InputsError, match="none of the model's 2 bindings"):
        infer(artifact, tmp_path / "x.npz", tmp_path / "y.npz")


@pytest.mark.parametrize("quick", [True, False])
def test_what_earlier_runs_left_beyond_the_sizes_is_never_seen(
    quick: bool, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not quick:
        monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", 0)
    with Model(artifact, binding=2) as ours:
        fresh = {}
        for sizes in ((3, 5), (1, 1), (2, 9), (5, 2)):
            with Model(artifact, binding=2) as new:
                fresh[sizes] = new.run(given(*sizes))
        ours.run({"x": np.full((4, 8, WIDTH), np.inf, np.float32)})
        for sizes, wanted in fresh.items():
            found = ours.run(given(*sizes))
            assert all((found[name] == array).all() for name, array in wanted.items())


@pytest.mark.parametrize("quick", [True, False])
def test_results_are_the_callers_own(quick: bool, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not quick:
        monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", 0)
    with Model(artifact, binding=2) as ours:
        first = ours.run(given(5, 3))
        kept = {name: array.copy() for name, array in first.items()}
        ours.run(given(5, 3, seed=9))
        assert all((first[name] == array).all() for name, array in kept.items())


def test_repeated_sizes_run_their_binding_and_exact_ones_theirs_between_them(artifact: Path) -> None:
    sizes = [(3, 5), (3, 5), (2, 4), (3, 5), (1, 1), (1, 1), (2, 4), (2, 4), (3, 5)]
    with Model(artifact) as ours, Model(artifact, binding=1) as exact, Model(artifact, binding=2) as ranged:
        for seed, size in enumerate(sizes):
            inputs = given(*size, seed)
            wanted = (exact if size == (2, 4) else ranged).run(inputs)
            found = ours.run(inputs)
            assert [array.shape for array in found.values()] == [array.shape for array in wanted.values()]
            assert all((found[name] == array).all() for name, array in wanted.items())
        assert ours._last is ours.at(2)


def test_outputs_may_be_given_and_must_have_the_sizes_that_come_out(artifact: Path) -> None:
    with Model(artifact) as ours:
        wanted = ours.run(given(3, 7))
        out = {"y": np.zeros((3, 7, WIDTH), np.float32), "total": np.zeros((3, 2 * WIDTH), np.float32)[:, ::2]}
        found = ours.run(given(3, 7), out)
        assert all(found[name] is out[name] and (out[name] == wanted[name]).all() for name in out)
        arrays = [np.zeros_like(array) for array in wanted.values()]
        run = ours.bind([given(3, 7)["x"]], arrays)
        assert run() > 0
        np.testing.assert_array_equal(arrays[1], wanted["total"])
        with pytest.raises(InputError, match=r"output 'y' is float32\[3, 8, 24\]. Fix: give float32\[3, 7, 24\]"):
            ours.run(given(3, 7), {"y": np.zeros((3, 8, WIDTH), np.float32)})


def test_the_program_itself_takes_what_is_staged(artifact: Path) -> None:
    with Model(artifact, binding=2) as ours:
        staged = ours.staged([given(3, 7)["x"]])
        assert [array.shape for array in staged] == [(5, 9, WIDTH), (), ()]
        assert [int(size) for size in staged[1:]] == [3, 7]
        assert not staged[0][3:].any()
        assert not staged[0][:, 7:].any()
        out = [np.zeros(spec.shape, spec.numpy) for spec in ours.binding.program_outputs]
        ours.bind(staged, out)()
        np.testing.assert_array_equal(out[0][:3, :7], ours.run(given(3, 7))["y"])
        assert [int(size) for size in out[2:]] == [3, 7]


def test_inferences_and_benchmarks_run_any_size(artifact: Path, tmp_path: Path) -> None:
    for sizes in ((2, 4), (3, 7)):
        np.savez(tmp_path / "x.npz", x=given(*sizes)["x"])
        reported = infer(artifact, tmp_path / "x.npz", tmp_path / "y.npz")
        assert reported["outputs"]["y"]["shape"] == [*sizes, WIDTH]
        with Model(artifact) as ours, np.load(tmp_path / "y.npz") as found:
            np.testing.assert_array_equal(found["total"], ours.run(given(*sizes))["total"])
    timed = benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05, binding=2))["artifacts"][0]
    assert timed["dims"] == {"batch": 2, "length": 4}
    assert timed["inputs"][0]["shape"] == [2, 4, WIDTH]
    assert timed["kernels"]


def test_a_benchmark_may_name_the_sizes(artifact: Path) -> None:
    def timed(**options: Any) -> dict[str, Any]:
        found: dict[str, Any] = benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05, **options))["artifacts"][0]
        return found

    odd = timed(dims={"length": 9})
    assert odd["dims"] == {"batch": 2, "length": 9}
    assert [one["shape"] for one in odd["outputs"]] == [[2, 9, WIDTH], [2, WIDTH]]
    with Model(artifact, binding=1) as exact:
        assert len(timed(dims={"length": 4})["kernels"]) == len(exact.plan_json()["calls"])
    with pytest.raises(OptionsError, match=r"no binding at length=10\nFix: give sizes of \(batch=2, length=4\) or"):
        timed(dims={"length": 10})
    with pytest.raises(OptionsError, match="no sizes length=9 in its binding batch=2, length=4"):
        timed(dims={"length": 9}, binding=1)


def test_a_benchmark_runs_on_a_sample_at_its_sizes_and_says_so(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=given(3, 7)["x"])
    options, samples = BenchmarkOptions(seconds=0.05, profile=False), {"mine.npz": tmp_path / "x.npz"}
    found = benchmark([("a", artifact)], options, samples=samples)
    digest = hashlib.sha256((tmp_path / "x.npz").read_bytes()).hexdigest()
    assert found["inputs"] == {"from": "sample", "name": "mine.npz", "sha256": digest}
    timed = found["artifacts"][0]
    assert timed["dims"] == {"batch": 3, "length": 7}
    assert [one["shape"] for one in timed["outputs"]] == [[3, 7, WIDTH], [3, WIDTH]]
    drawn_ones = benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05, profile=False, seed=4))
    assert drawn_ones["inputs"] == {"from": "seed", "seed": 4}
    np.savez(tmp_path / "x.npz", x=given(2, 4)["x"])
    exact = benchmark([("a", artifact)], options, samples=samples)["artifacts"][0]
    assert exact["dims"] == {"batch": 2, "length": 4}


def test_a_sample_that_a_benchmark_cannot_use_is_refused_by_input_and_fix(artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    options = BenchmarkOptions(seconds=0.05)

    def timed(options: BenchmarkOptions = options, **samples: Path) -> None:
        benchmark([("a", artifact)], options, samples=samples)

    np.savez(path, x=given(2, 10)["x"])
    with pytest.raises(InputsError, match=r"sample 'long' does not fit artifact a: (.|\n)*'x'") as refused:
        timed(long=path)
    assert refused.value.fix
    np.savez(path, z=given(2, 4)["x"])
    with pytest.raises(InputsError, match="sample 'other' does not fit artifact a"):
        timed(other=path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputsError, match=r"sample 'broken' does not fit artifact a: .*archive"):
        timed(broken=path)
    with pytest.raises(OptionsError, match="dims names length, whose sizes the sample says"):
        timed(replace(options, dims={"length": 9}), x=path)
    with pytest.raises(OptionsError, match="2 samples"):
        timed(x=path, y=path)


def test_random_inputs_of_the_command_line_have_the_sizes_that_are_asked_for(artifact: Path) -> None:
    with tilewright.load(artifact) as ours:
        assert drawn(ours, 1, {"batch": 5})["x"].shape == (5, 4, WIDTH)
        assert drawn(ours, 1, {})["x"].shape == (2, 4, WIDTH)
        assert ours.run(drawn(ours, 1, {"batch": 5}))["total"].shape == (5, WIDTH)
        with pytest.raises(UsageError, match="leaves no dimensions 'width' open"):
            drawn(ours, 1, {"width": 3})


def test_everything_that_takes_inputs_takes_those_of_any_size(artifact: Path) -> None:
    with Model(artifact) as ours:
        ranged = ours.at(2)
        assert ranged.random_inputs(1)["x"].shape == (2, 4, WIDTH)
        assert ranged.random_inputs(1, {"length": 9})["x"].shape == (2, 9, WIDTH)
        assert len(ours.profile(given(5, 9), repeats=1)) == len(ranged.plan_json()["calls"])
        assert len(ours.trace(given(1, 9), repeats=1)) == ranged.plan.tasks
        assert ours.bench(0.01, given(3, 1))["runs"] >= 10


def test_equal_options_give_equal_bytes(model: Path, artifact: Path, report: CompileReport, tmp_path: Path) -> None:
    again = compile_file(model, tmp_path / "again.tw", CompileOptions.from_json(OPTIONS))
    assert again.artifact_digest == report.artifact_digest


def test_a_sample_judges_the_program_at_its_sizes(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "usual.npz", x=given(2, 4)["x"])
    np.savez(tmp_path / "odd.npz", x=given(4, 9)["x"])
    samples = {name: tmp_path / f"{name}.npz" for name in ("usual", "odd")}
    report = compile_file(model, tmp_path / "open.tw", CompileOptions.from_json(OPTIONS), samples=samples)
    exact, ranged = report.bindings
    assert (len(exact.samples), len(ranged.samples)) == (1, 1)
    assert {"batch": 4, "length": 9} in [one.dims for one in ranged.sizes]
    np.savez(tmp_path / "odd.npz", x=given(6, 9)["x"])
    with pytest.raises(InputsError, match="sample 'odd' cannot be used: the inputs fit none"):
        compile_file(model, tmp_path / "open.tw", CompileOptions.from_json(OPTIONS), samples=samples)


def test_sizes_are_drawn_as_long_as_the_proof_may_take(model: Path, tmp_path: Path) -> None:
    options = CompileOptions.from_json({**OPTIONS, "proof_limit_s": 3e-4})
    report = compile_file(model, tmp_path / "open.tw", options)
    assert [tuple(one.dims.values()) for one in report.bindings[1].sizes] == [(2, 4), (1, 1), (5, 9)]


def test_dimensions_that_were_opened_wrongly_are_found_and_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that counts what lies beyond its length."""

    def ones(node: Node) -> Node:
        return replace(node, attrs={**node.attrs, "value": 1}) if node.op == "PadBeyond" else node

    def unpadded(*given: Any, **more: Any) -> Loaded:
        loaded = load(*given, **more)
        return replace(loaded, graph=replace(loaded.graph, nodes=tuple(map(ones, loaded.graph.nodes))))

    monkeypatch.setattr("compiler.steps.loading.load", unpadded)
    with pytest.raises(Disagreement, match="output 'total' at batch=2, length=4 is not what the model gives there"):
        compile_file(model, tmp_path / "open.tw", CompileOptions.from_json(OPTIONS))
    assert not [*tmp_path.iterdir()]


def test_a_program_that_says_other_sizes_than_the_model_is_found(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchanged(*given: Any, **more: Any) -> Loaded:
        loaded = load(*given, **more)
        shapes = loaded.open_shapes
        if shapes is None:
            return loaded
        (batch, length, _), total = shapes.outputs
        return replace(loaded, open_shapes=replace(shapes, outputs=((length, batch, None), total)))

    monkeypatch.setattr("compiler.steps.loading.load", exchanged)
    with pytest.raises(Disagreement, match=r"output 'y' has shape \[4, 2, 24\] at batch=2, length=4"):
        compile_file(model, tmp_path / "open.tw", CompileOptions.from_json(OPTIONS))


def test_the_example_for_c_runs_an_open_binding(artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "bindings" / "2"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["gcc", *strict, "-O2", "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(["./example", "../../weights.bin"], cwd=folder, capture_output=True, text=True, check=True)
    assert "output 2: 1 elements 5\noutput 3: 1 elements 9\n" in ran.stdout


def test_preflight_judges_the_program_for_all_sizes_and_keeps_the_ranges(model: Path) -> None:
    answer = preflight(model, CompileOptions.from_json(OPTIONS))
    assert answer["ok"]
    assert answer["corrected"] is None
    assert [(one["name"], one["shape"]) for one in answer["outputs"]] == [
        ("y", [None, None, WIDTH]),
        ("total", [None, WIDTH]),
    ]
    assert all(one["bound"] for one in answer["inputs"])
    odd = preflight(model, CompileOptions.from_json({**OPTIONS, "dims": {"batch": BATCH, "depth": LENGTH}}))
    assert not odd["ok"]
    assert odd["corrected"]["dims"] == {"batch": BATCH, "length": 128}
