from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.integer import integer_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.forms.integer import as_integer
from compiler.fuse.scalars import with_scalars
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Level, Tile
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import LOOPS, Case, bound, check, draws

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
BYTES = (np.int8, np.uint8)
EXTREMES = 0.3
"""Part of the bytes that are the least or the greatest."""


@dataclass
class Drawn:
    """Random arrays for one operator: bytes with many at the ends of their range."""

    draw: st.DrawFn
    random: np.random.Generator

    def bytes(self, dtype: Any, *shape: int) -> np.ndarray:
        limits = np.iinfo(dtype)
        plain = self.random.integers(limits.min, limits.max + 1, shape)
        ends = self.random.choice([limits.min, limits.max], shape)
        return np.where(self.random.random(shape) < EXTREMES, ends, plain).astype(dtype)

    def zero(self, dtype: Any, *shape: int) -> np.ndarray:
        kind = self.draw(st.sampled_from(["any", "any", "middle", "nothing"]))
        fixed = {"middle": 128 if dtype == np.uint8 else 0, "nothing": 0}
        return np.full(shape, fixed[kind], dtype) if kind in fixed else self.bytes(dtype, *shape)

    def scale(self, *shape: int) -> np.ndarray:
        return self.random.uniform(0.001, 0.1, shape).astype(np.float32)

    def per(self, count: int) -> tuple[int, ...]:
        """The shape of a parameter of the whole tensor, or of one for each of its `count` channels."""
        return self.draw(st.sampled_from([(), (), (count,)]))


@st.composite
def operators(draw: st.DrawFn) -> tuple[str, list[np.ndarray | None], dict[str, Attr]]:
    """One of the five operators with its arrays, in all forms of zero points and scales."""
    drawn = Drawn(draw, np.random.default_rng(draw(st.integers(0, 2**16))))
    a_type, b_type = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    convolves, requantises = draw(st.booleans()), draw(st.booleans())
    attrs: dict[str, Attr] = {}
    if convolves:
        rank, groups = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 1, 2]))
        filters, channels = draw(st.sampled_from([2, 8, 16, 19, 40])), draw(st.sampled_from([1, 3, 4, 8, 17, 64]))
        window = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)]
        pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
        strides = [draw(st.integers(1, 2)) for _ in range(rank)]
        dilations = [draw(st.sampled_from([1, 1, 2])) for _ in range(rank)]
        extents = [draw(st.integers(5, 9)) for _ in range(rank)]
        a = drawn.bytes(a_type, draw(st.integers(1, 2)), groups * channels, *extents)
        b, columns = drawn.bytes(b_type, groups * filters, channels, *window), groups * filters
        attrs = {"group": groups, "pads": tuple(pads), "strides": tuple(strides), "dilations": tuple(dilations)}
        attrs["auto_pad"] = "NOTSET"
    else:
        rows, columns, depth = (draw(st.sampled_from([2, 3, 4, 15, 16, 30, 33, 65])) for _ in range(3))
        batch = draw(st.sampled_from([(), (), (2,)]))
        a, b = (
            drawn.bytes(a_type, *batch, rows, depth),
            drawn.bytes(b_type, *draw(st.sampled_from([(), batch])), depth, columns),
        )
    a_zero = drawn.zero(a_type, *(() if convolves else drawn.per(a.shape[-2])))
    b_zero = drawn.zero(b_type, *drawn.per(columns))
    if not requantises:
        absent = draw(st.booleans())
        zeros: list[np.ndarray | None] = [None, None] if absent else [a_zero, b_zero]
        if convolves and draw(st.booleans()):
            turned = b.reshape(groups, filters, *b.shape[1:]).swapaxes(1, 2)
            swapped = np.ascontiguousarray(turned.reshape(a.shape[1], filters, *window))
            return "ConvTransposeInteger", [a, swapped, *zeros], {**attrs, "pads": (0,) * (2 * rank)}
        return "ConvInteger" if convolves else "MatMulInteger", [a, b, *zeros], attrs
    y_type = draw(st.sampled_from(BYTES))
    scales = drawn.scale(), drawn.scale(*b_zero.shape), np.float32(draw(st.sampled_from([0.02, 0.5, 8.0])))
    inputs: list[np.ndarray | None] = [a, scales[0], a_zero.reshape(a_zero.shape), b, scales[1], b_zero]
    inputs += [np.asarray(scales[2]), drawn.zero(y_type)]
    if not convolves:
        inputs[1] = drawn.scale(*a_zero.shape)
        return "QLinearMatMul", inputs, attrs
    bias = drawn.random.integers(-(2**20), 2**20, columns).astype(np.int32)
    return "QLinearConv", [*inputs, *([bias] if draw(st.booleans()) else [])], attrs


def defined(
    op: str, arrays: Sequence[np.ndarray | None], attrs: dict[str, Attr], fixed: bool, results: int = 1
) -> tuple[Kernel, list[np.ndarray]]:
    """The kernel of one operator, and the arrays of its slots.

    With `fixed`, one-element parameters are written into it.
    """
    types = tuple(None if array is None else TensorType(DType.of(array.dtype), array.shape) for array in arrays)
    ids = tuple(None if array is None else at for at, array in enumerate(arrays))
    record = OPERATORS[op]
    node = Node(op, ids, tuple(range(100, 100 + results)), attrs)
    kernel = record.define(node, types, record.infer(node, types))
    assert isinstance(kernel, Kernel)
    kernel.verify()
    given = [array for array in arrays if array is not None]
    known = {slot.name: array for slot, array in zip(kernel.inputs, given, strict=True)}
    return (with_scalars(kernel, known) if fixed else kernel), given


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case:
    op, arrays, attrs = draw(operators())
    kernel, given = defined(op, arrays, attrs, fixed=draw(st.booleans()))
    case = replace(draw(bound(kernel)), inputs=tuple(given))
    if draw(st.sampled_from([True, True, False])):
        constant = tuple(at for at in range(len(given)) if at != 0)
        dense = [type(b).whole(b.id, b.type, b.layout) if at in constant else b for at, b in enumerate(case.buffers)]
        case = replace(case, constant=constant, buffers=tuple(dense))
    case = replace(case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    form = as_integer(case.workload)
    if form is None:
        return replace(case, tile=LOOPS)
    if draw(st.booleans()):
        options = integer_tiles(case.workload, target, draw(st.integers(1, 4)))
        return replace(case, tile=draw(st.sampled_from(options)).tile)
    rows, vectors = min(draw(st.sampled_from([1, 2, 3, 5])), form.view.rows), draw(st.integers(1, 3))
    panel = vectors * target.vector_floats
    levels = (
        Level("block", (("m", rows * draw(st.integers(1, 3))), ("n", panel * draw(st.integers(1, 2))))),
        Level("register", (("m", rows), ("n", panel))),
    )
    return replace(case, tile=Tile("integer", levels))


def product(
    a: np.ndarray,
    b: np.ndarray,
    a_zero: np.ndarray,
    b_zero: np.ndarray,
    constant: Sequence[int] = (1, 2, 3),
    fixed: bool = True,
) -> Case:
    """A MatMulInteger of plain tensors, its weights constant."""
    kernel, given = defined("MatMulInteger", [a, b, a_zero, b_zero], {}, fixed)
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate(slots))
    case = Case(kernel, buffers, tuple(given), constant=tuple(constant))
    return replace(case, tile=integer_tiles(case.workload, resolve(HERE[0]), 1)[0].tile)


@pytest.mark.parametrize("name", HERE)
def test_the_largest_products_do_not_saturate(name: str) -> None:
    """VPMADDUBSW would: two products of the greatest bytes do not fit into 16 bits."""
    found = []
    for a_type, b_type in itertools.product(BYTES, BYTES):
        a_ends, b_ends = (np.iinfo(dtype) for dtype in (a_type, b_type))
        for a, b in itertools.product((a_ends.min, a_ends.max), (b_ends.min, b_ends.max)):
            arrays = np.full((5, 70), a, a_type), np.full((70, 18), b, b_type)
            found.append(product(*arrays, np.asarray(a_ends.max, a_type), np.asarray(b_ends.min, b_type)))
    target = resolve(name)
    found = [replace(case, tile=integer_tiles(case.workload, target, 1)[0].tile) for case in found]
    check(found, target, "-O1")


def test_sums_wrap_around_like_their_definition() -> None:
    a, b = np.full((4, 70_000), 255, np.uint8), np.full((70_000, 16), 127, np.int8)
    check([product(a, b, np.asarray(0, np.uint8), np.asarray(0, np.int8))], resolve(HERE[0]), "-O1")


@pytest.mark.parametrize(
    ("a_type", "a_zero", "b_type", "b_zero", "has", "lacks"),
    [
        (np.uint8, 0, np.int8, 0, (), ("below", "b_zero", "rows")),
        (np.uint8, 0, np.uint8, 128, (), ("below", "b_zero", "rows")),
        (np.int8, -128, np.int8, 0, ("rows",), ("below", "b_zero")),
        (np.uint8, 7, np.int8, 0, ("below",), ("b_zero", "rows")),
        (np.int8, 0, np.int8, 0, ("below", "rows"), ("b_zero",)),
        (np.uint8, 0, np.int8, 3, ("b_zero", "rows"), ("below",)),
        (np.uint8, 7, np.uint8, 3, ("below", "b_zero", "rows"), ()),
    ],
)
def test_only_zero_points_that_are_not_0_in_bytes_are_paid_for(
    a_type: Any, a_zero: int, b_type: Any, b_zero: int, has: Sequence[str], lacks: Sequence[str]
) -> None:
    """`below` are sums of columns, `b_zero` stands for sums of rows, and `rows` are staged ones."""
    arrays = np.zeros((5, 64), a_type), np.zeros((64, 16), b_type)
    case = product(*arrays, np.asarray(a_zero, a_type), np.asarray(b_zero, b_type))
    target = next(profile for profile in PROFILES if profile.multiplies_bytes)
    lowered = lower("k0_product", case.workload, integer_tiles(case.workload, target, 1)[0].tile, target)
    assert "tw_dot_bytes(" in lowered.text
    declared = {word for word in (*has, *lacks) if re.search(rf"const (vi )?{word} =", lowered.text)}
    assert declared == set(has)


def test_a_target_without_dot_products_of_bytes_multiplies_16_bit_integers() -> None:
    case = product(
        np.zeros((5, 64), np.uint8), np.zeros((64, 16), np.int8), np.asarray(7, np.uint8), np.asarray(3, np.int8)
    )
    target = next(profile for profile in PROFILES if not profile.multiplies_bytes)
    lowered = lower("k0_product", case.workload, integer_tiles(case.workload, target, 1)[0].tile, target)
    assert "tw_dot_halves(" in lowered.text
    assert "tw_dot_bytes(" not in lowered.text


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_tiles_fit_the_target(profile: CpuTarget, lanes: int) -> None:
    zeros = np.asarray(7, np.uint8), np.asarray(3, np.int8)
    case = product(np.zeros((196, 256), np.uint8), np.zeros((256, 200), np.int8), *zeros)
    options = integer_tiles(case.workload, profile, lanes)
    assert options
    for option in options:
        rows, panel = option.tile.extent("register", "m"), option.tile.extent("register", "n")
        assert panel % profile.vector_floats == 0
        assert (rows + 1) * (panel // profile.vector_floats) < profile.vector_registers
        assert option.tile.extent("block", "m") % rows == 0
        assert option.tile.extent("block", "n") % panel == 0
        assert option.seconds > 0


@pytest.mark.parametrize("name", HERE)
def test_products_of_bytes_equal_their_definition_bit_by_bit(name: str) -> None:
    target = resolve(name)
    drawn = draws(cases(target), 60)
    assert sum(case.tile.algorithm == "integer" for case in drawn) > len(drawn) // 2
    check(drawn, target, "-O1")
