"""Points beyond sizes that are known while running: results are the same with and without skipping them."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.attention import attention_tiles
from compiler.devices.cpu.algorithms.bf16_attention import bf16_attention_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, resolve, runs_here, this_machine
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from compiler.measure.memory import GARBAGE, allocate, write_buffer
from tests.compiler.devices.cpu.algorithms import (
    test_attention,
    test_bf16,
    test_contraction,
    test_gemv,
    test_integer,
    test_loops,
    test_transpose,
    test_window,
    test_winograd,
)
from tests.compiler.devices.cpu.library import Case, array_of, draws
from tests.compiler.devices.cpu.sizes import Sized, bounded, bounded_case, with_margin
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_kernel

HERE, PAIRS = this_machine(), resolve("cpu:x86-64-v4-bf16")


@st.composite
def dims_of(draw: st.DrawFn, rank: int) -> list[int]:
    """One or two dimensions, none of them the batch's."""
    return draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=min(2, rank), unique=True))


@st.composite
def bounded_kernels(draw: st.DrawFn, kernels: st.SearchStrategy[Kernel]) -> Kernel:
    kernel = draw(kernels)
    value = draw(st.sampled_from([0.0, 0.0, 1.5]))
    return bounded(kernel, draw(dims_of(kernel.outputs[-1].type.rank)), value)


def judged(cases: list[Case], algorithm: str, least: int) -> None:
    """Checks cases; at least so many are of the algorithm and skip something."""
    sized = Sized.of(cases, HERE)
    sized.check()
    skipping = [case for number, case in enumerate(cases) if sized.skips(number) and case.tile.algorithm == algorithm]
    assert len(skipping) >= least, f"{len(skipping)} of {len(cases)}"


@pytest.mark.parametrize("part", range(2))
def test_contractions_stop_at_sizes(part: int) -> None:
    strategy = test_contraction.tiled(bounded_kernels(test_contraction.kernels()), HERE)
    judged([with_margin(case, at % 3 - 1) for at, case in enumerate(draws(strategy, 40)[part::2])], "contraction", 8)


IMAGE = """
kernel Conv(in x: f32[2, {c}, {h}, {w}], in f: f32[{k}, {c}, {r}, {r}]; temp t: f32[2, {k}, 9, 23];
            out y: f32[2, {k}, 9, 23])
  for n:2, k:{k}, p:9, q:23
    t[n, k, p, q] = sum<f32> {sums}r:{r}, s:{r} . mul(x[n, {channel}, p + r, q + s], f[k, {depth}, r, s])
    y[n, k, p, q] = max(t[n, k, p, q], 0.25:f32)
"""


COLUMNS = """
kernel MatMul(in x: f32[11, 7], in w: f32[7, {n}]; out y: f32[11, {n}])
  for m:11, n:{n}
    y[m, n] = sum<f32> k:7 . mul(x[m, k], w[k, n])
"""


def image_case(taps: int, *, channelwise: bool, registers: tuple[int, int], margin: int) -> Case:
    """Outputs of 9 rows and 23 columns, both bounded, under register tiles of so many."""
    (rows, columns), more = registers, {"sums": "", "channel": "k", "depth": "0"}
    more = more if channelwise else {"sums": "c:5, ", "channel": "c", "depth": "c"}
    text = IMAGE.format(c=16 if channelwise else 5, k=16, r=taps, h=8 + taps, w=22 + taps, **more)
    kernel = parse_kernel(text.replace("f32[16, 16,", "f32[16, 1,"))
    slots = (*kernel.inputs, *kernel.outputs)
    layouts = (Layout.channels_last(4), None, Layout.channels_last(4))
    buffers = tuple(
        Buffer.whole(at, one.type, layout) for at, (one, layout) in enumerate(zip(slots, layouts, strict=True))
    )
    random, vector = np.random.default_rng(taps), HERE.vector_floats
    sides = (
        {"rows": rows, "columns": columns, "channels": vector} if channelwise else {"y": rows, "m": columns, "n": 16}
    )
    block = {"rows": 2 * rows, "channels": 16} if channelwise else {"y": 2 * rows, "m": 23, "n": 16}
    wide = {"channels" if channelwise else "n": vector}
    levels = (("block", block), ("register", sides), ("vector", wide))
    tile = Tile("window" if channelwise else "contraction", tuple(Level(n, tuple(at.items())) for n, at in levels))
    inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
    case = Case(kernel, buffers, inputs, tile, constant=(1,), tolerance=1e-4)
    return with_margin(bounded_case(case, [2, 3], value=0.5), margin)


@pytest.mark.parametrize("channelwise", [False, True])
def test_what_lies_beyond_sizes_in_the_last_tiles_is_stored_again(channelwise: bool) -> None:
    registers = [(2, 3), (4, 5), (1, 7)] if channelwise else [(1, 14), (2, 6), (1, 9)]
    taps = [3, 2, 5] if channelwise else [1, 3, 3]
    ways = zip(registers, taps, (-1, 0, 2), strict=True)
    cases = [image_case(t, channelwise=channelwise, registers=one, margin=m) for one, t, m in ways]
    judged(cases, "window" if channelwise else "contraction", 3)


@pytest.mark.parametrize("constant", [False, True])
def test_the_last_panel_has_as_many_vectors_as_a_size_takes(constant: bool) -> None:
    """Columns that end anywhere in two panels of several vectors."""
    vector = HERE.vector_floats
    panel = 3 * vector
    kernel = parse_kernel(COLUMNS.format(n=2 * panel))
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(Buffer.whole(at, one.type) for at, one in enumerate(slots))
    inputs = tuple(array_of(slot.type, np.random.default_rng(0)) for slot in kernel.inputs)
    sides = (("block", 11, 2 * panel), ("register", 4, panel))
    levels = (*(Level(level, (("m", m), ("n", n))) for level, m, n in sides), Level("vector", (("n", vector),)))
    tile = Tile("contraction", levels)
    case = Case(kernel, buffers, inputs, tile, constant=(1,) if constant else (), tolerance=1e-4)
    whole = bounded_case(case, [1])
    judged([with_margin(whole, -1), with_margin(whole, 3)], "contraction", 2)
    text = lower("k", whole.workload, tile, HERE).text
    assert [f"_4_{count * vector}(const" in text for count in (1, 2, 3)] == [True] * 3


@st.composite
def bounded_cases(draw: st.DrawFn, cases: st.SearchStrategy[Case]) -> Case:
    """Cases with their last result bounded along some dimensions, under the same tile."""
    case = draw(cases)
    return with_margin(bounded_case(case, draw(dims_of(case.kernel.outputs[-1].type.rank))), draw(MARGINS))


MARGINS = st.sampled_from([-1, 0, 1, 3])
"""Elements behind a size that somebody reads; -1: all."""


def is_float(case: Case) -> bool:
    out, last = case.kernel.outputs[-1], case.kernel.blocks[-1]
    return out.type.dtype.is_float and out.type.rank > 0 and last.writes == {out.name} and len(last.stores) == 1


def test_products_of_few_rows_stop_at_sizes() -> None:
    drawn = draws(bounded_cases(test_gemv.cases(HERE).filter(lambda case: case.tile.algorithm == "gemv")), 30)
    judged(drawn, "gemv", 3)


def test_winograd_stops_at_sizes() -> None:
    found = test_winograd.cases(HERE).map(lambda pair: pair[1]).filter(lambda case: case.tile.algorithm == "winograd")
    drawn = [replace(case, tolerance=2e-3) for case in draws(bounded_cases(found), 12)]
    judged(drawn, "winograd", 4)


def test_windows_stop_at_sizes() -> None:
    found = test_window.asked(HERE).map(lambda one: one.case).filter(lambda case: case.tile.algorithm == "window")
    judged(draws(bounded_cases(found.filter(is_float)), 30), "window", 6)


def test_transposing_maps_stop_at_sizes() -> None:
    judged(draws(bounded_cases(test_transpose.cases()), 20), "loops", 5)


@pytest.mark.parametrize("strategy", [test_loops.maps(), test_loops.reductions(), test_loops.many_blocks()])
def test_plain_loops_stop_at_sizes(strategy: st.SearchStrategy[Case]) -> None:
    judged(draws(bounded_cases(strategy.filter(is_float)), 20), "loops", 5)


def test_products_of_integers_stop_at_sizes() -> None:
    found = test_integer.cases(HERE).filter(lambda case: case.tile.algorithm == "integer")
    judged(draws(bounded_cases(found), 20), "integer", 3)


BF16 = [profile for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)][:1]


@pytest.mark.skipif(not BF16, reason="no instruction set here multiplies bf16")
def test_products_in_bf16_stop_at_sizes() -> None:
    strategy = test_bf16.cases(resolve(BF16[0].name), bounded_kernels(test_contraction.products()))
    judged([replace(case, tolerance=2e-2) for case in draws(strategy, 20)], "bf16", 3)


# Sizes that end what is summed


def attention(queries: int, keys: int, depth: int, *, masked: bool) -> Graph:
    """Keys end at one size and queries at another."""
    s = Sketch(dtype=DType.F32)
    q, k, v = s.x(1, 3, queries, depth), s.x(1, 3, depth, keys), s.x(1, 3, keys, depth)
    own, others = s.x(dtype=DType.I64), s.x(dtype=DType.I64)
    scores = s("Mul", s("MatMul", q, k), s.c(0.25))
    scores = s("Add", scores, s.x(1, 1, queries, keys)) if masked else scores
    scores = s("PadBeyond", scores, others, axis=3, value=float("-inf"))
    weights = s("Softmax", scores, axis=-1)
    if masked:
        weights = s("PadBeyond", s("PadBeyond", weights, own, axis=2), others, axis=3)
    return s.graph(s("PadBeyond", s("MatMul", weights, v), own, axis=2))


def reduced(op: str, neutral: float, axis: int) -> Graph:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(5, 70, 150), s.x(dtype=DType.I64)
    return s.graph(s(op, s("PadBeyond", x, size, axis=axis, value=neutral), axes=(axis,), keepdims=0))


def softmax() -> Graph:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(7, 45), s.x(dtype=DType.I64)
    beyond = s("PadBeyond", x, size, axis=1, value=float("-inf"))
    return s.graph(s("PadBeyond", s("Softmax", beyond, axis=-1), size, axis=1))


def only_call(graph: Graph) -> Case:
    """The kernel that a graph becomes, with random inputs."""
    kernels, random = fuse(graph).kernels, np.random.default_rng(3)
    (call,) = kernels.calls
    assert isinstance(call.kernel, Kernel)
    ids = (*call.inputs, *call.outputs)
    buffers = tuple(replace(kernels.buffers[id], id=at, storage=at, unread=False) for at, id in enumerate(ids))
    return Case(call.kernel, buffers, tuple(array_of(kernels.buffers[id].type, random) for id in call.inputs))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_reads_no_keys_beyond_their_size(masked: bool) -> None:
    cases = []
    for queries, keys, depth in ((37, 37, 16), (5, 70, 33), (64, 20, 8)):
        case = only_call(attention(queries, keys, depth, masked=masked))
        tiles = [one.tile for one in attention_tiles(case.workload, HERE, 2)][::2]
        tiles += draws(test_attention.odd_tiles(HERE), 2)
        cases += [replace(case, tile=tile, tolerance=1e-4) for tile in tiles]
    sized = Sized.of(cases, HERE)
    sized.check()
    ended = sized.library.lowered[: len(cases)]
    assert all("long live_keys" in one.text and "tw_first_n(" in one.text for one in ended)


@pytest.mark.skipif(not PAIRS.is_here, reason="this machine multiplies no bf16")
@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_pairs_reads_no_keys_beyond_their_size(masked: bool) -> None:
    cases = []
    for queries, keys, depth in ((37, 37, 16), (5, 70, 33)):
        case = only_call(attention(queries, keys, depth, masked=masked))
        tiles = [bf16_attention_tiles(case.workload, PAIRS, 2)[0].tile]
        tiles += [replace(tile, algorithm="bf16_attention") for tile in draws(test_attention.odd_tiles(PAIRS), 2)]
        cases += [replace(case, tile=tile, tolerance=0.03) for tile in tiles]
    sized = Sized.of(cases, PAIRS)
    sized.check()
    ended = sized.library.lowered[: len(cases)]
    assert all("long live_keys" in one.text and "if (live_keys % 2)" in one.text for one in ended)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("op", "neutral"), [("ReduceSum", 0.0), ("ReduceMax", float("-inf")), ("ReduceProd", 1.0)])
def test_a_reduction_ends_at_the_size_from_which_on_its_operand_changes_nothing(
    op: str, neutral: float, axis: int
) -> None:
    sized = Sized.of([replace(only_call(reduced(op, neutral, axis)), tolerance=1e-4)], HERE)
    sized.check()
    assert "past_I" in sized.library.lowered[0].text


def test_a_softmax_of_what_lies_below_a_size_is_that_of_a_shorter_row() -> None:
    Sized.of([only_call(softmax())], HERE).check()


# What is skipped


@pytest.mark.parametrize("size", [0, 16])
def test_tasks_beyond_a_size_prepare_nothing(size: int) -> None:
    """Scratch, in which operands are packed, keeps what was there."""
    case = only_call(attention(64, 64, 32, masked=False))
    case = replace(case, tile=attention_tiles(case.workload, HERE, 4)[0].tile)
    sized = Sized.of([case], HERE)
    arrays = [np.array(size, np.int64) if array.shape == () else array for array in case.inputs]
    memories = [allocate(buffer.span * buffer.type.dtype.bytes) for buffer in case.buffers]
    for memory, buffer, array in zip(memories, case.buffers, arrays, strict=False):
        write_buffer(memory, buffer, array)
    kernel = sized.library.lowered[0]
    pointers = (ctypes.c_void_p * len(memories))(*(memory.ctypes.data for memory in memories))
    scratch = allocate(kernel.scratch_bytes)
    last = kernel.tiles // 3 - 1
    run = getattr(sized.library.code, kernel.name)
    run(pointers, ctypes.c_void_p(scratch.ctypes.data), ctypes.c_long(last), ctypes.c_long(last + 1))
    assert (scratch == GARBAGE).all()
