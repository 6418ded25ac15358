"""One rule at one left side: run on named sizes, and shown by the solver to keep every element."""

from __future__ import annotations

import builtins
import importlib
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import z3

import compiler.ir
import compiler.legalise
import compiler.ops
import compiler.rewrite
from compiler.errors import TilewrightError
from compiler.ir import expr as expr_module
from compiler.ir import index as index_module
from compiler.ir.expr import Apply, Const, Expr, Position, Where, conjunction
from compiler.ir.graph import Graph
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType, TensorType
from compiler.legalise.profile import Profile
from compiler.legalise.program import Budget, Context, Legalising
from compiler.legalise.rules import APPROXIMATE, EQUAL
from compiler.ops.operator import Unsupported
from compiler.rewrite import EXACT, Rule, linear, rounding
from compiler.rewrite.program import Program
from compiler.rewrite.view import Draft, Rewrite
from tests.proofs.instances import Symbols
from tests.proofs.known import ASSUMED, Known, Numpy
from tests.proofs.lift import Lift, Unlifted, axes_of
from tests.proofs.reduce import FRESH
from tests.proofs.sizes import Integers, Numbers, Path, Poly, Size, alike, common, length, poly_of, ranges, replacing
from tests.proofs.sums import Sums, divisors, has_sums, unrolled
from tests.proofs.terms import BITS, EFFORT, FLOATS, MOST_EFFORT, REALS, Terms, Untold, polynomial_equal

Drawing = Callable[[Any], Graph]


class Unproved(Exception):
    """No proof, with the reason."""


class Refuted(Exception):
    """The two sides differ: an example in words."""


@dataclass(frozen=True)
class Proof:
    """What was shown of one left side.

    how         bits, floats or reals
    conditions  of sizes, beside those that an instance needs, as text
    names       the sizes that are any numbers
    """

    how: str
    conditions: tuple[str, ...]
    names: tuple[str, ...]


def _modules() -> list[Any]:
    found = []
    for package in (compiler.ops, compiler.rewrite, compiler.ir, compiler.legalise):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                found.append(importlib.import_module(info.name))
    return found


def _constant(self: Draft, array: Any) -> int:
    array = Numpy().asarray(array)
    value = self.view.fresh()
    self._constants[value] = array
    dtype = DType.of(array.dtype)
    self._types[value] = TensorType(dtype, array.shape)
    return value


_index_of = Index.of


def _of(value: Any) -> Index:
    return Index((), value) if isinstance(value, Size) else _index_of(value)


def _range(index: Index) -> tuple[int, int]:
    """As `Index.range`, which asks for the lesser of two ends though a factor's sign is known."""
    low = high = index.const
    for atom, factor in index.terms:
        ends = (atom.range[0] * factor, atom.range[1] * factor)
        lows = factor.path.lows if isinstance(factor, Size) else {}
        if poly_of(factor).never_negative(lows):
            low, high = low + ends[0], high + ends[1]
        elif (-poly_of(factor)).never_negative(lows):
            low, high = low + ends[1], high + ends[0]
        else:
            low, high = low + min(ends), high + max(ends)
    return low, high


def _rounded(array: Any, dtype: DType) -> Any:
    if not isinstance(array, Known):
        return _plain_rounded(array, dtype)
    ASSUMED.extend(array.finite_if)  # what is not finite it refuses
    return array.astype(dtype.numpy)


def _times(weights: Any, factors: Any, dtype: DType) -> Any:
    if isinstance(weights, Known) or isinstance(factors, Known):
        return np.multiply(weights, factors).astype(dtype.numpy)
    return _plain_times(weights, factors, dtype)


def _near(number: float | None, wanted: float) -> bool:
    same = alike(number, wanted)
    return _plain_near(number, wanted) if same is None else same


_plain_rounded, _plain_times, _plain_inside = rounding.rounded, linear.times, expr_module.inside
_plain_near = rounding.near


def _inside(index: Index, extent: int) -> Expr | None:
    """As `compiler.ir.expr.inside`: a side is left out where it holds for all sizes, not where for those at hand."""
    path = next(
        (size.path for size in (extent, index.const, *(f for _, f in index.terms)) if isinstance(size, Size)), None
    )
    if path is None:
        return _plain_inside(index, extent)
    low, high = map(poly_of, index.range)
    position, parts = Position(index), []
    if not low.never_negative(path.lows):
        parts.append(Apply("ge", (position, Const(0, DType.I64))))
    if not (poly_of(extent) - Poly.number(1) - high).never_negative(path.lows):
        parts.append(Apply("lt", (position, Const(extent, DType.I64))))
    return conjunction(list(parts))


MOST_CASES = 4
FOLLOWED = (
    ("rounded", _plain_rounded, _rounded),
    ("times", _plain_times, _times),
    ("near", _plain_near, _near),
)
"""Functions of rules that are given constants or sizes."""


@contextmanager
def followed(more: tuple[Any, ...] = ()) -> Iterator[None]:
    """What would make plain numbers of sizes, or of constants, replaced by what keeps how they were made."""
    places: list[tuple[Any, str, Any]] = []
    for module in (*_modules(), *more):
        places += [(module, "int", Integers), (module, "float", Numbers)]
        places += [(module, "range", ranges), (module, "len", length)]
        if module.__name__.startswith(("compiler.rewrite", "compiler.legalise")) and vars(module).get("np") is np:
            places.append((module, "np", Numpy()))
        if vars(module).get("inside") is _plain_inside:
            places.append((module, "inside", _inside))
        for name, plain, new in FOLLOWED:
            if vars(module).get(name) is plain:
                places.append((module, name, new))
    places += [
        (index_module, "gcd", common),
        (Index, "range", property(_range)),
        (Axis, "range", property(lambda axis: (0, axis.extent - 1))),  # no size is 0
        (index_module, "_sort_key", lambda term: (str(abs(term[1])), str(term[0]))),
        (Index, "of", staticmethod(_of)),
        (Draft, "constant", _constant),
    ]
    with replacing(places):
        yield


class Watching(Program):
    """What a program does of which some constants are Knowns."""

    def _add_constant(self, value: int, array: Any) -> None:
        if isinstance(array, Known):
            self.constants[value] = array  # type: ignore[assignment]
        else:
            super()._add_constant(value, array)

    def scalar(self, value: int | None) -> Any:
        """None for a constant that may be any number."""
        array = self.constant(value)
        return None if isinstance(array, Known) else super().scalar(value)


class Watched(Watching):
    """A program for rules of rewriting."""


class WatchedLegally(Watching, Legalising):
    """A program for rules of legalisation."""


@dataclass
class Pair:
    """A program before and after a rule, on named sizes."""

    before: Graph
    after: Graph
    path: Path
    sketch: Symbols


def pair(rule: Rule, drawing: Drawing, sketch: Symbols, profile: Profile | None = None) -> Pair | None:
    """The rule applied once, at the first node where it applies; None where there is none."""
    graph = drawing(sketch)
    program: Program = Watched(graph)
    if profile is not None:
        context = Context(profile, EQUAL, APPROXIMATE, Budget(0.02, 64), dict.fromkeys(graph.inputs, (-4.0, 4.0)))
        program = WatchedLegally(graph, context)
    for key in program.ordered():
        node = program.made_by.get(key)
        if node is None or (rule.ops and node.op not in rule.ops):
            continue
        found = rule.match(program, node)
        if isinstance(found, Rewrite):
            program.apply(node, found)
            program.drop_unread()
            return Pair(graph, program.graph(), sketch.path, sketch)
    return None


def holds(value: int, relation: str) -> bool:
    """Whether a number is in a relation to 0."""
    return {"==": value == 0, "!=": value != 0, ">=": value >= 0, "<": value < 0}[relation]


def solved(path: Path) -> dict[str, Poly]:
    """Names that follow from the equalities of a path, as polynomials of others."""
    found: dict[str, Poly] = {}
    for poly, relation in path.conditions:
        if relation != "==":
            continue
        poly = _reduced(poly.replaced(found), path.lows)
        for quotient in sorted(poly.names & path.quotients.keys()):  # what is a multiple of another size
            over, by = path.quotients[quotient]
            name = "".join(over.names) if len(over.names) == 1 and over == Poly.name("".join(over.names)) else ""
            remainder = over - by * Poly.name(quotient)
            if name and name not in found and name not in by.names and poly in (remainder, -remainder):
                if by.names & (path.quotients.keys() | found.keys()):
                    continue
                path.values[f"{name}_"] = path.values[quotient]
                multiple = by * Poly.name(f"{name}_")
                found = {other: old.replaced({name: multiple}) for other, old in found.items()} | {name: multiple}
                break
        else:
            _solve(poly, path, found)
    return found


def _solve(poly: Poly, path: Path, found: dict[str, Poly]) -> None:
    """Notes a name that a polynomial of value 0 gives."""
    for key, factor in sorted(poly.terms, reverse=True):
        if len(key) == 1 and abs(factor) == 1 and key[0] not in path.quotients:
            rest = poly - Poly(((key, factor),))
            if key[0] in rest.names or rest.names & path.quotients.keys():
                continue
            value = rest if factor < 0 else -rest
            if value.constant is None and not all(f > 0 for _, f in value.terms):
                continue
            found |= {name: old.replaced({key[0]: value}) for name, old in found.items()}
            found[key[0]] = value
            return


def fresh_values(path: Path, known: Mapping[str, Poly]) -> dict[str, int] | None:
    """Other sizes of which the same conditions hold, all different and none small; None where there are none."""
    terms = Terms(BITS, path)
    names = [name for name in path.values if name not in path.quotients and name not in known]
    solver = z3.Solver()
    solver.set("rlimit", 6 * EFFORT)
    solver.add(*terms.assumptions())
    sizes = [z3.Int(name) for name in names]
    different = [z3.Distinct(*sizes)] if names else []
    for least, apart in ((5, different), (2, different), (2, []), (0, [])):
        solver.push()
        solver.add(*(size >= least for size in sizes), *(size <= 60 for size in sizes), *apart)
        if solver.check() == z3.sat:
            break
        solver.pop()
    else:
        return None
    model = solver.model()
    return {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names}


@dataclass(frozen=True)
class Instance:
    """A left side with what is known of its sizes, and their numbers."""

    pair: Pair
    known: Mapping[str, Poly]
    values: Mapping[str, int]


def generic(run: Callable[[Mapping[str, Poly], Mapping[str, int]], Pair]) -> Instance:
    """A left side as it was drawn, with sizes made different, and larger than 1, that only happened to be as they are.

    What one size alone was asked for is left out; where the rule then does not apply, the sizes stay as drawn.
    """
    drawn = followed_equalities(run, {}, {})
    free = {name: poly for name, poly in drawn.known.items() if poly.constant is None}
    path = drawn.pair.path
    several = [poly for poly, _ in path.conditions if len(path.sizes(poly)) > 1]
    for loose in (
        {(p, relation): None for p, relation in path.conditions if p in several or relation == "!="},
        {(p, relation): None for p, relation in path.conditions if p in several or not _at_most_one(p, relation)},
    ):
        values = fresh_values(replace(path, conditions=loose | above_one(drawn.pair)), free)
        if values is None:
            continue
        try:
            return followed_equalities(run, free, values)
        except (Unproved, Unsupported, TilewrightError, ValueError, IndexError, TypeError):
            continue
    return drawn


def above_one(one: Pair) -> dict[tuple[Poly, str], None]:
    """That extents which are above 1 stay so."""
    types = [value.type for graph in (one.before, one.after) for value in graph.values.values()]
    extents = (extent for type in types for extent in type.dims if isinstance(extent, Size))
    return {(Poly.number(1) - extent.poly, "<"): None for extent in extents if builtins.int(extent) > 1}


def _at_most_one(poly: Poly, relation: str) -> bool:
    """Whether a condition of one size says that it is a number, or not above one."""
    return relation == "==" or (relation == ">=" and all(factor < 0 for key, factor in poly.terms if key))


def followed_equalities(
    run: Callable[[Mapping[str, Poly], Mapping[str, int]], Pair], known: Mapping[str, Poly], values: Mapping[str, int]
) -> Instance:
    """A left side in which sizes that must be equal have one name."""
    for _ in range(8):
        one = run(known, values)
        values = {**one.path.values, **values}
        more = {name: poly for name, poly in solved(one.path).items() if name not in known}
        if not more:
            return Instance(one, known, values)
        known = {name: poly.replaced(more) for name, poly in known.items()} | more
    raise Unproved("sizes depend on each other without end")


def attempt(
    rule: Rule,
    drawing: Drawing,
    seed: int,
    literal: frozenset[str] = frozenset(),
    profile: Profile | None = None,
    more: tuple[Any, ...] = (),
) -> Proof:
    """Proves one left side for all sizes on its path. Raises Unproved, or Refuted."""
    draws: list[Any] = []

    def run(known: Mapping[str, Poly], values: Mapping[str, int]) -> Pair:
        ASSUMED.clear()
        one = pair(rule, drawing, Symbols(seed, DType.F32, known, values, literal, draws), profile)
        if one is None:
            raise Unproved("it does not apply")
        return one

    with followed(more):
        try:
            first = generic(run)
            way = dict(first.pair.path.conditions)
            first.pair.path.symbolic = True
            proof = prove(rule, first.pair)
            first.pair.path.symbolic = False
            narrower(first.pair, way)
            path = first.pair.path
            other = fresh_values(replace(path, conditions=path.conditions | above_one(first.pair)), first.known)
            if other is None:
                raise Unproved("no other sizes are found")
            if sides(first.pair) != sides(run(first.known, other)):
                raise Unproved("other sizes give another form")
            run(first.known, first.values)
            return proof
        except (Unlifted, Untold) as error:
            raise Unproved(str(error)) from error
        except (
            Unsupported,
            TilewrightError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            AssertionError,
        ) as error:
            raise Unproved(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error


def narrower(one: Pair, way: Mapping[tuple[Poly, str], None]) -> None:
    """That a proof asked nothing of sizes that the rule's way does not settle. Raises Unproved.

    Whether an extent is 1 it may ask: an axis of one iteration is its only value, 0, and either is written. So it may
    ask whether a factor is 0: the least of two equal ends is either.
    """
    path = one.path
    own = replace(path, conditions=dict(way))
    above = {_reduced(poly, path.lows) for poly, _ in above_one(one)}
    for poly, relation in path.conditions:
        if (poly, relation) in way:
            continue
        poly = _reduced(poly, path.lows)
        if relation == "!=" and dict(poly.terms).get((), 0) in (1, -1):
            continue
        if relation == ">=" and -poly - Poly.number(1) in above:
            poly, relation = -poly - Poly.number(1), "<"
        if relation == "<" and (dict(poly.terms).get((), 0) == 1 or poly in above):  # an extent is above 1
            poly = poly - Poly.number(1)
        strict = not (relation == "<" and len(poly.terms) == 1)
        terms = Terms(BITS, path)
        term = terms.size(poly)
        below = term < 0 if strict else term <= 0
        claim = {"==": term == 0, "!=": term != 0, ">=": term >= 0, "<": below}[relation]
        if not any(_follows(claim, own, linear) for linear in (True, False)):
            raise Unproved(f"the proof holds where {poly} {relation} 0 alone")


def _reduced(poly: Poly, lows: Mapping[str, int]) -> Poly:
    """Without the factors that all its terms have, and that are above 0."""
    content = math.gcd(*(factor for _, factor in poly.terms))
    poly = Poly.of({key: factor // content for key, factor in poly.terms}) if content > 1 else poly
    for name in sorted(poly.names):
        while lows.get(name, 0) >= 1 and all(name in key for key, _ in poly.terms):
            poly = poly.over(Poly.name(name)) or poly
    return poly


def _follows(claim: Any, path: Path, linear: bool) -> bool:
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.add(*Terms(BITS, path).assumptions(linear), z3.Not(claim))
    return bool(solver.check() == z3.unsat)


def sides(one: Pair) -> list[str]:
    """The elements of both programs as text, in which only names of sizes stand."""
    FRESH.again()
    found = []
    for graph in (one.before, one.after):
        lift = Lift(graph, {**graph.constants})
        for output in one.before.outputs:
            index = tuple(Index.of(axis) for axis in axes_of(one.before.type(output).dims))
            found.append(str(lift.element(output, index)))
    return found


def prove(rule: Rule, one: Pair) -> Proof:
    """Every output of both programs at every index."""
    hows = []
    assert all(holds(poly.value(one.path.values), relation) for poly, relation in one.path.conditions)
    lifts = [Lift(graph, {**graph.constants}) for graph in (one.before, one.after)]
    for output in one.before.outputs:
        axes = axes_of(one.before.type(output).dims)
        index = tuple(Index.of(axis) for axis in axes)
        sides = [lift.element(output, index) for lift in lifts]
        hows.append(equal(sides[0], sides[1], axes, one.path, exact=rule.kind == EXACT))
    how = next(how for how in (REALS, FLOATS, BITS) if how in hows)
    lows = one.path.lows
    conditions = tuple(f"{poly} {relation} 0" for poly, relation in one.path.conditions)
    return Proof(how, conditions, tuple(name for name in lows if name not in one.path.quotients))


def equal(one: Expr, two: Expr, axes: tuple[Axis, ...], path: Path, exact: bool) -> str:
    """How two elements were shown equal. Raises Unproved or Refuted."""
    if renumbered(one) == renumbered(two):
        return BITS
    cases = by_parts_of_an_axis(one, two, axes, path) or by_a_condition(one, two, axes)
    if cases is not None:
        hows = [equal(*case, path, exact) for case in cases]
        return next(how for how in (REALS, FLOATS, BITS) if how in hows)
    forms = [(one, two)]
    if has_sums(one) or has_sums(two):
        forms.append((unrolled(one), unrolled(two)))
    for left, right in forms:
        for mode in (BITS, FLOATS, REALS) if exact else (BITS, REALS):
            if same(left, right, axes, path, mode):
                return mode
    raise Unproved("the solver finds neither a proof nor an example")


def by_parts_of_an_axis(
    one: Expr, two: Expr, axes: tuple[Axis, ...], path: Path
) -> list[tuple[Expr, Expr, tuple[Axis, ...]]] | None:
    """Both elements in each part of an axis of which the quotient by the extent of such a part is read."""
    for axis in axes:
        for divisor in dict.fromkeys((*divisors(one, axis), *divisors(two, axis))):
            parts = poly_of(axis.extent).over(poly_of(divisor))
            if parts is None or parts.constant is None or not 1 < parts.constant <= MOST_CASES:
                continue
            inner = Axis(f"{axis.name}_", divisor)
            places = [{axis: Index.of(inner) + divisor * part} for part in builtins.range(parts.constant)]
            within = tuple(inner if other is axis else other for other in axes)
            sides = [[decided(side.substitute(place), within, path) for side in (one, two)] for place in places]
            return [(before, after, within) for before, after in sides]
    return None


def by_a_condition(one: Expr, two: Expr, axes: tuple[Axis, ...]) -> list[tuple[Expr, Expr, tuple[Axis, ...]]] | None:
    """Both elements where a condition holds, and where it does not, if what it rests on is read nowhere else."""
    conditions = [inner.condition for inner in one.walk() if isinstance(inner, Where) and inner.condition.loads]
    for condition in conditions:
        cases = [tuple(_given(side, condition, holds) for side in (one, two)) for holds in (True, False)]
        read = {load.slot for sides in cases for side in sides for load in side.loads}
        if condition.axes <= frozenset(axes) and not read & {load.slot for load in condition.loads}:
            return [(before, after, axes) for before, after in cases]
    return None


def _given(expr: Expr, condition: Expr, holds: bool) -> Expr:
    def chosen(one: Expr) -> Expr:
        if not isinstance(one, Where) or one.condition != condition:
            return one
        return one.then if holds else one.otherwise

    return expr.transform(chosen)


def renumbered(expr: Expr) -> str:
    """Its text with bound axes numbered in the order of the text."""
    numbers: dict[str, str] = {}
    return re.sub(r"\br\d+\b", lambda one: numbers.setdefault(one[0], f"r{len(numbers)}"), str(expr))


def decided(expr: Expr, axes: tuple[Axis, ...], path: Path) -> Expr:
    """With a condition of positions alone replaced where it is the same at each index."""
    terms = Terms(BITS, path)
    given = [*terms.assumptions(linear=True), *terms.within(axes)]

    def follows(claim: Any) -> bool:
        solver = z3.Solver()
        solver.set("rlimit", EFFORT)
        solver.add(*given, z3.Not(claim))
        return bool(solver.check() == z3.unsat)

    def chosen(one: Expr) -> Expr:
        if not isinstance(one, Where) or one.condition.loads or not one.condition.axes <= frozenset(axes):
            return one
        condition = terms.of(one.condition)
        return one.then if follows(condition) else one.otherwise if follows(z3.Not(condition)) else one

    return expr.transform(chosen)


def same(one: Expr, two: Expr, axes: tuple[Axis, ...], path: Path, mode: str) -> bool:
    """Whether the solver shows two elements equal in a mode. Raises Refuted where it shows that they are not."""
    terms = Terms(mode, path, z3.Float32())
    try:
        if has_sums(one) or has_sums(two):
            if mode != REALS:
                return False
            sums = Sums(terms, axes)
            left, right = sums.element(one), sums.element(two)
        else:
            left, right = terms.of(one), terms.of(two)
    except Untold:
        if mode == REALS:
            raise
        return False
    if mode == REALS and z3.is_real(left) and polynomial_equal(left, right, terms.facts):
        return True
    solver = z3.Solver()
    solver.set("rlimit", MOST_EFFORT)
    solver.add(*terms.assumptions(), *terms.within(axes), *terms.facts, left != right)
    answer = solver.check()
    free = terms.free or any(not name for name, _, _ in ASSUMED)
    if answer == z3.sat and mode != BITS and not free:
        raise Refuted(example(solver.model(), terms, axes, left, right))
    return bool(answer == z3.unsat)


def example(model: Any, terms: Terms, axes: tuple[Axis, ...], left: Any, right: Any) -> str:
    """A model of the solver in words: sizes, the index, elements, and both results."""
    sizes = [
        f"{name} = {model.eval(z3.Int(name), model_completion=True)}"
        for name in terms.path.lows
        if name not in terms.path.quotients
    ]
    index = [str(model.eval(terms.axis(axis), model_completion=True)) for axis in axes]
    loads = [f"{name} = {model.eval(term, model_completion=True)}" for name, term in terms.loaded.items()]
    results = [model.eval(term, model_completion=True) for term in (left, right)]
    where = f"sizes {', '.join(sizes) or 'any'}; element [{', '.join(index)}]; where {', '.join(loads)}"
    return f"{where}: {results[0]} before, {results[1]} after"
