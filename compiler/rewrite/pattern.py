"""Left sides as terms: what to look for above a node, written as it would be read.

    x = value("x")
    SWISH = op("Mul", x, op("Sigmoid", op("Mul", x, scalar("alpha"))))

    found = match(view, node, SWISH)          # None, or found["x"], found.scalars["alpha"], found.nodes

A name that stands twice must be the same value twice, so values that are shared are found as such. Operands of a commutative
operator are tried in both orders, alternatives in theirs; the first way in which the whole term is there counts. Matching goes from
the last node upwards and never asks who reads what it found: `View.enclosed(node, found.nodes)` tells whether that may vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.rounding import near
from compiler.rewrite.view import View

COMMUTATIVE = having(Trait.COMMUTATIVE)
"""Operators of two operands whose order does not matter."""


@dataclass(frozen=True)
class Found:
    """How a term lies in the graph: values and numbers by name, and the nodes above the root that it covers, each once."""

    values: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> int:
        return self.values[name]


@dataclass(frozen=True)
class Any:
    """Any value; with `constant` only one that the compiler knows."""

    name: str
    constant: bool = False


@dataclass(frozen=True)
class Number:
    """A constant of one element: `wanted` (up to rounding in float32), or any number, which gets a name."""

    wanted: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Op:
    """A node of one of `ops` with these operands. `where` is asked of the node; `name` makes it known in `Found.named`."""

    ops: tuple[str, ...]
    operands: tuple[Term, ...]
    where: Callable[[Node], bool] | None = None
    name: str = ""


@dataclass(frozen=True)
class Either:
    """One of several terms."""

    terms: tuple[Term, ...]


Term = Any | Number | Op | Either


def value(name: str) -> Any:
    """Any value."""
    return Any(name)


def constant(name: str) -> Any:
    """Any constant."""
    return Any(name, constant=True)


def number(wanted: float) -> Number:
    """A constant of one element that is `wanted`, up to what exporters' own arithmetic in float32 loses."""
    return Number(wanted)


def scalar(name: str) -> Number:
    """Any constant of one element."""
    return Number(None, name)


def op(ops: str | tuple[str, ...], *operands: Term, where: Callable[[Node], bool] | None = None, name: str = "") -> Op:
    """A node of an operator, or one of several, with these operands and no further ones."""
    return Op((ops,) if isinstance(ops, str) else ops, operands, where, name)


def either(*terms: Term) -> Either:
    """The first of several terms that is there."""
    return Either(terms)


def match(view: View, node: Node, term: Op | Either) -> Found | None:
    """The first way in which `term` ends in `node`; None where it does not."""
    for found in _at(view, node, term, Found()):
        return Found(found.values, found.scalars, found.named, tuple(n for n in found.nodes if n is not node))
    return None


def _at(view: View, node: Node, term: Op | Either, found: Found) -> Iterator[Found]:
    if isinstance(term, Either):
        for one in term.terms:
            if isinstance(one, Op | Either):
                yield from _at(view, node, one, found)
        return
    if node.op not in term.ops or (term.where is not None and not term.where(node)):
        return
    count = len(term.operands)
    if len(node.inputs) < count or any(further is not None for further in node.inputs[count:]):
        return
    named = {**found.named, term.name: node} if term.name else found.named
    nodes = found.nodes if any(node is other for other in found.nodes) else (*found.nodes, node)
    entered = Found(found.values, found.scalars, named, nodes)
    yield from _operands(view, node.inputs[:count], term.operands, entered)
    if node.op in COMMUTATIVE and count == 2 and node.inputs[0] != node.inputs[1]:
        yield from _operands(view, node.inputs[1::-1], term.operands, entered)


def _operands(view: View, values: tuple[int | None, ...], terms: tuple[Term, ...], found: Found) -> Iterator[Found]:
    if not terms:
        yield found
        return
    for first in _of(view, values[0], terms[0], found):
        yield from _operands(view, values[1:], terms[1:], first)


def _of(view: View, value: int | None, term: Term, found: Found) -> Iterator[Found]:
    """The ways in which a value is what a term says."""
    if value is None:
        return
    if isinstance(term, Either):
        for one in term.terms:
            yield from _of(view, value, one, found)
    elif isinstance(term, Op):
        node = view.producer(value)
        if node is not None and node.outputs[0] == value:
            yield from _at(view, node, term, found)
    elif isinstance(term, Any):
        if found.values.get(term.name, value) == value and (not term.constant or value in view.constants):
            yield Found({**found.values, term.name: value}, found.scalars, found.named, found.nodes)
    elif (known := view.scalar(value)) is not None:
        if term.wanted is not None:
            if near(known, term.wanted):
                yield found
        elif found.scalars.get(term.name, known) == known:
            yield Found(found.values, {**found.scalars, term.name: known}, found.named, found.nodes)
