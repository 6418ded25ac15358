"""Scalar expressions: what one point of a Block computes.

    expr := Const | Load(slot, index) | Position(index) | Apply(function, expr...) | Cast(expr)
          | Where(expr, expr, expr)

An expression has a dtype and says nothing about loops. `Where` is lazy: the branch not taken is not evaluated, so its
loads may lie outside their tensors; that is how padding is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.tensor import DType


class Expr:
    """Root of the expression forms; every one is a frozen dataclass with a `dtype`."""

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions, those inside indirect indices excluded."""
        return ()

    @property
    def indices(self) -> tuple[Index, ...]:
        """Indices this form itself holds."""
        return ()

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """The same form over other children and indices."""
        raise NotImplementedError

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it, those inside indirect indices included, parents first."""
        left: list[Expr] = [self]
        while left:
            expr = left.pop()
            yield expr
            left += reversed(expr.children)
            for index in reversed(expr.indices):
                left += reversed(_inside(index))

    @cached_property
    def axes(self) -> frozenset[Axis]:
        """Every axis the value depends on."""
        found: frozenset[Axis] = frozenset()
        for index in self.indices:
            found |= index.axes
        for child in self.children:
            found |= child.axes
        return found

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every Load, in evaluation order, with repetitions."""
        return tuple(expr for expr in self.walk() if isinstance(expr, Load))

    def substitute(self, mapping: Mapping[Axis, Index]) -> Expr:
        """Axes replaced by indices. A sub-expression that several hold is one again, and done once."""
        return _remade(self, lambda index: index.substitute(mapping), lambda expr: expr, {})

    def transform(self, rewrite: Callable[[Expr], Expr]) -> Expr:
        """`rewrite` applied to every sub-expression, children first, those inside indirect indices included.

        One that several hold is one again, and `rewrite`, which gives equal ones for equal ones, is asked once.
        """
        return _remade(self, lambda index: _transform_index(index, rewrite), rewrite, {})


def _remade(
    expr: Expr, remake: Callable[[Index], Index], finish: Callable[[Expr], Expr], done: dict[int, Expr]
) -> Expr:
    """An expression over other indices, children first; `done` has what became of those that were met, by their id."""
    found = done.get(id(expr))
    if found is None:
        children = tuple(_remade(child, remake, finish, done) for child in expr.children)
        found = done[id(expr)] = finish(expr.rebuild(children, tuple(map(remake, expr.indices))))
    return found


def _inside(index: Index) -> list[Expr]:
    """The expressions in the indirect atoms of an index, in order."""
    found: list[Expr] = []
    for atom, _ in index.terms:
        if isinstance(atom, Indirect):
            found.append(atom.expr)
        elif isinstance(atom, FloorDiv | Mod):
            found += _inside(atom.index)
    return found


def _transform_index(index: Index, rewrite: Callable[[Expr], Expr]) -> Index:
    if not _inside(index):
        return index
    return index.substitute({}, lambda expr: expr.transform(rewrite))


@dataclass(frozen=True)
class Const(Expr):
    """A number of a stated dtype. Two are equal if they print equally: 0.0 is not -0.0, and NaN is NaN."""

    value: float | int | bool
    type: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def dtype(self) -> DType:
        """The type as which the number is read."""
        return self.type

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """Itself: it has neither children nor indices."""
        return self

    @cached_property
    def _text(self) -> str:
        value = self.value.item() if isinstance(self.value, np.generic) else self.value
        return f"{value!r}:{self.type}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Load(Expr):
    """An element of a slot at a logical index."""

    slot: str
    index: tuple[Index, ...]
    type: DType

    @property
    def dtype(self) -> DType:
        """The type of the slot's elements."""
        return self.type

    @property
    def indices(self) -> tuple[Index, ...]:
        """The position that is read, an index for each axis of the slot."""
        return self.index

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """A load of the same slot at `indices`."""
        return self if indices == self.index else Load(self.slot, indices, self.type)

    def __str__(self) -> str:
        return f"{self.slot}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Position(Expr):
    """An index as a number (Range, masks, the condition of a padding)."""

    index: Index
    type: DType = DType.I64

    @property
    def dtype(self) -> DType:
        """The type to which the position is converted."""
        return self.type

    @property
    def indices(self) -> tuple[Index, ...]:
        """The index whose value it is."""
        return (self.index,)

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """The value of the one index in `indices`, in the same type."""
        return Position(indices[0], self.type)

    def __str__(self) -> str:
        return f"#({self.index}):{self.type}"


@dataclass(frozen=True)
class Function:
    """A scalar function: how many arguments it takes and what it returns for them."""

    name: str
    arity: int
    returns: str = "same"
    """`same` as its arguments, or `bool`."""


FUNCTIONS: Mapping[str, Function] = {
    function.name: function
    for function in (
        *(Function(name, 2) for name in ("add", "sub", "mul", "div", "min", "max", "pow", "mod", "fmod")),
        *(Function(name, 1) for name in ("neg", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal")),
        *(Function(name, 1) for name in ("tanh", "erf", "sigmoid", "floor", "ceil", "round", "log1p", "expm1")),
        *(
            Function(name, 1)
            for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
        ),
        *(Function(name, 2) for name in ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")),
        Function("bit_not", 1),
        *(Function(name, 2, "bool") for name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor")),
        *(Function(name, 1, "bool") for name in ("not", "isnan", "isinf")),
    )
}
"""`div` truncates towards zero on integers, `mod` takes the divisor's sign and `fmod` the dividend's, `round` goes half
to even, `min` and `max` return NaN when an argument is one. Arguments of one Apply all have the same dtype."""


@dataclass(frozen=True)
class Apply(Expr):
    """A function of FUNCTIONS applied to arguments of one dtype."""

    function: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """Bool where the function says so, else that of its first argument."""
        return DType.BOOL if FUNCTIONS[self.function].returns == "bool" else self.args[0].dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        """The arguments in the function's order."""
        return self.args

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """The same function of `children`."""
        return Apply(self.function, children)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Cast(Expr):
    """Conversion to another dtype. Float to integer truncates; `saturate` clamps to the target's range first.

    `rounding` is one of `compiler.ir.small.ROUNDINGS`, which matters to what becomes F8E8M0 alone, or BITWISE:
    then the result is what has the same bits in another type of the same width, of which one is F32 or F64.
    """

    arg: Expr
    type: DType
    saturate: bool = False
    rounding: str = "nearest"

    @property
    def dtype(self) -> DType:
        """The type to which it converts."""
        return self.type

    @property
    def children(self) -> tuple[Expr, ...]:
        """The value that is converted."""
        return (self.arg,)

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """The same conversion of the one child."""
        return Cast(children[0], self.type, self.saturate, self.rounding)

    def __str__(self) -> str:
        rounding = "" if self.rounding == "nearest" else f" {self.rounding}"
        return f"{'saturate' if self.saturate else 'cast'}({self.arg}):{self.type}{rounding}"


@dataclass(frozen=True)
class Where(Expr):
    """`then` where `condition` holds, else `otherwise`; only the branch taken is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def dtype(self) -> DType:
        """The type of both alternatives."""
        return self.then.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        """The condition, then the two alternatives."""
        return (self.condition, self.then, self.otherwise)

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """A choice of the same form: condition and alternatives are the three `children`."""
        return Where(*children)

    def __str__(self) -> str:
        return f"where({self.condition}, {self.then}, {self.otherwise})"


def inside(index: Index, extent: int) -> Expr | None:
    """The condition 0 <= index < extent, only as far as the ranges of its axes do not already prove it.

    None: always true.
    """
    low, high = index.range
    parts: list[Expr] = []
    position = Position(index)
    if low < 0:
        parts.append(Apply("ge", (position, Const(0, DType.I64))))
    if high >= extent:
        parts.append(Apply("lt", (position, Const(extent, DType.I64))))
    return conjunction(parts)


def certain_loads(expr: Expr) -> Iterator[Load]:
    """The loads of an expression that are carried out whatever conditions say."""
    if isinstance(expr, Load):
        yield expr
    for child in (expr.condition,) if isinstance(expr, Where) else expr.children:
        yield from certain_loads(child)


def conjunction(parts: list[Expr]) -> Expr | None:
    """`and` over conditions; None for none."""
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = Apply("and", (whole, part))
    return whole


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction, none of them an `and`."""
    if isinstance(condition, Apply) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]
