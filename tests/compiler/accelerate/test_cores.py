"""What models take on ARM cores, modelled: plain loops beside what LLVM's models of the cores say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.accelerate.cores import CORES, modelled_seconds, modelled_times

ELEMENTS = 8 * 64 * 64
CYCLES = {
    "Relu": (15, 4.1),
    "HardSwish": (40, 6.2),
    "Exp": (139, 32),
    "Log": (220, 60),
    "Tanh": (236, 66),
    "Erf": (300, 83),
    "Sigmoid": (170, 48),
    "Gelu": (331, 98),
    "Mish": (187, 56),
}
"""Of a vector of four, by llvm-mca 14 of the loop that gcc 12 makes: Cortex-A53, and Cortex-A57 in place of A76."""


def _model(path: Path, kind: str) -> Path:
    return _of(path, [helper.make_node(kind, ["x"], ["y"], "one")])


def _of(path: Path, nodes: list[onnx.NodeProto]) -> Path:
    weights = np.full((8, 8, 1, 1), 0.1, np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 64, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 64, 64))],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.mark.parametrize("kind", CYCLES)
def test_a_plain_loop_takes_about_what_llvm_says_of_the_core(kind: str, tmp_path: Path) -> None:
    path = _model(tmp_path / "m.onnx", kind)
    found, nodes = modelled_times(path)
    for core, ghz, cycles in zip(CORES, (1.4, 2.4), CYCLES[kind], strict=True):
        seconds = found[core]
        assert seconds is not None
        vector = seconds * ghz * 1e9 / (ELEMENTS / 4)
        assert 0.8 * cycles < vector < 1.25 * max(cycles, 10)
    assert nodes == {"one": pytest.approx(found[CORES[0]])}
    assert {core: modelled_seconds(path.read_bytes(), core) for core in CORES} == found


def test_a_function_behind_a_product_costs_what_its_loop_does(tmp_path: Path) -> None:
    product = helper.make_node("Conv", ["x", "w"], ["h"], "product")
    erf = helper.make_node("Erf", ["h"], ["y"], "erf")
    both = _of(tmp_path / "both.onnx", [product, erf]).read_bytes()
    product.output[0] = "y"
    alone = _of(tmp_path / "alone.onnx", [product]).read_bytes()
    loop = _model(tmp_path / "loop.onnx", "Erf").read_bytes()
    for core in CORES:
        first, then, together = (modelled_seconds(one, core) for one in (alone, loop, both))
        assert first is not None
        assert then is not None
        assert together is not None
        assert first + 0.8 * then < together <= 1.05 * (first + then)
