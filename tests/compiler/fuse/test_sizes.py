"""Fusion around PadBeyond: it runs where its operand is made, and fast forms are found with it in between."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.forms.attention import as_attention
from compiler.forms.bounds import beyond_bounds
from compiler.fuse import fuse
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.rewrite.sketch import Sketch


def only_kernel(graph: Graph) -> Kernel:
    (call,) = fuse(graph).kernels.calls
    assert isinstance(call.kernel, Kernel)
    return call.kernel


def agree_at(graph: Graph, *sizes: int) -> None:
    """The fused kernel's numbers at sizes, each for one input of the graph that is a size, are the graph's."""
    random = np.random.default_rng(4)
    inputs, left = {}, list(sizes)
    for id in graph.inputs:
        type = graph.type(id)
        inputs[id] = np.array(left.pop(0)) if type.rank == 0 else random.normal(size=type.dims).astype(np.float32)
    call = fuse(graph).kernels.calls[0]
    wanted = evaluate_graph(graph, inputs, OPERATORS)[graph.outputs[0]]
    arrays = [inputs.get(id, graph.constants.get(id)) for id in call.inputs]
    (found,) = evaluate(only_kernel(graph), [array for array in arrays if array is not None])
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def attention(*, ended: str = "scores", rows: bool = True) -> Graph:
    """Queries end at one size, keys at another: their scores are -infinity beyond it, or some other number."""
    s = Sketch(dtype=DType.F32)
    q, k, v = s.x(1, 2, 6, 8), s.x(1, 2, 8, 7), s.x(1, 2, 7, 8)
    own, others = s.x(dtype=DType.I64), s.x(dtype=DType.I64)
    scores = s("PadBeyond", s("MatMul", q, k), own, axis=2)
    number = float("-inf") if ended == "scores" else -9.0
    scores = s("PadBeyond", s("Mul", scores, s.c(0.5)), others, axis=3, value=number)
    weights = s("PadBeyond", s("Softmax", scores, axis=-1), others, axis=3)
    weights = s("PadBeyond", weights, own, axis=2) if rows else weights
    return s.graph(s("PadBeyond", s("MatMul", weights, v), own, axis=2))


@pytest.mark.parametrize("rows", [True, False])
def test_attention_whose_weights_are_kept_below_sizes_is_one_kernel(rows: bool) -> None:
    graph = attention(rows=rows)
    kernel = only_kernel(graph)
    assert as_attention(kernel) is not None
    assert len(beyond_bounds(kernel)) == 1
    for own in (0, 1, 5, 6):
        for others in (1, 4, 7):
            agree_at(graph, own, others)


def test_attention_without_any_key_is_zero() -> None:
    """As a sum over nothing is, where the weights are kept below the size; each by itself would not be a number."""
    agree_at(attention(), 4, 0)


def test_attention_is_refused_where_weights_end_at_a_size_and_scores_do_not() -> None:
    fused = fuse(attention(ended="elsewhere"))
    assert all(not isinstance(c.kernel, Kernel) or as_attention(c.kernel) is None for c in fused.kernels.calls)
    assert "beyond a size of keys its argument is not -infinity" in {refusal.reason for refusal in fused.refusals}


def test_what_a_norm_gives_is_kept_below_a_size_in_the_loop_that_computes_it() -> None:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(5, 16), s.x(dtype=DType.I64)
    norm = s("LayerNormalization", x, s.normal(16), s.normal(16), axis=-1)
    graph = s.graph(s("PadBeyond", s("PadBeyond", norm, size, axis=0), size, axis=1))
    kernel = only_kernel(graph)
    assert len([block for block in kernel.blocks if block.axes]) == 1
    agree_at(graph, 3)


@pytest.mark.parametrize("op", ["MatMul", "Conv", "Gelu"])
def test_what_a_kernel_gives_is_kept_below_a_size_there_and_maps_follow(op: str) -> None:
    s = Sketch(dtype=DType.F32)
    size = s.x(dtype=DType.I64)
    if op == "Conv":
        x = s("Conv", s.x(1, 4, 6, 6), s.normal(8, 4, 3, 3), s.normal(8), kernel_shape=(3, 3), pads=(1,) * 4)
    else:
        x = s("MatMul", s.x(1, 6, 8), s.normal(8, 8)) if op == "MatMul" else s("Gelu", s.x(1, 6, 8))
    graph = s.graph(s("Relu", s("PadBeyond", x, size, axis=1)))
    assert len(beyond_bounds(only_kernel(graph))) == 1
    agree_at(graph, 4)
