"""Filters that Winograd transforms are stored as the model has them, and transformed when an artifact is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from bench.engines.tilewright import calls
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from tests.compiling import compile_file

OPTIONS = CompileOptions(threads=1, tuning_budget_s=0.0)
CHANNELS, SIZE = 96, 24


def filters() -> np.ndarray:
    return np.asarray(0.05 * np.random.default_rng(4).standard_normal((CHANNELS, CHANNELS, 3, 3)), np.float32)


def written(path: Path) -> None:
    """A convolution of channels-last data, of a batch that is left open."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["b", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "filtered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SIZE, SIZE, CHANNELS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", SIZE, SIZE, CHANNELS])],
        [numpy_helper.from_array(filters(), "w"), numpy_helper.from_array(np.full(1, 2, np.float32), "scale")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_an_artifact_holds_no_more_than_the_filters_and_computes_the_same_bits(tmp_path: Path) -> None:
    """Two bindings, whose programs share them, beside an artifact whose weights are ready."""
    model, small, ready = (tmp_path / name for name in ("model.onnx", "small.tw", "ready.tw"))
    written(model)
    options = replace(OPTIONS, dims=({"batch": 1}, {"batch": 3}))
    kept = compile_file(model, small, options)
    whole = compile_file(model, ready, replace(options, weights="ready"))
    assert [call["tile"].split()[0] for call in calls(small)] == ["winograd"]
    assert kept.weight_bytes < 1.05 * filters().nbytes
    assert whole.weight_bytes >= 16 / 9 * filters().nbytes
    windows = filters().astype(np.float64)
    with Model(small) as first, Model(small) as second, Model(ready) as other:
        for batch in (1, 3):
            x = np.random.default_rng(batch).standard_normal((batch, SIZE, SIZE, CHANNELS)).astype(np.float32)
            wide = 2 * np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
            want = np.einsum("nyxcrs,kcrs->nyxk", sliding_window_view(wide, (3, 3), (1, 2)), windows, optimize=True)
            expected = other.run({"x": x})["y"]
            assert np.abs(expected - want).max() <= 1e-4 * np.abs(want).max()
            for one in (first, second):
                np.testing.assert_array_equal(one.run({"x": x})["y"].view(np.uint32), expected.view(np.uint32))


def quantised(path: Path) -> None:
    """Convolutions of 3 by 3 and 5 by 5, whose filters are bytes with a scale for each channel."""
    random, size = np.random.default_rng(8), (1, CHANNELS, SIZE, SIZE)
    nodes, constants, value = [], {}, "x"
    for at, taps in enumerate((3, 5, 3)):
        dims = (CHANNELS, CHANNELS, taps, taps)
        constants[f"codes{at}"] = random.integers(-127, 128, dims, np.int8)
        constants[f"scales{at}"] = random.uniform(1e-4, 3e-4, CHANNELS).astype(np.float32)
        nodes.append(helper.make_node("DequantizeLinear", [f"codes{at}", f"scales{at}"], [f"w{at}"], axis=0))
        nodes.append(helper.make_node("Conv", [value, f"w{at}"], [f"sums{at}"], pads=[taps // 2] * 4))
        nodes.append(helper.make_node("Relu", [f"sums{at}"], [f"y{at}"]))
        value = f"y{at}"
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, size)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def test_filters_that_were_bytes_are_bytes_in_the_artifact_and_give_the_same_bits(tmp_path: Path) -> None:
    model, small, ready = (tmp_path / name for name in ("model.onnx", "small.tw", "ready.tw"))
    quantised(model)
    kept = compile_file(model, small, OPTIONS)
    whole = compile_file(model, ready, replace(OPTIONS, weights="ready"))
    assert "winograd" in {call["tile"].split()[0] for call in calls(small)}
    assert kept.weight_bytes < 1.1 * model.stat().st_size
    assert whole.weight_bytes > 4 * model.stat().st_size
    x = np.random.default_rng(2).standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    with Model(small) as one, Model(ready) as other:
        np.testing.assert_array_equal(
            one.run({"x": x})["y2"].view(np.uint32), other.run({"x": x})["y2"].view(np.uint32)
        )
