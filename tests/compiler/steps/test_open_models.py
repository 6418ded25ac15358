"""Small models of every sort, compiled for ranges of sizes, beside another runtime at all sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.pack.loader import InputError, Model
from tests.compiling import compile_file

Shape = list[Any]
node = helper.make_node


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(drawn / np.sqrt(shape[0]), np.float32)


@dataclass(frozen=True)
class Sort:
    """A model: inputs by name, nodes, outputs, constants, the ranges that it is compiled for; whole inputs below 7."""

    inputs: dict[str, tuple[int, Shape]]
    nodes: list[onnx.NodeProto]
    outputs: list[str]
    constants: dict[str, np.ndarray]
    dims: dict[str, Any]

    def saved(self, path: Path) -> Path:
        graph = helper.make_graph(
            self.nodes,
            "sort",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    def given(self, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        made = {}
        for name, (kind, shape) in self.inputs.items():
            dims = [sizes[dim] if dim in sizes else int(dim) for dim in shape]
            whole = kind == TensorProto.INT64
            made[name] = random.integers(0, 2, dims) if whole else random.standard_normal(dims).astype(np.float32)
        return made


def perceptron() -> Sort:
    return Sort(
        {"x": (TensorProto.FLOAT, ["n", 12])},
        [
            node("Gemm", ["x", "w", "b"], ["h"]),
            node("Relu", ["h"], ["r"]),
            node("MatMul", ["r", "v"], ["s"]),
            node("Softmax", ["s"], ["y"], axis=-1),
        ],
        ["y"],
        {"w": floats(12, 20), "b": floats(20), "v": floats(20, 7)},
        {"n": {"min": 1, "opt": 3, "max": 8}},
    )


def convolution() -> Sort:
    return Sort(
        {"x": (TensorProto.FLOAT, ["n", 3, 10, 10])},
        [
            node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", ["h"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
            node("GlobalAveragePool", ["p"], ["g"]),
            node("Flatten", ["g"], ["f"]),
            node("MatMul", ["f", "v"], ["y"]),
        ],
        ["y"],
        {"w": floats(8, 3, 3, 3), "b": floats(8), "v": floats(8, 5)},
        {"n": {"min": 1, "opt": 2, "max": 6}},
    )


def attention() -> Sort:
    """Embeddings, one head, a mask over what is no word, a mean over words."""
    shape: Shape = ["batch", "length"]
    return Sort(
        {"ids": (TensorProto.INT64, shape), "mask": (TensorProto.INT64, shape)},
        [
            node("Gather", ["table", "ids"], ["e"]),
            node("MatMul", ["e", "wq"], ["q"]),
            node("MatMul", ["e", "wk"], ["k"]),
            node("MatMul", ["e", "wv"], ["v"]),
            node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
            node("MatMul", ["q", "kt"], ["s"]),
            node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
            node("Sub", ["one", "m"], ["absent"]),
            node("Mul", ["absent", "far"], ["shift"]),
            node("Unsqueeze", ["shift", "axis"], ["shifts"]),
            node("Add", ["s", "shifts"], ["t"]),
            node("Softmax", ["t"], ["p"], axis=-1),
            node("MatMul", ["p", "v"], ["o"]),
            node("Add", ["o", "e"], ["u"]),
            node("LayerNormalization", ["u", "scale", "bias"], ["y"]),
            node("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
        ],
        ["y", "mean"],
        {
            "table": floats(11, 16),
            **{name: floats(16, 16, seed=at) for at, name in enumerate(("wq", "wk", "wv"))},
            "one": np.array(1, np.float32),
            "far": np.array(-100, np.float32),
            "axis": np.array([1]),
            "scale": floats(16),
            "bias": floats(16),
        },
        {"batch": {"min": 1, "opt": 2, "max": 3}, "length": {"min": 1, "opt": 5, "max": 7}},
    )


def heads() -> Sort:
    """What exporters write of a split into heads: shapes are computed in the model."""
    return Sort(
        {"x": (TensorProto.FLOAT, ["batch", "length", 12])},
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["b"]),
            node("Gather", ["shape", "first"], ["l"]),
            node("Unsqueeze", ["b", "front"], ["b1"]),
            node("Unsqueeze", ["l", "front"], ["l1"]),
            node("Concat", ["b1", "l1", "rest"], ["split"], axis=0),
            node("Reshape", ["x", "split"], ["h"]),
            node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
            node("Softmax", ["t"], ["p"], axis=2),
            node("Transpose", ["p"], ["back"], perm=[0, 2, 1, 3]),
            node("Concat", ["b1", "l1", "whole"], ["joined"], axis=0),
            node("Reshape", ["back", "joined"], ["y"]),
        ],
        ["y"],
        {
            "zero": np.array(0),
            "first": np.array(1),
            "front": np.array([0]),
            "rest": np.array([3, 4]),
            "whole": np.array([12]),
        },
        {"batch": {"min": 1, "opt": 1, "max": 3}, "length": {"min": 2, "opt": 4, "max": 6}},
    )


def joined() -> Sort:
    """Two lengths that a Concat adds, and two names of a batch that an Add makes one."""
    return Sort(
        {
            "x": (TensorProto.FLOAT, ["n", "a", 4]),
            "z": (TensorProto.FLOAT, ["m", "b", 4]),
            "s": (TensorProto.FLOAT, ["n", 1, 1]),
        },
        [
            node("Concat", ["x", "z"], ["c"], axis=1),
            node("Mul", ["c", "s"], ["y"]),
            node("ReduceMax", ["y"], ["top"], axes=[1], keepdims=0),
        ],
        ["y", "top"],
        {},
        {
            **{name: {"min": 1, "opt": 2, "max": 3} for name in "nm"},
            "a": {"min": 1, "opt": 2, "max": 4},
            "b": {"min": 1, "opt": 3, "max": 3},
        },
    )


def hourglass() -> Sort:
    """Half the length and back, beside what was there: only even lengths have a meaning."""
    return Sort(
        {"x": (TensorProto.FLOAT, [1, 2, "n"])},
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2]),
            node("ConvTranspose", ["p", "w"], ["u"], strides=[2], kernel_shape=[2]),
            node("Add", ["u", "x"], ["y"]),
        ],
        ["y"],
        {"w": floats(2, 2, 2)},
        {"n": {"min": 1, "opt": 4, "max": 9}},
    )


SORTS: list[Callable[[], Sort]] = [perceptron, convolution, attention, heads, joined, hourglass]


@pytest.mark.parametrize("sort", SORTS, ids=lambda sort: sort.__name__)
def test_a_model_for_ranges_gives_what_another_runtime_gives_at_each_size(
    sort: Callable[[], Sort], tmp_path: Path
) -> None:
    made = sort()
    model = made.saved(tmp_path / "model.onnx")
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": made.dims})
    report = compile_file(model, tmp_path / "model.tw", options)
    assert len(report.bindings) == 2
    assert len(report.bindings[1].sizes) >= 3
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with Model(tmp_path / "model.tw") as ours:
        ranges = {one.name: range(one.low, one.high + 1, one.step) for one in ours.at(2).binding.open}
        for seed, values in enumerate(itertools.product(*ranges.values())):
            sizes = dict(zip(ranges, values, strict=True))
            if "n" in sizes:
                sizes.setdefault("m", sizes["n"])
            given = made.given(sizes, seed)
            found = ours.run(given)
            for got, want in zip(found.values(), theirs.run(None, given), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_dimension_with_two_sizes_is_refused_by_both_inputs(tmp_path: Path) -> None:
    made = attention()
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": made.dims})
    compile_file(made.saved(tmp_path / "model.onnx"), tmp_path / "model.tw", options)
    ids, mask = np.zeros((2, 5), np.int64), np.ones((2, 6), np.int64)
    said = "dimension 'length' has two sizes: 5 in axis 1 of input 'ids', 6 in axis 1 of input 'mask'"
    with Model(tmp_path / "model.tw") as ours:
        for run in (lambda: ours.run({"ids": ids, "mask": mask}), lambda: ours.at(2).run_flat([ids, mask])):
            with pytest.raises(InputError, match=said):
                run()
        drawn = ours.at(2).random_inputs(3, {"length": 7})["ids"]
        assert drawn.shape == (2, 7)
        assert -11 <= drawn.min() <= drawn.max() <= 10
        assert drawn.max() > 1


def test_sizes_that_a_model_takes_only_as_multiples_are_told_and_others_refused(tmp_path: Path) -> None:
    made = hourglass()
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": made.dims})
    report = compile_file(made.saved(tmp_path / "model.onnx"), tmp_path / "model.tw", options)
    assert {one.dims["n"] for one in report.bindings[1].sizes} <= {2, 4, 6, 8}
    assert report.bindings[1].dims == {"n": {"min": 2, "opt": 4, "max": 8}}
    with Model(tmp_path / "model.tw") as ours:
        assert [str(one) for one in ours.bindings] == ["n=4", "n=2..8 by 2"]
        assert ours.run({"x": np.ones((1, 2, 6), np.float32)})["y"].shape == (1, 2, 6)
        with pytest.raises(InputError, match=r"has 5 along axis 2, .* Fix: give 2 to 8, a multiple of 2"):
            ours.run({"x": np.ones((1, 2, 5), np.float32)})


def test_of_several_ranges_the_smallest_that_holds_the_sizes_runs(tmp_path: Path) -> None:
    made = perceptron()
    ranges = [{"min": 1, "max": 40}, {"min": 1, "opt": 2, "max": 6}]
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": {"n": ranges}})
    model = made.saved(tmp_path / "model.onnx")
    compile_file(model, tmp_path / "model.tw", options)
    with Model(tmp_path / "model.tw") as ours:
        assert [str(one) for one in ours.bindings] == ["n=40", "n=1..40", "n=2", "n=1..6"]
        for rows, number in ((40, 1), (7, 2), (2, 3), (5, 4)):
            given = made.given({"n": rows}, 1)
            np.testing.assert_array_equal(ours.run(given)["y"], ours.at(number).run(given)["y"])
            assert ours._fitting([given["x"]]).binding.number == number


def places(*dims: Any) -> list[onnx.NodeProto]:
    return [
        node("Greater", ["x", "zero"], ["above"]),
        node("NonZero", ["above"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["y"]),
    ]


@pytest.mark.parametrize("dims", [{}, {"n": {"min": 1, "opt": 3, "max": 6}}], ids=["fixed", "ranged"])
def test_sizes_that_follow_from_data_are_those_of_another_runtime(dims: dict[str, Any], tmp_path: Path) -> None:
    first = "n" if dims else 5
    made = Sort({"x": (TensorProto.FLOAT, [first, 4])}, places(), ["y"], {"zero": np.array(0, np.float32)}, dims)
    model = made.saved(tmp_path / "model.onnx")
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": dims})
    compile_file(model, tmp_path / "model.tw", options)
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with Model(tmp_path / "model.tw") as ours:
        for seed, rows in enumerate((5, 5, 5) if not dims else (1, 3, 6, 3, 2)):
            given = made.given({"n": rows}, seed)
            found, wanted = ours.run(given)["y"], theirs.run(None, given)[0]
            np.testing.assert_array_equal(found, wanted)
            out = {"y": np.zeros_like(wanted)}
            assert ours.run(given, out)["y"] is out["y"]
            np.testing.assert_array_equal(out["y"], wanted)
            assert ours.bind([given["x"]], [out["y"]])() > 0
        none = {"x": -np.ones((5, 4), np.float32)}
        assert ours.run(none)["y"].shape == (0,)


def test_what_an_earlier_run_left_beyond_the_sizes_is_never_summed(tmp_path: Path) -> None:
    """Sums of inputs themselves, which are zero beyond their sizes."""
    dims = {name: {"min": 1, "max": 6} for name in "nml"}
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    made = Sort({"x": (TensorProto.FLOAT, ["n", "m", "l"])}, nodes, ["y"], {"axes": np.array([0, 2])}, dims)
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": dims})
    compile_file(made.saved(tmp_path / "model.onnx"), tmp_path / "model.tw", options)
    random = np.random.default_rng(0)
    with Model(tmp_path / "model.tw") as ours:
        for _ in range(200):
            x = random.standard_normal(random.integers(1, 7, 3)).astype(np.float32)
            np.testing.assert_allclose(ours.run({"x": x})["y"], x.sum((0, 2)), rtol=1e-4, atol=1e-5)
