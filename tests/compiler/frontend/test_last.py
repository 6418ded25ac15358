"""Outputs of the last position alone, beside slices of what ONNX Runtime computes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import OptionsError
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file

WIDTH, WORDS = 16, 40
RANDOM = np.random.default_rng(3)


def model(path: Path, *, opset: int = 17, declared: bool = True, read_inside: bool = False) -> Path:
    """A layer normalisation between two products of [1, S, WIDTH]; its logits, and the rows that they are made of."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "inner"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["rows"]),
        helper.make_node("MatMul", ["rows", "head"], ["logits"]),
    ]
    outputs = [value("logits", TensorProto.FLOAT, [1, "S", WORDS] if declared else None)]
    outputs.append(value("rows", TensorProto.FLOAT, [1, "S", WIDTH]))
    if read_inside:
        inside = helper.make_graph(
            [helper.make_node("Relu", ["logits"], ["y"])], "then", [], [value("y", TensorProto.FLOAT, None)]
        )
        nodes.append(helper.make_node("If", ["which"], ["z"], then_branch=inside, else_branch=inside))
        outputs.append(value("z", TensorProto.FLOAT, None))
    weights = {
        name: (RANDOM.standard_normal(shape) / 4).astype(np.float32)
        for name, shape in {"inner": (WIDTH, WIDTH), "head": (WIDTH, WORDS)}.items()
    }
    inputs = [value("x", TensorProto.FLOAT, [1, "S", WIDTH])]
    inputs += [value("which", TensorProto.BOOL, [])] if read_inside else []
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "last", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def asked(sizes: Any = 8) -> CompileOptions:
    return CompileOptions.from_json(
        {"dims": {"S": sizes}, "last_only": ["logits"], "threads": 1, "tuning_budget_s": 0.0}
    )


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("sizes", [8, [1, 8], {"min": 2, "opt": 8, "max": 12}])
def test_the_last_position_is_the_last_row_of_all(tmp_path: Path, opset: int, sizes: Any) -> None:
    given = model(tmp_path / "m.onnx", opset=opset)
    report = compile_file(given, tmp_path / "m.tw", asked(sizes))
    assert report.kernels
    theirs = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    with Model(tmp_path / "m.tw") as ours:
        for size in (8, *((1,) if isinstance(sizes, list) else ()), *((3, 12) if isinstance(sizes, dict) else ())):
            x = RANDOM.standard_normal((1, size, WIDTH)).astype(np.float32)
            got = ours.run({"x": x})
            logits, rows = theirs.run(["logits", "rows"], {"x": x})
            assert got["logits"].shape == (1, 1, WORDS)
            np.testing.assert_allclose(got["logits"], logits[:, -1:], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got["rows"], rows, rtol=1e-4, atol=1e-5)


def test_the_other_rows_are_not_computed(tmp_path: Path) -> None:
    """Of 64 rows the product with the head is that of one."""
    given = model(tmp_path / "m.onnx")
    flops = []
    for names in ([], ["logits"]):
        options = CompileOptions.from_json(
            {"dims": {"S": 64}, "last_only": names, "threads": 1, "tuning_budget_s": 0.0}
        )
        compile_file(given, tmp_path / "m.tw", options)
        with zipfile.ZipFile(tmp_path / "m.tw") as artifact:
            flops.append(sum(call["flops"] for call in json.loads(artifact.read("plan.json"))["calls"]))
    assert flops[0] - flops[1] >= 2 * 63 * WIDTH * WORDS


@pytest.mark.parametrize(
    ("names", "how", "said"),
    [
        (["nothing"], {}, "last_only names 'nothing', which is no output"),
        (["logits"], {"declared": False}, "the model declares no shape for it"),
        (["logits"], {"read_inside": True}, "which a subgraph reads"),
    ],
)
def test_what_has_no_last_position_is_refused(tmp_path: Path, names: list[str], how: dict[str, Any], said: str) -> None:
    given = model(tmp_path / "m.onnx", **how)
    options = CompileOptions.from_json({"dims": {"S": 8}, "last_only": names})
    with pytest.raises(OptionsError, match=said):
        compile_file(given, tmp_path / "m.tw", options)
    assert not (tmp_path / "m.tw").exists()
    found = preflight(given, options)
    assert said in found["problem"]["message"]
    assert found["problem"]["code"] == "invalid_options"


def test_the_option_leaves_keys_of_others_as_they_were() -> None:
    assert CompileOptions().cache_key("m") == CompileOptions(last_only=()).cache_key("m")
    assert CompileOptions().cache_key("m") != CompileOptions(last_only=("logits",)).cache_key("m")
