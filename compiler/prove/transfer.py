"""How intervals pass through operators: forwards from operands to results, backwards from what is demanded of a result.

Operators that only move elements pass them as they are, whatever they are called; arithmetic is in TRANSFER. What is
not here ends a walk: of its results only what their types and traits say is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.ir.graph import Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.ops.attributes import number_of
from compiler.ops.traits import Trait
from compiler.prove.interval import (
    EVERYTHING,
    TRUTH,
    Interval,
    held,
    hull,
    rounded_down,
    rounded_up,
    truncated,
    whole,
)


@dataclass(frozen=True)
class Site:
    """One node with what is known of its operands; those that are absent are None.

    `output` is the position of the result in question. `shares` says that operands of which nothing is known may each
    be given a share of what is demanded of them together.
    """

    node: Node
    args: tuple[Interval | None, ...]
    types: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]
    output: int = 0
    shares: bool = False

    def arg(self, position: int) -> Interval:
        """What is known of an operand; everything for one that is absent."""
        found = self.args[position] if position < len(self.args) else None
        return EVERYTHING if found is None else found

    def type(self, position: int) -> TensorType:
        """Element type and shape of an input that is given."""
        found = self.types[position]
        assert found is not None
        return found

    @property
    def present(self) -> list[Interval]:
        """The intervals of inputs that are given."""
        return [arg for arg in self.args if arg is not None]

    def is_whole(self, position: int) -> bool:
        """Whether an operand's elements are integers."""
        return not self.type(position).dtype.is_float


Forward = Callable[[Site], Interval]
Backward = Callable[[Site, int, Interval], Interval | None]


def _nothing(site: Site, position: int, need: Interval) -> Interval | None:
    return None


@dataclass(frozen=True)
class Transfer:
    """Both ways through one operator.

    `backward` says of an operand what suffices for the result to hold what is needed, whatever the other operands
    take of what is known of them; None where nothing suffices.
    """

    forward: Forward
    backward: Backward = _nothing


def forward(site: Site) -> Interval:
    """What a result may hold."""
    found = transfer_of(site.node.op)
    dtype = site.results[site.output].dtype
    if found is not None:
        return held(found.forward(site), dtype)
    promises = OPERATORS[site.node.op].traits if site.node.op in OPERATORS else Trait(0)
    return whole(dtype).meet(Interval(0, math.inf)) if Trait.NOT_NEGATIVE in promises else whole(dtype)


def backward(site: Site, position: int, need: Interval) -> Interval | None:
    """What suffices of an operand; None where nothing does, or an operand has no part in it."""
    found = transfer_of(site.node.op)
    return found.backward(site, position, need) if found else None


def transfer_of(operator: str) -> Transfer | None:
    """None for an operator that ends a walk."""
    found = TRANSFER.get(operator)
    if found is None and operator in OPERATORS and Trait.MOVES in OPERATORS[operator].traits:
        return MOVED
    return found


# Elements that are moved


def _first(site: Site) -> Interval:
    return site.arg(0)


def _kept(site: Site, position: int, need: Interval) -> Interval | None:
    return need if position == 0 else None


def _any_of(*positions: int) -> Transfer:
    """Each element of the result is one of these operands; without positions, of any."""

    def forwards(site: Site) -> Interval:
        return hull([site.arg(at) for at in positions] if positions else site.present)

    def backwards(site: Site, position: int, need: Interval) -> Interval | None:
        return need if not positions or position in positions else None

    return Transfer(forwards, backwards)


def _scattered(data: int, updates: int) -> Transfer:
    """Elements of both operands where none are combined, or the greater or less of two."""
    both = _any_of(data, updates)

    def is_choice(site: Site) -> bool:
        return site.node.attrs.get("reduction", "none") in ("none", "min", "max")

    return Transfer(
        lambda site: both.forward(site) if is_choice(site) else EVERYTHING,
        lambda site, position, need: both.backward(site, position, need) if is_choice(site) else None,
    )


def _with_zero(site: Site) -> Interval:
    return hull((site.arg(0), Interval(0, 0)))


def _padded(site: Site) -> Interval:
    if site.node.attrs.get("mode", "constant") != "constant":
        return site.arg(0)
    value = site.node.attrs.get("constant_value")
    if isinstance(value, tuple):
        value = value[0] if value else None
    number = value if isinstance(value, int | float) else 0
    return hull((site.arg(0), Interval(number, number)))


# Conversions and functions of one operand


def _cast(site: Site) -> Interval:
    x, dtype = site.arg(0), site.results[0].dtype
    if dtype is DType.BOOL:
        return TRUTH
    if dtype.is_float and dtype.is_small:  # rounded by far more than others, also past an end
        return EVERYTHING
    return x if dtype.is_float else Interval(truncated(x.low), truncated(x.high))


def _cast_back(site: Site, position: int, need: Interval) -> Interval | None:
    return need if position == 0 and site.results[0].dtype is not DType.BOOL else None


def _absolute(site: Site) -> Interval:
    x = site.arg(0)
    return hull((x, -x)).meet(Interval(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), math.inf))


def _absolute_back(site: Site, position: int, need: Interval) -> Interval | None:
    return Interval(-need.high, need.high) if need.low <= 0 else need


def _rounding(function: Callable[[float], float]) -> Transfer:
    """Floor, Ceil and Round: what is whole stays as it is."""

    def backwards(site: Site, position: int, need: Interval) -> Interval | None:
        return Interval(rounded_up(need.low), rounded_down(need.high))

    return Transfer(lambda site: Interval(function(site.arg(0).low), function(site.arg(0).high)), backwards)


def _nearest(number: float) -> float:
    return round(number) if math.isfinite(number) else number


# Sums


def _sum_of(signs: Callable[[Site, int], int]) -> Transfer:
    """A sum of operands, each with its sign."""

    def terms(site: Site) -> list[Interval]:
        return [arg if signs(site, at) > 0 else -arg for at, arg in enumerate(site.present)]

    def forwards(site: Site) -> Interval:
        total = Interval(0, 0)
        for term in terms(site):
            total = total + term
        return total

    def backwards(site: Site, position: int, need: Interval) -> Interval | None:
        others = [term for at, term in enumerate(terms(site)) if at != position]
        total = Interval(0, 0)
        for other in others:
            total = total + other
        room = Interval(need.low - total.low, need.high - total.high) if total.is_finite else None
        if (room is None or room.is_empty) and site.shares:
            room = _share(site, need, terms(site))
        if room is None or room.is_empty:
            return None
        return room if signs(site, position) > 0 else -room

    return Transfer(forwards, backwards)


def _share(site: Site, need: Interval, terms: list[Interval]) -> Interval:
    """The same part for each operand that may hold several numbers."""
    fixed = [term for term in terms if term.is_one]
    count = max(len(terms) - len(fixed), 1)
    rest = sum(term.low for term in fixed)
    low, high = need.low - rest, need.high - rest
    if site.is_whole(0):
        return Interval(_over(low, count, rounded_up), _over(high, count, rounded_down))
    return Interval(low / count, high / count)


def _over(number: float, divisor: float, rounding: Callable[[float], float]) -> float:
    """A quotient rounded to a whole number; exact for ints of any size."""
    if isinstance(number, int) and isinstance(divisor, int):
        return -(-number // divisor) if rounding is rounded_up else number // divisor
    return rounding(number / divisor)


# Products and quotients


def _product(site: Site) -> Interval:
    one, two = site.arg(0), site.arg(1)
    if site.node.inputs[0] == site.node.inputs[1]:
        square = _absolute(site)
        return square * square
    return one * two


def _factor(site: Site, position: int, need: Interval) -> Interval | None:
    other = site.arg(1 - position)
    if other.is_one and other.low:
        return _divided(site, position, need, other.low)
    if not need.low <= 0 <= need.high:
        return None
    if other.is_finite:
        most = max(abs(other.low), abs(other.high))
        room = need if other.low >= 0 else Interval(max(need.low, -need.high), min(need.high, -need.low))
        return _divided(site, position, room, most) if most else None
    is_shared = site.shares and site.is_whole(position) and isinstance(need.high, int)
    return Interval(0, math.isqrt(int(need.high))) if is_shared else None


def _divided(site: Site, position: int, need: Interval, divisor: float) -> Interval | None:
    low, high = (need.low, need.high) if divisor > 0 else (need.high, need.low)
    if not site.is_whole(position):
        return Interval(low / divisor, high / divisor)
    found = Interval(_over(low, divisor, rounded_up), _over(high, divisor, rounded_down))
    return None if found.is_empty else found


def _quotient(site: Site) -> Interval:
    x, divisor = site.arg(0), site.arg(1)
    if not (divisor.is_one and divisor.low > 0):
        return EVERYTHING
    if site.is_whole(0):
        return Interval(_towards_zero(x.low, divisor.low), _towards_zero(x.high, divisor.low))
    return Interval(x.low / divisor.low, x.high / divisor.low)


def _towards_zero(number: float, divisor: float) -> float:
    if not math.isfinite(number):
        return number
    quotient = abs(int(number)) // int(divisor)
    return quotient if number >= 0 else -quotient


def _dividend(site: Site, position: int, need: Interval) -> Interval | None:
    divisor = site.arg(1)
    if position or not (divisor.is_one and divisor.low > 0):
        return None
    by = divisor.low
    if not site.is_whole(0):
        return Interval(need.low * by, need.high * by)
    low = need.low * by if need.low > 0 else (need.low - 1) * by + 1
    return Interval(low, (need.high + 1) * by - 1 if need.high >= 0 else need.high * by)


def _remainder(site: Site) -> Interval:
    """Of a positive divisor; with `fmod` it has the sign of what is divided, else it is not negative."""
    x, divisor = site.arg(0), site.arg(1)
    if divisor.low <= 0:
        return EVERYTHING
    last = divisor.high - 1 if site.is_whole(0) else divisor.high
    if x in Interval(0, divisor.low - 1):
        return x
    return Interval(-last if site.node.attrs.get("fmod", 0) and x.low < 0 else 0, last)


def _remainder_back(site: Site, position: int, need: Interval) -> Interval | None:
    """Numbers below the divisor are their own remainders."""
    divisor = site.arg(1)
    if position or divisor.low <= 0:
        return None
    found = need.meet(Interval(0, divisor.low - 1))
    return None if found.is_empty else found


# Choices by size or by a condition


def _greatest(site: Site) -> Interval:
    return Interval(max(arg.low for arg in site.present), max(arg.high for arg in site.present))


def _greatest_back(site: Site, position: int, need: Interval) -> Interval | None:
    others = [arg for at, arg in enumerate(site.present) if at != position]
    return Interval(-math.inf if any(other.low >= need.low for other in others) else need.low, need.high)


def _least(site: Site) -> Interval:
    return Interval(min(arg.low for arg in site.present), min(arg.high for arg in site.present))


def _least_back(site: Site, position: int, need: Interval) -> Interval | None:
    others = [arg for at, arg in enumerate(site.present) if at != position]
    return Interval(need.low, math.inf if any(other.high <= need.high for other in others) else need.high)


def _clipped(site: Site) -> Interval:
    x, low, high = site.arg(0), _bound(site, 1, -math.inf), _bound(site, 2, math.inf)
    raised = Interval(max(x.low, low.low), max(x.high, low.high))
    return Interval(min(raised.low, high.low), min(raised.high, high.high))


def _clipped_back(site: Site, position: int, need: Interval) -> Interval | None:
    if position:
        return None
    low, high = _bound(site, 1, -math.inf), _bound(site, 2, math.inf)
    return Interval(-math.inf if low.low >= need.low else need.low, math.inf if high.high <= need.high else need.high)


def _bound(site: Site, position: int, absent: float) -> Interval:
    given = site.args[position] if position < len(site.args) else None
    return Interval(absent, absent) if given is None else given


def _chosen(site: Site) -> Interval:
    condition = site.arg(0)
    if condition.is_one:
        return site.arg(1) if condition.low else site.arg(2)
    return hull((site.arg(1), site.arg(2)))


def _chosen_back(site: Site, position: int, need: Interval) -> Interval | None:
    condition = site.arg(0)
    is_never = condition.is_one and position == (2 if condition.low else 1)
    return None if position == 0 or is_never else need


# Truth


def _comparison(always: Callable[[Interval, Interval], bool], never: Callable[[Interval, Interval], bool]) -> Transfer:
    def forwards(site: Site) -> Interval:
        one, two = site.arg(0), site.arg(1)
        return Interval(1, 1) if always(one, two) else Interval(0, 0) if never(one, two) else TRUTH

    return Transfer(forwards)


def _apart(one: Interval, two: Interval) -> bool:
    return one.meet(two).is_empty


def _is_same(one: Interval, two: Interval) -> bool:
    return one.is_one and two.is_one and one.low == two.low


# Reductions, positions, bits


def _combined_elements(site: Site) -> int:
    """How many elements of the operand one element of the result combines."""
    before, after = site.type(0).elements, site.results[0].elements
    return before // after if after else 0


def _total(site: Site) -> Interval:
    return site.arg(0) * Interval(_combined_elements(site), _combined_elements(site))


def _total_back(site: Site, position: int, need: Interval) -> Interval | None:
    count = _combined_elements(site)
    return _divided(site, 0, need, count) if position == 0 and count else None


def _steps(site: Site) -> int:
    """Of a running total."""
    dims = site.type(0).dims
    return max(dims[int(number_of(site.node, "axis", 0))], 1) if dims else 1


def _running_total(site: Site) -> Interval:
    return hull((_with_zero(site), site.arg(0) * Interval(_steps(site), _steps(site))))


def _running_total_back(site: Site, position: int, need: Interval) -> Interval | None:
    return _divided(site, 0, need, _steps(site)) if position == 0 and need.low <= 0 <= need.high else None


def _extreme(site: Site) -> Interval:
    """Of no elements it is the least or greatest number of the type."""
    return site.arg(0) if site.type(0).elements else EVERYTHING


def _mean(site: Site) -> Interval:
    return hull(site.present)


def _position(site: Site) -> Interval:
    axis = site.node.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return Interval(0, max(site.type(0).dims[axis] - 1, 0))


def _ranked(site: Site) -> Interval:
    """TopK: elements, and their positions along the last axis unless `axis` says another."""
    if site.output == 0:
        return site.arg(0)
    axis = site.node.attrs.get("axis", -1)
    assert isinstance(axis, int)
    return Interval(0, max(site.type(0).dims[axis] - 1, 0))


def _ranked_back(site: Site, position: int, need: Interval) -> Interval | None:
    return need if position == 0 and site.output == 0 else None


def _chosen_boxes(site: Site) -> Interval:
    """Places among the boxes, and how many of a row are chosen."""
    return Interval(0, max(site.type(0).dims[1] - 1, 0) if site.output == 0 else number_of(site.node, "most", 0))


def _beyond(site: Site) -> Interval:
    value = number_of(site.node, "value", 0)
    return hull([site.arg(0), Interval(value, value)])


def _common_bits(site: Site) -> Interval:
    """No more than any operand that is not negative."""
    limits = [arg.high for arg in site.present if arg.low >= 0]
    return Interval(0, min(limits)) if limits else EVERYTHING


def _within(low: float, high: float) -> Transfer:
    return Transfer(lambda site: Interval(low, high))


MOVED = Transfer(_first, _kept)
_ADDED = _sum_of(lambda site, position: 1)

TRANSFER: Mapping[str, Transfer] = {
    "Concat": _any_of(),
    "Tile": MOVED,
    "Pad": Transfer(_padded, _kept),
    "Trilu": Transfer(_with_zero, _kept),
    "ScatterElements": _scattered(0, 2),
    "ScatterND": _scattered(0, 2),
    "TensorScatter": _any_of(0, 1),
    "OneHot": _any_of(2),
    "Cast": Transfer(_cast, _cast_back),
    "CastLike": Transfer(_cast, _cast_back),
    "Neg": Transfer(lambda site: -site.arg(0), lambda site, position, need: -need),
    "Abs": Transfer(_absolute, _absolute_back),
    "Floor": _rounding(rounded_down),
    "Ceil": _rounding(rounded_up),
    "Round": _rounding(_nearest),
    "Sign": _within(-1, 1),
    "Sin": _within(-1, 1),
    "Cos": _within(-1, 1),
    "Tanh": _within(-1, 1),
    "Sigmoid": _within(0, 1),
    "Softmax": _within(0, 1),
    "Relu": Transfer(
        lambda site: Interval(max(site.arg(0).low, 0), max(site.arg(0).high, 0)),
        lambda site, position, need: Interval(-math.inf if need.low <= 0 else need.low, need.high),
    ),
    "Add": _ADDED,
    "Sum": _ADDED,
    "Sub": _sum_of(lambda site, position: -1 if position else 1),
    "Mul": Transfer(_product, _factor),
    "Div": Transfer(_quotient, _dividend),
    "Mod": Transfer(_remainder, _remainder_back),
    "Max": Transfer(_greatest, _greatest_back),
    "Min": Transfer(_least, _least_back),
    "Clip": Transfer(_clipped, _clipped_back),
    "Where": Transfer(_chosen, _chosen_back),
    "Less": _comparison(lambda a, b: a.high < b.low, lambda a, b: a.low >= b.high),
    "LessOrEqual": _comparison(lambda a, b: a.high <= b.low, lambda a, b: a.low > b.high),
    "Greater": _comparison(lambda a, b: a.low > b.high, lambda a, b: a.high <= b.low),
    "GreaterOrEqual": _comparison(lambda a, b: a.low >= b.high, lambda a, b: a.high < b.low),
    "Equal": _comparison(_is_same, _apart),
    "Not": Transfer(lambda site: Interval(1 - site.arg(0).high, 1 - site.arg(0).low)),
    "And": Transfer(_least),
    "Or": Transfer(_greatest),
    "BitwiseAnd": Transfer(_common_bits),
    "Mean": Transfer(_mean),
    "ReduceMax": Transfer(_extreme, _kept),
    "ReduceMin": Transfer(_extreme, _kept),
    "ReduceMean": Transfer(_extreme, _kept),
    "ReduceSum": Transfer(_total, _total_back),
    "CumSum": Transfer(_running_total, _running_total_back),
    "ArgMax": Transfer(_position),
    "ArgMin": Transfer(_position),
    "TopK": Transfer(_ranked, _ranked_back),
    "SelectBoxes": Transfer(_chosen_boxes),
    "PadBeyond": Transfer(_beyond, _kept),
    "PadOutside": Transfer(_beyond, _kept),
}
"""By operator; others that move elements are MOVED."""
