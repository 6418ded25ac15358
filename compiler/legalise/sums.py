"""Sums of ReLUs that approximate a function of one variable with the least greatest error, and the proof of that error.

    f(x) ~ constant + sum(weight_i * relu(sign_i * (x - knot_i)))

A polygon must stay in the tube f - e ... f + e. The fewest straight links through a tube come from always going as far
as a straight line can, and bending as late as possible (Imai and Iri, "An optimal algorithm for approximating a
piecewise linear function", 1986); bisection over e gives the least error that so many links reach, for any continuous
f. Where the function has asymptotes the first and the last link have their slopes, so that the error is bounded on the
whole line; elsewhere the polygon begins at the lower end of the domain, and is constant below it.

The proof: between two points a and b of a fine grid a linear interpolant differs from a function g by at most
(b - a)**2 / 8 * max|g''|, so that |f - p| <= max(|f - p|(a), |f - p|(b)) + (b - a)**2 / 8 * max|f''| wherever p is
straight between a and b: knots are points of the grid, and `Curve.curvature` bounds the second derivative. Outside of
the grid the distance to an asymptote falls monotonically, and is largest at the grid's end or at infinity. Coefficients
are those of float32, as they are stored. `SLACK` is for rounding in the evaluation itself, in float64.

The bound counts rounding in float32 too, in any order of addition: gamma_n = n u / (1 - n u) of the sum of magnitudes
(Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2). Where a function is steep at one end,
as 1 / sqrt near 0, large terms cancel at the other: so on a finite domain the ReLUs left of some segment look to the
left (`sign` -1) and are 0 where they are not needed. The segment is the one with the least rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from compiler.legalise.curves import Array, Curve

POINTS, MORE_POINTS = 1201, 3201
"""Of the grid on which knots are searched: more of them for errors below `FINE`, or more than `MANY` terms."""
FINE, MANY = 0.005, 12
PROOF_POINTS = 1 << 15
SLACK = 1e-13
"""Of the largest number in an evaluation, about 500 units in the last place of float64."""
ROUNDS = 24
"""Of bisection, at most: the error is then within 0.1 percent."""
UNIT = 2.0**-24
"""Of rounding in float32."""
MOST_TERMS = 64
LEAST = 1e-7
"""An error below which none is looked for: float32 would not show it."""
PARTS = (0.97, 0.9, 0.8)
"""Of an error asked for: tubes that are tried, since a proved bound is a little above the tube's."""
PINNED = 2e-3
"""Of the error: how near a link passes the end of an asymptote."""


@dataclass(frozen=True, eq=False)
class ReluSum:
    """`constant + sum(weights * relu(signs * (x - knots)))` on float32 coefficients, and its proved greatest error.

    signs   1 or -1: whether a term begins at its knot or ends there
    bound   rounding in float32 included, for |x| up to the curve's core where the domain is infinite
    domain  where the bound holds; infinite ends where it does everywhere
    """

    curve: Curve
    constant: float
    knots: Array
    weights: Array
    signs: Array
    bound: float
    domain: tuple[float, float]

    def __call__(self, x: Array) -> Array:
        """The sum in float64."""
        return _sum(np.asarray(x, np.float64), self.constant, self.knots, self.weights, self.signs)

    @property
    def terms(self) -> int:
        """How many ReLUs it has."""
        return len(self.knots)


def _sum(x: Array, constant: float, knots: Array, weights: Array, signs: Array) -> Array:
    y = np.full(x.shape, constant)
    for knot, weight, sign in zip(knots, weights, signs, strict=True):
        y += weight * np.maximum(sign * (x - knot), 0)
    return y


@lru_cache(maxsize=512)
def best(curve: Curve, terms: int, low: float = -math.inf, high: float = math.inf) -> ReluSum | None:
    """The sum of at most `terms` ReLUs of the least proved error on a domain; None where so few cannot.

    For a curve with asymptotes, of which an end of the domain lies outside its core, the bound holds on the whole line.
    """
    tails, ends = _domain(curve, low, high)
    if ends is None:
        return None
    x, f = _sampled(curve, ends, MORE_POINTS if terms > MANY else POINTS)
    above = float(np.ptp(f)) or 1.0
    below, found = 0.0, None
    for _ in range(ROUNDS):
        error = (below + above) / 2 if below else above / 4
        polygon = (_with_tails if tails else _plain)(curve, x, f, error, terms)
        if polygon is COARSE:
            above = error
        elif polygon is None:
            below = error
        else:
            above, found = error, polygon
        if below and above / below < 1.001:
            break
        if not below and above < LEAST:
            break
    if found is None and tails and curve.right == 1.0 and curve.left_value == curve.right_value and terms > 0:
        found = 0.0, np.array([0.0]), np.array([1.0])  # a ReLU alone
    if found is None:
        return None
    return _proved(curve, *found, ends, tails)


@lru_cache(maxsize=512)
def fewest(curve: Curve, error: float, low: float, high: float, most: int = MOST_TERMS) -> ReluSum | None:
    """A sum of as few ReLUs as the proved bound `error` permits; None where more than `most` are needed."""
    tails, ends = _domain(curve, low, high)
    if ends is None:
        return None
    x, f = _sampled(curve, ends, MORE_POINTS if error < FINE else POINTS)
    found: list[ReluSum] = []
    for part in PARTS:  # the greedy's links are found to rounding: of like errors one may need a link more
        polygon = (_with_tails if tails else _plain)(curve, x, f, error * part, most)
        made = best(curve, min(4, most), low, high) if polygon is COARSE else None
        if polygon is not COARSE and polygon is not None:
            made = _proved(curve, *polygon, ends, tails)
        if made is not None and made.bound <= error:
            found.append(made)
    return min(found, key=lambda one: (one.terms, one.bound), default=None)


def _domain(curve: Curve, low: float, high: float) -> tuple[bool, tuple[float, float] | None]:
    """Whether the bound is to hold on the whole line, and between which ends knots are looked for."""
    tails = curve.has_tails and not (-curve.core <= low and high <= curve.core)
    ends = (-curve.core, curve.core) if tails else (low, high)
    sound = math.isfinite(ends[0]) and math.isfinite(ends[1]) and curve.low < ends[0] < ends[1]
    return tails, ends if sound else None


def _sampled(curve: Curve, ends: tuple[float, float], points: int) -> tuple[Array, Array]:
    x = np.unique(np.concatenate([_grid(ends, points), [bend for bend in curve.bends if ends[0] < bend < ends[1]]]))
    return x, curve.function(x)


Polygon = tuple[float, Array, Array]
"""The constant left of the first knot, knots and weights, in float64."""
COARSE: Polygon = (0.0, np.empty(0), np.empty(0))
"""Where an error is so large that the asymptotes alone would do: a smaller one is looked for."""


def _grid(ends: tuple[float, float], points: int) -> Array:
    """Even, or geometric where the function is defined above 0 alone and the domain spans a factor of 10."""
    even = ends[0] <= 0 or ends[1] < 10 * ends[0]
    return np.linspace(*ends, points) if even else np.geomspace(*ends, points).clip(*ends)


def _plain(_: Curve, x: Array, f: Array, error: float, terms: int) -> Polygon | None:
    lines = _links(x, f - error, f + error, terms)
    if lines is None:
        return None
    knots, slopes = _joined(lines)
    start = lines[0][0] + lines[0][1] * x[0]
    return start, np.array([x[0], *knots]), np.diff([0.0, *slopes])


def _with_tails(curve: Curve, x: Array, f: Array, error: float, terms: int) -> Polygon | None:
    """The first and last link have the slopes of the asymptotes, and reach as far as they can."""
    rest = f - curve.asymptote(x)
    first, left = _tail(rest, error)
    last, right = _tail(rest[::-1], error)
    last = len(x) - 1 - last
    if first >= last:
        return COARSE
    lower, upper = (f - error)[first : last + 1].copy(), (f + error)[first : last + 1].copy()
    start = curve.left_value + left
    end = float(curve.right or 0.0) * x[last] + curve.right_value + right
    lower[0], upper[0] = start - PINNED * error, start + PINNED * error
    lower[-1], upper[-1] = end - PINNED * error, end + PINNED * error
    lines = _links(x[first : last + 1], lower, upper, terms - 1)
    if lines is None:
        return None
    knots, slopes = _joined(lines)
    every = [0.0, *slopes, float(curve.right or 0.0)]
    return start, np.array([x[first], *knots, x[last]]), np.diff(every)


def _tail(rest: Array, error: float) -> tuple[int, float]:
    """How far, and with which offset, an asymptote stays within the tube; from the outside, where `rest` tends to 0."""
    lowest = np.minimum.accumulate(np.minimum(rest, 0.0))
    highest = np.maximum.accumulate(np.maximum(rest, 0.0))
    inside = highest - lowest <= 2 * error
    count = len(rest) if inside.all() else int(np.argmin(inside))
    at = max(count - 1, 0)
    return at, float(highest[at] + lowest[at]) / 2


def _joined(lines: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    knots = [(c0 - c1) / (m1 - m0) for (c0, m0), (c1, m1) in itertools.pairwise(lines)]
    return knots, [m for _, m in lines]


def _proved(
    curve: Curve, constant: float, knots: Array, weights: Array, ends: tuple[float, float], tails: bool
) -> ReluSum:
    """The sum with float32 coefficients, centred, and the bound of its error."""
    knots = np.asarray(knots, np.float32).astype(np.float64)
    signs = np.ones(len(knots))
    if tails:  # the slopes beyond the last knot add up to that of the asymptote, exactly
        weights = _adding_up(np.asarray(weights, np.float32).astype(np.float64), float(curve.right or 0.0))
    else:
        constant, weights, signs = _turned(constant, knots, weights, ends)
        weights = np.asarray(weights, np.float32).astype(np.float64)
    grid = np.concatenate([_grid(ends, PROOF_POINTS + 1), knots, curve.bends])
    grid = np.unique(grid[(grid >= ends[0]) & (grid <= ends[1])])
    exact = curve.function(grid)
    if not tails:
        difference = exact - _sum(grid, constant, knots, weights, signs)
        constant += float(difference.max() + difference.min()) / 2
    constant = float(np.float32(constant))
    made = _sum(grid, constant, knots, weights, signs)
    error = np.abs(exact - made)
    width = np.diff(grid)
    bend = width**2 / 8 * curve.curvature(grid[:-1], grid[1:])
    bound = float(np.max(np.maximum(error[:-1], error[1:]) + bend))
    size = 1 + float(np.max(np.abs(exact)) + np.sum(np.abs(weights)) * max(map(abs, ends)))
    if tails:
        at_infinity = constant + np.array([0.0, -float(np.dot(weights, knots))])
        bound = max(bound, *np.abs(at_infinity - [curve.left_value, curve.right_value]))
    bound += SLACK * size + float(_rounding(grid, constant, knots, weights, signs).max())
    return ReluSum(curve, constant, knots, weights, signs, bound, (-math.inf, math.inf) if tails else ends)


def _rounding(x: Array, constant: float, knots: Array, weights: Array, signs: Array) -> Array:
    """A bound of what rounding in float32 changes at each x: a term is `relu(w x - w t)` or `w relu(x - t)`."""
    count = (len(knots) + 3) * UNIT
    size = np.full(x.shape, abs(constant))
    for knot, weight, sign in zip(knots, weights, signs, strict=True):
        size += np.where(sign * (x - knot) >= 0, abs(weight) * (np.abs(x) + abs(knot)), 0.0)
    return np.asarray(count / (1 - count) * size)


def _turned(constant: float, knots: Array, weights: Array, ends: tuple[float, float]) -> tuple[float, Array, Array]:
    """The same function on a domain that begins at the first knot, with the ReLUs left of one segment turned round.

    A bend by w at t is w relu(x - t), and w relu(t - x) beside a line that goes on from the right of it.
    """
    slopes, x = np.cumsum(weights), _grid(ends, 257)
    best: tuple[float, float, Array, Array] | None = None
    for segment in range(len(knots)):
        signs = np.where(np.arange(len(knots)) <= segment, -1.0, 1.0)
        signs[0] = 1.0
        turned = np.concatenate([[slopes[segment]], weights[1:]])
        start = constant - float(np.dot(weights[1 : segment + 1], knots[1 : segment + 1] - knots[0]))
        most = float(_rounding(x, start, knots, turned, signs).max())
        if best is None or most < best[0]:
            best = most, start, turned, signs
    assert best is not None
    return best[1:]


def _adding_up(weights: Array, wanted: float) -> Array:
    """Weights of float32 whose sum is exactly `wanted`: the largest takes the difference, all on a grid of 2**-22."""
    grid = np.round(weights * 2.0**22) / 2.0**22
    grid[int(np.argmax(np.abs(grid)))] += wanted - grid.sum()
    return np.asarray(grid)


def _links(x: Array, lower: Array, upper: Array, limit: int) -> list[tuple[float, float]] | None:
    """The fewest lines [(c, m)], c + m x, through the tube, left to right; None where more than `limit` are needed."""
    if limit < 1:
        return None
    end = len(x)
    width = 4 * float(np.max(np.abs(np.diff(upper + lower) / np.diff(x)))) + 4 * float(np.max(upper - lower))
    lines: list[tuple[float, float]] = []
    first_upper = first_lower = start = 0
    for _ in range(limit):

        def window(stop: int, fu: int = first_upper, fl: int = first_lower) -> _Window:
            return _Window(x[fu:stop], upper[fu:stop], x[fl:stop], lower[fl:stop])

        reach, slope = _reach(window, start, end, width)
        here = window(reach)
        middle, room = here.widest(slope, width)
        c = float(np.max(here.low - middle * here.xl)) + room / 2
        if reach == end:
            lines.append((c, middle))
            return lines
        upwards = bool(lower[reach] > c + middle * x[reach])
        m = here.extreme(middle, width, upwards)
        c = float(np.max(here.low - m * here.xl))
        lines.append((c, m))
        if upwards:
            touch = int(np.argmin(np.where(here.xu >= x[start], here.up - m * here.xu, np.inf))) + first_upper
            first_upper, first_lower = touch, reach
        else:
            touch = int(np.argmax(np.where(here.xl >= x[start], here.low - m * here.xl, -np.inf))) + first_lower
            first_upper, first_lower = reach, touch
        if reach <= start:
            return None
        start = reach
    return None


def _reach(window: Callable[[int], _Window], start: int, end: int, width: float) -> tuple[int, float]:
    """The first point that one line cannot serve any more, and a line's slope that serves those before."""
    reach, beyond, step, slope = start + 1, end + 1, 1, 0.0
    while beyond - reach > 1:
        stop = min(reach + step, beyond - 1 if beyond <= end else end)
        if stop == reach:
            break
        m, room = window(stop).widest(slope, width)
        if room >= 0:
            reach, slope, step = stop, m, step * 2
            if reach == end:
                break
        else:
            beyond, step = stop, max((stop - reach) // 2, 1)
    return reach, slope


class _Window:
    """Lines c + m x under the points (xu, up) and above the points (xl, low)."""

    def __init__(self, xu: Array, up: Array, xl: Array, low: Array) -> None:
        self.xu, self.up, self.xl, self.low = xu, up, xl, low

    def room(self, m: float) -> float:
        """The freedom of c at slope m (negative: none); concave in m."""
        return float(np.min(self.up - m * self.xu) - np.max(self.low - m * self.xl))

    def widest(self, around: float, width: float) -> tuple[float, float]:
        """The slope with the most freedom, by golden section."""
        low, high, ratio = around - width, around + width, (5**0.5 - 1) / 2
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        fa, fb = self.room(a), self.room(b)
        for _ in range(45):
            if fa < fb:
                low, a, fa = a, b, fb
                b = low + ratio * (high - low)
                fb = self.room(b)
            else:
                high, b, fb = b, a, fa
                a = high - ratio * (high - low)
                fa = self.room(a)
            if fa > 0 and fb > 0 and high - low < 1e-3 * width:
                break
        return (a, fa) if fa > fb else (b, fb)

    def extreme(self, inside: float, width: float, upwards: bool) -> float:
        """The steepest (or least steep) slope that still has room."""
        outside = inside + (width if upwards else -width)
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self.room(middle) >= 0 else (inside, middle)
        return inside
