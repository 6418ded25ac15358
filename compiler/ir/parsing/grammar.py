"""Recursive descent over the parts that several nouns share.

Types, layouts, indices, expressions, attributes.

    type   := dtype "[" [dim ("," dim)*] "]"                  dim  := integer | name ":" integer ".." integer
    layout := "plain" | "<" (axis ["%" block])* ["zero"] ">"
    index  := ["-"] term (("+" | "-") term)*                  term := integer | [integer "*"] atom
    atom   := axis | "(" index ")" [("//" | "%") integer] | "[" expr "in" integer ".." integer "]"
    expr   := number ":" dtype | slot "[" [index ("," index)*] "]" | "#" "(" index ")" ":" dtype
            | function "(" expr ("," expr)* ")"
            | ("cast" | "saturate") "(" expr ")" ":" dtype ["up" | "down"] | "where" "(" expr "," expr "," expr ")"

An index is normalised as it is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler.ir.expr import FUNCTIONS, Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.graph import Attr
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.parsing.tokens import Cursor
from compiler.ir.small import BITWISE, ROUNDINGS
from compiler.ir.tensor import Dim, DType, Layout, Symbol, TensorType

_DTYPES = {dtype.value: dtype for dtype in DType}
_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}

Axes = Mapping[str, Axis]
Types = Mapping[str, DType]


def dtype(at: Cursor) -> DType:
    """An element type: `f32`."""
    if at.next.text not in _DTYPES:
        raise at.fault(f"an element type ({', '.join(_DTYPES)})")
    return _DTYPES[at.word()]


def tensor_type(at: Cursor) -> TensorType:
    """An element type and a shape: `f32[1, 64]`."""
    return TensorType(dtype(at), at.listed(lambda: _dim(at), "[", "]"))


def _dim(at: Cursor) -> Dim:
    if at.next.kind not in ("word", "string"):
        return at.integer()
    name = at.name()
    at.expect(":")
    low = at.integer()
    at.expect("..")
    return Symbol(name, low, at.integer())


def layout(at: Cursor, rank: int) -> Layout:
    """`plain` takes the rank of the tensor it is for."""
    if at.accept("plain"):
        return Layout.plain(rank)
    dims: list[tuple[int, int]] = []
    at.expect("<")
    while at.next.kind == "number":
        axis = at.integer()
        dims.append((axis, at.integer() if at.accept("%") else 0))
    fill = "zero" if at.accept("zero") else "any"
    at.expect(">")
    return Layout(tuple(dims), fill)


def axis_list(at: Cursor) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes with their extents, and those of them marked `seq`."""
    sequential = []

    def one() -> Axis:
        ordered = at.peek("seq") and not at.peek("seq", ":")
        if ordered:
            at.expect("seq")
        name = at.word("an axis")
        at.expect(":")
        axis = Axis(name, at.integer())
        if ordered:
            sequential.append(axis)
        return axis

    return at.repeated(one), tuple(sequential)


def index(at: Cursor, axes: Axes, types: Types) -> Index:
    """An index over `axes`; `types` are those of the slots that its indirect parts load from."""
    sign = -1 if at.accept("-") else 1
    total = _term(at, axes, types) * sign
    while at.peek("+") or at.peek("-"):
        sign = -1 if at.accept("-") else 1
        if sign == 1:
            at.expect("+")
        total = total + _term(at, axes, types) * sign
    return total


def _term(at: Cursor, axes: Axes, types: Types) -> Index:
    if at.next.kind != "number":
        return _atom(at, axes, types)
    factor = at.integer()
    return _atom(at, axes, types) * factor if at.accept("*") else Index((), factor)


def _atom(at: Cursor, axes: Axes, types: Types) -> Index:
    if at.accept("("):
        inner = index(at, axes, types)
        at.expect(")")
        if at.accept("//"):
            return inner // at.integer()
        return inner % at.integer() if at.accept("%") else inner
    if at.accept("["):
        value = expr(at, axes, types)
        at.expect("in")
        low = at.integer()
        at.expect("..")
        atom = Indirect(value, low, at.integer())
        at.expect("]")
        return Index.of(atom)
    if at.next.text not in axes:
        raise at.fault(f"an axis ({', '.join(axes)})" if axes else "an integer, for there is no axis here")
    return Index.of(axes[at.word()])


def expr(at: Cursor, axes: Axes, types: Types) -> Expr:
    """An expression over `axes` and the slots of `types`."""
    if at.accept("#"):
        at.expect("(")
        position = index(at, axes, types)
        at.expect(")", ":")
        return Position(position, dtype(at))
    if at.next.kind == "number" or at.peek("-") or _is_constant(at):
        return _const(at)
    fault = at.fault(f"an expression: a number, a function or a slot ({', '.join(types)})")
    name = at.word(fault.expected)
    if at.peek("["):
        if name not in types:
            raise fault
        return Load(name, at.listed(lambda: index(at, axes, types), "[", "]"), types[name])
    if name not in FUNCTIONS and name not in ("cast", "saturate", "where"):
        raise fault
    args = at.listed(lambda: expr(at, axes, types), "(", ")")
    arity = {"cast": 1, "saturate": 1, "where": 3}.get(name) or FUNCTIONS[name].arity
    if len(args) != arity:
        raise at.fault(f"{name} to have {arity} arguments, not {len(args)},")
    if name in ("cast", "saturate"):
        at.expect(":")
        kind = dtype(at)
        rounding = next((word for word in (*ROUNDINGS, BITWISE) if at.accept(word)), ROUNDINGS[0])
        return Cast(args[0], kind, name == "saturate", rounding)
    return Where(*args) if name == "where" else Apply(name, args)


def _is_constant(at: Cursor) -> bool:
    return any(at.peek(word, ":") for word in ("inf", "nan", "True", "False"))


def _const(at: Cursor) -> Const:
    value: float | int | bool
    if at.peek("True") or at.peek("False"):
        value = at.word() == "True"
    else:
        value = at.number()
    at.expect(":")
    return Const(value, dtype(at))


def attrs(at: Cursor) -> dict[str, Attr]:
    """Attributes, each `name=value`, up to what cannot begin one."""
    found: dict[str, Attr] = {}
    while at.next.kind == "string" or (at.next.kind == "word" and at.peek(at.next.text, "=")):
        name = at.name()
        at.expect("=")
        found[name] = _attr(at)
    return found


def _attr(at: Cursor) -> Attr:
    if at.next.kind == "string":
        return at.string()
    if at.peek("("):
        return at.listed(lambda: _attr(at), "(", ")")
    if at.next.text in _WORDS:
        return _WORDS[at.word()]
    value = at.number()
    return math.nan if value != value else value
