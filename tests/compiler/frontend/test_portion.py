from __future__ import annotations

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.frontend.portion import Portion
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from tests.compiler.steps.local_models import Net

WINDOW = TensorType(DType.F32, (1, 2, 6))


def _model() -> bytes:
    """`x` to v0, v1, and v2, which has as many positions as the shape of v1 says."""
    net = Net(np.random.default_rng(0))
    v0 = net.node("Relu", "x")
    v1 = net.node("Conv", v0, net.normal(2, 2, 3), pads=[1, 1])
    v2 = net.node("Expand", net.constant([[[1.0]]]), net.node("Shape", v1))
    return net.model((1, 2, 10), net.node("Add", v1, v2))


def test_what_is_before_has_the_inputs_of_the_model_and_no_more_than_it_needs() -> None:
    graph = load(_model(), CompileOptions(), OPERATORS, portion=Portion(("v0",))).graph
    assert [graph.values[id].name for id in (*graph.inputs, *graph.outputs)] == ["x", "v0"]
    assert [node.op for node in graph.nodes] == ["Relu"]


def test_sizes_behind_are_those_of_the_portions_own_inputs() -> None:
    graph = load(_model(), CompileOptions(), OPERATORS, portion=Portion(("y",), {"v1": WINDOW})).graph
    assert [str(graph.type(id)) for id in (*graph.inputs, *graph.outputs)] == ["f32[1, 2, 6]"] * 2
    assert not {"Relu", "Conv"} & {node.op for node in graph.nodes}


def test_an_input_of_the_model_that_the_portion_lacks_is_named_with_its_reader() -> None:
    with pytest.raises(UnsupportedModel, match="node 'n0' needs input 'x' itself"):
        load(_model(), CompileOptions(), OPERATORS, portion=Portion(("y",), {"v9": WINDOW}))
