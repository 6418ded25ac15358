from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.products.window.tiles import window_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.forms.channelwise import as_channel_window
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.graph import Attr
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Level, Tile
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import Case, Library, assert_close, draws
from tests.compiler.ops.single import prepare, widened
from tests.parse import parse_kernel

F32 = DType.F32
TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""
POOLS = ("MaxPool", "AveragePool", "LpPool")
OVER_ALL = ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")


@dataclass(frozen=True)
class Asked:
    """A case, and what it has to give by the operator's own reference in float64."""

    case: Case
    want: tuple[np.ndarray, ...]


@st.composite
def windows(draw: st.DrawFn, image: Sequence[int]) -> Mapping[str, Attr]:
    """A kernel's extents, strides, dilations and pads that leave at least one output."""
    parts = []
    for extent in image:
        taps, dilation = draw(st.sampled_from([1, 2, 3, 3, 5])), draw(st.sampled_from([1, 1, 2]))
        reach = (taps - 1) * dilation + 1
        low, high = draw(st.integers(0, reach - 1)), draw(st.integers(0, reach - 1))
        if extent + low + high < reach:
            low = high = reach - 1
        parts.append((taps, draw(st.sampled_from([1, 1, 2, 3])), dilation, low, high))
    taps_of, strides, dilations, before, after = zip(*parts, strict=True)
    return {"kernel_shape": taps_of, "strides": strides, "dilations": dilations, "pads": (*before, *after)}


@st.composite
def images(draw: st.DrawFn) -> tuple[int, int, tuple[int, ...]]:
    """Batch, channels, spatial extents."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 2, 3]))
    space = tuple(draw(st.sampled_from([1, 2, 4, 7, 9, 14])) for _ in range(rank))
    while np.prod(space) > 400:
        space = tuple(max(extent // 2, 1) for extent in space)
    return draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([8, 9, 16, 24, 33, 40])), space


@st.composite
def operators(draw: st.DrawFn) -> tuple[str, tuple[np.ndarray, ...], Mapping[str, Attr]]:
    """A convolution of few channels per group, a pool, or a reduction over space.

    Its name, its inputs, its attributes.
    """
    batch, channels, space = draw(images())
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = random.uniform(-1, 1, (batch, channels, *space)).astype(np.float32)
    kind = draw(st.sampled_from(["conv", "conv", "conv", "pool", "pool", "global", "reduce"]))
    if kind == "global":
        return draw(st.sampled_from(OVER_ALL)), (x,), {}
    if kind == "reduce":
        over = np.array(range(2, x.ndim)) if draw(st.booleans()) else np.array([x.ndim - 1])
        return draw(st.sampled_from(REDUCTIONS)), (x, over), {"keepdims": 1}
    attrs = draw(windows(space))
    if kind == "pool":
        name = draw(st.sampled_from(POOLS))
        more: Mapping[str, Attr] = {"ceil_mode": draw(st.integers(0, 1))}
        if name == "AveragePool":
            more = {**more, "count_include_pad": draw(st.integers(0, 1))}
        return name, (x,), {**attrs, **more}
    taps = attrs["kernel_shape"]
    assert isinstance(taps, tuple)
    group = draw(st.sampled_from([size for size in (1, 1, 1, 2, 4, 8) if channels % size == 0]))
    weights = random.uniform(-1, 1, (channels, group, *(extent for extent in taps if isinstance(extent, int))))
    bias = (random.uniform(-1, 1, channels).astype(np.float32),) if draw(st.booleans()) else ()
    return "Conv", (x, weights.astype(np.float32), *bias), {**attrs, "group": channels // group}


def relu(x: Expr) -> Expr:
    return Apply("max", (x, Const(0.0, F32)))


def swish(x: Expr) -> Expr:
    return Apply("mul", (x, Apply("sigmoid", (x,))))


MAPS: Mapping[str, tuple[Callable[[Expr], Expr], Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (relu, lambda x: np.maximum(x, 0)),
    "swish": (swish, lambda x: x / (1 + np.exp(-x))),
}


@st.composite
def asked(draw: st.DrawFn, target: CpuTarget) -> Asked:
    """An operator channels-last, with maps behind it, under a tile of the tile stage.

    Its tiles are split over several calls.
    """
    name, arrays, attrs = draw(operators())
    operator = OPERATORS[name]
    node, inputs, types = prepare(operator, arrays, attrs, 1)
    outputs = operator.infer(node, types)
    kernel = operator.define(node, types, outputs)
    assert isinstance(kernel, Kernel)
    with np.errstate(all="ignore"):
        (want,) = operator.reference(node, tuple(map(widened, inputs)))
    given = [array for array in inputs if array is not None]
    constant = tuple(range(1, len(given))) if draw(st.booleans()) else ()
    wants: tuple[np.ndarray, ...] = (want,)
    kind = draw(st.sampled_from(["", "", "relu", "swish", "residual"]))
    if kind:
        rest = np.random.default_rng(7).uniform(-1, 1, want.shape).astype(np.float32)
        seen = draw(st.booleans())
        kernel = followed(kernel, kind, seen=seen)
        with np.errstate(all="ignore"):
            after = want + rest if kind == "residual" else MAPS[kind][1](want)
        given += [rest] if kind == "residual" else []
        wants = (want, after) if seen else (after,)
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(draw(places(at, slot.type, dense=at in constant)) for at, slot in enumerate(slots))
    case = Case(
        kernel, buffers, tuple(given), constant=constant, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    )
    return Asked(replace(case, tile=draw(tiles(case, target))), wants)


def followed(kernel: Kernel, kind: str, *, seen: bool) -> Kernel:
    """A map behind the kernel's result, which is itself an output too where it is `seen`."""
    out = kernel.outputs[0]
    last = kernel.blocks[-1]
    index = last.stores[0].index
    between = "y0" if seen else "between"
    value: Expr = Load(between, index, F32)
    value = Apply("add", (value, Load("rest", index, F32))) if kind == "residual" else MAPS[kind][0](value)
    moved = replace(last, stores=(Store(between, index),))
    mapped = Block(last.axes, (value,), (Store("z0", index),))
    return replace(
        kernel,
        inputs=(*kernel.inputs, *([Slot("rest", out.type)] if kind == "residual" else [])),
        outputs=(*([out] if seen else []), Slot("z0", out.type)),
        temps=(*kernel.temps, *([] if seen else [Slot("between", out.type)])),
        blocks=(*kernel.blocks[:-1], moved, mapped),
    )


@st.composite
def places(draw: st.DrawFn, id: int, type: TensorType, *, dense: bool) -> Buffer:
    """Channels-last, dense or a slice of a wider tensor's channels."""
    whole = Buffer.whole(id, type, Layout.channels_last(type.rank) if type.rank > 2 else None)
    if dense or type.rank <= 2 or draw(st.booleans()):
        return whole
    wider = type.dims[1] + draw(st.sampled_from([1, 16]))
    extents = (*whole.layout.physical(type.dims)[:-1], wider)
    strides = tuple(int(np.prod(extents[at + 1 :])) for at in range(len(extents)))
    return replace(whole, strides=strides, offset=draw(st.integers(0, 3)))


@st.composite
def tiles(draw: st.DrawFn, case: Case, target: CpuTarget) -> Tile:
    """One of the tile stage, or an odd one; loops where the kernel is no window."""
    view = as_channel_window(case.workload)
    options = window_tiles(case.workload, target, draw(st.integers(1, 4)))
    if view is None or not options:
        return Tile("loops")
    if draw(st.booleans()):
        return draw(st.sampled_from(options)).tile
    rows, columns, vectors = (draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [1, 2, 4, 5], [1, 2]))
    rows, columns = min(rows, view.rows.output.extent), min(columns, view.columns.output.extent)
    step = vectors * target.vector_floats
    channels = min(step * draw(st.integers(1, 3)), view.channel.extent)
    return Tile(
        "window",
        (
            Level("block", (("rows", rows * draw(st.integers(1, 3))), ("channels", channels))),
            Level("register", (("rows", rows), ("columns", columns), ("channels", step))),
        ),
    )


def judged(cases: Sequence[Asked], target: CpuTarget) -> None:
    library = Library.of([one.case for one in cases], target, "-O1")
    for number, one in enumerate(cases):
        description = f"{one.case}\n{library.lowered[number].text}"
        for got, want in zip(library.run(number, one.case), one.want, strict=True):
            assert_close(got, want, one.case.tolerance, description)


@pytest.mark.parametrize("lanes", sorted(TARGETS))
@pytest.mark.parametrize("name", ["MaxPool", "GlobalMaxPool", "AveragePool"])
def test_pools_of_nan_and_infinities_are_what_numpy_says(name: str, lanes: int) -> None:
    x = np.random.default_rng(3).uniform(-9, 9, (1, 20, 9, 11)).astype(np.float32)
    x[0, ::3, 4, 5], x[0, 1::3, 2, 2], x[0, 2::3, 0, 10] = np.nan, np.inf, -np.inf
    attrs = {} if name.startswith("Global") else {"kernel_shape": (3, 3), "strides": (2, 1), "pads": (1, 1, 1, 1)}
    node, inputs, types = prepare(OPERATORS[name], (x,), attrs, 1)
    outputs = OPERATORS[name].infer(node, types)
    kernel = OPERATORS[name].define(node, types, outputs)
    assert isinstance(kernel, Kernel)
    (want,) = OPERATORS[name].reference(node, tuple(map(widened, inputs)))
    buffers = tuple(
        Buffer.whole(at, type, Layout.channels_last(4)) for at, type in enumerate((types[0], *outputs)) if type
    )
    case = Case(kernel, buffers, (x,))
    options = window_tiles(case.workload, TARGETS[lanes], 1)
    judged(
        [Asked(replace(case, tile=option.tile), (want,)) for option in options[:: max(len(options) // 4, 1)]],
        TARGETS[lanes],
    )


@pytest.mark.parametrize(
    "text",
    [
        "kernel Plain(in x: f32[8, 9, 16]; out y: f32[8, 16]) for c:8, l:16: y[c, l] = max<f32> r:9 . "
        "where(gt(#(l):i64, 3:i64), x[c, r, l], -inf:f32)",
        "kernel Far(in x: f32[8, 16, 9]; out y: f32[8, 16]) for c:8, l:16: y[c, l] = sum<f32> r:9 . x[c, l, r]",
        "kernel Product(in x: f32[8, 16, 9]; out y: f32[8, 16]) for c:8, l:16: y[c, l] = prod<f32> r:9 . x[c, l, r]",
        "kernel Map(in x: f32[8, 16]; out y: f32[8, 16]) for c:8, l:16: y[c, l] = max(x[c, l], 0.0:f32)",
        "kernel Two(in x: f32[8, 9, 16]; temp t: f32[8, 16]; out y: f32[8]) for c:8 for l:16: t[c, "
        "l] = sum<f32> r:9 . x[c, r, l] y[c] = sum<f32> l:16 . t[c, l]",
    ],
    ids=["a guard on channels", "channels far apart", "a product", "no reduction", "two reductions"],
)
def test_other_kernels_are_refused(text: str) -> None:
    kernel = parse_kernel(text)
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    arrays = tuple(np.zeros(slot.type.dims, np.float32) for slot in kernel.inputs)
    assert as_channel_window(Case(kernel, tuple(buffers), arrays).workload) is None


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_windows_under_any_tile_split_anywhere_give_what_their_operators_say(lanes: int) -> None:
    cases = asked(TARGETS[lanes]).filter(lambda one: one.case.tile.algorithm == "window")
    judged(draws(cases, 110), TARGETS[lanes])
