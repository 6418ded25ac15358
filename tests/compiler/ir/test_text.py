from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.encodings.encoding import DENSE
from compiler.encodings.int24 import INT24
from compiler.encodings.sparse import Sparse
from compiler.encodings.two_of_four import TwoOfFour
from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import FUNCTIONS, Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.graph import Attr, Graph, Node, Value
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.parsing.tokens import ParseError
from compiler.ir.plans.plan import Copy, Memory, Place, Plan, Task, Wait
from compiler.ir.tensor import DType, Layout, Symbol, TensorType
from compiler.ir.text import digest, print_constant
from compiler.ir.tile import Level, Tile
from tests.parse import (
    parse_expr,
    parse_graph,
    parse_kernel,
    parse_kernel_graph,
    parse_layout,
    parse_plan,
    parse_routine,
    parse_tile,
    parse_type,
)

ODD = [
    "a b",
    'quote " and \\ backslash',
    "line\nbreak",
    "*/ #include <evil>",
    "%1 = Relu(%0)",
    "naïve ≠ ascii",
    "\ud800",
    "from",
    "const",
]
F32 = DType.F32


def same_arrays(one: Mapping[int, np.ndarray], two: Mapping[int, np.ndarray]) -> bool:
    def key(arrays: Mapping[int, np.ndarray]) -> dict[int, tuple[object, ...]]:
        return {id: (array.dtype, array.shape, array.tobytes()) for id, array in arrays.items()}

    return key(one) == key(two)


def same_graphs(one: Graph, two: Graph) -> bool:
    plain = [(g.values, g.nodes, g.inputs, g.outputs) for g in (one, two)]
    return plain[0] == plain[1] and same_arrays(one.constants, two.constants)


def same_kernel_graphs(one: KernelGraph, two: KernelGraph) -> bool:
    plain = [(g.buffers, g.calls, g.inputs, g.outputs) for g in (one, two)]
    return plain[0] == plain[1] and same_arrays(one.constants, two.constants)


@pytest.mark.parametrize("dtype", DType)
def test_types_round_trip(dtype: DType) -> None:
    for shape in ((), (3,), (1, 0, 7), (Symbol("batch", 1, 8), 3), (Symbol("odd: name", 0, 2**40),)):
        type = TensorType(dtype, shape)
        assert parse_type(str(type)) == type


@pytest.mark.parametrize(
    "layout",
    [
        Layout.plain(0),
        Layout.plain(4),
        Layout.channels_last(4),
        Layout(((0, 0), (1, 0), (2, 0), (3, 0), (1, 16)), "zero"),
        Layout(((0, 0), (1, 0)), "zero"),
    ],
)
def test_layouts_round_trip(layout: Layout) -> None:
    assert parse_layout(str(layout), layout.rank) == layout


AXES = (Axis("i", 8), Axis("j", 5), Axis("seq", 3))
TYPES = {"x": F32, "at": DType.I64, "flag": DType.BOOL, "for": F32}
INDEX = st.one_of(
    st.builds(
        lambda axis, factor, const: Index.of(axis) * factor + const,
        st.sampled_from(AXES),
        st.integers(-3, 9),
        st.integers(-4, 4),
    ),
    st.builds(
        lambda a, b, d: (Index.of(a) * 3 + b - 1) // d + (Index.of(b) + 2) % d,
        st.sampled_from(AXES),
        st.sampled_from(AXES),
        st.integers(2, 5),
    ),
)
VALUES = st.one_of(st.floats(width=32), st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 1e-40, 3.0e38]))
LEAVES: st.SearchStrategy[Expr] = st.one_of(
    st.builds(lambda value: Const(value, F32), VALUES),
    st.builds(lambda index: Load("x", (index,), F32), INDEX),
    st.builds(lambda index: Load("for", (index, index), F32), INDEX),
    st.builds(lambda index: Cast(Position(index), F32), INDEX),
    st.builds(
        lambda index: Load("x", (Index.of(Indirect(Load("at", (index,), DType.I64), -2, 7)) * 2 + 1,), F32), INDEX
    ),
)


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    names = [name for name, function in FUNCTIONS.items() if function.returns == "same"]
    return st.one_of(
        st.builds(
            lambda name, a, b: Apply(name, (a, b)[: FUNCTIONS[name].arity]), st.sampled_from(names), inner, inner
        ),
        st.builds(lambda a, b, c: Where(Apply("lt", (a, b)), c, a), inner, inner, inner),
        st.builds(lambda a, saturate: Cast(Cast(a, DType.I8, saturate), F32), inner, st.booleans()),
    )


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.recursive(LEAVES, grown, max_leaves=6))
def test_expressions_round_trip(expr: Expr) -> None:
    assert parse_expr(str(expr), AXES, TYPES) == expr


def test_constants_of_other_dtypes_keep_their_python_type() -> None:
    for const in (Const(True, DType.BOOL), Const(-3, DType.I64), Const(2**64 - 1, DType.U64), Const(0.1, DType.F64)):
        read = parse_expr(str(const), (), {})
        assert isinstance(read, Const)
        assert (read, type(read.value)) == (const, type(const.value))
    assert str(Const(np.float64(1.5), F32)) == "1.5:f32"


KERNEL = """\
kernel Conv(in x: f32[1, 3, 8, 8], in w: f32[4, 3, 3, 3]; temp t: f32[1, 4, 8, 8]; \
out y: f32[1, 4, 8, 8], out z: f32[4, 2])
  for n:1, k:4, oy:8, seq ox:8
    t[0, k, oy, ox] = sum<f32> c:3, r:3, s:3 . where(ge(#(oy + r - 1):i64, 0:i64), mul(x[0, c, oy + r - 1, ox], w[k, \
c, r, s]), 0.0:f32)
    y[0, k, oy, ox] = max(t[0, k, oy, ox], 0.0:f32)
    for a:1, seq b:2: z[k, b] = argmax_first<f32> . 1.0:f32"""


def test_a_kernel_reads_as_it_is_printed() -> None:
    kernel = parse_kernel(KERNEL)
    assert str(kernel) == KERNEL
    assert kernel.sequential == (Axis("ox", 8),)
    assert kernel.blocks[0].reduction == (Axis("c", 3), Axis("r", 3), Axis("s", 3))
    assert kernel.blocks[2] == Block(
        (Axis("a", 1), Axis("b", 2)),
        (Const(1.0, F32),),
        (Store("z", (Index.of(Axis("k", 4)), Index.of(Axis("b", 2)))),),
        (),
        "argmax_first",
        F32,
        (Axis("b", 2),),
    )


@pytest.mark.parametrize(
    "text",
    [
        "kernel Fill(out y: f32[])\n  y[] = 1.0:f32",
        "kernel f(in x: f32[2]; out y: f32[2])\n  for i:2: y[i] = x[i]",
        "kernel f(in x: f32[2]; out y: f32[2], out z: i64[2])\n  for i:2: y[i], z[i] = x[i], 3:i64\n"
        "  for i:2: y[i] = x[i]",
        'kernel "Add + Relu"(in x: f32[2]; out y: f32[2])\n  for i:2\n    y[i] = x[i]',
        "kernel f(out for: f32[2], out seq: f32[2])\n  for seq seq:2\n    for[seq] = 1.0:f32\n    seq[seq] = 2.0:f32",
        "kernel f(in x: f32[2]; out y: i64[], out v: f32[])\n  v[], y[] = argmax_last<f32> i:2 . x[i], #(i):i64",
    ],
)
def test_kernels_of_every_shape_round_trip(text: str) -> None:
    kernel = parse_kernel(text)
    assert str(kernel) == text
    assert parse_kernel(str(kernel)) == kernel


@pytest.mark.parametrize("name", ODD)
def test_odd_families_round_trip(name: str) -> None:
    slot = Slot("y", TensorType(F32, ()))
    kernel = Kernel(name, (), (slot,), (Block((), (Const(1.0, F32),), (Store("y", ()),)),))
    assert parse_kernel(str(kernel)) == kernel
    assert str(kernel).isascii()
    assert len(str(kernel).splitlines()) == 2


ATTRS: dict[str, Attr] = {
    "axis": -1,
    "alpha": 0.1,
    "big": 1e300,
    "inf": -math.inf,
    "nan": math.nan,
    "mode": 'cubic "x"',
    "keep": True,
    "none": None,
    "pads": (1, 1),
    "one": (1,),
    "empty": (),
    "nested": ((1, 2.5), ("a", None), ()),
    "odd name": 1,
}


def test_routines_round_trip() -> None:
    x, y = Slot("x", TensorType(F32, (4,))), Slot("y", TensorType(DType.I64, (2,)))
    for params in ({}, ATTRS):
        routine = Routine("TopK", "top_k", (x,), (y,), params)
        assert parse_routine(str(routine)) == routine


def graph() -> Graph:
    big = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float16)
    type = TensorType(F32, (1, 3))
    values = [
        Value(0, type, "data"),
        Value(1, TensorType(F32, (3,)), "scale"),
        Value(2, TensorType(DType.F16, (4, 5))),
        Value(3, type),
        Value(4, type, "b"),
        Value(5, TensorType(F32, (Symbol("n", 1, 4), 3))),
        Value(9, TensorType(DType.BOOL, ()), "lost"),
        Value(10, TensorType(DType.BF16, (2,))),
        Value(11, TensorType(DType.BOOL, (2,))),
        Value(12, TensorType(DType.I64, ())),
        Value(13, TensorType(F32, (0, 2))),
    ]
    nodes = (
        Node("Split", (0, None), (3, 4), {"axis": 1}, "split 1"),
        Node("Add", (3, 1), (5,), ATTRS),
        Node("com.acme::Odd op", (5, 2), (), {}),
        Node("Relu", (5,), (6,)),
    )
    constants: dict[int, np.ndarray] = {
        1: np.array([0.1, -0.0, np.inf], np.float32),
        2: big,
        10: np.array([0.1, 3.0e38], ml_dtypes.bfloat16),
        11: np.array([True, False]),
        12: np.array(-(2**63)),
        13: np.zeros((0, 2), np.float32),
    }
    return Graph({value.id: value for value in values}, nodes, (0,), (5, 0), constants)


def test_graphs_round_trip() -> None:
    g = graph()
    assert same_graphs(parse_graph(str(g), g.constants), g)


def test_a_graph_is_pleasant_to_read() -> None:
    lines = str(graph()).splitlines()
    assert lines[0] == 'graph(%0: f32[1, 3] "data") -> (%5, %0)'
    assert lines[1] == '  %1: f32[3] "scale" = const {0.1, -0.0, inf}'
    assert lines[2] == f'  %2: f16[4, 5] = const sha256 "{digest(graph().constants[2])}"'
    assert lines[7] == '  %3: f32[1, 3], %4: f32[1, 3] "b" = Split(%0, _) axis=1 from "split 1"'
    assert lines[-1] == '  value %9: bool[] "lost"'


@pytest.mark.parametrize("name", ODD)
def test_odd_names_from_a_model_round_trip_and_stay_inside_their_quotes(name: str) -> None:
    type = TensorType(F32, (2,))
    g = Graph(
        {0: Value(0, type, name), 1: Value(1, type, name)},
        (Node(name, (0,), (1,), {name: name}, name),),
        (0,),
        (1,),
        {},
    )
    text = str(g)
    assert text.isascii()
    assert len(text.splitlines()) == 2
    assert same_graphs(parse_graph(text), g)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(max_size=12), st.lists(st.floats(width=32, allow_nan=False), max_size=16))
def test_any_name_and_any_small_constant_round_trip(name: str, elements: list[float]) -> None:
    array = np.array(elements, np.float32)
    g = Graph({3: Value(3, TensorType(F32, array.shape), name)}, (), (), (3,), {3: array})
    assert same_graphs(parse_graph(str(g)), g)


def test_an_ill_formed_graph_can_still_be_printed_and_read() -> None:
    array = np.zeros(3)
    g = Graph({1: Value(1, TensorType(F32, (2,)))}, (Node("Relu", (7,), (8,)),), (), (9,), {1: array})
    assert same_graphs(parse_graph(str(g)), g)


def test_a_large_constant_must_be_given_and_be_the_one_that_was_printed() -> None:
    g = graph()
    with pytest.raises(ParseError, match="line 3: expected an array with this digest to be given"):
        parse_graph(str(g))
    with pytest.raises(ParseError, match="expected an array with this digest"):
        parse_graph(str(g), {2: g.constants[2] + np.float16(1)})


def test_a_constant_tells_its_type_where_it_is_not_the_declared_one() -> None:
    array = np.array([1, 2], np.int8)
    assert print_constant(array, TensorType(DType.I8, (2,))) == "const {1, 2}"
    assert print_constant(array) == "const i8[2] {1, 2}"


def kernel_graph() -> KernelGraph:
    type = TensorType(F32, (1, 4, 2, 2))
    blocked = Layout(((0, 0), (1, 0), (2, 0), (3, 0), (1, 4)), "zero")
    kernel = parse_kernel(
        "kernel Relu(in x: f32[1, 4, 2, 2]; out y: f32[1, 4, 2, 2]) for c:4, h:2, w:2 y[0, c, h, w] = max(x[0, c, h, "
        "w], 0.0:f32)"
    )
    routine = Routine("Sort", "sort", kernel.inputs, kernel.outputs, {"axis": 1})
    buffers = [
        Buffer.whole(0, type, name="in\nput"),
        Buffer.whole(1, type, blocked),
        Buffer(2, type, Layout.plain(4), 7, (32, 4, 2, 1), 16, "half"),
        Buffer.whole(3, type, Layout.channels_last(4)),
        Buffer.whole(4, type),
    ]
    calls = (
        Call(kernel, (0,), (1,), ((0, 0),), ("relu_1", 'odd "name"')),
        Call(routine, (1,), (2,)),
        Call(kernel, (2,), (3,), sources=("relu_2",)),
        Call(routine, (4,), (4,)),
    )
    constants = {4: np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)}
    return KernelGraph({buffer.id: buffer for buffer in buffers}, calls, (0,), (3, 2), constants)


def test_kernel_graphs_round_trip() -> None:
    g = kernel_graph()
    assert same_kernel_graphs(parse_kernel_graph(str(g), g.constants), g)
    large = KernelGraph({0: Buffer.whole(0, TensorType(F32, (17,)))}, (), (), (0,), {0: np.ones(17, np.float32)})
    assert same_kernel_graphs(parse_kernel_graph(str(large), large.constants), large)


def test_a_kernel_is_defined_where_it_is_called_first() -> None:
    lines = [line.strip() for line in str(kernel_graph()).splitlines()]
    assert lines[0] == "kernels(b0) -> (b3, b2)"
    assert lines[1] == 'b0: f32[1, 4, 2, 2] plain "in\\nput"'
    assert lines[3] == 'b2: f32[1, 4, 2, 2] plain in s7 + 16 strides (32, 4, 2, 1) "half"'
    assert [
        line
        for line in lines
        if line.startswith(("k", "b")) and ("kernel " in line or "routine " in line or "= k" in line)
    ] == [
        "k0: kernel Relu(in x: f32[1, 4, 2, 2]; out y: f32[1, 4, 2, 2])",
        'b1 = k0(b0) in_place (0: 0) from "relu_1", "odd \\"name\\""',
        "k1: routine Sort sort(in x: f32[1, 4, 2, 2]; out y: f32[1, 4, 2, 2]) {axis=1}",
        "b2 = k1(b1)",
        'b3 = k0(b2) from "relu_2"',
        "b4 = k1(b4)",
    ]


def strided(type: TensorType, layout: Layout | None = None) -> Buffer:
    """Every second element of a storage."""
    whole = Buffer.whole(0, type, layout)
    return Buffer(0, type, whole.layout, 0, tuple(2 * stride for stride in whole.strides))


def test_workloads_round_trip_with_their_kernel_their_buffers_and_their_flags() -> None:
    kernel = parse_kernel(KERNEL)
    blocked = Layout(((0, 0), (1, 0), (2, 0), (3, 0), (1, 16)), "zero")
    inputs = (Buffer.whole(0, kernel.inputs[0].type, blocked), strided(kernel.inputs[1].type))
    outputs = (Buffer.whole(0, kernel.outputs[0].type, Layout.channels_last(4)), strided(kernel.outputs[1].type))
    type = TensorType(F32, (2, 5))
    top = Routine("TopK", "topk", (Slot("x0", type),), (Slot("y0", type),), {"k": 3, "axis": -1, "largest": True})
    for workload in (
        Workload(kernel, inputs, outputs, (False, True)),
        Workload(kernel, inputs[::-1], outputs, (True, True)),
        Workload(kernel, inputs, outputs, (False, True), ((DENSE,), (DENSE, INT24, Sparse.of(0, (7, 13, 23, 38))))),
        Workload(kernel, inputs, outputs, (False, True), ((DENSE,), (DENSE, TwoOfFour.of(0), TwoOfFour.of(1)))),
        Workload(
            parse_kernel("kernel Fill(out y: f32[2, 5]) for i:2, j:5 y[i, j] = 1.0:f32"), (), (strided(type),), ()
        ),
        Workload(top, (Buffer.whole(0, type),), (Buffer.whole(0, type),), (False,)),
    ):
        assert parse_workload(str(workload)) == workload


def test_a_workload_is_pleasant_to_read() -> None:
    kernel = parse_kernel("kernel Relu(in x: f32[2, 3]; out y: f32[2, 3]) for i:2, j:3 y[i, j] = max(x[i, j], 0.0:f32)")
    type = kernel.inputs[0].type
    assert str(Workload(kernel, (strided(type),), (Buffer.whole(0, type),), (True,))) == (
        "workload\n"
        "  kernel Relu(in x: f32[2, 3]; out y: f32[2, 3])\n"
        "    for i:2, j:3\n"
        "      y[i, j] = max(x[i, j], 0.0:f32)\n"
        "  constant b0: f32[2, 3] plain strides (6, 2)\n"
        "  output b0: f32[2, 3] plain"
    )


def test_a_workload_whose_buffers_do_not_fit_its_kernel_is_refused() -> None:
    slots = "in x: f32[1, 3, 8, 8], in w: f32[3]; out y: f32[1, 3, 8, 8], out z: f32[3]"
    blocks = "for i:3: z[i] = w[i] for j:3, k:8, l:8: y[0, j, k, l] = x[0, j, k, l]"
    kernel = parse_kernel(f"kernel Two({slots}) {blocks}")
    inputs = tuple(Buffer.whole(0, slot.type) for slot in kernel.inputs)
    outputs = tuple(Buffer.whole(0, slot.type) for slot in kernel.outputs)
    Workload(kernel, inputs, outputs, (False, False)).verify()
    bent = Buffer(0, inputs[0].type, inputs[0].layout, 0, (1,))
    folded = Buffer(0, inputs[0].type, Layout(((0, 0), (0, 0), (1, 0), (2, 0))), 0, (1, 1, 1, 1))
    for wrong, says in (
        (Workload(kernel, inputs[:1], outputs, (False,)), "other slots"),
        (Workload(kernel, inputs, outputs[:1], (False, False)), "other slots"),
        (Workload(kernel, inputs, outputs, (False,)), "1 flags for 2 inputs"),
        (Workload(kernel, inputs[::-1], outputs, (False, False)), "slot `x: .*has the buffer"),
        (Workload(kernel, (bent, inputs[1]), outputs, (False, False)), "1 strides"),
        (Workload(kernel, (folded, inputs[1]), outputs, (False, False)), "does not cover"),
    ):
        with pytest.raises(VerifyError, match=says):
            wrong.verify()


def test_plans_and_tiles_round_trip() -> None:
    tile = Tile("contraction", (Level("L2", (("m", 64), ("n", 32))), Level("vector", ())), (("t0", "register"),))
    plan = Plan(
        2,
        (Task(0, 0, 0, 4), Task(0, 1, 4, 8), Task(1, 0, 0, 1, (Wait(1, 1), Wait(0, 1))), Task(2, 0, 0, 3, (), True)),
        ((tile, 8), (Tile("loops"), 1), (Tile("loops", (), (("t", "L1"),)), 3)),
        {0: Place("input", 0, 64), 1: Place("arena", 128, 4096), 2: Place("constant", 0, 16)},
        8192,
        'optimal "5 s"',
        1.25e-05,
    )
    assert not {"device", "memory", "copy", "also"} & set(str(plan).replace(":", " ").split())
    across = replace(
        plan,
        tasks=(*plan.tasks, Copy(1, 0, 1, 0, 4096, 2, (Wait(0, 3),), 1), Task(3, 2, 0, 1, (), False, 1)),
        tiles=(*plan.tiles, (Tile("loops"), 1)),
        places={**plan.places, 3: Place("arena", 0, 8, 1)},
        devices=("cpu", 'cuda:"0"'),
        more_memories=(Memory(1, 1 << 20), Memory(0, 16)),
        replicas=((1, Place("arena", 64, 4096, 1)), (2, Place("constant", 0, 16, 1))),
    )
    for one in (plan, replace(plan, most_handover_s=6e-08), across, replace(across, replicas=())):
        assert parse_plan(str(one)) == one
    for tile, _ in plan.tiles:
        assert parse_tile(str(tile)) == tile


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kernel f(in x: f33[2])", "line 1: expected an element type (bool, i8, "),
        (
            "kernel f(in x: f32[2]; out y: f32[2])\n  for i:2\n    y[j] = x[i]",
            "line 3: expected an axis (i), found `j`",
        ),
        (
            "kernel f(in x: f32[2]; out y: f32[2])\n  for i:2\n\n    y[i] = z[i]",
            "line 4: expected an expression: a number, a function or a slot (x, y), found `z`",
        ),
        (
            "kernel f(in x: f32[2]; out y: f32[2])\n  for i:2\n    y[i] = add(x[i])",
            "line 3: expected add to have 2 arguments, not 1",
        ),
        (
            "kernel f(in x: f32[2]; out y: f32[2])\n  for i:2\n    z[i] = x[i]",
            "line 3: expected a slot (x, y), found `z`",
        ),
        ("kernel f(in x: f32[2]; out y: f32[2])\n  for i:2\n    y[i] = 1.0", "expected `:`, found the end of the text"),
        ("kernel f(x: f32[2])", "line 1: expected `in`, `temp`, `out` or `)`, found `x`"),
        ("kernel f(in x: f32[2]) !", "line 1: expected a token, found `!`"),
        ('kernel "\\q"(in x: f32[2])', 'line 1: expected a JSON string, found `"\\q"`'),
        ("graph(%0: f32[2]) -> (%0)", "line 1: expected `kernel`, found `graph`"),
        ("kernel f(out y: f32[]) y[] = sum<f32> i:0.5 . 1.0:f32", "expected an integer, found `0.5`"),
        ("kernel f(out y: f32[]) y[] = 1.0:f32 )", "expected the end of the text, found `)`"),
        ("kernel f(out y: f32[]) y[i] = 1.0:f32", "expected an integer, for there is no axis here, found `i`"),
    ],
)
def test_a_text_that_is_no_kernel_is_refused_with_line_and_expectation(text: str, complaint: str) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_kernel(text)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("graph() -> (%0)\n  %0: f32[2] = const {1.0}", "line 2: expected 2 elements"),
        ("graph() -> (%0)\n  %0 = const {1.0}", "line 2: expected one typed value before a constant"),
        ("graph() -> (%0)\n  %0: f32[2] = Relu(x)", "line 2: expected `%`, found `x`"),
        ("graph() -> (%0)\n  %0: f32[2] = Relu(%1) axis=?", "line 2: expected a token, found `?`"),
    ],
)
def test_a_text_that_is_no_graph_is_refused_with_line_and_expectation(text: str, complaint: str) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_graph(text)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kernels(x) -> ()", "line 1: expected a buffer, found `x`"),
        ("kernels() -> (b1)\n  b1 = k7()", "line 2: expected a kernel (), found `k7`"),
        ("kernels() -> (b1)\n  b1 = const {1}", "expected one declared buffer before a constant"),
        ("kernels() -> (b1)\n  b1: f32[2] plain in 7", "line 2: expected a storage, found `7`"),
    ],
)
def test_a_text_that_is_no_kernel_graph_is_refused_with_line_and_expectation(text: str, complaint: str) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_kernel_graph(text)
    assert complaint in str(refusal.value)
