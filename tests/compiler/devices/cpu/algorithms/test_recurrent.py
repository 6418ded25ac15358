"""Recurrent layers in all their forms, lowered step by step and compared with the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms.recurrent.lowering import recurrent_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.encodings.encoding import DENSE
from compiler.encodings.int24 import INT24
from compiler.forms.normal_form import rename_slots
from compiler.forms.recurrence import as_recurrence
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.tile import Level, Tile
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import LOOPS, Case, Library, draws
from tests.compiler.ops.single import prepare, widened

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CODED = "DynamicQuantizeLSTM"
ALL = (CODED, "GRU", "LSTM", "RNN")
ACTIVATIONS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "RNN": [("Tanh",), ("Relu",), ("Softsign",)],
    "GRU": [("Sigmoid", "Tanh"), ("HardSigmoid", "Softsign")],
    "LSTM": [("Sigmoid", "Tanh", "Tanh"), ("HardSigmoid", "Tanh", "Elu")],
    CODED: [("Sigmoid", "Tanh", "Tanh")],
}


@dataclass(frozen=True)
class Layer:
    """One node: its inputs by position, its attributes, how many outputs it has."""

    op: str
    arrays: tuple[np.ndarray | None, ...]
    attrs: Mapping[str, Any]
    outputs: int


@st.composite
def layers(draw: st.DrawFn, ops: Sequence[str] = tuple(GATES)) -> Layer:
    """Directions, layouts, lengths of their own, initial states, peepholes, clipping, coupled gates, odd sizes.

    Of codes all that there are of 8 bits, or of 9 in 16.
    """
    op = draw(st.sampled_from(ops))
    gates, coded = GATES.get(op, 4), op == CODED
    steps, batch = draw(st.sampled_from([2, 3, 5, 9])), draw(st.sampled_from([1, 1, 2, 3, 5, 6]))
    features, hidden = draw(st.sampled_from([1, 3, 16, 21])), draw(st.sampled_from([1, 2, 5, 16, 19, 40]))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    count, layout = 2 if direction == "bidirectional" else 1, 0 if coded else draw(st.integers(0, 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = gates * hidden
    state = (batch, count, hidden) if layout else (count, batch, hidden)

    def some(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.7).astype(np.float32)

    def maybe(*shape: int) -> np.ndarray | None:
        return some(*shape) if draw(st.booleans()) else None

    arrays: list[np.ndarray | None] = [
        some(*((batch, steps, features) if layout else (steps, batch, features))),
        some(count, rows, features),
        some(count, rows, hidden),
        maybe(count, 2 * rows),
        rng.integers(0, steps + 1, batch).astype(np.int32) if draw(st.booleans()) else None,
        maybe(*state),
    ]
    attrs: dict[str, Any] = {"direction": direction, "hidden_size": hidden, "layout": layout}
    if coded:
        least, kind = draw(st.sampled_from([(-128, np.int8), (-255, np.int16)]))
        codes = rng.integers(least, -least, (count, rows, hidden)).astype(kind)
        arrays[:3] = [some(steps, batch, count * rows), None, codes]
    if gates == 4:
        arrays += [maybe(*state), maybe(count, 3 * hidden)]
        attrs["input_forget"] = draw(st.integers(0, 1))
    if coded:
        arrays.append((rng.uniform(0.2, 1, (count, rows)) / 128).astype(np.float32))
    if op == "GRU":
        attrs["linear_before_reset"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attrs["clip"] = 0.8
    attrs["activations"] = draw(st.sampled_from(ACTIVATIONS[op])) * count
    return Layer(op, tuple(arrays), attrs, draw(st.integers(1, 3 if gates == 4 else 2)))


def case_of(layer: Layer) -> tuple[Case, tuple[np.ndarray, ...]]:
    """The layer's kernel as fusion names its slots, on plain buffers, its weights constant.

    Also what the reference says in float64.
    """
    operator = OPERATORS[layer.op]
    node, inputs, types = prepare(operator, layer.arrays, layer.attrs, layer.outputs)
    outputs = operator.infer(node, types)
    kernel = operator.define(node, types, outputs)
    assert isinstance(kernel, Kernel)
    kernel = rename_slots(kernel, {temp.name: f"t{number}" for number, temp in enumerate(kernel.temps)})
    with np.errstate(all="ignore"):
        wanted = operator.reference(node, tuple(widened(array) for array in inputs))
    there = [(position, array) for position, array in enumerate(inputs) if array is not None]
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(geometry(Buffer.whole(number, slot.type)) for number, slot in enumerate(slots))
    constant = tuple(place for place, (position, _) in enumerate(there) if position in (1, 2, 3, 7, 8))
    return Case(kernel, buffers, tuple(array for _, array in there), constant=constant), wanted


@st.composite
def tiles(draw: st.DrawFn, case: Case, target: CpuTarget) -> Tile:
    """The tile that is proposed, or any other: a few steps at a time, narrow panels."""
    workload = replace(case.workload, encodings=((DENSE, INT24),) * len(case.kernel.inputs))
    options = recurrent_tiles(workload, target, 1)
    assume(options)
    if draw(st.booleans()):
        return draw(st.sampled_from(options)).tile
    floats = target.vector_floats
    return Tile(
        draw(st.sampled_from(options)).tile.algorithm,
        (
            Level("block", (("t", draw(st.integers(1, 4))), ("n", draw(st.integers(1, 3)) * floats))),
            Level("register", (("m", draw(st.integers(1, 5))), ("n", draw(st.integers(1, 2)) * floats))),
            Level("vector", (("n", floats),)),
        ),
    )


@st.composite
def drawn(draw: st.DrawFn, target: CpuTarget, ops: Sequence[str] = ALL) -> tuple[Case, tuple[np.ndarray, ...]]:
    case, wanted = case_of(draw(layers(ops)))
    tile = draw(tiles(case, target))
    return Case(case.kernel, case.buffers, case.inputs, tile, case.constant), wanted


def check(found: Sequence[tuple[Case, tuple[np.ndarray, ...]]], target: CpuTarget) -> None:
    library = Library.of([case for case, _ in found], target, optimise="-O1")
    for number, (case, wanted) in enumerate(found):
        for got, want in zip(library.run(number, case), wanted, strict=False):
            description = f"{case}\n{library.lowered[number].text}"
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=description)


def test_recurrent_layers_mean_what_the_reference_says() -> None:
    found = [one for op in ALL for one in draws(drawn(this_machine(), (op,)), 18)]
    assert len({(case.kernel.family, case.tile.algorithm) for case, _ in found}) == 7
    check(found, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_recurrent_layers_are_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(drawn(target), 10), target)


def test_a_layer_of_several_steps_is_taken_and_one_without_constant_weights_is_not() -> None:
    case, _ = next(
        (case, wanted) for case, wanted in draws(layers(ALL).map(case_of), 20) if as_recurrence(case.workload)
    )
    assert as_recurrence(Case(case.kernel, case.buffers, case.inputs, LOOPS).workload) is None


def test_a_layer_whose_sequences_have_lengths_ends_with_the_longest() -> None:
    """Every cell and direction: what happens beyond the lengths is known, and no product is made there."""
    found = [layer for layer in draws(layers(ALL), 60) if as_recurrence(case_of(layer)[0].workload)]
    ended = 0
    for layer in found:
        view = as_recurrence(case_of(layer)[0].workload)
        assert view is not None
        assert (view.end is not None) == (layer.arrays[4] is not None), layer
        if view.end is not None:
            products = {product.into for product in view.products}
            assert view.end.stored
            assert not any(block.reads & products for block in view.end.stored)
            ended += 1
    assert ended > 5
