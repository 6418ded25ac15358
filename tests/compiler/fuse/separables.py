"""Random pairs of a window channel by channel and the pointwise convolution that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from compiler.fuse import fuse
from compiler.fuse.joins import Join, joins, replaced
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Attr, Graph
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.rewrite.sketch import Sketch

POOLS = ("MaxPool", "AveragePool")


@st.composite
def windows(draw: st.DrawFn, image: Sequence[int]) -> Mapping[str, Attr]:
    """A kernel's extents, strides, dilations and pads that leave at least one output."""
    parts = []
    for extent in image:
        taps, dilation = draw(st.sampled_from([2, 3, 3, 5, 7])), draw(st.sampled_from([1, 1, 1, 2]))
        reach = (taps - 1) * dilation + 1
        low, high = draw(st.integers(0, reach // 2)), draw(st.integers(0, reach // 2))
        if extent + low + high < reach:
            low = high = reach - 1
        parts.append((taps, draw(st.sampled_from([1, 1, 2])), dilation, low, high))
    taps_of, strides, dilations, before, after = zip(*parts, strict=True)
    return {"kernel_shape": taps_of, "strides": strides, "dilations": dilations, "pads": (*before, *after)}


@st.composite
def separables(draw: st.DrawFn) -> Graph:
    """A depthwise convolution, one in narrow groups, or a pool; maps; a pointwise convolution; maps again.

    One of the last maps may be an output too.
    """
    batch, channels, columns = (
        draw(st.sampled_from(sizes)) for sizes in ([1, 1, 2], [4, 8, 11, 16, 24, 33, 48], [2, 5, 8, 16, 20, 33])
    )
    rank = draw(st.sampled_from([1, 2, 2, 2, 2]))
    image = tuple(draw(st.sampled_from([1, 4, 7, 9, 14])) for _ in range(rank))
    s = Sketch(draw(st.integers(0, 2**16)), DType.F32)
    y = s("Relu", s.x(batch, channels, *image))
    if draw(st.booleans()):
        y = s("Conv", y, s.normal(channels, channels, *(1,) * rank))
    attrs = draw(windows(image))
    kind = draw(st.sampled_from(["depthwise", "depthwise", "depthwise", "groups", "pool"]))
    if kind == "pool":
        y = s(draw(st.sampled_from(POOLS)), y, **attrs)
    else:
        group = draw(st.sampled_from([2, 4])) if kind == "groups" and channels % 4 == 0 else 1
        bias = [s.normal(channels)] if draw(st.booleans()) else []
        taps = attrs["kernel_shape"]
        y = s("Conv", y, s.normal(channels, group, *taps), *bias, **attrs, group=channels // group)  # type: ignore[misc]
    y = draw(mapped(s, y))
    weight = s.normal(columns, channels, *(1,) * rank)
    y = s("Conv", y, weight, *([s.normal(columns)] if draw(st.booleans()) else []))
    if draw(st.booleans()):
        y = s("Add", y, s.x(*s.dims(y)))
    last = draw(mapped(s, y))
    seen = (y,) if last != y and draw(st.booleans()) else ()
    inner = draw(
        st.sampled_from([True, True, True, False])
    )  # outputs of the graph lie in the user's order, others channels-last
    return s.graph(*(s("Conv", y, s.normal(3, columns, *(1,) * rank)) if inner else y for y in (*seen, last)))


@st.composite
def mapped(draw: st.DrawFn, s: Sketch, y: int) -> int:
    """A value after at most one activation."""
    kind = draw(st.sampled_from(["", "", "Relu", "Clip", "Sigmoid"]))
    if kind == "Clip":
        return s("Clip", y, s.c(0.0), s.c(6.0))
    return s(kind, y) if kind else y


def pair_of(graph: Graph) -> tuple[KernelGraph, Join] | None:
    """The kernels of a graph and the one join of its window; None where fusion has left no pair."""
    kernels = fuse(graph).kernels
    found = joins(kernels)
    return (kernels, found[-1]) if found else None


def check_joined(kernels: KernelGraph, join: Join, fewer: int, tolerance: float) -> None:
    """Replaces the calls of a join, which become `fewer`, and compares what the graph means with what it meant."""
    random = np.random.default_rng(5)
    inputs = [random.uniform(-1, 1, kernels.buffers[id].type.dims).astype(np.float32) for id in kernels.inputs]
    together = replaced(kernels, [join])
    together.verify()
    assert len(together.calls) == len(kernels.calls) - fewer
    for got, want in zip(stepped(together, inputs), stepped(kernels, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=f"{kernels}\n{together}")


def joined_case(kernels: KernelGraph, join: Join, seed: int = 0) -> Case:
    """The joined kernel with the buffers of its graph, its constants as they are and other inputs random."""
    call, random = join.call, np.random.default_rng(seed)
    arrays = tuple(
        kernels.constants[id]
        if id in kernels.constants
        else random.uniform(-1, 1, kernels.buffers[id].type.dims).astype(np.float32)
        for id in call.inputs
    )
    buffers = tuple(kernels.buffers[id] for id in (*call.inputs, *call.outputs))
    constant = tuple(at for at, id in enumerate(call.inputs) if id in kernels.constants)
    return Case(call.kernel, buffers, arrays, constant=constant)  # type: ignore[arg-type]


def split(case: Case, *cuts: float) -> Case:
    """The same, its tile tasks in several calls."""
    return replace(case, cuts=cuts)
