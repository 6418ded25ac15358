"""Quasi-affine index expressions: sums of integer multiples of axes, floor-divisions, modulos and loaded integers.

An `Index` is kept in a normal form (terms sorted, like terms joined, divisions and modulos simplified by the ranges of
the axes), so that equal maps are equal objects and views vanish: splitting an axis and joining it again gives the axis.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, SupportsIndex

from compiler.ir.once import Nested, once

if TYPE_CHECKING:
    from compiler.ir.expr import Expr

Range = tuple[int, int]
"""Least and greatest value, both included."""


@dataclass(frozen=True)
class Axis:
    """A loop variable that takes 0 .. extent-1. Two axes are the same when name and extent are."""

    name: str
    extent: int

    @property
    def range(self) -> Range:
        """From 0 to the last iteration, both included."""
        return (0, max(self.extent - 1, 0))

    def __hash__(self) -> int:
        return hash(self.name)  # kept by the string; hardly two axes of one name differ

    def __str__(self) -> str:
        return self.name


def print_axes(axes: tuple[Axis, ...], sequential: tuple[Axis, ...] = ()) -> str:
    """Axes with their extents, `seq` before those whose order matters."""
    return ", ".join(f"{'seq ' if axis in sequential else ''}{axis}:{axis.extent}" for axis in axes)


@dataclass(frozen=True)
class FloorDiv(Nested):
    """floor(index / divisor), divisor > 1."""

    index: Index
    divisor: int

    @once
    def range(self) -> Range:
        """The smallest and the largest quotient."""
        low, high = self.index.range
        return (low // self.divisor, high // self.divisor)

    @once
    def _hash(self) -> int:
        return hash((self.index, self.divisor))

    def __hash__(self) -> int:
        return self._hash

    @once
    def _text(self) -> str:
        return f"({self.index})//{self.divisor}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Mod(Nested):
    """index - divisor * floor(index / divisor), divisor > 1."""

    index: Index
    divisor: int

    @property
    def range(self) -> Range:
        """From 0 to the divisor less one."""
        return (0, self.divisor - 1)

    @once
    def _hash(self) -> int:
        return hash((self.index, self.divisor, "%"))

    def __hash__(self) -> int:
        return self._hash

    @once
    def _text(self) -> str:
        return f"({self.index})%{self.divisor}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Indirect:
    """An integer computed from loads (the index of a Gather); its value lies in [low, high]."""

    expr: Expr
    low: int
    high: int

    @property
    def range(self) -> Range:
        """The bounds that are stated for what is read."""
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"[{self.expr} in {self.low}..{self.high}]"


Atom = Axis | FloorDiv | Mod | Indirect


@dataclass(frozen=True)
class Index(Nested):
    """const + sum of coefficient * atom, normalised. Build it with `Index.of` and arithmetic."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int = 0) -> None:
        # A compilation makes some hundred thousand: the dataclass's own takes three times as long, by way of setattr.
        own = self.__dict__
        own["terms"] = terms
        own["const"] = const

    @once
    def _hash(self) -> int:
        return hash((self.terms, self.const))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(value: Index | Atom | SupportsIndex) -> Index:
        """A number, an atom or an index as an index; an axis with one iteration is 0."""
        if isinstance(value, Index):
            return value
        if not isinstance(value, Axis | FloorDiv | Mod | Indirect):
            return Index((), operator.index(value))
        if isinstance(value, Axis) and value.extent == 1:
            return Index((), 0)
        return Index(((value, 1),), 0)

    @once
    def range(self) -> Range:
        """Bounds of the value, both included, as if its atoms were independent."""
        low = high = self.const
        for atom, factor in self.terms:
            ends = (atom.range[0] * factor, atom.range[1] * factor)
            low, high = low + min(ends), high + max(ends)
        return (low, high)

    @once
    def magnitude(self) -> int:
        """What no value on the way exceeds, by amount, while the index is computed term by term."""
        inner = [atom.index.magnitude for atom, _ in self.terms if isinstance(atom, FloorDiv | Mod)]
        ends = (max(map(abs, atom.range)) * abs(factor) for atom, factor in self.terms)
        return max(abs(self.const) + sum(ends), *inner, 0)

    @property
    def is_const(self) -> bool:
        """Whether no atom is in it."""
        return not self.terms

    @once
    def axes(self) -> frozenset[Axis]:
        """Every axis the value depends on."""
        found: set[Axis] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Axis):
                found.add(atom)
            elif isinstance(atom, Indirect):
                found |= atom.expr.axes
            else:
                found |= atom.index.axes
        return frozenset(found)

    def coefficient(self, axis: Axis) -> int | None:
        """The factor of an axis on which the value depends linearly (0: not at all).

        None where it is inside a // or %.
        """
        factor = 0
        for atom, multiple in self.terms:
            if atom == axis:
                factor = multiple
            elif not isinstance(atom, Axis) and axis in Index(((atom, 1),)).axes:
                return None
        return factor

    def __add__(self, other: Index | Atom | int) -> Index:
        other = Index.of(other)
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        return _normal([*self.terms, *other.terms], self.const + other.const)

    def __radd__(self, other: Index | Atom | int) -> Index:
        return self + other

    def __sub__(self, other: Index | Atom | int) -> Index:
        return self + Index.of(other) * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return Index(())
        return Index(tuple((atom, multiple * factor) for atom, multiple in self.terms), self.const * factor)

    def __rmul__(self, factor: int) -> Index:
        return self * factor

    def __floordiv__(self, divisor: int) -> Index:
        return _floordiv(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return _mod(self, divisor)

    def substitute(self, mapping: Mapping[Axis, Index], rewrite: Callable[[Expr], Expr] | None = None) -> Index:
        """The index with axes replaced; `rewrite` is applied to the expressions inside indirect atoms."""
        total = Index((), self.const)
        for atom, factor in self.terms:
            total = total + _substitute_atom(atom, mapping, rewrite) * factor
        return total

    def __str__(self) -> str:
        text = ""
        for atom, factor in self.terms:
            sign = "-" if factor < 0 else "+"
            inner = f"({atom})" if isinstance(atom, FloorDiv | Mod) else f"{atom}"
            body = f"{abs(factor)}*{inner}" if abs(factor) != 1 else inner if factor < 0 else str(atom)
            text += f" {sign} {body}" if text else (f"-{body}" if factor < 0 else body)
        if self.const or not text:
            sign = "-" if self.const < 0 else "+"
            text += f" {sign} {abs(self.const)}" if text else str(self.const)
        return text


def _substitute_atom(atom: Atom, mapping: Mapping[Axis, Index], rewrite: Callable[[Expr], Expr] | None) -> Index:
    if isinstance(atom, Axis):
        return mapping.get(atom, Index.of(atom))
    if isinstance(atom, Indirect):
        expr = atom.expr.substitute(mapping)
        return Index.of(Indirect(rewrite(expr) if rewrite else expr, atom.low, atom.high))
    inner = atom.index.substitute(mapping, rewrite)
    return inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor


def _normal(terms: Iterable[tuple[Atom, int]], const: int) -> Index:
    """Joins like terms, then rejoins c*(x//c) + x%c = x."""
    factors: dict[Atom, int] = {}
    for atom, factor in terms:
        factors[atom] = factors.get(atom, 0) + factor
    for atom in [atom for atom in factors if isinstance(atom, Mod)] if len(factors) > 1 else ():
        division = atom.index // atom.divisor
        if len(division.terms) == 1 and division.terms[0][1] == 1 and not division.const:
            factor, quotient = factors[atom], division.terms[0][0]
            if factor and factors.get(quotient, 0) == factor * atom.divisor:
                del factors[atom], factors[quotient]
                whole = atom.index * factor
                return _normal([*factors.items(), *whole.terms], const + whole.const)
    kept = [(atom, factor) for atom, factor in factors.items() if factor]
    if len(kept) > 1:
        kept.sort(key=_sort_key)
    return Index(tuple(kept), const)


def _sort_key(term: tuple[Atom, int]) -> tuple[int, str]:
    return (-abs(term[1]), str(term[0]))


def _split(index: Index, divisor: int) -> tuple[Index, Index]:
    """index = whole * divisor + rest, moving every multiple of the divisor into `whole`."""
    whole = [(atom, factor // divisor) for atom, factor in index.terms if factor % divisor == 0]
    rest = [(atom, factor) for atom, factor in index.terms if factor % divisor]
    return Index(tuple(whole), index.const // divisor), Index(tuple(rest), index.const % divisor)


def _steps(rest: Index, divisor: int) -> list[int]:
    """Coefficients in whose multiples a division by `divisor` may be done first.

    What remains must be smaller than one step.
    """
    return sorted({common for _, factor in rest.terms if 1 < (common := gcd(factor, divisor)) < divisor}, reverse=True)


def _floordiv(index: Index, divisor: int) -> Index:
    if divisor == 1:
        return index
    whole, rest = _split(index, divisor)
    low, high = rest.range
    if low // divisor == high // divisor:
        return whole + low // divisor
    common = gcd(divisor, *(factor for _, factor in rest.terms))
    if common > 1:
        smaller = Index(tuple((atom, factor // common) for atom, factor in rest.terms), rest.const // common)
        return whole + _floordiv(smaller, divisor // common)
    for step in _steps(rest, divisor):
        coarse, fine = _split(rest, step)
        if fine.range[0] >= 0 and fine.range[1] < step:
            return whole + _floordiv(coarse, divisor // step)
    for atom, factor in rest.terms:
        if isinstance(atom, FloorDiv) and factor == 1:  # (a + y//k)//d = (k*a + y)//(k*d)
            others = Index(tuple(term for term in rest.terms if term[0] != atom), rest.const)
            return whole + _floordiv(others * atom.divisor + atom.index, atom.divisor * divisor)
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and rest.const == 0:
        atom = rest.terms[0][0]
        if isinstance(atom, Mod) and atom.divisor % divisor == 0:
            return whole + _mod(_floordiv(atom.index, divisor), atom.divisor // divisor)
    return whole + FloorDiv(rest, divisor)


def _mod(index: Index, divisor: int) -> Index:
    if divisor == 1:
        return Index(())
    _, rest = _split(index, divisor)
    low, high = rest.range
    if low // divisor == high // divisor:
        return rest - (low // divisor) * divisor
    common = gcd(divisor, *(factor for _, factor in rest.terms))
    if common > 1:
        smaller = Index(tuple((atom, factor // common) for atom, factor in rest.terms), rest.const // common)
        return _mod(smaller, divisor // common) * common + rest.const % common
    for step in _steps(rest, divisor):
        coarse, fine = _split(rest, step)
        if fine.range[0] >= 0 and fine.range[1] < step:
            return _mod(coarse, divisor // step) * step + fine
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and rest.const == 0:
        atom = rest.terms[0][0]
        if isinstance(atom, Mod) and atom.divisor % divisor == 0:
            return _mod(atom.index, divisor)
    return Index.of(Mod(rest, divisor))


def flatten(index: tuple[Index, ...], dims: tuple[int, ...]) -> Index:
    """The row-major position of a logical index."""
    flat = Index(())
    for position, extent in zip(index, dims, strict=True):
        flat = flat * extent + position
    return flat


def row_major(axes: Sequence[Axis]) -> Index:
    """The row-major position of a point of the axes among all of them."""
    return flatten(tuple(map(Index.of, axes)), tuple(axis.extent for axis in axes))


def unflatten(flat: Index, dims: tuple[int, ...]) -> tuple[Index, ...]:
    """The logical index at a row-major position."""
    index: list[Index] = []
    for axis in reversed(range(len(dims))):
        extent = dims[axis]
        index.append(flat if axis == 0 else flat % extent if extent > 1 else Index(()))
        flat = flat // extent if extent > 1 else flat
    return tuple(reversed(index))
