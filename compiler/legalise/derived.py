"""Curves of functions that nobody listed: any operator's definition in which one number varies.

What bounds of the second derivative stand in `compiler.legalise.curves` for functions that occur often, interval
arithmetic on the definition finds for every other (`compiler.legalise.enclosures`), on a finite domain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from compiler.ir.expr import Const, Expr, Load
from compiler.ir.graph import Node
from compiler.ir.kernel import Routine
from compiler.ir.tensor import DType, TensorType
from compiler.legalise.curves import Array, Curve
from compiler.legalise.enclosures import Jet, computed, enclosed
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait

SEGMENTS = 4096
"""Into which a domain is cut to look for bends."""
SHORTEST = 2.0**-44
"""Of the larger of 1 and |x|: a segment that still bends has its bend there."""
MOST_BENDS = 64
LEAST_JUMP = 1e-6
"""Of the function's spread: what jumps by less at a segment so short does not jump."""
ONE = TensorType(DType.F64, (1,))


@dataclass(frozen=True)
class Map:
    """A function of one number: an expression whose every load is that number, and what a message calls it."""

    name: str
    expr: Expr

    @cached_property
    def unknown(self) -> str:
        """What in it has no known slope; empty where all have."""
        found = enclosed(self.expr, np.array([1.0]), np.array([1.5]))
        return found if isinstance(found, str) else ""

    @cached_property
    def is_line(self) -> bool:
        """Whether it is a number times x plus a number, which needs no approximation."""
        return not self.unknown and bool(self.on(np.array([-1e3]), np.array([1e3])).curvature.size[0] <= 1e-9)

    def after(self, first: Map) -> Map:
        """This map of what `first` gives."""
        name = f"{self.name} of {first.name}"
        return Map(name, self.expr.transform(lambda one: first.expr if isinstance(one, Load) else one))

    def on(self, low: Array, high: Array) -> Jet:
        """Value, slope and curvature on segments. Only of a map of which nothing is `unknown`."""
        found = enclosed(self.expr, low, high)
        assert isinstance(found, Jet)
        return found

    def __call__(self, x: Array) -> Array:
        """In float64."""
        return computed(self.expr, np.asarray(x, np.float64))


def map_of(node: Node, constants: Mapping[int, Array]) -> Map | None:
    """The function of one number that a node applies to each element of its one input that is no constant.

    None where it is none: an operator that is no map, a constant of several numbers, an input that is no float.
    """
    operator = OPERATORS.get(node.op)
    if operator is None or Trait.ELEMENTWISE not in operator.traits or len(node.outputs) != 1:
        return None
    numbers: list[Const | None] = []
    for value in node.used:
        array = constants.get(value)
        if array is not None and array.size != 1:
            return None
        numbers.append(None if array is None else Const(float(array.reshape(-1)[0]), DType.F64))
    if len({value for value in node.used if value not in constants}) != 1:
        return None
    try:
        kernel = operator.define(node, tuple(None if value is None else ONE for value in node.inputs), (ONE,))
    except Unsupported:
        return None
    if isinstance(kernel, Routine) or len(kernel.blocks) != 1 or len(kernel.blocks[0].values) != 1:
        return None
    by_slot = dict(zip((slot.name for slot in kernel.inputs), numbers, strict=True))
    expr = (
        kernel.blocks[0].values[0].transform(lambda one: by_slot.get(one.slot) or one if isinstance(one, Load) else one)
    )
    return Map(node.op, expr)


@lru_cache(maxsize=256)
def curve_on(one: Map, low: float, high: float) -> Curve | str:
    """The curve of a map on a finite domain, low < high; or why there is none, in words."""
    if one.unknown:
        return one.unknown
    bends = _bends(one, low, high)
    if isinstance(bends, str):
        return bends

    def curvature(a: Array, b: Array) -> Array:
        """Of |f''|, or what does as much: h**2 / 8 of it is the bound that slope and jump give."""
        found, width = one.on(a, b), b - a
        by_slope = 2 * (found.slope.high - found.slope.low) / width + 8 * found.jump / width**2
        return np.asarray(np.minimum(found.curvature.size, by_slope))

    return Curve(one.name, one, curvature, slope_on(one, low, high), bends=bends)


def values_on(one: Map, low: float, high: float) -> tuple[float, float]:
    """What a map gives on an interval; everything where it is not defined on all of it."""
    found = _spread(one, low, high)
    return (-math.inf, math.inf) if found is None else (float(found.value.low.min()), float(found.value.high.max()))


def slope_on(one: Map, low: float, high: float) -> float:
    """A Lipschitz constant of a map on an interval; infinity where there is none."""
    found = _spread(one, low, high)
    if found is None or (found.jump.any() and isinstance(_bends(one, low, high), str)):
        return math.inf
    return float(found.slope.size.max())


def _spread(one: Map, low: float, high: float) -> Jet | None:
    if one.unknown or not (math.isfinite(low) and math.isfinite(high)):
        return None
    cuts = np.linspace(low, high, SEGMENTS + 1)
    return one.on(cuts[:-1], cuts[1:])


@lru_cache(maxsize=256)
def _bends(one: Map, low: float, high: float) -> tuple[float, ...] | str:
    """The ends of the shortest segments in which the slope may jump; or why there is no curve."""
    cuts = np.linspace(low, high, SEGMENTS + 1)
    a, b = cuts[:-1], cuts[1:]
    while True:
        open_ = ~np.isfinite(one.on(a, b).curvature.size)
        a, b = a[open_], b[open_]
        if not len(a):
            return ()
        if len(a) > MOST_BENDS and b[0] - a[0] < (high - low) / SEGMENTS / 2:
            defined = np.isfinite(one.on(a, b).value.size).all()
            said = f"bends at more than {MOST_BENDS} places" if defined else "is not defined, or infinitely steep,"
            return f"{one.name} {said} between {a[0]:.6g} and {b[-1]:.6g}"
        short = b - a <= SHORTEST * np.maximum(1.0, np.abs(b))
        if short.all():
            return _continuous(one, a, b, low, high)
        middle = (a + b) / 2
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
        order = np.argsort(a)
        a, b = a[order], b[order]


def _continuous(one: Map, a: Array, b: Array, low: float, high: float) -> tuple[float, ...] | str:
    """The ends of the segments from `a` to `b`, in each of which the function hardly changes."""
    found = one.on(a, b)
    spread = max(float(np.ptp(one(np.linspace(low, high, SEGMENTS + 1)))), 1e-300)
    slope = found.slope.size
    if not np.isfinite(slope).all():
        at = int(np.argmax(~np.isfinite(slope)))
        if np.isfinite(found.value.size[at]) and found.jump[at] > LEAST_JUMP * spread:
            return f"{one.name} jumps by {found.jump[at]:.3g} at {a[at]:.6g}, and sums of ReLUs are continuous"
        return f"{one.name} is not defined, or infinitely steep, at {a[at]:.6g}"
    at = int(np.argmax(found.jump))
    if found.jump[at] > LEAST_JUMP * spread:
        return f"{one.name} jumps by {found.jump[at]:.3g} at {a[at]:.6g}, and sums of ReLUs are continuous"
    return tuple(float(end) for end in np.unique(np.concatenate([a, b])))
