"""A cast of what does not fit gives the same value folded while compiling and computed while running."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.ops.cast import ONNX_DTYPES
from compiler.pack.loader import Model
from tests.compiler.ops.test_cast import BEYOND
from tests.compiling import compile_file

QUICK = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0})
INTEGERS = [code for code, dtype in ONNX_DTYPES.items() if dtype.is_integer and not dtype.is_small]


@pytest.mark.parametrize("repeats", [1, 5], ids=["few elements", "vectors"])
def test_casts_are_the_same_folded_and_run(repeats: int, tmp_path: Path) -> None:
    numbers = np.array(BEYOND * repeats, np.float32)
    nodes = [
        helper.make_node("Cast", [source], [f"{source}{code}"], to=code) for source in ("x", "c") for code in INTEGERS
    ]
    outputs = [
        helper.make_tensor_value_info(f"{source}{code}", code, numbers.shape)
        for source in ("x", "c")
        for code in INTEGERS
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, numbers.shape)
    graph = helper.make_graph(nodes, "g", [x], outputs, [numpy_helper.from_array(numbers, "c")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0}))
    with Model(tmp_path / "m.tw") as model:
        found = model.run({"x": numbers})
    for code in INTEGERS:
        np.testing.assert_array_equal(found[f"x{code}"], found[f"c{code}"], err_msg=str(ONNX_DTYPES[code]))


def test_an_output_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y, y, x])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0}))
    with Model(tmp_path / "m.tw") as model:
        found = model.run({"x": np.ones(3, np.float32)})
    assert {name: array.tolist() for name, array in found.items()} == {"y": [-1.0] * 3, "x": [1.0] * 3}
