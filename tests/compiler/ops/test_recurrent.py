from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops.cell_functions import FUNCTIONS
from compiler.ops.operator import Unsupported
from compiler.ops.recurrent import DEFAULTS, GATES, OPERATORS
from tests.compiler.ops.single import Attrs, check, compare, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def inputs(
    op: str, directions: int, steps: int, batch: int, features: int, hidden: int, optional: set[int]
) -> list[Any]:
    """x, W, R, and those of B, sequence_lens, initial_h, initial_c, P whose positions are in `optional`."""
    rng = np.random.default_rng(steps * 7 + batch * 3 + hidden)
    gates = GATES[op] * hidden
    shapes = [
        (steps, batch, features),
        (directions, gates, features),
        (directions, gates, hidden),
        (directions, 2 * gates),
    ]
    shapes += [(batch,), (directions, batch, hidden), (directions, batch, hidden), (directions, 3 * hidden)]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    arrays[4] = rng.integers(1, steps + 1, batch).astype(np.int32)
    count = 8 if op == "LSTM" else 6
    return [array if place < 3 or place in optional else None for place, array in enumerate(arrays[:count])]


@given(
    st.sampled_from(sorted(RECORDS)),
    st.sampled_from(DIRECTIONS),
    st.tuples(*(st.integers(1, 4) for _ in range(4))),
    st.sets(st.integers(3, 7)),
    st.integers(1, 3),
)
@settings(max_examples=120)
def test_a_layer_agrees_with_its_reference_and_with_onnxruntime(
    op: str, direction: str, sizes: tuple[int, int, int, int], optional: set[int], outputs: int
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, features, hidden = sizes
    arrays = inputs(op, directions, steps, batch, features, hidden, optional)
    attrs: Attrs = {"hidden_size": hidden, "direction": direction}
    compare(RECORDS[op], arrays, attrs, min(outputs, 3 if op == "LSTM" else 2), rtol=5e-5)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("optional", [set(), {3}, {3, 4, 5}])
def test_GRU_resets_before_or_after_the_product(before: int, optional: set[int]) -> None:
    arrays = inputs("GRU", 2, 4, 3, 2, 3, optional)
    compare(RECORDS["GRU"], arrays, {"hidden_size": 3, "direction": "bidirectional", "linear_before_reset": before}, 2)


@pytest.mark.parametrize("op", sorted(RECORDS))
def test_layout_1_puts_the_batch_first(op: str) -> None:
    count = 3 if op == "LSTM" else 2
    arrays = inputs(op, 2, 4, 3, 2, 3, {3, 5, 6})
    attrs: Attrs = {"hidden_size": 3, "direction": "bidirectional"}
    plain = check(RECORDS[op], arrays, attrs, count)
    turned = [a if a is None or place not in (0, 5, 6) else a.swapaxes(0, 1).copy() for place, a in enumerate(arrays)]
    first = check(RECORDS[op], turned, {**attrs, "layout": 1}, count)
    np.testing.assert_allclose(first[0], plain[0].transpose(2, 0, 1, 3))
    for ours, theirs in zip(first[1:], plain[1:], strict=True):
        np.testing.assert_allclose(ours, theirs.swapaxes(0, 1))


@pytest.mark.parametrize("function", [function.name for function in FUNCTIONS])
def test_every_activation_agrees_with_onnxruntime(function: str) -> None:
    arrays = inputs("RNN", 1, 3, 2, 3, 4, {3})
    attrs: Attrs = {"hidden_size": 4, "activations": (function,), "activation_alpha": (0.3,), "activation_beta": (0.4,)}
    compare(RECORDS["RNN"], arrays, attrs, 2)


@pytest.mark.parametrize("op", sorted(RECORDS))
def test_clip_limits_what_goes_into_an_activation(op: str) -> None:
    arrays = inputs(op, 1, 3, 2, 3, 4, {3})
    compare(RECORDS[op], arrays, {"hidden_size": 4, "clip": 0.25}, 2)


def test_LSTM_can_couple_its_input_and_forget_gates() -> None:
    arrays = inputs("LSTM", 1, 3, 2, 3, 4, {3})
    free = check(RECORDS["LSTM"], arrays, {"hidden_size": 4}, 3)[0]
    coupled = check(RECORDS["LSTM"], arrays, {"hidden_size": 4, "input_forget": 1}, 3)[0]
    assert not np.allclose(free, coupled)


def test_halves_are_computed_in_f32() -> None:
    arrays = [None if a is None else a.astype(np.float16) for a in inputs("GRU", 1, 3, 2, 3, 4, {3})]
    assert check(RECORDS["GRU"], arrays, {"hidden_size": 4}, 2, rtol=2e-3)[0].dtype == np.float16


def test_time_is_the_only_sequential_axis() -> None:
    node, _, types = prepare(RECORDS["LSTM"], inputs("LSTM", 2, 3, 2, 3, 4, {3}), {"direction": "bidirectional"}, 1)
    kernel = RECORDS["LSTM"].define(node, types, RECORDS["LSTM"].infer(node, types))
    assert isinstance(kernel, Kernel)
    assert [axis.name for axis in kernel.sequential] == ["t"]
    assert not any(block.sequential for block in kernel.blocks)


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"direction": "sideways"}, "direction"),
        ({"activations": ("Gelu",)}, "unknown"),
        ({"activations": "Tanh"}, "activations"),
        ({"hidden_size": 7}, "hidden_size"),
        ({"direction": "bidirectional"}, "input 1 has shape"),
    ],
)
def test_a_layer_refuses_what_does_not_fit(attrs: Attrs, reason: str) -> None:
    node, _, types = prepare(RECORDS["RNN"], inputs("RNN", 1, 3, 2, 3, 4, set()), attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        RECORDS["RNN"].infer(node, types)


def test_defaults_are_given_for_every_layer() -> None:
    assert set(DEFAULTS) == set(GATES) == set(RECORDS)
