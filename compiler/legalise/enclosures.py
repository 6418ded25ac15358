"""Interval arithmetic on expressions of one variable: values, slopes and second derivatives, with rounding included.

An expression is evaluated on many segments at once, forwards, as (f, f', f'') with an interval for each: the chain rule
on intervals (Moore, "Interval Analysis", 1966; Rall, "Automatic Differentiation", 1981). Every interval holds what it
says over the reals: ends are moved outwards by `ULPS` units in the last place, which numpy's functions keep within.

Where a comparison is open on a segment (|x| around 0, a Where around its threshold) the slope is the hull of both
sides, f'' is unknown, and `jump` bounds by how much both sides differ there. For a function whose slope lies between m
and M on a segment of length h, and which jumps by at most j on it, a linear interpolant errs by at most h (M - m) / 4 +
j: with the segment as short as floats allow that is next to nothing, unless the function really jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compiler.ir import arithmetic
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where
from compiler.ir.tensor import DType

Array: TypeAlias = np.ndarray
ULPS = 2.0**-49
"""Of an end, about eight units in the last place of float64."""
TINY = 1e-300


@dataclass(frozen=True)
class Span:
    """An interval for each segment, `low` and `high` included."""

    low: Array
    high: Array

    def __add__(self, other: Span) -> Span:
        return _out(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        return self + -other

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low)

    def __mul__(self, other: Span) -> Span:
        ends = [_times(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return _out(np.minimum.reduce(ends), np.maximum.reduce(ends))

    def scaled(self, factor: float) -> Span:
        """Times a number."""
        return self * _just(factor, self.low)

    @property
    def squared(self) -> Span:
        """The square, which is nowhere below 0."""
        ends = self.low * self.low, self.high * self.high
        return _out(np.where(self.holds(0.0), 0.0, np.minimum(*ends)), np.maximum(*ends))

    @property
    def inverse(self) -> Span:
        """1 / x; everything where 0 is in it."""
        made = _out(1 / self.high, 1 / self.low)
        return made.unless(self.holds(0.0))

    def holds(self, number: float) -> Array:
        """Whether a number is in it."""
        return (self.low <= number) & (number <= self.high)

    def unless(self, open_: Array) -> Span:
        """Everything on the segments of `open_`."""
        return Span(np.where(open_, -np.inf, self.low), np.where(open_, np.inf, self.high))

    def mapped(self, function: Callable[[Array], Array]) -> Span:
        """Under a function that grows."""
        return _out(function(self.low), function(self.high))

    @property
    def size(self) -> Array:
        """The largest magnitude in it."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))


def hull(one: Span, two: Span) -> Span:
    """What holds both."""
    return Span(np.minimum(one.low, two.low), np.maximum(one.high, two.high))


def _times(a: Array, b: Array) -> Array:
    """With 0 times infinity as 0: the end of an interval stands for the numbers before it."""
    return np.where((a == 0) | (b == 0), 0.0, a * b)


def _out(low: Array, high: Array) -> Span:
    """Moved outwards by what numpy may have rounded; everything where an end is no number."""
    void = np.isnan(low) | np.isnan(high)
    return Span(low - np.abs(low) * ULPS - TINY, high + np.abs(high) * ULPS + TINY).unless(void)


def _just(number: float, like: Array) -> Span:
    return Span(np.full_like(like, number), np.full_like(like, number))


@dataclass(frozen=True)
class Jet:
    """What a function may be on each segment: its value, slope, second derivative, and by how much it may jump."""

    value: Span
    slope: Span
    curvature: Span
    jump: Array


def _constant(number: float, like: Array) -> Jet:
    zero = _just(0.0, like)
    return Jet(_just(number, like), zero, zero, np.zeros_like(like))


def variable(low: Array, high: Array) -> Jet:
    """x itself, on segments from `low` to `high`."""
    return Jet(Span(low, high), _just(1.0, low), _just(0.0, low), np.zeros_like(low))


def enclosed(expr: Expr, low: Array, high: Array) -> Jet | str:
    """The expression, whose every load is x, on segments; or what in it this arithmetic does not know."""
    known: dict[int, Jet] = {}

    def of(one: Expr) -> Jet:
        if id(one) not in known:
            known[id(one)] = _of(one, of, low, high)
        return known[id(one)]

    try:
        with np.errstate(all="ignore"):
            return of(expr)
    except _Unknown as unknown:
        return str(unknown)


class _Unknown(Exception):
    pass


def _of(expr: Expr, of: Callable[[Expr], Jet], low: Array, high: Array) -> Jet:
    match expr:
        case Const():
            return _constant(float(expr.value), low)
        case Load():
            return variable(low, high)
        case Cast() if expr.type.is_float and expr.arg.dtype.is_float:
            return of(expr.arg)
        case Where():
            return _chosen(_truth(expr.condition, of, low), of(expr.then), of(expr.otherwise))
        case Apply() if expr.function in BINARY:
            return BINARY[expr.function](*map(of, expr.args))
        case Apply() if expr.function in STEPS:
            return _stepped(STEPS[expr.function], of(expr.args[0]))
        case Apply() if expr.function in UNARY:
            inner = of(expr.args[0])
            return _composed(inner, *UNARY[expr.function](inner.value))
        case Apply():
            raise _Unknown(f"nothing is known of the slope of {expr.function}")
    raise _Unknown(f"nothing is known of the slope of {expr}")


def _composed(x: Jet, value: Span, first: Span, second: Span) -> Jet:
    """f(g) from f, f', f'' on the values of g."""
    return Jet(
        value, first * x.slope, second * x.slope.squared + first * x.curvature, _times(first.size, x.jump) * (1 + ULPS)
    )


def _add(a: Jet, b: Jet) -> Jet:
    return Jet(a.value + b.value, a.slope + b.slope, a.curvature + b.curvature, a.jump + b.jump)


def _negative(a: Jet) -> Jet:
    return Jet(-a.value, -a.slope, -a.curvature, a.jump)


def _multiply(a: Jet, b: Jet) -> Jet:
    curvature = a.curvature * b.value + (a.slope * b.slope).scaled(2.0) + a.value * b.curvature
    jump = _times(a.value.size, b.jump) + _times(b.value.size, a.jump)
    return Jet(a.value * b.value, a.slope * b.value + a.value * b.slope, curvature, jump * (1 + ULPS))


def _divide(a: Jet, b: Jet) -> Jet:
    return _multiply(a, _composed(b, *_reciprocal(b.value)))


def _chosen(truth: tuple[Array, Array], then: Jet, otherwise: Jet) -> Jet:
    """`then` where the condition certainly holds, `otherwise` where it does not, else both."""
    yes, no = truth
    open_ = ~yes & ~no

    def one(a: Span, b: Span) -> Span:
        both = hull(a, b)
        return Span(
            np.where(yes, a.low, np.where(no, b.low, both.low)), np.where(yes, a.high, np.where(no, b.high, both.high))
        )

    apart = (then.value - otherwise.value).size + then.jump + otherwise.jump
    jump = np.where(yes, then.jump, np.where(no, otherwise.jump, apart))
    curvature = one(then.curvature, otherwise.curvature).unless(open_)
    return Jet(one(then.value, otherwise.value), one(then.slope, otherwise.slope), curvature, jump)


def _greater(a: Jet, b: Jet) -> Jet:
    """max(a, b), which is continuous where both are."""
    made = _chosen((a.value.low >= b.value.high, a.value.high <= b.value.low), a, b)
    value = Span(np.maximum(a.value.low, b.value.low), np.maximum(a.value.high, b.value.high))
    return Jet(value, made.slope, made.curvature, np.maximum(a.jump, b.jump))


def _stepped(function: Callable[[Array], Array], x: Jet) -> Jet:
    """Of a function of whole steps."""
    low, high = function(x.value.low), function(x.value.high)
    zero = _just(0.0, low)
    return Jet(Span(low, high), zero, zero.unless(low != high), high - low)


def _power(a: Jet, b: Jet) -> Jet:
    constant = bool((b.value.low == b.value.high).all() and not b.slope.size.any() and np.ptp(b.value.low) == 0)
    if constant:
        power = float(b.value.low.flat[0])
        ends = [_to_the(a.value, power - down) for down in range(3)]
        return _composed(a, ends[0], ends[1].scaled(power), ends[2].scaled(power * (power - 1)))
    logarithm = _composed(a, *_log(a.value))
    product = _multiply(b, logarithm)
    return _composed(product, *_exp(product.value))


def _to_the(x: Span, power: float) -> Span:
    """x to a constant power; everything where that is not defined."""
    if power == 0:
        return _just(1.0, x.low)
    ends = x.low**power, x.high**power
    made = _out(np.minimum(*ends), np.maximum(*ends))
    if power % 1:
        return made.unless(x.low <= 0) if power < 0 else made.unless(x.low < 0)
    if power < 0:
        return made.unless(x.holds(0.0))
    return Span(np.where(x.holds(0.0), 0.0, made.low), made.high) if power % 2 == 0 else made


Parts: TypeAlias = tuple[Span, Span, Span]
"""f, f' and f'' on the values of x."""


def _exp(x: Span) -> Parts:
    e = x.mapped(np.exp)
    return e, e, e


def _log(x: Span) -> Parts:
    first = x.inverse.unless(x.low <= 0)
    return x.mapped(np.log).unless(x.low <= 0), first, -first.squared


def _root(power: float) -> Callable[[Span], Parts]:
    def parts(x: Span) -> Parts:
        value, first, second = (_to_the(x, power - down) for down in range(3))
        return value, first.scaled(power), second.scaled(power * (power - 1))

    return parts


def _reciprocal(x: Span) -> Parts:
    y = x.inverse
    return y, -y.squared, (y.squared * y).scaled(2.0)


def _tanh(x: Span) -> Parts:
    t = x.mapped(np.tanh)
    first = _just(1.0, x.low) - t.squared
    return t, first, (t * first).scaled(-2.0)


def _sigmoid(x: Span) -> Parts:
    t = x.scaled(0.5).mapped(np.tanh)
    one = _just(1.0, x.low)
    first = (one - t.squared).scaled(0.25)
    return (one + t).scaled(0.5), first, -(t * first)


def _erf(x: Span) -> Parts:
    first = (-x.squared).mapped(np.exp).scaled(2 / math.sqrt(math.pi))
    value = x.mapped(lambda end: arithmetic.apply("erf", (end,), _F64, _F64))
    return value, first, (x * first).scaled(-2.0)


def _log1p(x: Span) -> Parts:
    first = (x + _just(1.0, x.low)).inverse.unless(x.low <= -1)
    return x.mapped(np.log1p).unless(x.low <= -1), first, -first.squared


def _expm1(x: Span) -> Parts:
    e = x.mapped(np.exp)
    return x.mapped(np.expm1), e, e


def _wave(x: Span, shift: float) -> Span:
    """sin(x + shift)."""
    at = x + _just(shift, x.low)
    ends = np.sin(at.low), np.sin(at.high)
    made = _out(np.minimum(*ends), np.maximum(*ends))

    def passes(peak: float) -> Array:
        turns = _out((at.low - peak) / (2 * np.pi), (at.high - peak) / (2 * np.pi))
        return np.asarray(np.ceil(turns.low) <= np.floor(turns.high))

    return Span(np.where(passes(-np.pi / 2), -1.0, made.low), np.where(passes(np.pi / 2), 1.0, made.high))


def _sin(x: Span) -> Parts:
    return _wave(x, 0.0), _wave(x, np.pi / 2), -_wave(x, 0.0)


def _cos(x: Span) -> Parts:
    return _wave(x, np.pi / 2), -_wave(x, 0.0), -_wave(x, np.pi / 2)


def _tan(x: Span) -> Parts:
    turns = _out((x.low - np.pi / 2) / np.pi, (x.high - np.pi / 2) / np.pi)
    t = x.mapped(np.tan).unless(np.ceil(turns.low) <= np.floor(turns.high))
    first = _just(1.0, x.low) + t.squared
    return t, first, (t * first).scaled(2.0)


def _arc(function: Callable[[Array], Array], sign: float, power: float, factor: float) -> Callable[[Span], Parts]:
    """A function that grows, whose slope is (1 + sign x**2)**power, and f'' factor x (1 + sign x**2)**(power - 1)."""

    def parts(x: Span) -> Parts:
        inside = _just(1.0, x.low) + x.squared.scaled(sign)
        void = inside.low <= 0
        first, second = _to_the(inside, power).unless(void), _to_the(inside, power - 1).unless(void)
        return x.mapped(function).unless(void), first, (x * second).scaled(factor)

    return parts


_asin = _arc(np.arcsin, -1.0, -0.5, 1.0)


def _acos(x: Span) -> Parts:
    value, first, second = _asin(x)
    return _just(np.pi / 2, x.low) - value, -first, -second


def _sinh(x: Span) -> Parts:
    value, first = x.mapped(np.sinh), _cosh_of(x)
    return value, first, value


def _cosh(x: Span) -> Parts:
    value = _cosh_of(x)
    return value, x.mapped(np.sinh), value


def _cosh_of(x: Span) -> Span:
    ends = np.cosh(x.low), np.cosh(x.high)
    return _out(np.where(x.holds(0.0), 1.0, np.minimum(*ends)), np.maximum(*ends))


def _acosh(x: Span) -> Parts:
    inside = x.squared - _just(1.0, x.low)
    void = (x.low <= 1) | (inside.low <= 0)
    first, second = _to_the(inside, -0.5).unless(void), _to_the(inside, -1.5).unless(void)
    return x.mapped(np.arccosh).unless(void), first, -(x * second)


def _size(x: Jet) -> Jet:
    return _greater(x, _negative(x))


_F64 = DType.F64
UNARY: Mapping[str, Callable[[Span], Parts]] = {
    "exp": _exp,
    "log": _log,
    "sqrt": _root(0.5),
    "rsqrt": _root(-0.5),
    "reciprocal": _reciprocal,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "log1p": _log1p,
    "expm1": _expm1,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _arc(np.arctan, 1.0, -1.0, -2.0),
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _arc(np.arcsinh, 1.0, -0.5, -1.0),
    "acosh": _acosh,
    "atanh": _arc(np.arctanh, -1.0, -1.0, 2.0),
    "neg": lambda x: (-x, _just(-1.0, x.low), _just(0.0, x.low)),
}
"""f, f' and f'' by function of `compiler.ir.expr.FUNCTIONS`."""
BINARY: Mapping[str, Callable[..., Jet]] = {
    "add": _add,
    "sub": lambda a, b: _add(a, _negative(b)),
    "mul": _multiply,
    "div": _divide,
    "max": _greater,
    "min": lambda a, b: _negative(_greater(_negative(a), _negative(b))),
    "pow": _power,
    "abs": _size,
}
STEPS: Mapping[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sign": np.sign,
}
COMPARED: Mapping[str, Callable[[Span, Span], tuple[Array, Array]]] = {
    "lt": lambda a, b: (a.high < b.low, a.low >= b.high),
    "le": lambda a, b: (a.high <= b.low, a.low > b.high),
    "gt": lambda a, b: (a.low > b.high, a.high <= b.low),
    "ge": lambda a, b: (a.low >= b.high, a.high < b.low),
}
"""Where it certainly holds, and where it certainly does not."""


def _truth(expr: Expr, of: Callable[[Expr], Jet], like: Array) -> tuple[Array, Array]:
    match expr:
        case Const():
            held = np.full(like.shape, bool(expr.value))
            return held, ~held
        case Apply("isnan" | "isinf"):
            return np.zeros(like.shape, bool), np.ones(like.shape, bool)
        case Apply("not", (inner,)):
            yes, no = _truth(inner, of, like)
            return no, yes
        case Apply("and" | "or" as function, (one, two)):
            (a, b), (c, d) = _truth(one, of, like), _truth(two, of, like)
            return (a & c, b | d) if function == "and" else (a | c, b & d)
        case Apply(function, (one, two)) if function in COMPARED:
            return COMPARED[function](of(one).value, of(two).value)
    raise _Unknown(f"nothing is known of where {expr} holds")


def computed(expr: Expr, x: Array) -> Array:
    """The expression, whose every load is x, in float64."""
    known: dict[int, Array] = {}

    def of(one: Expr) -> Array:
        if id(one) not in known:
            known[id(one)] = np.broadcast_to(_number(one, of, x), x.shape)
        return known[id(one)]

    with np.errstate(all="ignore"):
        return np.array(of(expr), np.float64)


def _number(expr: Expr, of: Callable[[Expr], Array], x: Array) -> Array:
    match expr:
        case Const():
            return np.asarray(expr.value)
        case Load():
            return x
        case Cast():
            return of(expr.arg)
        case Where():
            return np.where(of(expr.condition), of(expr.then), of(expr.otherwise))
        case Apply():
            return arithmetic.apply(expr.function, tuple(map(of, expr.args)), _F64, _F64)
    raise _Unknown(f"{expr} is no function of one number")
