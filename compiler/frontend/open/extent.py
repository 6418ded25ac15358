"""Extents: sizes of axes as polynomials over sizes that are only known while running.

Equal sizes are equal objects wherever the sum, product and quotient rules show it, and every extent has a least and a
greatest value. A `Number` is an extent or an int; arithmetic that comes to a constant gives an int.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from compiler.ir.tensor import Symbol


@dataclass(frozen=True)
class Size:
    """One size that the program is given or finds while running: `low` <= value <= `high`, neither below 0."""

    name: str
    low: int
    high: int
    step: int = 1
    """The size that the program is given is this times the value."""
    measured: bool = False
    """Whether the program finds it while running, in its data."""

    def __str__(self) -> str:
        return self.name if self.step == 1 else f"{self.name}/{self.step}"


@dataclass(frozen=True)
class Quotient:
    """floor(numerator / divisor), divisor > 1."""

    numerator: Extent
    divisor: int

    @property
    def low(self) -> int:
        """The smallest value."""
        return self.numerator.low // self.divisor

    @property
    def high(self) -> int:
        """The largest value."""
        return self.numerator.high // self.divisor

    def __str__(self) -> str:
        return f"({self.numerator})//{self.divisor}"


@dataclass(frozen=True)
class Extreme:
    """The lesser or the greater one of two numbers."""

    one: Number
    other: Number
    greatest: bool

    @property
    def low(self) -> int:
        """The smallest value."""
        return (max if self.greatest else min)(low(self.one), low(self.other))

    @property
    def high(self) -> int:
        """The largest value."""
        return (max if self.greatest else min)(high(self.one), high(self.other))

    def __str__(self) -> str:
        return f"{'max' if self.greatest else 'min'}({self.one}, {self.other})"


Atom = Size | Quotient | Extreme
Monomial = tuple[Atom, ...]
"""A product of atoms, sorted by their text; empty: 1."""


@dataclass(frozen=True)
class Extent:
    """A sum of whole multiples of products of atoms, at least one of which is no constant. See `extent_of`."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def range(self) -> tuple[int, int]:
        """Bounds of the value, both included: the tighter ones of term by term, and with quotients as fractions."""
        by_terms = _interval(self.terms)
        linear, slack = _linear(self)
        by_fractions = _interval(tuple(linear.items()))
        return (
            max(math.ceil(by_terms[0]), math.ceil(by_fractions[0] + slack[0])),
            min(math.floor(by_terms[1]), math.floor(by_fractions[1] + slack[1])),
        )

    @property
    def low(self) -> int:
        """The smallest size that a run may have."""
        return self.range[0]

    @property
    def high(self) -> int:
        """The largest size that a run may have."""
        return self.range[1]

    @cached_property
    def sizes(self) -> frozenset[Size]:
        """Every size that the value depends on."""
        found: set[Size] = set()
        for atoms, _ in self.terms:
            for atom in atoms:
                parts: tuple[Number, ...] = ()
                if isinstance(atom, Size):
                    found.add(atom)
                elif isinstance(atom, Quotient):
                    parts = (atom.numerator,)
                else:
                    parts = (atom.one, atom.other)
                for part in parts:
                    found |= part.sizes if isinstance(part, Extent) else frozenset()
        return frozenset(found)

    @property
    def symbol(self) -> Symbol:
        """The dimension that types have in its place: extents are equal where their symbols are."""
        return Symbol(str(self), max(self.low, 0), max(self.high, 0))

    def __add__(self, other: object) -> Number:
        return _sum(self, other, 1) if isinstance(other, int | Extent) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: object) -> Number:
        return _sum(self, other, -1) if isinstance(other, int | Extent) else NotImplemented

    def __rsub__(self, other: object) -> Number:
        return -self + other if isinstance(other, int) else NotImplemented

    def __neg__(self) -> Number:
        return self * -1

    def __mul__(self, other: object) -> Number:
        if not isinstance(other, int | Extent):
            return NotImplemented
        factors = other.terms if isinstance(other, Extent) else (((), int(other)),)
        return extent_of(
            (_sorted((*mine, *theirs)), factor * times) for mine, factor in self.terms for theirs, times in factors
        )

    __rmul__ = __mul__

    def __floordiv__(self, divisor: object) -> Number:
        if isinstance(divisor, Extent):
            return divided(self, divisor)
        if not isinstance(divisor, int) or divisor < 1:
            return NotImplemented
        whole = extent_of((atoms, factor // divisor) for atoms, factor in self.terms if factor % divisor == 0)
        rest = extent_of((atoms, factor) for atoms, factor in self.terms if factor % divisor)
        if isinstance(rest, int):
            return whole + rest // divisor
        if rest.low // divisor == rest.high // divisor:
            return whole + rest.low // divisor
        return whole + Extent((((Quotient(rest, divisor),), 1),))

    def __mod__(self, divisor: object) -> Number:
        if not isinstance(divisor, int) or divisor < 1:
            return NotImplemented
        return self - self // divisor * divisor

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value where sizes have these values, by name."""
        return sum(factor * prod(_value(atom, sizes) for atom in atoms) for atoms, factor in self.terms)

    def __str__(self) -> str:
        return "+".join(
            "*".join([*map(str, atoms), *([str(factor)] if factor != 1 or not atoms else [])])
            for atoms, factor in self.terms
        ).replace("+-", "-")


def _interval(terms: Sequence[tuple[Monomial, int | Fraction]]) -> tuple[int | Fraction, int | Fraction]:
    """Bounds of a sum, each term for itself."""
    least: int | Fraction = 0
    greatest: int | Fraction = 0
    for atoms, factor in terms:
        ends = (factor, factor)
        for atom in atoms:
            products = [end * bound for end in ends for bound in (atom.low, atom.high)]
            ends = (min(products), max(products))
        least, greatest = least + ends[0], greatest + ends[1]
    return least, greatest


def _linear(extent: Extent) -> tuple[dict[Monomial, Fraction], tuple[Fraction, Fraction]]:
    """The sum with each quotient that stands alone as a fraction, and the bounds of what rounding down took away."""
    found: dict[Monomial, Fraction] = {}
    least = greatest = Fraction(0)
    for atoms, factor in extent.terms:
        if len(atoms) != 1 or not isinstance(atoms[0], Quotient):
            found[atoms] = found.get(atoms, Fraction(0)) + factor
            continue
        inner, slack = _linear(atoms[0].numerator)
        share = Fraction(factor, atoms[0].divisor)
        for mine, part in inner.items():
            found[mine] = found.get(mine, Fraction(0)) + part * share
        lost = Fraction(atoms[0].divisor - 1, atoms[0].divisor) * factor
        ends = sorted((slack[0] * share, slack[1] * share))
        least += ends[0] - max(lost, Fraction(0))
        greatest += ends[1] - min(lost, Fraction(0))
    return {atoms: factor for atoms, factor in found.items() if factor}, (least, greatest)


Number = int | Extent
Numbers = tuple[Number, ...]


@dataclass(frozen=True)
class Scaled:
    """An extent times a fraction that is no whole number, in floating point."""

    extent: Extent
    factor: Fraction

    def floor(self) -> Number:
        """Rounded towards minus infinity, which for what is not negative is also what a conversion does."""
        return self.extent * self.factor.numerator // self.factor.denominator

    def ceil(self) -> Number:
        """Rounded up."""
        above = self.factor.denominator - 1
        return (self.extent * self.factor.numerator + above) // self.factor.denominator


MOST_TERMS = 64
"""Of a sum or a product. Real shapes have a few; a model might square one again and again."""


class Undecided(Exception):
    """What was asked of extents is true of some of their sizes and not of others, or has no form."""


def size(name: str, low: int, high: int) -> Number:
    """A size by its range; an int where that leaves one value alone."""
    return low if low == high else Extent((((Size(name, low, high),), 1),))


def extent_of(terms: object) -> Number:
    """The sum of monomials with factors: like ones joined; an int where nothing else is left.

    Raises Undecided for one that is too long.
    """
    joined: dict[Monomial, int] = {}
    for atoms, factor in terms:  # type: ignore[attr-defined]
        joined[atoms] = joined.get(atoms, 0) + int(factor)
    kept = {atoms: factor for atoms, factor in joined.items() if factor}
    if len(kept) > MOST_TERMS or any(len(atoms) > MOST_TERMS for atoms in kept):
        raise Undecided(f"a size is a sum of more than {MOST_TERMS} products, or a product of more than that")
    if not kept.keys() - {()}:
        return kept.get((), 0)
    return Extent(tuple(sorted(kept.items(), key=lambda term: (-len(term[0]), tuple(map(str, term[0]))))))


def _sum(one: Extent, other: Number, sign: int) -> Number:
    terms = other.terms if isinstance(other, Extent) else (((), int(other)),)
    return extent_of([*one.terms, *((atoms, sign * factor) for atoms, factor in terms)])


def _sorted(atoms: Monomial) -> Monomial:
    return tuple(sorted(atoms, key=str))


def _value(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Size):
        return sizes[atom.name] // atom.step
    if isinstance(atom, Quotient):
        return atom.numerator.at(sizes) // atom.divisor
    return (max if atom.greatest else min)(value_at(atom.one, sizes), value_at(atom.other, sizes))


def value_at(number: Number, sizes: Mapping[str, int]) -> int:
    """The value of a number where sizes have these values, by name."""
    return number.at(sizes) if isinstance(number, Extent) else number


def low(number: Number) -> int:
    """The least value."""
    return number.low if isinstance(number, Extent) else number


def high(number: Number) -> int:
    """The greatest value: of an axis its capacity."""
    return number.high if isinstance(number, Extent) else number


def is_open(shape: Numbers) -> bool:
    """Whether a shape has an axis whose size is only known while running."""
    return any(isinstance(dim, Extent) for dim in shape)


def is_equal(one: Number, other: Number) -> bool:
    """Whether two numbers are equal. Raises Undecided where that depends on sizes."""
    difference = one - other
    if isinstance(difference, int):
        return difference == 0
    if difference.low > 0 or difference.high < 0:
        return False
    raise Undecided(f"whether {one} is {other}")


def is_less(one: Number, other: Number) -> bool:
    """Whether one number is below another. Raises Undecided where that depends on sizes."""
    difference = one - other
    if high(difference) < 0:
        return True
    if low(difference) >= 0:
        return False
    raise Undecided(f"whether {one} is below {other}")


def least(one: Number, other: Number) -> Number:
    """The lesser one of two numbers."""
    return _extreme(one, other, False)


def greatest(one: Number, other: Number) -> Number:
    """The greater one of two numbers."""
    return _extreme(one, other, True)


def _extreme(one: Number, other: Number, wants_greatest: bool) -> Number:
    difference = one - other
    if low(difference) >= 0:
        return one if wants_greatest else other
    if high(difference) <= 0:
        return other if wants_greatest else one
    first, second = sorted((one, other), key=str)
    return Extent((((Extreme(first, second, wants_greatest),), 1),))


def divided(number: Number, divisor: Number) -> Number:
    """The exact quotient. Raises Undecided where terms show none."""
    if isinstance(divisor, int):
        if divisor < 1:
            raise Undecided(f"{number} / {divisor}")
        quotient = number // divisor
        if quotient * divisor != number:
            raise Undecided(f"whether {divisor} divides {number}")
        return quotient
    if number == divisor:
        return 1
    if isinstance(number, int):
        raise Undecided(f"{number} / {divisor}")
    return _long_division(number, divisor)


def _long_division(number: Extent, divisor: Extent) -> Number:
    """Polynomial division by the leading term, which must go up."""
    lead, times = divisor.terms[0]
    rest: Number = number
    quotient: Number = 0
    for _ in range(64):
        if rest == 0:
            return quotient
        terms = rest.terms if isinstance(rest, Extent) else (((), rest),)
        part = next((found for found in (_over(term, lead, times) for term in terms[:1]) if found), None)
        if part is None:
            break
        quotient = quotient + extent_of([part])
        rest = rest - divisor * extent_of([part])
    raise Undecided(f"whether {divisor} divides {number}")


def _over(term: tuple[Monomial, int], lead: Monomial, times: int) -> tuple[Monomial, int] | None:
    atoms, factor = list(term[0]), term[1]
    for atom in lead:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return None if factor % times else (tuple(atoms), factor // times)


def in_steps(number: Number, one: Size, step: int) -> Number:
    """The number where one size is `step` times another."""
    return _with(number, one, step * of_steps(one, step))


def in_range(number: Number, one: Size, least_size: int, greatest_size: int) -> Number:
    """The number where one size has a narrower range."""
    return _with(number, one, size_of(replace(one, low=least_size, high=greatest_size)))


def _with(number: Number, one: Size, value: Number) -> Number:
    """The number with another one in the place of a size."""
    if not isinstance(number, Extent):
        return number
    whole: Number = 0
    for atoms, factor in number.terms:
        part: Number = factor
        for atom in atoms:
            new: Number = extent_of([((atom,), 1)])
            if atom == one:
                new = value
            elif isinstance(atom, Quotient):
                new = _with(atom.numerator, one, value) // atom.divisor
            elif isinstance(atom, Extreme):
                pair = (_with(atom.one, one, value), _with(atom.other, one, value))
                new = (greatest if atom.greatest else least)(*pair)
            part = new * part
        whole = whole + part
    return whole


def size_of(one: Size) -> Number:
    """A size as a number, counted in its steps; an int where its range leaves one value alone."""
    return one.low if one.low == one.high else extent_of([((one,), 1)])


def of_steps(one: Size, step: int) -> Number:
    """How many steps of a size there are, where it is a multiple of `step` times its own."""
    return size_of(Size(one.name, -(-one.low // step), one.high // step, one.step * step))


def product(numbers: Numbers) -> Number:
    """All of them multiplied."""
    whole: Number = 1
    for number in numbers:
        whole = number * whole
    return whole
