from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from bench.zoo.builder import GraphBuilder
from bench.zoo.flops import Uncountable, gflop


def test_convolution_counts_two_operations_per_multiply_accumulate() -> None:
    g = GraphBuilder("conv")
    g.output("y", g.conv(g.input("x", (1, 8, 10, 10)), 16, 3, 2, groups=4))
    assert gflop(g.finish()) == pytest.approx(2e-9 * 16 * 5 * 5 * (2 * 3 * 3))


def test_products_count_rows_times_columns_times_depth() -> None:
    g = GraphBuilder("products")
    x = g.input("x", (3, 5))
    g.output("y", g.dense(g.gemm(x, 7), 2))
    assert gflop(g.finish()) == pytest.approx(2e-9 * (3 * 5 * 7 + 3 * 7 * 2))


def test_shapes_that_the_file_does_not_state_are_inferred() -> None:
    g = GraphBuilder("chain")
    g.output("y", g.conv(g.conv(g.input("x", (1, 4, 8, 8)), 4, 3), 4, 3))
    model = g.finish()
    expected = gflop(model)
    del model.graph.value_info[:]
    assert gflop(model) == expected


def test_an_unbound_shape_is_refused_by_node_and_value() -> None:
    g = GraphBuilder("dynamic")
    g.output("y", g.conv(g.input("x", (1, 4, 8, 8)), 4, 3))
    model = g.finish()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(Uncountable, match=r"node 'node.conv_0': the shape of 'y' is not static; bind the inputs"):
        gflop(model)


def test_an_operator_without_a_rule_is_refused() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Einsum", ["x", "x"], ["y"], "e", equation="ij,jk->ik")], "g", [x], [y])
    with pytest.raises(Uncountable, match="node 'e': no rule for the work of Einsum"):
        gflop(helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
