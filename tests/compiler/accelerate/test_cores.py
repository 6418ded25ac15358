"""What models take on ARM cores, modelled: plain loops beside what LLVM's models of the cores say of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

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
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], "one")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 64, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 64, 64))],
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
    assert modelled_seconds(path.read_bytes()) == found[CORES[0]]
