"""Models that others trained.

The light ones inside the onnx package (weights are ConstantOfShape, initializers are inputs too).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.contract import CompileOptions
from compiler.errors import TilewrightError
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize(
    ("name", "image", "operators_kept"),
    [
        ("squeezenet", "data_0", {"Conv", "Relu", "MaxPool", "Concat", "GlobalAveragePool", "Softmax"}),
        ("bvlc_alexnet", "data_0", {"Conv", "Relu", "LRN", "MaxPool", "Reshape", "Gemm", "Softmax"}),
        (
            "shufflenet",
            "gpu_0/data_0",
            {
                "Conv",
                "Relu",
                "BatchNormalization",
                "Reshape",
                "Transpose",
                "Sum",
                "Concat",
                "MaxPool",
                "AveragePool",
                "Gemm",
                "Softmax",
            },
        ),
    ],
)
def test_a_light_model_loads_with_the_picture_as_its_only_input(
    name: str, image: str, operators_kept: set[str], operators: Operators
) -> None:
    loaded = load(LIGHT / f"light_{name}.onnx", CompileOptions(), operators)
    graph = loaded.graph
    assert {node.op for node in graph.nodes} == operators_kept
    assert [str(graph.values[id].type) for id in graph.inputs] == ["f32[1, 3, 224, 224]"]
    assert [graph.values[id].name for id in graph.inputs] == [image]
    assert np.prod(graph.type(graph.outputs[0]).dims) == 1000
    assert not loaded.notices


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_light_model_loads_with_our_operators(path: Path) -> None:
    graph = load(path, CompileOptions(), OPERATORS).graph
    assert {node.op for node in graph.nodes} <= set(OPERATORS)
    assert np.prod(graph.type(graph.outputs[0]).dims) == 1000


def test_a_light_model_cut_off_anywhere_is_refused(operators: Operators) -> None:
    whole = (LIGHT / "light_squeezenet.onnx").read_bytes()
    for length in range(0, len(whole), len(whole) // 40 + 1):
        with pytest.raises(TilewrightError) as caught:
            load(whole[:length], CompileOptions(), operators)
        assert caught.value.fault == "caller"
