from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import resolve, this_machine
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where, inside
from compiler.ir.index import Axis, Index, Indirect, flatten, unflatten
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from tests.compiler.devices.cpu.library import Case, array_of, bound, case_of, check, draws
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_kernel

NUMBERS = (DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.I8, DType.I32, DType.I64, DType.U8, DType.BOOL)
FLOAT_UNARY = ("neg", "abs", "tanh", "sigmoid", "exp", "erf", "floor", "ceil", "round", "sign", "sin", "sqrt")
FLOAT_BINARY = ("add", "sub", "mul", "min", "max")
INTEGER_UNARY = ("neg", "abs", "sign")
INTEGER_BINARY = ("add", "sub", "mul", "min", "max", "div", "mod", "fmod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class Reads:
    """The input slots of a kernel under construction."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []

    def slot(self, type: TensorType) -> str:
        self.slots.append(Slot(f"x{len(self.slots)}", type))
        return self.slots[-1].name

    def load(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        """An element found by one of the ways in which operators read."""
        ways = [self.broadcast, self.transposed, self.shifted, self.reshaped, self.gathered, self.strided]
        return draw(st.sampled_from(ways))(draw, dtype, axes)

    def broadcast(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        ones = [draw(st.sampled_from([False, False, True])) for _ in axes]
        dims = tuple(1 if one else axis.extent for one, axis in zip(ones, axes, strict=True))
        index = tuple(Index.of(0) if one else Index.of(axis) for one, axis in zip(ones, axes, strict=True))
        return Load(self.slot(TensorType(dtype, dims)), index, dtype)

    def transposed(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        order = tuple(draw(st.permutations(axes)))
        dims = tuple(axis.extent for axis in order)
        return Load(self.slot(TensorType(dtype, dims)), tuple(map(Index.of, order)), dtype)

    def strided(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        """A slice with a step, forwards or backwards."""
        steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes]
        first = [draw(st.integers(0, 2)) for _ in axes]
        dims = tuple(at + (axis.extent - 1) * abs(step) + 1 for at, axis, step in zip(first, axes, steps, strict=True))
        index = tuple(
            Index.of(axis) * step + (at if step > 0 else at + (axis.extent - 1) * -step)
            for at, axis, step in zip(first, axes, steps, strict=True)
        )
        return Load(self.slot(TensorType(dtype, dims)), index, dtype)

    def shifted(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        """A padded read: zero outside."""
        dims = tuple(max(axis.extent - draw(st.integers(0, 2)), 1) for axis in axes)
        index = tuple(Index.of(axis) - draw(st.integers(-1, 2)) for axis in axes)
        load: Expr = Load(self.slot(TensorType(dtype, dims)), index, dtype)
        for position, extent in zip(index, dims, strict=True):
            condition = inside(position, extent)
            if condition is not None:
                load = Where(condition, load, number(0, dtype))
        return load

    def reshaped(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        """The same elements under another shape: divisions and remainders."""
        dims = tuple(axis.extent for axis in draw(st.permutations(axes)))
        flat = flatten(tuple(map(Index.of, axes)), tuple(axis.extent for axis in axes))
        return Load(self.slot(TensorType(dtype, dims)), unflatten(flat, dims), dtype)

    def gathered(self, draw: st.DrawFn, dtype: DType, axes: tuple[Axis, ...]) -> Expr:
        """A row of a table, chosen by data: a remainder keeps any number inside."""
        rows = draw(st.integers(1, 5))
        chosen = Load(self.slot(TensorType(DType.I64, (axes[0].extent,))), (Index.of(axes[0]),), DType.I64)
        inside_rows = Apply("mod", (chosen, Const(rows, DType.I64)))
        rest = axes[draw(st.integers(0, len(axes) - 1)) :]
        dims = (rows, *(axis.extent for axis in rest))
        index = (Index.of(Indirect(inside_rows, 0, rows - 1)), *map(Index.of, rest))
        return Load(self.slot(TensorType(dtype, dims)), index, dtype)


def number(value: float, dtype: DType) -> Const:
    return Const(bool(value) if dtype is DType.BOOL else float(value) if dtype.is_float else int(value), dtype)


def expression(draw: st.DrawFn, reads: Reads, dtype: DType, axes: tuple[Axis, ...], depth: int) -> Expr:
    kinds = ["load"] if not depth else ["load", "unary", "binary", "binary", "where", "cast", "position", "const"]
    kind = draw(st.sampled_from(kinds))

    def part(kind_of: DType = dtype) -> Expr:
        return expression(draw, reads, kind_of, axes, depth - 1)

    if kind == "const":
        return number(draw(st.integers(0, 3)), dtype)
    if kind == "position":
        return Position(sum((Index.of(axis) * draw(st.integers(-1, 2)) for axis in axes), Index(())) % 7, dtype)
    if kind == "cast":
        source = draw(st.sampled_from([DType.I64, DType.F32, DType.U8, DType.BOOL]))
        arg = reads.load(draw, source, axes)
        return arg if source is dtype else Cast(arg, dtype, source.is_float and dtype.is_integer)
    if kind == "where":
        return Where(condition(draw, reads, axes), part(), part())
    if dtype is DType.BOOL:
        return condition(draw, reads, axes) if kind != "load" else reads.load(draw, dtype, axes)
    if kind == "unary":
        function = draw(st.sampled_from(FLOAT_UNARY if dtype.is_float else INTEGER_UNARY))
        arg = part()
        if function in ("exp", "erf", "sin", "floor", "ceil", "round", "sign", "sqrt"):
            arg = reads.load(draw, dtype, axes)  # what would magnify an earlier rounding reads exact numbers
        return Apply(function, (Apply("abs", (arg,)) if function == "sqrt" else arg,))
    if kind == "binary":
        return Apply(draw(st.sampled_from(FLOAT_BINARY if dtype.is_float else INTEGER_BINARY)), (part(), part()))
    return reads.load(draw, dtype, axes)


def condition(draw: st.DrawFn, reads: Reads, axes: tuple[Axis, ...]) -> Expr:
    """Of positions, of data, or of both; on exact numbers, so that no rounding decides."""
    dtype = draw(st.sampled_from([DType.F32, DType.I64]))
    data = Apply(draw(st.sampled_from(COMPARISONS)), (reads.load(draw, dtype, axes), reads.load(draw, dtype, axes)))
    axis = draw(st.sampled_from(axes))
    place = Apply(
        draw(st.sampled_from(COMPARISONS)),
        (Position(Index.of(axis)), Const(draw(st.integers(0, axis.extent)), DType.I64)),
    )
    kind = draw(st.sampled_from(["data", "place", "both", "not"]))
    return {
        "data": data,
        "place": place,
        "both": Apply(draw(st.sampled_from(["and", "or", "xor"])), (data, place)),
        "not": Apply("not", (data,)),
    }[kind]


def axes_named(draw: st.DrawFn, names: str, most: int = 20) -> tuple[Axis, ...]:
    extents = [draw(st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, most])) for _ in names]
    while np.prod(extents) > 3000:
        extents[extents.index(max(extents))] //= 2
    return tuple(Axis(name, extent) for name, extent in zip(names, extents, strict=True))


@st.composite
def maps(draw: st.DrawFn) -> Case:
    axes = axes_named(draw, "ijkl"[: draw(st.integers(1, 4))])
    dtype, reads = draw(st.sampled_from(NUMBERS)), Reads()
    value = expression(draw, reads, dtype, axes, draw(st.integers(0, 3)))
    out = tuple(draw(st.permutations(axes)))
    slot = Slot("y0", TensorType(dtype, tuple(axis.extent for axis in out)))
    block = Block((), (value,), (Store("y0", tuple(map(Index.of, out))),))
    used = {load.slot for load in value.loads}
    inputs = tuple(slot for slot in reads.slots if slot.name in used)
    return draw(bound(Kernel("Map", inputs, (slot,), (block,), shared=axes)))


@pytest.mark.parametrize("part", range(3))
def test_maps_mean_what_their_expressions_say(part: int) -> None:
    check(draws(maps(), 180)[part::3])


@st.composite
def reductions(draw: st.DrawFn) -> Case:
    """Reductions by every monoid over some axes, padded or not, stored along the others."""
    axes = axes_named(draw, "ijkl"[: draw(st.integers(2, 4))], 33)
    split = draw(st.integers(0, len(axes) - 1))
    order = tuple(draw(st.permutations(axes)))
    kept, gone = order[:split], order[split:]
    reads = Reads()
    if draw(st.booleans()):
        return draw(bound(_single(draw, reads, axes, kept, gone)))
    return draw(bound(_pair(draw, reads, axes, kept, gone)))


def _single(
    draw: st.DrawFn, reads: Reads, axes: tuple[Axis, ...], kept: tuple[Axis, ...], gone: tuple[Axis, ...]
) -> Kernel:
    monoid = draw(st.sampled_from(["sum", "sum", "prod", "max", "min", "and", "or"]))
    logical = monoid in ("and", "or")
    dtype = DType.BOOL if logical else draw(st.sampled_from([DType.F32, DType.F32, DType.F64, DType.I32, DType.U8]))
    value: Expr = reads.load(draw, dtype, axes)
    if monoid in ("sum", "prod") and draw(st.booleans()) and monoid == "sum":
        value = Apply("mul", (value, reads.load(draw, dtype, axes)))
    if not logical and draw(st.booleans()):
        guard = inside(Index.of(gone[0]) + draw(st.integers(-2, 1)), gone[0].extent)
        neutral = {"sum": 0, "prod": 1}.get(monoid)
        if guard is not None and (neutral is not None or dtype.is_float):
            worst = float("-inf") if monoid == "max" else float("inf")
            value = Where(guard, value, Const(worst, dtype) if neutral is None else number(neutral, dtype))
    accumulator = DType.F32 if dtype is DType.F16 else dtype
    out = draw(st.sampled_from([dtype, dtype, DType.F16, DType.I32])) if dtype is DType.F32 else dtype
    slot = Slot("y0", TensorType(out, tuple(axis.extent for axis in kept)))
    store = Store("y0", tuple(map(Index.of, kept)))
    if draw(st.booleans()):
        block = Block((), (value,), (store,), gone, monoid, accumulator)
        return Kernel("Reduce", tuple(reads.slots), (slot,), (block,), shared=kept)
    block = Block(kept, (value,), (store,), gone, monoid, accumulator)
    return Kernel("Reduce", tuple(reads.slots), (slot,), (block,))


def _pair(
    draw: st.DrawFn, reads: Reads, axes: tuple[Axis, ...], kept: tuple[Axis, ...], gone: tuple[Axis, ...]
) -> Kernel:
    monoid = draw(st.sampled_from(["argmax_first", "argmax_last", "argmin_first", "argmin_last", "softmax"]))
    dtype = draw(st.sampled_from([DType.F32, DType.F64, DType.I8, DType.U8]))
    dtype = DType.F32 if monoid == "softmax" else dtype
    value = reads.load(draw, dtype, axes)
    if monoid == "softmax":
        values: tuple[Expr, ...] = (value, Const(1.0, DType.F32))
        kinds = (DType.F32, DType.F32)
    else:
        # Few distinct values, so that ties decide; the index runs against the order of the loops.
        value = Cast(Cast(Apply("mul", (Cast(value, DType.F32), Const(2.0, DType.F32))), DType.I8), dtype)
        place = flatten(tuple(map(Index.of, axes)), tuple(axis.extent for axis in axes)) + draw(st.integers(0, 9))
        values, kinds = (value, Position(place)), (dtype, DType.I64)
    dims = tuple(axis.extent for axis in kept)
    slots = tuple(Slot(f"y{at}", TensorType(kind, dims)) for at, kind in enumerate(kinds))
    stores = tuple(Store(slot.name, tuple(map(Index.of, kept))) for slot in slots)
    block = Block((), values, stores, gone, monoid, dtype)
    return Kernel("Reduce", tuple(reads.slots), slots, (block,), shared=kept)


@pytest.mark.parametrize("part", range(2))
def test_reductions_by_every_monoid_mean_what_they_say(part: int) -> None:
    check(draws(reductions(), 160)[part::2])


MANY_BLOCKS = {
    "softmax": """
kernel Softmax(in x: f32[{a}, {b}, {c}]; temp m: f32[{a}, {c}], temp s: f32[{a}, {c}]; out y: f32[{a}, {b}, {c}])
  for i:{a}, l:{c}
    m[i, l] = max<f32> j:{b} . x[i, j, l]
    s[i, l] = sum<f32> j:{b} . exp(sub(x[i, j, l], m[i, l]))
    for k:{b}: y[i, k, l] = div(exp(sub(x[i, k, l], m[i, l])), s[i, l])
""",
    "softmax that keeps its exponentials": """
kernel Softmax(in x: f32[{a}, {b}, {c}]; temp m: f32[], temp e: f32[{b}], temp s: f32[]; out y: f32[{a}, {b}, {c}])
  for i:{a}, l:{c}
    m[] = max<f32> j:{b} . x[i, j, l]
    for j:{b}: e[j] = exp(sub(x[i, j, l], m[]))
    s[] = sum<f32> j:{b} . e[j]
    for k:{b}: y[i, k, l] = div(e[k], s[])
""",
    "online softmax": """
kernel Softmax(in x: f32[{a}, {b}, {c}]; temp m: f32[{a}, {c}], temp s: f32[{a}, {c}]; out y: f32[{a}, {b}, {c}])
  for i:{a}, l:{c}
    m[i, l], s[i, l] = softmax<f32> j:{b} . x[i, j, l], 1.0:f32
    for k:{b}: y[i, k, l] = div(exp(sub(x[i, k, l], m[i, l])), s[i, l])
""",
    "normalisation with statistics": """
kernel LayerNorm(in x: f32[{a}, {b}, {c}], in g: f32[{c}]; temp t: f32[{a}, {b}]; \
out y: f32[{a}, {b}, {c}], out mean: f32[{a}, {b}])
  for i:{a}, j:{b}
    mean[i, j] = sum<f32> l:{c} . mul(x[i, j, l], {inverse}:f32)
    t[i, j] = sum<f32> l:{c} . mul(sub(x[i, j, l], mean[i, j]), sub(x[i, j, l], mean[i, j]))
    for l:{c}: y[i, j, l] = add(div(sub(x[i, j, l], mean[i, j]), add(t[i, j], 1.0:f32)), g[l])
""",
    "the place of the greatest, then a row chosen by it": """
kernel Pick(in x: f32[{a}, {b}], in table: f32[{b}, {c}]; temp v: f32[{a}], temp at: i64[{a}]; out y: f32[{a}, {c}])
  for i:{a}
    v[i], at[i] = argmax_first<f32> j:{b} . x[i, j], #(j):i64
    for l:{c}: y[i, l] = add(table[[at[i] in 0..{last_b}], l], v[i])
""",
    "a count and a mask kept at a point": """
kernel Mask(in x: f32[{a}, {b}], in n: i32[{a}]; temp k: i32[{a}], temp any: bool[{a}]; out y: f32[{a}, {b}])
  for i:{a}
    k[i] = add(n[i], 3:i32)
    any[i] = gt(k[i], 2:i32)
    for j:{b}: y[i, j] = where(any[i], mul(x[i, j], cast(k[i]):f32), neg(x[i, j]))
""",
    "statistics of groups that other points read": """
kernel Groups(in x: f32[{a}, {c}]; temp total: f32[{a}], temp half: f32[{a}]; out y: f32[{a}, {c}])
    for i:{a}: total[i] = sum<f32> l:{c} . x[i, l]
    for i:{a}: half[i] = mul(total[i], 0.5:f32)
    for i:{a}, l:{c}: y[i, l] = sub(x[i, l], half[{last_a} - i])
""",
    "private temporaries": """
kernel Private(in x: f32[{a}, {b}, {c}]; temp u: f32[], temp q: f32[{b}]; out y: f32[{a}, {b}, {c}])
  for i:{a}
    u[] = max<f32> j:{b}, l:{c} . x[i, j, l]
    for j:{b}: q[j] = sum<f32> l:{c} . mul(x[i, j, l], u[])
    for j:{b}, l:{c}: y[i, j, l] = add(x[i, j, l], add(q[j], u[]))
""",
    "a private temporary beside one that crosses points": """
kernel Cross(in x: f32[{a}, {c}]; temp u: f32[], temp q: f32[{a}, 3]; out y: f32[{a}, {c}])
  for i:{a}, l:{c}
    for g:3: q[i, g] = sum<f32> j:{c} . mul(x[i, j], #(g):f32)
    u[] = mul(x[i, l], 2.0:f32)
    y[i, l] = sub(u[], q[i, (l)%3])
""",
    "a sum that a temporary switches on": """
kernel Switch(in x: f32[{b}, {c}], in w: f32[{c}]; temp on: f32[{c}]; out y: f32[{c}])
  for l:{c}
    on[l] = mul(w[l], 2.0:f32)
    y[l] = sum<f32> j:{b} . where(gt(on[l], 0.0:f32), x[j, l], 0.0:f32)
""",
    "a sum stored in another dtype": """
kernel Narrow(in x: f16[{a}, {c}]; temp t: f32[{a}]; out y: f16[{a}, {c}], out s: f16[{a}])
  for i:{a}
    t[i] = sum<f32> l:{c} . cast(x[i, l]):f32
    s[i] = cast(t[i]):f16
    for l:{c}: y[i, l] = cast(mul(cast(x[i, l]):f32, t[i])):f16
""",
    "two outputs, the second from the first": """
kernel Chain(in x: f32[{a}, {c}], in w: f32[{b}, {c}]; out y: f32[{a}, {b}], out z: f32[{a}, {b}])
  for i:{a}, j:{b}
    y[i, j] = sum<f32> l:{c} . mul(max(x[i, l], 0.0:f32), w[j, l])
    z[i, j] = max(y[i, j], mul(y[i, j], 0.1:f32))
""",
}

SCANS = {
    "a running sum": """
kernel Cumulative(in x: f32[{a}, {b}]; out y: f32[{a}, {b}])
  for seq i:{a}, j:{b}
    y[i, j] = add(x[i, j], where(gt(#(i):i64, 0:i64), y[i - 1, j], 0.0:f32))
""",
    "a running sum kept in a temporary of each column": """
kernel Cumulative(in x: f32[{a}, {b}]; temp s: f32[{b}]; out y: f32[{a}, {b}])
  for seq i:{a}, j:{b}
    s[j] = add(x[i, j], where(gt(#(i):i64, 0:i64), s[j], 0.0:f32))
    y[i, j] = mul(s[j], 2.0:f32)
""",
    "a state read before and after it changes": """
kernel State(in x: f32[{a}, {b}]; temp s: f32[{b}], temp d: f32[{b}]; out y: f32[{a}, {b}])
  for seq i:{a}, j:{b}
    d[j] = where(gt(#(i):i64, 0:i64), s[j], 1.0:f32)
    s[j] = add(mul(d[j], 0.5:f32), x[i, j])
    y[i, j] = sub(mul(s[j], 3.0:f32), d[j])
""",
    "a recurrent layer": """
kernel Rnn(in x: f32[{a}, {b}, {c}], in w: f32[{d}, {c}], in r: f32[{d}, {d}]; \
temp g: f32[{b}, {d}], temp h: f32[{b}, {d}]; out y: f32[{a}, {b}, {d}])
  for seq t:{a}
    for n:{b}, k:{d}: g[n, k] = sum<f32> c:{c} . mul(x[t, n, c], w[k, c])
    for n:{b}, k:{d}: h[n, k] = sum<f32> j:{d} . mul(where(gt(#(t):i64, 0:i64), y[t - 1, n, j], 0.0:f32), r[k, j])
    for n:{b}, k:{d}: y[t, n, k] = tanh(add(g[n, k], h[n, k]))
""",
    "a recurrent layer whose batch is shared": """
kernel Rnn(in x: f32[{a}, {b}, {c}], in w: f32[{d}, {c}]; temp g: f32[{b}, {d}], temp h: f32[{b}, {d}]; \
out y: f32[{a}, {b}, {d}])
  for seq t:{a}, n:{b}
    for k:{d}: g[n, k] = sum<f32> c:{c} . mul(x[t, n, c], w[k, c])
    for k:{d}: h[n, k] = tanh(add(g[n, k], where(gt(#(t):i64, 0:i64), h[n, k], 0.25:f32)))
    for k:{d}: y[t, n, k] = h[n, k]
""",
    "a block in sequence": """
kernel Block(in x: i64[{a}, {b}]; out y: i64[{a}, {b}])
  for i:{a}
    for seq j:{b}: y[i, j] = add(x[i, j], where(gt(#(j):i64, 0:i64), y[i, j - 1], 0:i64))
""",
}


@st.composite
def texts(draw: st.DrawFn, kernels: dict[str, str]) -> Case:
    a, b, c, d = (draw(st.sampled_from([1, 2, 3, 5, 8, 16, 19, 33])) for _ in "abcd")
    text = kernels[draw(st.sampled_from(sorted(kernels)))]
    sizes = {"a": a, "b": b, "c": c, "d": d, "last_a": a - 1, "last_b": b - 1, "inverse": 1 / c}
    return draw(bound(parse_kernel(text.format(**sizes))))


def many_blocks() -> st.SearchStrategy[Case]:
    return texts(MANY_BLOCKS)


def scans() -> st.SearchStrategy[Case]:
    return texts(SCANS)


def test_kernels_of_many_blocks_mean_what_they_say() -> None:
    check(draws(many_blocks(), 120))


CHOSEN = """
kernel Chosen(in x: f32[5, 33]; temp t: i32[33]; out y: f32[33])
  for i:33
    t[i] = 3:i32
    y[i] = x[[min(max(t[i], 0:i32), 4:i32) in 0..4], i]
"""


def test_an_index_may_be_held_in_a_vector_though_it_is_the_same_for_all_lanes() -> None:
    check(draws(bound(parse_kernel(CHOSEN)), 3))


def test_scans_carry_their_state_from_step_to_step() -> None:
    check(draws(scans(), 100))


ONE_CHANNEL = """
kernel Conv(in x: f32[5, {long}], in w: f32[5, {taps}]; out y: f32[{long}])
  for o:{long}
    y[o] = sum<f32> c:5, s:{taps} . mul({read}, w[c, s])
"""
READ = "where(and(ge(#(o + s - 3):i64, 0:i64), lt(#(o + s - 3):i64, {long}:i64)), x[c, o + s - 3], 0.0:f32)"


@pytest.mark.parametrize(("long", "taps", "along_taps"), [(100, 7, False), (9, 7, False), (100, 40, True)])
def test_a_window_is_summed_in_vectors_of_results_where_its_taps_fill_none(
    long: int, taps: int, along_taps: bool
) -> None:
    kernel = parse_kernel(ONE_CHANNEL.format(long=long, taps=taps, read=READ.format(long=long)))
    random = np.random.default_rng(3)
    inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, inputs, tolerance=1e-5)
    target = resolve("cpu:x86-64-v3")
    text = lower("k", case.workload, case.tile, target).text
    assert ("tw_sum(" in text) == along_taps
    check([case], optimise="-O1")


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("op", "neutral"), [("ReduceSum", 0.0), ("ReduceMax", float("-inf")), ("ReduceMin", float("inf"))]
)
def test_a_reduction_runs_over_the_range_that_its_operand_has_of_the_axis(op: str, neutral: float, axis: int) -> None:
    shape, random = (150, 140, 20), np.random.default_rng(axis)
    ends = tuple(1 if at in (axis, 2) else size for at, size in enumerate(shape))
    s = Sketch(dtype=DType.F32)
    x, first, past = s.x(*shape), s.x(*ends, dtype=DType.I64), s.x(*ends, dtype=DType.I64)
    graph = s.graph(s(op, s("PadOutside", x, first, past, axis=axis, value=neutral), axes=(axis,), keepdims=0))
    extremes = np.array([-(2**63), -(2**33), -1, 0, 1, 2, 19, 20, 70, 139, 150, 2**33, 2**63 - 1])
    given = (
        random.uniform(-1, 1, shape).astype(np.float32),
        random.choice(extremes, ends),
        random.choice(extremes, ends),
    )
    case = replace(case_of(graph, *given), tolerance=1e-4)
    check([case])
    text = lower("k", case.workload, case.tile, this_machine()).text
    assert ("first_I" in text and "past_I" in text) == (axis < 2), text


ALONG_MEMORY = """
kernel Range(in x: f32[3, 40, {long}], in ends: i64[40, 2]; out y: f32[40])
  for i:40
    y[i] = {monoid}<f32> c:3, j:{long} . where(and(ge(#(j):i64, ends[i, 0]), lt(#(j):i64, ends[i, 1])), \
x[c, i, j], {neutral}:f32)
"""


@pytest.mark.parametrize("long", [9, 150])
@pytest.mark.parametrize(("monoid", "neutral"), [("sum", "0.0"), ("max", "-inf"), ("min", "inf")])
def test_vectors_along_memory_begin_and_end_where_a_range_does(monoid: str, neutral: str, long: int) -> None:
    kernel = parse_kernel(ALONG_MEMORY.format(long=long, monoid=monoid, neutral=neutral))
    random = np.random.default_rng(long)
    ends = random.choice([-(2**63), -1, 0, 1, 3, 8, 9, 16, 33, 70, 149, 150, 2**33, 2**63 - 1], (40, 2))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    x = random.uniform(-1, 1, (3, 40, long)).astype(np.float32)
    case = Case(kernel, buffers, (x, ends), tolerance=1e-5)
    text = lower("k", case.workload, case.tile, resolve("cpu:x86-64-v3")).text
    assert "tw_load_n(" in text
    assert "long J = first_J" in text
    check([case], optimise="-O1")
