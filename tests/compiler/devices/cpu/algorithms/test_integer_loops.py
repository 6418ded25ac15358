"""Plain loops over bytes and integers, which vectors of 32-bit lanes carry out.

Equal to their definition, bit by bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, resolve, runs_here
from compiler.ir.graph import Attr
from compiler.ir.tensor import Layout, TensorType
from tests.compiler.devices.cpu.algorithms.test_integer import BYTES, Drawn, defined
from tests.compiler.devices.cpu.library import LOOPS, Case, bound, check, draws

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
SHORT = (*BYTES, np.int16, np.uint16)
Given = tuple[str, list[np.ndarray | None], dict[str, Attr]]


def depthwise(drawn: Drawn) -> Given:
    """One filter for each channel, which no matrix product pays for."""
    draw, channels = drawn.draw, drawn.draw(st.sampled_from([3, 8, 16, 37]))
    a_type, b_type = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    x, w = drawn.bytes(a_type, 1, channels, 6, 7), drawn.bytes(b_type, channels, 1, 3, 3)
    attrs: dict[str, Attr] = {"group": channels, "pads": (1, 0, 1, 2), "strides": (2, 1), "dilations": (1, 1)}
    zeros = drawn.zero(a_type), drawn.zero(b_type, *drawn.per(channels))
    if draw(st.booleans()):
        return "ConvInteger", [x, w, *zeros], {**attrs, "auto_pad": "NOTSET"}
    scales = [drawn.scale(), drawn.scale(*zeros[1].shape), np.asarray(np.float32(0.5))]
    arrays: list[np.ndarray | None] = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], drawn.zero(np.int8)]
    return "QLinearConv", arrays, {**attrs, "auto_pad": "NOTSET"}


def quantise(drawn: Drawn) -> Given:
    dtype, per = drawn.draw(st.sampled_from(SHORT)), drawn.per(5)
    x = (drawn.random.normal(size=(2, 5, 19)) * 1000).astype(np.float32)
    x.reshape(-1)[:5] = np.nan, np.inf, -np.inf, -0.0, 0.5
    return "QuantizeLinear", [x, drawn.scale(*per), drawn.bytes(dtype, *per)], {"axis": 1}


def ranged(drawn: Drawn) -> Given:
    """Bytes of a range that is found first, with numbers at the ends of what bytes may be made of."""
    x = (drawn.random.normal(size=(2, 5, drawn.draw(st.sampled_from([1, 19, 64])))) * 10).astype(np.float32)
    x.reshape(-1)[:3] = drawn.draw(st.sampled_from([(1, 2, 3), (-0.0, 0.0, 0.5), (np.nan, 1, -1), (np.inf, 1, 0)]))
    return "DynamicQuantizeLinear", [x], {}


def dequantise(drawn: Drawn) -> Given:
    dtype, per = drawn.draw(st.sampled_from(SHORT)), drawn.per(5)
    return "DequantizeLinear", [drawn.bytes(dtype, 2, 5, 19), drawn.scale(*per), drawn.bytes(dtype, *per)], {"axis": 1}


def pooled(drawn: Drawn) -> Given:
    x = drawn.bytes(drawn.draw(st.sampled_from(BYTES)), 1, 20, 6, 7)
    attrs: dict[str, Attr] = {"kernel_shape": (3, 2), "pads": (1, 0, 1, 1), "strides": (2, 1), "dilations": (1, 1)}
    return "MaxPool", [x], {**attrs, "auto_pad": "NOTSET", "ceil_mode": 0, "storage_order": 0}


def wrapped(drawn: Drawn) -> Given:
    """Arithmetic on int32 that overflows."""
    limits = np.iinfo(np.int32)
    a, b = (drawn.random.integers(limits.min, limits.max, (4, 33)).astype(np.int32) for _ in range(2))
    op = drawn.draw(st.sampled_from(["Add", "Sub", "Mul", "Min", "Max", "Neg", "Abs"]))
    return op, [a] if op in ("Neg", "Abs") else [a, b], {}


def reduced(drawn: Drawn) -> Given:
    x = drawn.random.integers(-(2**31), 2**31, (5, 3, 41)).astype(np.int32)
    attrs: dict[str, Attr] = {"axes": drawn.draw(st.sampled_from([(0,), (1,), (2,), (0, 2)])), "keepdims": 1}
    return drawn.draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin"])), [x], attrs


@st.composite
def cases(draw: st.DrawFn, make: Any) -> Case:
    op, arrays, attrs = make(Drawn(draw, np.random.default_rng(draw(st.integers(0, 2**16)))))
    kernel, given = defined(op, arrays, attrs, fixed=draw(st.booleans()), results=3 if make is ranged else 1)
    return replace(
        draw(bound(kernel)), inputs=tuple(given), tile=LOOPS, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=1)))
    )


@pytest.mark.parametrize("name", HERE)
def test_integer_loops_equal_their_definition(name: str) -> None:
    makers = (depthwise, quantise, ranged, dequantise, pooled, wrapped, reduced)
    check([case for make in makers for case in draws(cases(make), 8)], resolve(name), "-O1")


def channels_innermost(type: TensorType) -> Layout | None:
    """As fusion lays tensors out: filters of one channel each have theirs on axis 0."""
    if type.rank == 4 and type.dims[1] == 1:
        return Layout(((2, 0), (3, 0), (1, 0), (0, 0)))
    return Layout.channels_last(type.rank) if type.rank > 2 else None


@pytest.mark.parametrize("make", [depthwise, quantise, pooled], ids=lambda make: make.__name__)
def test_channels_that_lie_side_by_side_are_worked_on_in_vectors(make: Any) -> None:
    case = next(case for case in draws(cases(make), 20) if case.buffers[0].type.dims[1] > 4)
    whole = [type(b).whole(b.id, b.type, channels_innermost(b.type)) for b in case.buffers]
    text = lower("k0_loops", replace(case, buffers=tuple(whole)).workload, LOOPS, resolve(HERE[0])).text
    assert "const vi " in text or "vi acc" in text, text


def test_the_ends_of_a_range_are_found_in_one_pass() -> None:
    case = next(case for case in draws(cases(ranged), 20) if case.buffers[0].type.dims[2] == 64)
    plain = tuple(type(b).whole(b.id, b.type) for b in case.buffers)
    text = lower("k0_loops", replace(case, buffers=plain).workload, LOOPS, resolve(HERE[0])).text
    loops = text[: text.index("tw_least(")]
    assert loops.count("for (long I2 ") == 1
    assert loops.count("= tw_load(") == loops.count("= tw_max(v_")
