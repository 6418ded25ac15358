"""Composed forms among all the other rules.

What exporters write is recognised although normal forms have changed it on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.fuse import Fused
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from tests.compiler.rewrite.left_sides import LEFT
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning

OPERATOR_OF = {
    "gelu_by_erf": {"Gelu"},
    "gelu_by_tanh": {"Gelu"},
    "sigmoid_by_exp": {"Sigmoid"},
    "tanh_by_sigmoid": {"Tanh"},
    "softplus_by_exp": {"Softplus"},
    "mish_by_softplus": {"Mish"},
    "swish_by_sigmoid": {"Swish"},
    "swish_by_exp": {"Swish"},
    "hard_swish_by_clamp": {"HardSwish"},
    "hard_sigmoid_by_clip": {"HardSigmoid"},
    "clip_by_min_max": {"Clip", "Relu"},
    "leaky_relu_by_where": {"LeakyRelu", "PRelu"},
    "leaky_relu_by_relus": {"LeakyRelu", "PRelu", "Abs"},
    "elu_by_where": {"Elu"},
    "layer_norm_by_moments": {"LayerNormalization"},
    "rms_norm_by_squares": {"RMSNormalization"},
    "standardised_by_moments": {"MeanVarianceNormalization"},
    "group_norm_by_reshape": {"GroupNormalization", "InstanceNormalization"},
    "softmax_by_exp": {"Softmax"},
    "log_softmax_by_exp": {"LogSoftmax"},
    "lstm_by_cells": {"LSTM"},
    "gru_by_cells": {"GRU"},
}
"""By the rule that recognises a form, the operators of which one is there in its place."""


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def loaded(name: str, place: Path) -> Graph:
    path = place / f"{name}.onnx"
    path.write_bytes(build(name).SerializeToString())
    return load(path, CompileOptions(), OPERATORS).graph


def families(fused: Fused) -> list[str]:
    return [call.kernel.family for call in fused.kernels.calls]


@pytest.mark.parametrize("rule", OPERATOR_OF)
def test_a_form_is_recognised_when_all_rules_are_tried(rule: str) -> None:
    for seed in range(12):
        before = LEFT[rule](Sketch(seed))
        after = rewrite(before)
        assert ops(after.graph).keys() & OPERATOR_OF[rule], f"{before}\n\n->\n\n{after.graph}"
        assert_same_meaning(before, after, seed)


def test_a_decoder_with_a_cache_becomes_norms_rotations_in_one_map_and_attention_over_shared_heads(
    tmp_path: Path,
) -> None:
    before = loaded("tiny_llama", tmp_path)
    after = rewrite(before)
    found = ops(after.graph)
    assert (found["RMSNormalization"], found["Swish"], found["Expand"], found["Neg"]) == (5, 2, 0, 0)
    assert_same_meaning(before, after, rtol=1e-5)
    names = families(fuse(after.graph))
    assert sum("Softmax+MatMul" in name for name in names) == 2
    assert sum(name.startswith("Slice+Mul") for name in names) == 4
    assert len(names) <= 41


def test_a_unet_of_group_norms_has_one_kernel_for_each_and_its_attention_is_one(tmp_path: Path) -> None:
    after = rewrite(loaded("tiny_unet", tmp_path))
    found = ops(after.graph)
    assert (found["GroupNormalization"], found["InstanceNormalization"], found["Swish"]) == (10, 0, 10)
    names = families(fuse(after.graph))
    assert sum("Softmax+MatMul" in name for name in names) == 1
    assert len(names) <= 44


def test_unrolled_cells_become_layers_over_all_steps(tmp_path: Path) -> None:
    before = loaded("tiny_lstm_cells", tmp_path)
    after = rewrite(before)
    found = ops(after.graph)
    assert (found["LSTM"], found["GRU"], found["Sigmoid"]) == (1, 1, 0)
    assert_same_meaning(before, after, rtol=1e-5)
    assert len(families(fuse(after.graph))) <= 5


HEADS, TOKENS, WIDTH = 2, 8, 4


def _heads(s: Sketch, perm: tuple[int, ...] = (0, 2, 1, 3), heads: int = HEADS) -> int:
    """[1, tokens, heads * width] as [1, heads, tokens, width], or with its axes in another order."""
    x = s("Reshape", s.x(1, TOKENS, heads * WIDTH), None, shape=(1, TOKENS, heads, WIDTH))
    return s("Transpose", x, perm=perm)


def _scores(s: Sketch) -> int:
    return s("MatMul", _heads(s), _heads(s, (0, 2, 3, 1)))


def _mixed(s: Sketch, scores: int) -> Graph:
    """The softmax of scores times values, heads side by side again."""
    mixed = s("MatMul", s("Softmax", scores, axis=-1), _heads(s))
    return s.graph(s("Reshape", s("Transpose", mixed, perm=(0, 2, 1, 3)), None, shape=(1, TOKENS, HEADS * WIDTH)))


def _both_scaled(s: Sketch) -> Graph:
    """As PyTorch writes scaled_dot_product_attention."""
    root = s.c(WIDTH**-0.25)
    keys = s("Mul", s("Transpose", _heads(s), perm=(0, 1, 3, 2)), root)
    return _mixed(s, s("MatMul", s("Mul", _heads(s), root), keys))


def _additive_mask(s: Sketch) -> Graph:
    """As BERT does: 1 - mask, times the lowest float, over all heads and queries."""
    mask = s("Cast", s.x(1, 1, 1, TOKENS, dtype=DType.I64), to=1)
    bias = s("Mul", s("Sub", s.c(1.0), mask), s.c(float(np.finfo(np.float32).min)))
    return _mixed(s, s("Add", s("Div", _scores(s), s.c(2.0)), bias))


def _causal_where(s: Sketch) -> Graph:
    """As GPT-2 does: a constant triangle chooses between the scores and a low number."""
    causal = s.c(np.tril(np.ones((1, 1, TOKENS, TOKENS), np.bool_)), DType.BOOL)
    return _mixed(s, s("Where", causal, s("Mul", _scores(s), s.c(0.5)), s.c(-1e9)))


def _mask_of_booleans(s: Sketch) -> Graph:
    """As PyTorch writes masked_fill: minus infinity where the mask is, which another input says."""
    mask = s.x(1, 1, TOKENS, TOKENS, dtype=DType.BOOL)
    return _mixed(s, s("Where", mask, s.c(-1e30), _scores(s)))


def _bias_of_positions(s: Sketch) -> Graph:
    """A learned bias for each head, as T5 and Swin have, before a mask."""
    biased = s("Add", _scores(s), s.normal(1, HEADS, TOKENS, TOKENS))
    return _mixed(s, s("Add", biased, s.normal(TOKENS, TOKENS)))


def _merged_heads(s: Sketch) -> Graph:
    """As fairseq does: batch times heads for the products, apart for the mask."""
    q, k, v = (s("Reshape", _heads(s), None, shape=(HEADS, TOKENS, WIDTH)) for _ in range(3))
    scores = s("MatMul", s("Mul", q, s.c(0.5)), s("Transpose", k, perm=(0, 2, 1)))
    apart = s("Reshape", scores, None, shape=(1, HEADS, TOKENS, TOKENS))
    masked = s("Add", apart, s.x(1, 1, TOKENS, TOKENS))
    weights = s("Softmax", s("Reshape", masked, None, shape=(HEADS, TOKENS, TOKENS)), axis=-1)
    return s.graph(s("Reshape", s("MatMul", weights, v), None, shape=(1, HEADS, TOKENS, WIDTH)))


def _transposed_scores(s: Sketch) -> Graph:
    """As the einsum of Keras becomes: keys times queries, transposed before the softmax."""
    q, k = (s("Reshape", _heads(s), None, shape=(HEADS, TOKENS, WIDTH)) for _ in range(2))
    scores = s("Reshape", s("MatMul", k, s("Transpose", q, perm=(0, 2, 1))), None, shape=(1, HEADS, TOKENS, TOKENS))
    return _mixed(s, s("Transpose", scores, perm=(0, 1, 3, 2)))


def _joint_projection(s: Sketch) -> Graph:
    """As timm writes it: one projection, taken apart along an axis of three."""
    joint = s("Reshape", s.x(1, TOKENS, 3 * HEADS * WIDTH), None, shape=(1, TOKENS, 3, HEADS, WIDTH))
    parts = s.many("Split", s("Transpose", joint, perm=(2, 0, 3, 1, 4)), None, outputs=3, axis=0, split=(1, 1, 1))
    q, k, v = (s("Squeeze", part, None, axes=(0,)) for part in parts)
    scores = s("MatMul", s("Mul", q, s.c(0.5)), s("Transpose", k, perm=(0, 1, 3, 2)))
    return s.graph(s("MatMul", s("Softmax", scores, axis=-1), v))


def _shared_heads(s: Sketch) -> Graph:
    """Two heads of queries to each of keys and values, which Expand repeats, behind a cache."""
    k, v = (s("Concat", s.x(1, 1, 4, WIDTH), _heads(s, heads=1), axis=2) for _ in range(2))
    wide = (1, 1, 2, TOKENS + 4, WIDTH)
    k, v = (s("Expand", s("Unsqueeze", one, None, axes=(2,)), None, shape=wide) for one in (k, v))
    k, v = (s("Reshape", one, None, shape=(1, 2, TOKENS + 4, WIDTH)) for one in (k, v))
    scores = s("MatMul", _heads(s), s("Transpose", k, perm=(0, 1, 3, 2)))
    return s.graph(s("MatMul", s("Softmax", scores, axis=-1), v))


@pytest.mark.parametrize(
    "form",
    [
        _both_scaled,
        _additive_mask,
        _causal_where,
        _mask_of_booleans,
        _bias_of_positions,
        _merged_heads,
        _transposed_scores,
        _joint_projection,
        _shared_heads,
    ],
)
def test_attention_is_one_kernel_however_it_is_written(form: Callable[[Sketch], Graph]) -> None:
    before = form(Sketch(1, DType.F32))
    after = rewrite(before)
    assert_same_meaning(before, after, rtol=1e-6)
    fused = fuse(after.graph)
    names = families(fused)
    joined = [name for name in names if name.count("MatMul") == 2]
    assert len(joined) == 1, f"{names}\n{[str(one) for one in fused.refusals if one.step == 'attention']}"
