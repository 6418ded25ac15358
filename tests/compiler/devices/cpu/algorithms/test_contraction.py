from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.forms.contraction import Contraction, as_contraction
from compiler.forms.normal_form import Slots
from compiler.forms.operand import InPlace, Staged, operand, row_axes
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load, Where, conjunction, inside
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import LOOPS, Case, Library, array_of, bound, check, draws, loaded
from tests.parse import parse_kernel

F32 = DType.F32


def f32(*dims: int) -> TensorType:
    return TensorType(F32, dims)


def call(function: str, *args: Expr) -> Expr:
    return Apply(function, args)


def at(*axes: Axis | Index | int) -> tuple[Index, ...]:
    return tuple(map(Index.of, axes))


@st.composite
def convolutions(draw: st.DrawFn, wide: bool = False) -> Kernel:
    """1-D to 3-D, grouped, dilated, strided, padded, with odd sizes; or wide ones, of 1 or 2 axes.

    A map may have been taken into the data operand.
    """
    rank = draw(st.integers(1, 2 if wide else 3))
    many = [draw(st.sampled_from([1, 2, 3, 5, 7, 12 // rank])) for _ in range(rank)]
    many[-1] = draw(st.sampled_from([8, 13, 16, 33])) if wide else many[-1]
    window = [draw(st.integers(1, 3)) for _ in range(rank)]
    stride = [draw(st.integers(1, 2)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    pad = [draw(st.integers(0, 2)) for _ in range(rank)]
    batch, groups = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 1, 2, 3]))
    outs = draw(st.sampled_from([2, 3, 8, 9, 16, 20, 33]))
    ins = draw(st.sampled_from([1, 3, 17, 200] if wide else [1, 3, 4, 17]))
    dims = [
        max((out - 1) * s + (w - 1) * d + 1 - p - draw(st.integers(0, p)), 1)
        for out, s, w, d, p in zip(many, stride, window, dilation, pad, strict=True)
    ]
    n, g, k, c = Axis("n", batch), Axis("g", groups), Axis("k", outs), Axis("c", ins)
    space = [Axis(f"o{i}", extent) for i, extent in enumerate(many)]
    taps = [Axis(f"r{i}", extent) for i, extent in enumerate(window)]
    places = [
        Index.of(o) * s + Index.of(r) * d - p for o, r, s, d, p in zip(space, taps, stride, dilation, pad, strict=True)
    ]
    load: Expr = Load("x", at(n, Index.of(g) * ins + c, *places), F32)
    if draw(st.sampled_from([False, False, True])):
        load = call("max", load, Const(0.1, F32))
    guards = [inside(place, extent) for place, extent in zip(places, dims, strict=True)]
    guard = conjunction([part for part in guards if part is not None])
    data = load if guard is None else Where(guard, load, Const(0.0, F32))
    channel = Index.of(g) * outs + k
    product = call("mul", data, Load("w", at(channel, c, *taps), F32))
    if draw(st.booleans()):
        product = Apply("mul", product.children[::-1])
    slots = (Slot("x", f32(batch, groups * ins, *dims)), Slot("w", f32(groups * outs, ins, *window)))
    out = Slot("y", f32(batch, groups * outs, *many))
    index = at(n, channel, *space)
    return draw(with_epilogue(slots, out, index, product, (c, *taps), (n, g, k, *space), channel))


@st.composite
def products(draw: st.DrawFn) -> Kernel:
    """Matrix products: batched, one operand broadcast over the batch, either operand transposed."""
    batch, rows, columns, depth = (draw(st.sampled_from([1, 2, 3, 5, 8, 16, 17, 31, 40])) for _ in range(4))
    batch = draw(st.sampled_from([1, 1, 2, 3]))
    b, m, n, k = Axis("b", batch), Axis("m", rows), Axis("n", columns), Axis("k", depth)
    flip_a, flip_b, wide_a, wide_b = (draw(st.booleans()) for _ in range(4))
    a_index, b_index = (k, m) if flip_a else (m, k), (n, k) if flip_b else (k, n)
    lead_a, lead_b = (b,) if wide_a else (), (b,) if wide_b else ()
    a: Expr = Load("x", at(*lead_a, *a_index), F32)
    second: Expr = Load("w", at(*lead_b, *b_index), F32)
    if draw(st.sampled_from([False, False, True])):
        a = call("tanh", a)
    if draw(st.sampled_from([False, False, False, True])):
        second = call("mul", second, Const(0.5, F32))
    slots = (
        Slot("x", f32(*(axis.extent for axis in (*lead_a, *a_index)))),
        Slot("w", f32(*(axis.extent for axis in (*lead_b, *b_index)))),
    )
    flat = draw(st.booleans())
    out = Slot("y", f32(batch, rows, columns) if not flat else f32(rows, batch, columns))
    index = at(b, m, n) if not flat else at(m, b, n)
    return draw(with_epilogue(slots, out, index, call("mul", a, second), (k,), (b, m, n), Index.of(n)))


@st.composite
def with_epilogue(
    draw: st.DrawFn,
    inputs: tuple[Slot, ...],
    out: Slot,
    index: tuple[Index, ...],
    product: Expr,
    depth: tuple[Axis, ...],
    shared: tuple[Axis, ...],
    channel: Index,
) -> Kernel:
    """The product alone, or followed by a bias, a residual, a scale, an activation; it may itself be an output too."""
    kinds = draw(st.lists(st.sampled_from(["bias", "residual", "scale", "relu", "tanh"]), max_size=3, unique=True))
    seen = bool(kinds) and draw(st.sampled_from([False, False, True]))
    temps, outputs = [], [out]
    target, place = (Slot("y", out.type), index)
    if kinds:
        target = Slot("t", out.type) if not seen else Slot("z", out.type)
        temps = [] if seen else [target]
        outputs = [target, out] if seen else [out]
    blocks = [Block((), (product,), (Store(target.name, place),), depth, "sum", F32)]
    channels = channel.range[1] + 1
    extra = {
        "bias": Slot("bias", f32(channels)),
        "residual": Slot("res", out.type),
        "scale": Slot("scale", f32(channels)),
    }
    for number, kind in enumerate(kinds):
        value: Expr = Load(target.name, place, F32)
        if kind in ("bias", "scale"):
            value = call("add" if kind == "bias" else "mul", value, Load(extra[kind].name, (channel,), F32))
        elif kind == "residual":
            value = call("add", Load("res", index, F32), value)
        else:
            value = call("max", value, Const(0.0, F32)) if kind == "relu" else call("tanh", value)
        last = number == len(kinds) - 1
        target = out if last else Slot(f"t{number}", out.type)
        temps += [] if last else [target]
        blocks.append(Block((), (value,), (Store(target.name, index),)))
    slots = (*inputs, *(extra[kind] for kind in kinds if kind in extra))
    return Kernel("Product", slots, tuple(outputs), tuple(blocks), tuple(temps), shared)


@st.composite
def transposed(draw: st.DrawFn) -> Kernel:
    """A transposed convolution of one axis, phase by phase.

    Taps run backwards, and the phase picks both input and weights.
    """
    blocks, phases, taps = draw(st.integers(2, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    before, ins, outs = draw(st.integers(0, 3)), draw(st.sampled_from([1, 5, 16])), draw(st.sampled_from([8, 17, 40]))
    n, k, c = Axis("n", draw(st.integers(1, 2))), Axis("k", outs), Axis("c", ins)
    block, phase, tap = Axis("o", blocks), Axis("p", phases), Axis("t", taps)
    shifted = Index.of(phase) + before
    read = Index.of(block) + shifted // phases - tap
    extent = max(read.range[1] + 1 - draw(st.integers(0, 2)), 1)
    load: Expr = Load("x", at(n, c, read), F32)
    guard = inside(read, extent)
    data = load if guard is None else Where(guard, load, Const(0.0, F32))
    weight = Load("w", at(c, k, Index.of(tap) * phases + shifted % phases), F32)
    slots = (Slot("x", f32(n.extent, ins, extent)), Slot("w", f32(ins, outs, taps * phases)))
    out = Slot("y", f32(n.extent, outs, blocks * phases))
    place = at(n, k, Index.of(block) * phases + phase)
    product = call("mul", data, weight)
    return draw(with_epilogue(slots, out, place, product, (c, tap), (n, k, block, phase), Index.of(k)))


@st.composite
def odd_tiles(draw: st.DrawFn, view: Contraction, slots: Slots, target: CpuTarget) -> Tile:
    """Register tiles of any size in blocks of any number of them, stretch by stretch or not."""
    gathered = operand(view, slots, {}) is None
    extents = {"m": view.rows} if gathered else {role: axis.extent for role, axis in row_axes(view).items()}
    part = {role: min(draw(st.sampled_from([1, 2, 3, 5, 14])), extent) for role, extent in extents.items()}
    if part.get("y", 1) * part.get("m", 1) > 16:
        part["y"] = 1
    block = {role: min(rows * draw(st.integers(1, 3)), extents[role]) for role, rows in part.items()}
    panel = draw(st.integers(1, 4)) * target.vector_floats
    are_lines = part.get("y", 1) == 1 or (part["m"] == block["m"] and extents["m"] % block["m"] == 0)
    depth = (("k", 256),) if draw(st.booleans()) and are_lines else ()  # else the sums of a block are in no order
    return Tile(
        "contraction",
        (
            Level("block", (*block.items(), ("n", panel * draw(st.integers(1, 2))), *depth)),
            Level("register", (*part.items(), ("n", panel))),
            Level("vector", (("n", target.vector_floats),)),
        ),
    )


@st.composite
def tiled(draw: st.DrawFn, kernels: st.SearchStrategy[Kernel], target: CpuTarget) -> Case:
    """A contraction under a tile of the tile stage or an odd one, its tiles split over several calls.

    Loops for what is none.
    """
    constant = draw(st.sampled_from([(), (1,), (1,), (0, 1)]))
    case = replace(draw(bound(draw(kernels))), constant=constant, tolerance=1e-4)
    case = replace(case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    if constant:  # a constant lies as its layout says, without room between its rows
        dense = [type(b).whole(b.id, b.type, b.layout) if at in constant else b for at, b in enumerate(case.buffers)]
        case = replace(case, buffers=tuple(dense))
    view = as_contraction(case.workload)
    if view is None:
        return replace(case, tile=LOOPS)
    if draw(st.booleans()):
        options = contraction_tiles(case.workload, target, draw(st.integers(1, 4)))
        return replace(case, tile=draw(st.sampled_from(options)).tile)
    return replace(case, tile=draw(odd_tiles(view, Slots(case.workload), target)))


def kernels() -> st.SearchStrategy[Kernel]:
    return st.one_of(convolutions(), products(), transposed())


@pytest.mark.parametrize("part", range(3))
def test_products_under_any_tile_split_anywhere_mean_what_they_say(part: int) -> None:
    drawn = draws(tiled(kernels(), this_machine()), 150)[part::3]
    assert sum(case.tile.algorithm == "contraction" for case in drawn) > len(drawn) // 2
    check(drawn, optimise="-O1")


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_narrower_vectors_and_fewer_registers_mean_the_same(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(tiled(kernels(), target), 40), target, optimise="-O1")


def test_results_whose_columns_lie_far_apart_are_stored_along_rows() -> None:
    target = this_machine()
    found: list[Case] = []
    by_stretch = 0
    for case in draws(tiled(convolutions(wide=True), target), 500):
        if case.tile.algorithm == "contraction":
            text = lower("k", case.workload, case.tile, target).text
            if "first_sums" in text:
                found.append(case)
                by_stretch += "k0 +=" in text
    assert len(found) > 10
    assert by_stretch, "none takes k stretch by stretch"
    check(found, target, optimise="-O1")


def test_every_way_to_reach_the_rows_is_among_the_cases() -> None:
    views = [(as_contraction(case.workload), case) for case in draws(tiled(kernels(), this_machine()), 150)]
    ways = {type(operand(view, Slots(case.workload), {})) for view, case in views if view}
    assert ways == {InPlace, Staged, type(None)}


DEEP = """
kernel MatMul(in x: f32[{m}, {k}], in w: f32[{k}, {n}], in bias: f32[{n}]; temp t: f32[{m}, {n}]; out y: f32[{m}, {n}])
  for m:{m}, n:{n}
    t[m, n] = sum<f32> k:{k} . mul(x[m, k], w[k, n])
    y[m, n] = max(add(t[m, n], bias[n]), 0.0:f32)
"""


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("depth", [384, 385, 1000, 1024])
def test_sums_of_many_stretches_are_whole_under_every_tile(depth: int, constant: tuple[int, ...]) -> None:
    kernel = parse_kernel(DEEP.format(m=23, n=70, k=depth))
    random = np.random.default_rng(0)
    inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, inputs, constant=constant, tolerance=1e-5)
    check(
        [replace(case, tile=option.tile) for option in contraction_tiles(case.workload, this_machine(), 1)][:8],
        optimise="-O1",
    )


NOTING = """
static const char *tw_furthest;
__attribute__((visibility("default"))) const char *furthest(void) { return tw_furthest; }
static void note(const void *asked) { if ((const char *)asked > tw_furthest) tw_furthest = asked; }
#define __builtin_prefetch(asked, ...) note(asked)
"""


@pytest.mark.parametrize(("columns", "depth"), [(16, 64), (16, 1000), (70, 64), (70, 1000)])
def test_nothing_is_fetched_from_behind_the_constants(columns: int, depth: int) -> None:
    """Pages that are not there cost a walk of the page tables each time that one is asked for."""
    kernel = parse_kernel(DEEP.format(m=123, n=columns, k=depth))
    random = np.random.default_rng(0)
    inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, inputs, constant=(1, 2))
    target, fetching = this_machine(), 0
    for tile in [option.tile for option in contraction_tiles(case.workload, target, 1)][:12]:
        lowered = lower("k0_matmul", case.workload, tile, target)
        sources = {
            name: NOTING + text if name.endswith(".c") else text for name, text in kernel_sources([lowered]).items()
        }
        library = loaded(build_library(sources, target, find_toolchain(), optimise="-O1"))
        packed = {slot: packing.pack(inputs[slot]) for slot, packing in lowered.packings.items()}
        operands = [packed.get(at, array) for at, array in enumerate((*inputs, np.zeros((123, columns), np.float32)))]
        Library([lowered], library).call(lowered, operands, ())
        library.furthest.restype = ctypes.c_void_p
        furthest = library.furthest()
        if furthest:
            fetching += 1
            assert furthest < operands[1].ctypes.data + operands[1].nbytes, lowered.text
    assert fetching


def test_generated_text_names_the_loops_and_no_more_than_four_kinds_of_tile() -> None:
    kernel = parse_kernel(DEEP.format(m=23, n=70, k=64))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, (), constant=(1, 2))
    options = contraction_tiles(case.workload, this_machine(), 2)
    assert options
    for option in options:
        text = lower("k0_matmul", case.workload, option.tile, this_machine()).text
        assert text.count("noinline") <= 4
        assert "rows, " in text
