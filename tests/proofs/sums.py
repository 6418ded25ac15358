"""Sums over ranges that are only named: brought to one form, and found equal by a bijection of their ranges.

An element over the reals is a sum of parts, each a number times factors, summed over bound axes where guards hold:
sums are taken apart at additions (splitting), factors drawn into them (distributing), and sums of sums joined
(reordering). Two parts are equal if axes of one are functions of axes of the other, in both directions, such that each
point of one range at which guards hold falls on one such point of the other, with equal factors (re-indexing by a
bijection); the solver decides each of these conditions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import z3

from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where, conjuncts
from compiler.ir.index import Axis, FloorDiv, Index, Mod
from tests.proofs.reduce import FRESH, Reduce
from tests.proofs.sizes import Poly, Ratio, Size, poly_of
from tests.proofs.terms import EFFORT, Terms, Untold, exact, rational, surd

MOST_PARTS = 300
MOST_EFFORT = 3 * EFFORT


@dataclass(frozen=True)
class Part:
    """number * sizes * product of factors, summed over `bound` where all guards hold. `sizes` are extents left over."""

    number: Fraction
    bound: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    factors: tuple[Expr, ...]
    sizes: tuple[int, ...] = ()

    def substitute(self, mapping: dict[Axis, Index]) -> Part:
        """With axes replaced."""
        return replace(
            self,
            guards=tuple(guard.substitute(mapping) for guard in self.guards),
            factors=tuple(factor.substitute(mapping) for factor in self.factors),
        )


def parts_of(expr: Expr) -> list[Part]:
    """An expression over the reals as parts. Raises Untold where there are too many."""
    if isinstance(expr, Const) and isinstance(expr.value, Size):
        return [Part(Fraction(1), (), (), (), (expr.value,))]
    if isinstance(expr, Const) and (isinstance(expr.value, Ratio) or (expr.type.is_float and math.isinf(expr.value))):
        return [Part(Fraction(1), (), (), (expr,))]
    if isinstance(expr, Const) and expr.type.is_float and surd(float(expr.value)) is None:
        number = exact(float(expr.value))
        return [Part(number, (), (), ())] if number else []
    if isinstance(expr, Cast) and expr.type.is_float and expr.arg.dtype.is_float:
        return parts_of(expr.arg)
    if isinstance(expr, Where) and expr.dtype.is_float:
        yes = [replace(part, guards=(*part.guards, *conjuncts(expr.condition))) for part in parts_of(expr.then)]
        no = [
            replace(part, guards=(*part.guards, Apply("not", (expr.condition,)))) for part in parts_of(expr.otherwise)
        ]
        return yes + no
    if isinstance(expr, Reduce) and expr.monoid == "sum":
        fresh = {axis: Axis(f"r{next(FRESH)}", axis.extent) for axis in expr.bound}  # one is not bound twice
        value = expr.values[0].substitute({axis: Index.of(new) for axis, new in fresh.items()})
        bound, value = _split(tuple(fresh.values()), value)
        return [replace(part, bound=(*part.bound, *bound)) for part in parts_of(value)]
    if isinstance(expr, Apply) and expr.dtype.is_float:
        return _of_apply(expr)
    return [Part(Fraction(1), (), (), (expr,))]


def _split(bound: tuple[Axis, ...], value: Expr) -> tuple[tuple[Axis, ...], Expr]:
    """Axes over a range of a * b, of which the quotient and the remainder by b are read, as two axes each."""
    for axis in bound:
        for divisor in divisors(value, axis):
            if poly_of(axis.extent).over(poly_of(divisor)) is None or axis.extent == divisor:
                continue
            outer, inner = Axis(f"r{next(FRESH)}", axis.extent // divisor), Axis(f"r{next(FRESH)}", divisor)
            value = value.substitute({axis: Index.of(outer) * divisor + Index.of(inner)})
            return _split((*(other for other in bound if other is not axis), outer, inner), value)
    return bound, value


def divisors(value: Expr, axis: Axis) -> Iterator[int]:
    """By what an axis is divided in the indices of an expression."""
    for one in value.walk():
        for index in one.indices:
            yield from _divisors(index, axis)


def _divisors(index: Index, axis: Axis) -> Iterator[int]:
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv | Mod):
            if atom.index == Index.of(axis):
                yield atom.divisor
            yield from _divisors(atom.index, axis)


def _of_apply(expr: Apply) -> list[Part]:
    if expr.function in ("add", "sub"):
        one, two = (parts_of(arg) for arg in expr.args)
        return one + ([replace(part, number=-part.number) for part in two] if expr.function == "sub" else two)
    if expr.function == "neg":
        return [replace(part, number=-part.number) for part in parts_of(expr.args[0])]
    if expr.function == "mul":
        return _times(parts_of(expr.args[0]), parts_of(expr.args[1]))
    if expr.function == "div":
        by = expr.args[1]
        while isinstance(by, Cast) and by.type.is_float and isinstance(by.arg, Cast | Const):
            by = by.arg
        if isinstance(by, Const) and by.type.is_float and not isinstance(by.value, Size | Ratio):
            number = exact(float(by.value))
            if number:
                return [replace(part, number=part.number / number) for part in parts_of(expr.args[0])]
        inverse = Apply("reciprocal", (expr.args[1],))
        return _times(parts_of(expr.args[0]), [Part(Fraction(1), (), (), (inverse,))])
    if expr.function == "pow" and isinstance(expr.args[1], Const) and float(expr.args[1].value) == 2.0:
        return _times(parts_of(expr.args[0]), parts_of(expr.args[0]))
    return [Part(Fraction(1), (), (), (expr,))]


def _times(one: list[Part], two: list[Part]) -> list[Part]:
    if len(one) * len(two) > MOST_PARTS:
        raise Untold(f"a product of {len(one)} and {len(two)} parts")
    found = []
    for a in one:
        for b in two:
            fresh = {axis: Axis(f"r{next(FRESH)}", axis.extent) for axis in b.bound if axis in a.bound}
            if fresh:
                b = replace(b, bound=tuple(fresh.get(axis, axis) for axis in b.bound)).substitute(
                    {axis: Index.of(new) for axis, new in fresh.items()}
                )
            found.append(
                Part(
                    a.number * b.number,
                    (*a.bound, *b.bound),
                    (*a.guards, *(guard for guard in b.guards if guard not in a.guards)),
                    (*a.factors, *b.factors),
                    (*a.sizes, *b.sizes),
                )
            )
    return found


@dataclass
class Sums:
    """Elements with sums as terms of the solver: equal sums are one number, of which nothing more is known."""

    terms: Terms
    result: tuple[Axis, ...]
    """The axes of the result."""
    around: list[Axis] = field(default_factory=list)
    """The bound axes of sums around."""
    known: list[tuple[Part, Any]] = field(default_factory=list)
    reductions: list[tuple[Reduce, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.terms.reduced = self.reduced

    def element(self, expr: Expr) -> Any:
        """The term of an expression with sums in it. Raises Untold."""
        total: Any = z3.RealVal(0)
        for part in parts_of(expr):
            total = total + self._part(part)
        return total

    def reduced(self, expr: Reduce) -> Any:
        """The term of a reduction inside a function."""
        if expr.monoid == "sum" and expr.type.is_float:
            return self.element(expr)
        return self._other(expr)

    def _other(self, expr: Reduce) -> Any:
        while expr.monoid in ("max", "min", "prod", "and", "or"):  # associative: one over ranges of both
            inner = expr.values[0]
            while isinstance(inner, Cast) and inner.type.is_float and inner.arg.dtype.is_float:
                inner = inner.arg
            if not isinstance(inner, Reduce) or inner.monoid != expr.monoid:
                break
            expr = Reduce(expr.monoid, (*expr.bound, *inner.bound), inner.values, 0, expr.type)
        if expr.monoid.startswith("arg"):
            expr = replace(expr, values=(self._ordered(expr.values[0], frozenset(expr.bound)), *expr.values[1:]))
        for known, term in self.reductions:
            if (
                known.monoid == expr.monoid
                and known.part == expr.part
                and len(known.bound) == len(expr.bound)
                and self._equal_reductions(known, expr)
            ):
                return term
        self.terms.free = True
        term = z3.Const(f"{expr.monoid}{len(self.reductions)}", self.terms.sort(expr.dtype))
        self.reductions.append((expr, term))
        return term

    def _ordered(self, value: Expr, bound: frozenset[Axis]) -> Expr:
        """What has its greatest and least at the same places: a value without the increasing functions around it."""
        if isinstance(value, Cast) and value.type.is_float and value.arg.dtype.is_float:
            return self._ordered(value.arg, bound)
        if not isinstance(value, Apply) or value.function not in ("exp", "add", "sub", "mul"):
            return value
        inner, *other = value.args
        if any(one.axes & bound for one in other):
            return value
        if value.function == "mul" and not self.holds(self.terms.of(other[0]) > 0, list(self.terms.facts)):
            return value
        return self._ordered(inner, bound)

    def _equal_reductions(self, one: Reduce, two: Reduce) -> bool:
        parts = []
        for each in (one, two):
            guards, values = _guarded(each)
            parts.append(Part(Fraction(1), each.bound, guards, values))
        return self._equal(parts[0], parts[1], in_order=True)

    def _part(self, part: Part) -> Any:
        if self._impossible(part):
            return z3.RealVal(0)
        part = self._without_unused(part)
        bound = frozenset(part.bound)
        factor: Any = rational(part.number)
        for size in part.sizes:
            factor = factor * self.terms.real_poly(poly_of(size))
        for free in part.factors:
            if not free.axes & bound:
                term = self.terms.of(free)
                factor = factor * (z3.ToReal(term) if term.is_int() else term)
        guards = [guard for guard in part.guards if not guard.axes & bound]
        for inner in _apart(part):
            factor = factor * self._sum(inner)
        return z3.If(z3.And(*(self.terms.of(guard) for guard in guards)), factor, z3.RealVal(0)) if guards else factor

    def _sum(self, part: Part) -> Any:
        for known, term in self.known:
            if self._equal(known, part):
                return term
        self.terms.free = True
        term = z3.Real(f"sum{len(self.known)}")
        self.known.append((part, term))
        if not part.guards and all(isinstance(one, Apply) and one.function == "exp" for one in part.factors):
            self.terms.facts.append(term > 0)  # a sum of what is above 0, over ranges that are not empty
        self._of_squares(part, term)
        return term

    def _of_squares(self, part: Part, term: Any) -> None:
        """That a sum of squares is not below 0, nor, times how many there are, below the square of the sum (Cauchy)."""
        if len(part.factors) != 2 or part.factors[0] != part.factors[1]:
            return
        self.terms.facts.append(term >= 0)
        if not part.guards:
            whole = self._sum(replace(part, factors=part.factors[:1]))
            count = self.terms.real_poly(math.prod(map(_poly_of_extent, part.bound), start=Poly.number(1)))
            self.terms.facts.append(count * term >= whole * whole)

    def _without_unused(self, part: Part) -> Part:
        """Bound axes that nothing depends on become factors: their extents."""
        used = frozenset[Axis]().union(*(one.axes for one in (*part.guards, *part.factors)))
        gone = [axis for axis in part.bound if axis not in used]
        number, sizes = part.number, list(part.sizes)
        for axis in gone:
            sizes.append(axis.extent)
        kept = tuple(axis for axis in part.bound if axis in used)
        return replace(part, bound=kept, number=number, sizes=tuple(sizes))

    # What the solver is asked

    def outer(self) -> list[Any]:
        """The ranges of the axes of the result."""
        return self.terms.within((*self.result, *self.around))

    def holds(self, claim: Any, given: list[Any]) -> bool:
        """Whether a claim about indices follows."""
        for linear in (True, False):
            solver = z3.Solver()
            solver.set("rlimit", MOST_EFFORT)
            solver.add(*self.terms.assumptions(linear), *self.outer(), *given)
            if not linear:
                solver.add(*self.terms.facts)
            solver.add(z3.Not(claim))
            if solver.check() == z3.unsat:
                return True
        return False

    def _impossible(self, part: Part) -> bool:
        if not part.guards:
            return False
        guards = [self.terms.of(guard) for guard in part.guards]
        return self.holds(z3.BoolVal(False), [*self.terms.within(part.bound), *guards])

    def _equal(self, one: Part, two: Part, in_order: bool = False) -> bool:
        if len(one.factors) != len(two.factors) or Counter(map(_head, one.factors)) != Counter(map(_head, two.factors)):
            return False
        if len(one.bound) != len(two.bound):
            return False
        for pairing in _pairings(one.factors, two.factors, in_order):
            for there, back in self._bijections(one, two, pairing):
                if self._same(one, two, pairing, there, back):
                    return True
        return False

    def _bijections(
        self, one: Part, two: Part, pairing: list[tuple[Expr, Expr]]
    ) -> Iterator[tuple[dict[Axis, Index], dict[Axis, Index]]]:
        """Axes of the second part as functions of the first one's, and the other way round."""
        there = _solved([(a, b) for a, b in pairing], two.bound)
        back = _solved([(b, a) for a, b in pairing], one.bound)
        left = [axis for axis in two.bound if axis not in there]
        right = [axis for axis in one.bound if axis not in back]
        if len(left) != len(right) or len(left) > 4:
            return
        for order in permutations(right):
            if all(poly_of(a.extent) == poly_of(b.extent) for a, b in zip(order, left, strict=True)):
                more = {b: Index.of(a) for a, b in zip(order, left, strict=True)}
                less = {a: Index.of(b) for a, b in zip(order, left, strict=True)}
                yield {**_closed(there, more), **more}, {**_closed(back, less), **less}

    def _same(
        self,
        one: Part,
        two: Part,
        pairing: list[tuple[Expr, Expr]],
        there: dict[Axis, Index],
        back: dict[Axis, Index],
    ) -> bool:
        of = self.terms
        with self._inside(one.bound):
            domain = [of.of(guard) for guard in one.guards]
            equal = [(of.of(a), of.of(b.substitute(there))) for a, b in pairing]
            claims = [left == right for left, right in equal if not left.eq(right)]
            claims += self._reached(two, there)
            claims += [of.axis(a) == of.index(back[a].substitute(there)) for a in one.bound]
            if not self.holds(z3.And(*claims), domain):
                return False
        with self._inside(two.bound):
            claims = self._reached(one, back)
            claims += [of.axis(b) == of.index(there[b].substitute(back)) for b in two.bound]
            return self.holds(z3.And(*claims), [of.of(guard) for guard in two.guards])

    @contextmanager
    def _inside(self, bound: tuple[Axis, ...]) -> Iterator[None]:
        """Where these axes are within their ranges."""
        self.around += bound
        try:
            yield
        finally:
            del self.around[len(self.around) - len(bound) :]

    def _reached(self, part: Part, mapping: dict[Axis, Index]) -> list[Any]:
        """That the point which `mapping` gives is one at which a part is summed."""
        of, found = self.terms, []
        for axis in part.bound:
            place = of.index(mapping[axis])
            found += [place >= 0, place < of.size(axis.extent)]
        return found + [of.of(guard.substitute(mapping)) for guard in part.guards]


def _poly_of_extent(axis: Axis) -> Poly:
    return poly_of(axis.extent)


def _apart(part: Part) -> Iterator[Part]:
    """The factors of a sum that share no bound axis: sum f(i) g(j) = sum f(i) * sum g(j)."""
    left = list(part.bound)
    while left:
        group = {left[0]}
        while more := {
            axis
            for one in (*part.guards, *part.factors)
            if one.axes & group
            for axis in one.axes & frozenset(left)
            if axis not in group
        }:
            group |= more
        bound = tuple(axis for axis in part.bound if axis in group)
        yield Part(
            Fraction(1),
            bound,
            tuple(guard for guard in part.guards if guard.axes & group),
            tuple(one for one in part.factors if one.axes & group),
        )
        left = [axis for axis in left if axis not in group]


def _guarded(expr: Reduce) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """A reduction's values, and the conditions beside which they are what changes nothing."""
    neutral = {"max": -math.inf, "min": math.inf}.get(expr.monoid)
    guards: list[Expr] = []
    (value, *rest) = expr.values
    while neutral is not None and isinstance(value, Where):
        if not isinstance(value.otherwise, Const) or value.otherwise.value != neutral:
            break
        guards += conjuncts(value.condition)
        value = value.then
    return tuple(guards), (value, *rest)


def _head(factor: Expr) -> str:
    if isinstance(factor, Load):
        return factor.slot
    return f"{type(factor).__name__} {getattr(factor, 'function', '')}{getattr(factor, 'monoid', '')}"


def _pairings(one: tuple[Expr, ...], two: tuple[Expr, ...], in_order: bool) -> Iterator[list[tuple[Expr, Expr]]]:
    """The ways in which factors of both may be each other's."""
    if in_order or not one:
        yield list(zip(one, two, strict=True))
        return
    first, *rest = one
    for place, other in enumerate(two):
        if _head(first) == _head(other):
            for found in _pairings(tuple(rest), (*two[:place], *two[place + 1 :]), False):
                yield [(first, other), *found]


def _loads_of(expr: Expr) -> list[Load]:
    return [one for one in expr.walk() if isinstance(one, Load)]


def _solved(pairing: list[tuple[Expr, Expr]], bound: tuple[Axis, ...]) -> dict[Axis, Index]:
    """Those of `bound`, axes of the second of each pair, that follow from equal indices of loads."""
    found: dict[Axis, Index] = {}
    equations: list[tuple[Index, Index]] = []
    for one, two in pairing:
        loads = _loads_of(one), _loads_of(two)
        if [load.slot for load in loads[0]] == [load.slot for load in loads[1]]:
            for a, b in zip(*loads, strict=True):
                equations += list(zip(a.index, b.index, strict=True))
    for _ in range(len(bound)):
        for wanted, given in equations:
            left = [axis for axis in bound if axis in given.axes and axis not in found]
            whole = given.coefficient(left[0]) if len(left) == 1 else None
            factor = 0 if whole is None else poly_of(whole).constant or 0
            if abs(factor) == 1:
                rest = Index(tuple(term for term in given.terms if term[0] != left[0]), given.const)
                found[left[0]] = (wanted - rest.substitute(found)) * factor
    return found


def _closed(found: dict[Axis, Index], more: dict[Axis, Index]) -> dict[Axis, Index]:
    return {axis: index.substitute(more) for axis, index in found.items()}


COMBINED = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}
MOST_UNROLLED = 9
MOST_POINTS = 100


def unrolled(expr: Expr) -> Expr:
    """Reductions along axes of few iterations, whose number is no size, written out along these."""

    def written(one: Expr) -> Expr:
        if not isinstance(one, Reduce) or one.monoid not in COMBINED:
            return one
        extents = {axis: poly_of(axis.extent).constant for axis in one.bound}
        short = [axis for axis, extent in extents.items() if extent is not None and 0 < extent <= MOST_UNROLLED]
        points = product(*(range(extents[axis] or 0) for axis in short))
        values = [
            one.values[0].substitute({axis: Index.of(place) for axis, place in zip(short, point, strict=True)})
            for point in points
        ]
        if not short or len(values) > MOST_POINTS:
            return one
        left = tuple(axis for axis in one.bound if axis not in short)
        total: Expr | None = None
        for value in values:
            part = Reduce(one.monoid, left, (value,), 0, one.type) if left else value
            total = part if total is None else Apply(COMBINED[one.monoid], (total, part))
        assert total is not None
        return total

    return expr.transform(written)


def has_sums(expr: Expr) -> bool:
    """Whether a reduction is in an expression."""
    return any(isinstance(one, Reduce) for one in expr.walk())
