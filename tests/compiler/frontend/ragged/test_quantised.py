"""Packed texts of models whose products are of bytes, against the same texts one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from bench.texts.encoder import Encoder, InBytes
from compiler.errors import UnsupportedModel
from tests.compiler.frontend.ragged.test_packing import LONGEST, MOST, outputs, packed


class Fixed(Encoder):
    """Products of what constant scales quantised and dequantised, in attention too."""

    zero = -128
    """Of weights of keys, which are 0 to 1."""

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        if op == "MatMul":
            inputs = tuple(self.rounded(one) for one in inputs)
        return super().__call__(op, *inputs, **attributes)

    def rounded(self, x: str) -> str:
        for one in self.constants:
            if one.name == x:
                weights = numpy_helper.to_array(one)
                steps = np.abs(weights).max(0) / 127
                codes = self.constant(np.round(weights / steps).astype(np.int8))
                return self("DequantizeLinear", codes, self.constant(steps.astype(np.float32)), axis=1)
        is_weight = any(node.op_type == "Softmax" and x in node.output for node in self.nodes)
        scale = self.number(1 / 255 if is_weight else 4 / 127)
        zero = self.constant(np.array(self.zero if is_weight else 3, np.int8))
        return self("DequantizeLinear", self("QuantizeLinear", x, scale, zero), scale, zero)


class ByTool(InBytes):
    """A pooler as well, of the first token's state, whose range is that of a text."""

    def mean(self) -> str:
        state = self("Gather", self.x, self.constant(np.array(0)), axis=1)
        return self("Tanh", self.linear(state, self.hidden, 3))


def model(kind: type[Encoder]) -> bytes:
    encoder = kind()
    encoder.layer()
    encoder.layer()
    return encoder.finish(states=encoder.x, embedding=encoder.mean())


MODELS = {kind.__name__: packed(model(kind)) for kind in (InBytes, ByTool, Fixed)}


@pytest.mark.parametrize("name", MODELS)
@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=MOST), seed=st.integers(0, 99))
@settings(max_examples=4, deadline=None)
def test_each_text_has_the_codes_that_it_has_alone(name: str, lengths: list[int], seed: int) -> None:
    """What another text holds widens no range: one code of all that differed would be a hundred times the limit."""
    each = outputs(MODELS[name], lengths, seed)
    assert len(each) == 2
    for found, wanted in each:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_range_is_taken_for_each_text_alone(name: str) -> None:
    graph = MODELS[name].loaded.graph
    ops = [node.op for node in graph.nodes]
    assert "DynamicQuantizeLinear" not in ops
    integers = [node for node in graph.nodes if node.op == "MatMulInteger"]
    assert len(integers) == {"InBytes": 12, "ByTool": 13, "Fixed": 0}[name]
    for node in integers:
        zero, rows = graph.type(node.used[2]).dims, graph.type(node.used[0]).dims
        assert zero == (*rows[:-1], 1)


def of_other_zero(encoder: Encoder) -> str:
    """Weights of keys that other texts' keys have too, since they are no zeros once dequantised."""
    x, high = encoder.x, encoder("Transpose", encoder.x, perm=[0, 2, 1])
    weights = encoder("Softmax", encoder("MatMul", x, high), axis=-1)
    scale, zeros = encoder.number(1 / 255), [encoder.constant(np.array(one, np.uint8)) for one in (0, 1)]
    codes = encoder("QuantizeLinear", weights, scale, zeros[0])
    return encoder("MatMul", encoder("DequantizeLinear", codes, scale, zeros[1]), x)


def by_token(encoder: Encoder) -> str:
    scales = encoder("ReduceMax", encoder.x, encoder.numbers([0, 2]), keepdims=0)
    return encoder("QuantizeLinear", encoder.x, encoder("Abs", scales), axis=1)


def scale_apart(encoder: Encoder) -> str:
    scale = f"{encoder('DynamicQuantizeLinear', encoder.x)}_scale"
    encoder.nodes[-1].output.extend([scale, f"{scale}_zero"])
    return encoder("Reshape", scale, encoder.numbers([1, 1]))


@pytest.mark.parametrize(
    ("make", "op", "said"),
    [
        (of_other_zero, "MatMul", "not as attention does"),
        (by_token, "ReduceMax", "mixes the texts of a batch"),
        (scale_apart, "Reshape", "the scale that a text has by its own range"),
    ],
)
def test_what_gives_a_text_another_one_s_codes_is_refused(make: Callable[[Encoder], str], op: str, said: str) -> None:
    encoder = Encoder()
    with pytest.raises(UnsupportedModel) as error:
        packed(encoder.finish(y=make(encoder))).loaded  # noqa: B018
    assert [(one.operator, said in one.reason) for one in error.value.refusals] == [(op, True)]
