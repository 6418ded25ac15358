"""Expressions as terms of the solver: indices as integers, elements as reals, as floats, or as anything.

    BITS    an element is of a type that nothing is known of, and every function is any function: what is equal then is
            equal bit by bit, whatever functions round to
    FLOATS  IEEE 754 numbers with NaN, infinities and both zeros, rounded to nearest even
    REALS   real numbers; of functions only LEMMAS are known

A lemma is a fact of real functions that rules rest on; `tests/proofs/test_terms.py` checks each at many points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.tensor import DType
from tests.proofs.known import ASSUMED
from tests.proofs.reduce import Reduce
from tests.proofs.sizes import Path, Poly, Ratio, Size, poly_of

BITS, FLOATS, REALS = "bits", "floats", "reals"
EFFORT = 1_500_000
"""In z3's own units, about half a second of a core: so no answer hangs on a machine's load."""
MOST_EFFORT = 16 * EFFORT
SIMPLE = 500
"""The largest denominator of a number that a constant is taken for the rounding of."""


class Untold(Exception):
    """An expression for which there is no term in this mode, with the reason."""


def exact(value: float) -> Fraction:
    """The real number that a constant of a model stands for: the simple number that it is the rounding of, if any."""
    if not math.isfinite(value):
        raise Untold(f"{value} is no real number")
    whole = Fraction(value)
    for simple in (Fraction(f"{value:.6g}"), whole.limit_denominator(SIMPLE)):
        if abs(simple - whole) <= abs(whole) * Fraction(1, 2**22):
            return simple
    return whole


def rational(number: Fraction) -> Any:
    """A fraction as a number of the solver."""
    return z3.RealVal(f"{number.numerator}/{number.denominator}")


def surd(value: float) -> tuple[Fraction, int] | None:
    """The fraction, and the power of pi, of whose product a constant is the root, if it is the rounding of one."""
    if (
        not math.isfinite(value)
        or exact(value) != Fraction(value)
        or isinstance(value, Ratio)
        or exact(value).denominator <= 2**20
    ):
        return None
    for power in (0, -1, 1):
        square = Fraction(value * value / math.pi**power)
        simple = square.limit_denominator(50)
        if simple and abs(simple - square) <= square * Fraction(1, 2**21):
            return simple, power
    return None


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bounds = np.iinfo(dtype.numpy)
    return int(bounds.min), int(bounds.max)


@dataclass
class Terms:
    """Terms of one mode over one set of sizes. `sums` stands for reductions by terms of its own."""

    mode: str
    path: Path
    float_sort: Any = None
    reduced: Callable[[Reduce], Any] | None = None
    facts: list[Any] = field(default_factory=list)
    """What holds of the functions in the terms made so far."""
    free: bool = False
    """Whether functions of which nothing is known stand in the terms, so that an example need be none."""
    loaded: dict[str, Any] = field(default_factory=dict)
    """The elements that are read, by their text."""
    _applied: dict[str, list[Any]] = field(default_factory=dict)
    _done: dict[Expr, Any] = field(default_factory=dict)
    _functions: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    # Sizes and indices

    def size(self, value: int | Poly) -> Any:
        """A size, or a polynomial of sizes."""
        poly = value if isinstance(value, Poly) else poly_of(value)
        total: Any = z3.IntVal(0)
        for key, factor in poly.terms:
            part: Any = z3.IntVal(factor)
            for name in key:
                part = part * self.named(name)
            total = total + part
        return z3.simplify(total)

    def named(self, name: str) -> Any:
        """A size by its name; a quotient is the solver's own division."""
        if name in self.path.quotients:
            over, by = self.path.quotients[name]
            return self.size(over) / self.size(by)
        return z3.Int(name)

    def assumptions(self, linear: bool = False) -> list[Any]:
        """What holds of the sizes of this path; with `linear`, only what is linear."""
        found = [z3.Int(name) >= low for name, low in self.path.lows.items() if name not in self.path.quotients]
        for poly, relation in self.path.conditions:
            if linear and (poly.names & self.path.quotients.keys() or any(len(key) > 1 for key, _ in poly.terms)):
                continue
            term = self.size(poly)
            found.append({"==": term == 0, "!=": term != 0, ">=": term >= 0, "<": term < 0}[relation])
        for over, by in () if linear else self.path.quotients.values():
            found.append(self.size(by) >= 1)
            del over
        return found

    def axis(self, axis: Axis) -> Any:
        """An axis."""
        return z3.Int(axis.name)

    def within(self, axes: tuple[Axis, ...]) -> list[Any]:
        """The ranges of axes."""
        found = []
        for axis in axes:
            found += [self.axis(axis) >= 0, self.axis(axis) < self.size(axis.extent)]
        return found

    def index(self, index: Index) -> Any:
        """An index."""
        total = self.size(index.const)
        for atom, factor in index.terms:
            if isinstance(atom, Axis):
                part = self.axis(atom)
            elif isinstance(atom, FloorDiv):
                part = self.index(atom.index) / self.size(atom.divisor)
            elif isinstance(atom, Mod):
                part = self.index(atom.index) % self.size(atom.divisor)
            else:
                assert isinstance(atom, Indirect)
                part = self.of(atom.expr)
                self.facts += [part >= self.size(atom.low), part <= self.size(atom.high)]
            total = total + part * self.size(factor)
        return total

    def real_size(self, value: Size | Ratio) -> Any:
        """A size, or a quotient of sizes, as an element."""
        if self.mode != REALS:
            return self.function(f"size {value}", self.float_sort if self.mode == FLOATS else self.sort(DType.F32), ())
        if isinstance(value, Size):
            return self.real_poly(value.poly)
        number = exact(value.number)
        return self.real_poly(value.over) * rational(number) / self.real_poly(value.by)

    def real_poly(self, poly: Poly) -> Any:
        """A polynomial of sizes as a real number."""
        total: Any = z3.RealVal(0)
        for key, factor in poly.terms:
            part: Any = z3.RealVal(factor)
            for name in key:
                real = z3.ToReal(self.named(name))
                if name in self.path.lows:
                    self.facts.append(real >= self.path.lows[name])
                part = part * real
            total = total + part
        return total

    # Elements

    def sort(self, dtype: DType) -> Any:
        """The sort of an element type."""
        if dtype is DType.BOOL:
            return z3.BoolSort()
        if dtype.is_integer:
            return z3.IntSort()
        if self.mode == REALS:
            return z3.RealSort()
        if self.mode == FLOATS:
            return self.float_sort
        return z3.DeclareSort("element")

    def function(self, name: str, result: Any, args: tuple[Any, ...]) -> Any:
        """A function of which nothing is known, applied."""
        self.free |= "." in name or " " in name
        key = (name, *(arg.sort() for arg in args), result)
        if key not in self._functions:
            self._functions[key] = z3.Function(f"{name}", *(arg.sort() for arg in args), result)
        return self._functions[key](*args) if args else z3.Const(name, result)

    def of(self, expr: Expr) -> Any:
        """The term of an expression. Raises Untold."""
        if expr not in self._done:
            self._done[expr] = self._of(expr)
        return self._done[expr]

    def _of(self, expr: Expr) -> Any:
        if isinstance(expr, Const):
            return self._number(expr)
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Position):
            place = self.index(expr.index)
            return place if expr.type.is_integer else self._cast(place, DType.I64, expr.type, expr)
        if isinstance(expr, Where):
            return z3.If(self.of(expr.condition), self.of(expr.then), self.of(expr.otherwise))
        if isinstance(expr, Cast):
            return self._cast(self.of(expr.arg), expr.arg.dtype, expr.type, expr)
        if isinstance(expr, Reduce):
            if self.reduced is None:
                raise Untold("a reduction")
            return self.reduced(expr)
        assert isinstance(expr, Apply)
        return self._apply(expr)

    def _load(self, expr: Load) -> Any:
        term = self.function(expr.slot, self.sort(expr.type), tuple(self.index(place) for place in expr.index))
        self.loaded[str(expr)] = term
        for slot, relation, number in ASSUMED if self.mode == REALS else ():
            if slot == expr.slot:
                holds = {"gt": term > number, "ge": term >= number, "lt": term < number, "le": term <= number}
                holds["ne"] = term != number
                self.facts.append(holds[relation])
        return term

    def _apply(self, expr: Apply) -> Any:
        if self.mode == REALS and expr.function == "log":
            self._log_of_product(expr.args[0])
        if self.mode == REALS and expr.function in ("min", "max"):
            for one, other in (expr.args, expr.args[::-1]):  # an infinity bounds nothing
                if isinstance(one, Const) and one.value == (math.inf if expr.function == "min" else -math.inf):
                    return self.of(other)
        args = tuple(self.of(arg) for arg in expr.args)
        of = expr.args[0].dtype
        if of is DType.BOOL:
            return {"and": z3.And, "or": z3.Or, "not": z3.Not, "xor": z3.Xor, "eq": _equal, "ne": z3.Xor}[
                expr.function
            ](*args)
        if of.is_integer:
            return self._integers(expr, args)
        if self.mode == BITS:
            return self.function(f"{expr.function}.{of}", self.sort(expr.dtype), args)
        return self._floats(expr, args) if self.mode == FLOATS else self._reals(expr, args)

    def _number(self, expr: Const) -> Any:
        if expr.type is DType.BOOL:
            return z3.BoolVal(bool(expr.value))
        if isinstance(expr.value, Size | Ratio) and not expr.type.is_integer:
            return self.real_size(expr.value)
        if expr.type.is_integer:
            return self.size(expr.value) if isinstance(expr.value, int) else z3.IntVal(int(expr.value))
        if self.mode == REALS:
            if (root := surd(float(expr.value))) is not None:
                square: Any = rational(root[0])
                pi = z3.Real("pi")
                square = {0: square, 1: square * pi, -1: square / pi}[root[1]]
                self.facts.append(pi > 3)
                return self.root(square) if expr.value > 0 else -self.root(square)
            if math.isinf(expr.value):  # any number, of which nothing is known: what is equal for each is for the limit
                return self.function(f"infinity {expr.value}", z3.RealSort(), ())
            return rational(exact(float(expr.value)))
        if self.mode == FLOATS:
            value = float(expr.value)
            if math.isnan(value):
                return z3.fpNaN(self.float_sort)
            if math.isinf(value):
                return z3.fpInfinity(self.float_sort, value < 0)
            return z3.fpMinusZero(self.float_sort) if str(value) == "-0.0" else z3.FPVal(value, self.float_sort)
        return self.function(f"number {expr.value!r}", self.sort(expr.type), ())

    def _cast(self, term: Any, start: DType, end: DType, expr: Expr) -> Any:
        if start is end or (start.is_integer and end.is_integer and self.mode == REALS and _holds(start, end)):
            return term
        if self.mode == REALS and start.is_float and end.is_float:
            return term
        if self.mode == REALS and start.is_integer and end.is_float:
            if isinstance(expr, Cast) and isinstance(expr.arg, Load):
                low, high = limits(start)
                self.facts += [term >= low, term <= high]
            return z3.ToReal(term)
        if self.mode == REALS and start is DType.BOOL and end is not DType.BOOL:
            one, zero = (z3.RealVal(1), z3.RealVal(0)) if end.is_float else (z3.IntVal(1), z3.IntVal(0))
            return z3.If(term, one, zero)
        if self.mode == REALS and end is DType.BOOL:
            return term != 0
        if self.mode == FLOATS and start.is_float and end.is_float and DType.F64 in (start, end):
            return term
        if self.mode == REALS and start.is_float and end.is_integer and isinstance(expr, Cast):
            low, high = limits(end)
            whole = z3.If(term >= 0, z3.ToInt(term), -z3.ToInt(-term))  # beyond the integers' range it may be anything
            return z3.If(
                z3.And(term > low - 1, term < high + 1),
                whole,
                self.function(f"beyond {end} {expr.saturate}", z3.IntSort(), (term,)),
            )
        saturate = expr.saturate if isinstance(expr, Cast) else False
        of = "number" if self.mode == REALS and start.is_float else start  # what it gives depends on the number alone
        return self.function(f"cast {of} {end} {saturate}", self.sort(end), (term,))

    def _integers(self, expr: Apply, args: tuple[Any, ...]) -> Any:
        a, b = args[0], args[-1]
        known: Mapping[str, Callable[[], Any]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "neg": lambda: -a,
            "min": lambda: z3.If(a <= b, a, b),
            "max": lambda: z3.If(a >= b, a, b),
            "abs": lambda: z3.If(a >= 0, a, -a),
            "lt": lambda: a < b,
            "le": lambda: a <= b,
            "gt": lambda: a > b,
            "ge": lambda: a >= b,
            "eq": lambda: a == b,
            "ne": lambda: a != b,
        }
        if expr.function in known:
            return known[expr.function]()
        return self.function(f"{expr.function}.int", self.sort(expr.dtype), args)

    def _floats(self, expr: Apply, args: tuple[Any, ...]) -> Any:
        a, b, rounding = args[0], args[-1], z3.RNE()
        if expr.args[0].dtype is DType.F64 and expr.function not in (
            "neg",
            "abs",
            "min",
            "max",
            "lt",
            "le",
            "gt",
            "ge",
        ):
            raise Untold("arithmetic in float64")
        nan = z3.fpNaN(self.float_sort)
        either = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
        known: Mapping[str, Callable[[], Any]] = {
            "add": lambda: z3.fpAdd(rounding, a, b),
            "sub": lambda: z3.fpSub(rounding, a, b),
            "mul": lambda: product(a, b),
            "div": lambda: a if _is(b, 1.0) else z3.fpDiv(rounding, a, b),
            "sqrt": lambda: z3.fpSqrt(rounding, a),
            "neg": lambda: z3.fpNeg(a),
            "abs": lambda: z3.fpAbs(a),
            "max": lambda: z3.If(either, nan, z3.If(z3.fpGEQ(a, b), a, b)),
            "min": lambda: z3.If(either, nan, z3.If(z3.fpLEQ(a, b), a, b)),
            "lt": lambda: z3.fpLT(a, b),
            "le": lambda: z3.fpLEQ(a, b),
            "gt": lambda: z3.fpGT(a, b),
            "ge": lambda: z3.fpGEQ(a, b),
            "eq": lambda: z3.fpEQ(a, b),
            "ne": lambda: z3.Not(z3.fpEQ(a, b)),
            "isnan": lambda: z3.fpIsNaN(a),
            "isinf": lambda: z3.fpIsInf(a),
        }
        if expr.function == "pow" and isinstance(expr.args[1], Const) and expr.args[1].value == 1:
            return a
        if expr.function in known:
            return known[expr.function]()
        return self.function(f"{expr.function}.float", self.sort(expr.dtype), args)

    def _reals(self, expr: Apply, args: tuple[Any, ...]) -> Any:
        a, b = args[0], args[-1]
        one = z3.RealVal(1)
        known: Mapping[str, Callable[[], Any]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "div": lambda: a / b,
            "neg": lambda: -a,
            "abs": lambda: z3.If(a >= 0, a, -a),
            "max": lambda: z3.If(a >= b, a, b),
            "min": lambda: z3.If(a <= b, a, b),
            "sign": lambda: z3.If(a > 0, one, z3.If(a < 0, -one, z3.RealVal(0))),
            "reciprocal": lambda: one / a,
            "lt": lambda: a < b,
            "le": lambda: a <= b,
            "gt": lambda: a > b,
            "ge": lambda: a >= b,
            "eq": lambda: a == b,
            "ne": lambda: a != b,
            "isnan": lambda: z3.BoolVal(False),
            "isinf": lambda: z3.BoolVal(False),
            "sqrt": lambda: self.root(a),
            "rsqrt": lambda: one / self.root(a),
            "sigmoid": lambda: one / (one + self.lemma("exp", -a)),
            "tanh": lambda: one - 2 / (one + self.lemma("exp", 2 * a)),
            "log1p": lambda: self.lemma("log", one + a),
            "expm1": lambda: self.lemma("exp", a) - 1,
            "exp": lambda: self.lemma("exp", a),
            "log": lambda: self.lemma("log", a),
            "erf": lambda: self.lemma("erf", a),
        }
        if expr.function == "pow" and isinstance(expr.args[1], Const):
            return self.power(a, exact(float(expr.args[1].value)))
        if expr.function in known:
            return known[expr.function]()
        return self.function(f"{expr.function}.real", self.sort(expr.dtype), args)

    def _log_of_product(self, arg: Expr) -> None:
        """log(a b) = log(a) + log(b) and log(a / b) = log(a) - log(b), for a and b above 0."""
        if isinstance(arg, Apply) and arg.function in ("mul", "div"):
            a, b = self.of(arg.args[0]), self.of(arg.args[1])
            sign = -1 if arg.function == "div" else 1
            inverse = arg.args[1]
            if isinstance(inverse, Apply) and inverse.function == "reciprocal":
                b, sign = self.of(inverse.args[0]), -1
            both = self.lemma("log", self.of(arg)) == self.lemma("log", a) + sign * self.lemma("log", b)
            self.facts.append(z3.Implies(z3.And(a > 0, b > 0), both))

    def power(self, a: Any, exponent: Fraction) -> Any:
        """A power by a multiple of one half; any other exponent names a function."""
        if exponent < 0:
            return z3.RealVal(1) / self.power(a, -exponent)
        whole, half = divmod(exponent, 1)
        if half not in (0, Fraction(1, 2)) or whole > 4:
            return self.function(f"power {exponent}", z3.RealSort(), (a,))
        found: Any = self.root(a) if half else z3.RealVal(1)
        for _ in range(int(whole)):
            found = found * a
        return found

    def root(self, a: Any) -> Any:
        """The square root; of numbers below 0 nothing is known."""
        a, before = z3.simplify(a), self._applied.setdefault("sqrt", [])
        for other in before:
            if not a.eq(other) and polynomial_equal(a, other, self.facts, EFFORT):
                a = other
        if any(a.eq(other) for other in before):
            return self._root(a)
        for other in before:  # root(1 / a) = 1 / root(a)
            one = self._root(a) * self._root(other) == 1
            self.facts.append(z3.Implies(z3.And(a > 0, other > 0, a * other == 1), one))
        found = self._root(a)
        self._applied["sqrt"].append(a)
        self.facts.append(z3.Implies(a >= 0, z3.And(found >= 0, found * found == a)))
        self.facts.append(z3.Implies(a > 0, found > 0))
        return found

    def _root(self, a: Any) -> Any:
        return self.function("sqrt.real", z3.RealSort(), (a,))

    def lemma(self, name: str, a: Any) -> Any:
        """exp, log or erf of a term, with what LEMMAS say of it beside the others."""
        found = self.function(f"{name}.real", z3.RealSort(), (a,))
        others = self._applied.setdefault(name, [])
        if not any(other.eq(a) for other in others):
            for lemma in LEMMAS[name]:
                self.facts += lemma(lambda term: self.function(f"{name}.real", z3.RealSort(), (term,)), a, others)
            others.append(a)
            if name == "exp":
                for one in self._applied.get("log", []):
                    self.facts += _inverse(self, a, one)
            if name == "log":
                for one in self._applied.get("exp", []):
                    self.facts += _inverse(self, one, a)
        return found


def polynomial_equal(left: Any, right: Any, facts: list[Any], effort: int = MOST_EFFORT) -> bool:
    """Whether two real terms are equal whatever the functions in them are, by arithmetic of polynomials alone.

    Applications of functions, and conversions of integers, become variables; equal applications equal ones.
    """
    found: dict[Any, Any] = {}

    def plain(term: Any) -> Any:
        if term in found:
            return found[term]
        kind = term.decl().kind()
        if (
            kind == z3.Z3_OP_UNINTERPRETED and term.is_real() if z3.is_arith(term) else False
        ) or kind == z3.Z3_OP_TO_REAL:
            result = z3.Real(f"p{len(found)}")
        elif term.num_args():
            result = term.decl()(*(plain(term.arg(place)) for place in range(term.num_args())))
        else:
            result = term
        found[term] = result
        return result

    whole = z3.simplify(z3.And(*facts, left != right))
    solver = z3.Tactic("qfnra-nlsat").solver()
    solver.set("rlimit", effort)
    try:
        solver.add(plain(whole))
        return bool(solver.check() == z3.unsat)
    except z3.Z3Exception:
        return False


def product(a: Any, b: Any) -> Any:
    """The product of two floats, in one order and with one sign: -a * b = a * -b = -(a * b), a * 1 = a, a * -1 = -a."""
    negative = False
    factors = []
    for one in (a, b):
        while one.decl().kind() == z3.Z3_OP_FPA_NEG:
            one, negative = one.arg(0), not negative
        if _is(one, -1.0):
            negative = not negative
        elif not _is(one, 1.0):
            factors.append(one)
    if not factors:
        found: Any = z3.FPVal(1.0, a.sort())
    else:
        first, *rest = sorted(factors, key=lambda one: int(one.get_id()))
        found = z3.fpMul(z3.RNE(), first, *rest) if rest else first
    return z3.fpNeg(found) if negative else found


def _is(term: Any, number: float) -> bool:
    """Whether a term of floats is a number."""
    return bool(z3.simplify(term).eq(z3.simplify(z3.FPVal(number, term.sort()))))


def _equal(a: Any, b: Any) -> Any:
    return a == b


def _holds(start: DType, end: DType) -> bool:
    return start is not DType.BOOL and end is not DType.BOOL and end.bytes > start.bytes


def _inverse(terms: Terms, of_exp: Any, of_log: Any) -> list[Any]:
    """log(exp(a)) = a, exp(log(b)) = b for b > 0."""
    exp = terms.function("exp.real", z3.RealSort(), (of_exp,))
    log = terms.function("log.real", z3.RealSort(), (of_log,))
    return [z3.Implies(of_log == exp, log == of_exp), z3.Implies(z3.And(of_log > 0, of_exp == log), exp == of_log)]


def _exp_positive(exp: Any, a: Any, _: list[Any]) -> list[Any]:
    """exp(a) > 0, exp(0) = 1, exp(a) >= 1 exactly where a >= 0."""
    return [exp(a) > 0, z3.Implies(a == 0, exp(a) == 1), (exp(a) >= 1) == (a >= 0)]


def _exp_of_opposite(exp: Any, a: Any, others: list[Any]) -> list[Any]:
    """exp(a) exp(-a) = 1."""
    return [z3.Implies(a == -b, exp(a) * exp(b) == 1) for b in others]


def _exp_of_double(exp: Any, a: Any, others: list[Any]) -> list[Any]:
    """exp(2 a) = exp(a)**2."""
    pairs = [(a, b) for b in others] + [(b, a) for b in others]
    found = [z3.Implies(c == 2 * d, exp(c) == exp(d) * exp(d)) for c, d in pairs]
    return found + [z3.Implies(c == -2 * d, exp(c) * exp(d) * exp(d) == 1) for c, d in pairs]


def _erf_odd(erf: Any, a: Any, others: list[Any]) -> list[Any]:
    """erf(-a) = -erf(a)."""
    return [z3.Implies(a == -b, erf(a) == -erf(b)) for b in others]


LEMMAS: Mapping[str, tuple[Callable[[Any, Any, list[Any]], list[Any]], ...]] = {
    "exp": (_exp_positive, _exp_of_opposite, _exp_of_double),
    "log": (),
    "erf": (_erf_odd,),
}
"""What is known of a function: facts for one more argument beside those that it was applied to before."""
