"""Sizes that remember where they came from: integers that carry a polynomial over named sizes.

A rule is a Python function of integers. Given `Size`s it runs as it always does, on their numbers, and every integer
that it makes of them says how, as a polynomial: what one run does holds for all sizes for which it would have taken
the same way. That way is kept as a `Path`: each comparison of sizes whose answer is not the same for all sizes is a
condition. (Concolic execution: Godefroid, Klarlund and Sen, DART, PLDI 2005.)

What a polynomial cannot say, a quotient that is not exact, is a name of its own, with what it stands for.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Monomial = tuple[str, ...]
"""Names of sizes, sorted, one as often as it is a factor."""


@dataclass(frozen=True)
class Poly:
    """A polynomial with integer coefficients: (monomial, coefficient), sorted, without zeros."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(terms: Mapping[Monomial, int]) -> Poly:
        """The polynomial of these terms."""
        return Poly(tuple(sorted((key, builtins.int(value)) for key, value in terms.items() if value)))

    @staticmethod
    def number(value: int) -> Poly:
        """A constant."""
        return Poly.of({(): builtins.int(value)})

    @staticmethod
    def name(name: str) -> Poly:
        """A size by itself."""
        return Poly((((name,), 1),))

    def __add__(self, other: Poly) -> Poly:
        found = dict(self.terms)
        for key, value in other.terms:
            found[key] = found.get(key, 0) + value
        return Poly.of(found)

    def __neg__(self) -> Poly:
        return Poly(tuple((key, -value) for key, value in self.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        found: dict[Monomial, int] = {}
        for one, a in self.terms:
            for two, b in other.terms:
                key = tuple(sorted((*one, *two)))
                found[key] = found.get(key, 0) + a * b
        return Poly.of(found)

    @property
    def constant(self) -> int | None:
        """Its value, if it is the same for all sizes."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def names(self) -> frozenset[str]:
        """The sizes that it mentions."""
        return frozenset(name for key, _ in self.terms for name in key)

    def over(self, other: Poly) -> Poly | None:
        """The quotient, where `other` divides it: by division of the leading terms."""
        left, quotient = self, Poly(())
        if not other.terms:
            return None
        lead, by = max(other.terms, key=lambda term: (len(term[0]), term[0]))
        while left.terms:
            key, value = max(left.terms, key=lambda term: (len(term[0]), term[0]))
            rest = _without(key, lead)
            if rest is None or value % by:
                return None
            step = Poly(((rest, value // by),))
            quotient, left = quotient + step, left - step * other
        return quotient

    def divided(self, other: Poly) -> tuple[Poly, Poly]:
        """A quotient and a remainder, of which no term is a multiple of the divisor's leading one."""
        lead, by = max(other.terms, key=lambda term: (len(term[0]), term[0]))
        quotient, rest, left = Poly(()), Poly(()), self
        while left.terms:
            key, value = max(left.terms, key=lambda term: (len(term[0]), term[0]))
            factors = _without(key, lead)
            times = value // by if factors is not None else 0
            step = Poly.of({factors or (): times})
            if not times:
                rest, left = rest + Poly(((key, value),)), left - Poly(((key, value),))
            quotient, left = quotient + step, left - step * other
        return quotient, rest

    def never_negative(self, lows: Mapping[str, int]) -> bool:
        """Whether its value is at least 0 for all sizes from `lows` on; a False may be a "not seen"."""
        total = Poly(())
        for key, value in self.terms:
            part = Poly.number(value)
            for name in key:
                if name not in lows:
                    return False
                part = part * (Poly.name(name) + Poly.number(lows[name]))
            total = total + part
        return all(value >= 0 for _, value in total.terms)

    def value(self, values: Mapping[str, int]) -> int:
        """Its value for these sizes."""
        return sum(value * math.prod(values[name] for name in key) for key, value in self.terms)

    def replaced(self, by: Mapping[str, Poly]) -> Poly:
        """With names replaced by polynomials."""
        total = Poly(())
        for key, value in self.terms:
            part = Poly.number(value)
            for name in key:
                part = part * by.get(name, Poly.name(name))
            total = total + part
        return total

    def __str__(self) -> str:
        text = ""
        for key, value in sorted(self.terms, key=lambda term: (-len(term[0]), term)):
            body = "*".join(key if abs(value) == 1 and key else (str(abs(value)), *key))
            text += (" - " if value < 0 else " + ") + body if text else ("-" if value < 0 else "") + body
        return text or "0"


def _without(key: Monomial, factors: Monomial) -> Monomial | None:
    left = list(key)
    for name in factors:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


@dataclass
class Path:
    """The way that a run took: what it asked of sizes, and what the names of quotients stand for.

    values      the number of each size in this run
    lows        what each size is at least
    conditions  (polynomial, relation to 0), with relations ==, !=, >= and <
    quotients   by name: the dividend and the divisor of a floor division that is not exact
    """

    values: dict[str, int] = field(default_factory=dict)
    lows: dict[str, int] = field(default_factory=dict)
    conditions: dict[tuple[Poly, str], None] = field(default_factory=dict)
    quotients: dict[str, tuple[Poly, Poly]] = field(default_factory=dict)
    symbolic: bool = False
    """Whether sizes are equal only where their polynomials are: for expressions, once the rule has run."""

    def size(self, name: str, value: int, low: int) -> Size:
        """A size by this name; `low` is what it is at least."""
        self.values[name], self.lows[name] = builtins.int(value), low
        return Size(value, Poly.name(name), self)

    def quotient(self, poly: Poly, by: Poly) -> Poly:
        """The floor of poly / by, by >= 1."""
        if (exact := poly.over(by)) is not None:
            return exact
        quotient, rest = poly.divided(by)
        for less in (0, 1):  # the remainder is at least 0 and below the divisor, for all sizes
            rest = rest + by if less else rest
            if rest.never_negative(self.lows) and (by - rest - Poly.number(1)).never_negative(self.lows):
                return quotient - Poly.number(less)
        name = f"({poly})//({by})"
        if name not in self.quotients:
            self.quotients[name] = poly, by
            self.values[name] = poly.value(self.values) // by.value(self.values)
            if poly.never_negative(self.lows) and by.never_negative(self.lows):
                self.lows[name] = 0
        return Poly.name(name)

    def sizes(self, poly: Poly) -> frozenset[str]:
        """The sizes that a polynomial depends on, those of its quotients for these."""
        found: frozenset[str] = frozenset()
        for name in poly.names:
            inner = self.quotients.get(name)
            found |= {name} if inner is None else self.sizes(inner[0]) | self.sizes(inner[1])
        return found

    def ask(self, poly: Poly, relation: str, answer: bool) -> bool:
        """Notes what a comparison of `poly` with 0 gave, unless it is the same for all sizes."""
        if poly.constant is not None:
            return answer
        if self.symbolic and relation == "==":
            return (poly, "==") in self.conditions or (-poly, "==") in self.conditions
        if relation == ">=":
            if answer and poly.never_negative(self.lows):
                return answer
            if not answer and (-poly - Poly.number(1)).never_negative(self.lows):
                return answer
            self.conditions[poly, ">=" if answer else "<"] = None
            return answer
        certain = (poly - Poly.number(1)).never_negative(self.lows) or (-poly - Poly.number(1)).never_negative(
            self.lows
        )
        if answer or not certain:
            self.conditions[poly, "==" if answer else "!="] = None
        return answer


class Size(int):
    """An integer with the polynomial that it is."""

    poly: Poly
    path: Path

    def __new__(cls, value: int, poly: Poly, path: Path) -> Size:
        """`value` is that of `poly` for the sizes of `path`."""
        self = super().__new__(cls, value)
        self.poly, self.path = poly, path
        return self

    def _make(self, value: int, poly: Poly) -> int:
        return Size(value, poly, self.path)

    def __add__(self, other: Any) -> Any:
        return self._both(other, builtins.int.__add__, Poly.__add__)

    def __sub__(self, other: Any) -> Any:
        return self._both(other, builtins.int.__sub__, Poly.__sub__)

    def __mul__(self, other: Any) -> Any:
        return self._both(other, builtins.int.__mul__, Poly.__mul__)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self._make(builtins.int.__neg__(self), -self.poly)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        return math.prod([self] * builtins.int(power), start=1)

    def __floordiv__(self, other: Any) -> Any:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - _floordiv(self, other) * other

    def __rmod__(self, other: Any) -> Any:
        return other - _floordiv(other, self) * self

    def __divmod__(self, other: Any) -> Any:
        quotient = _floordiv(self, other)
        return quotient, self - quotient * other

    def __rdivmod__(self, other: Any) -> Any:
        quotient = _floordiv(other, self)
        return quotient, other - quotient * self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, builtins.int):
            return NotImplemented
        return self.path.ask(self.poly - poly_of(other), "==", builtins.int.__eq__(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: int) -> bool:
        if not isinstance(other, builtins.int):
            return NotImplemented
        return self.path.ask(self.poly - poly_of(other), ">=", builtins.int.__ge__(self, other))

    def __lt__(self, other: int) -> bool:
        return not self >= other if isinstance(other, builtins.int) else NotImplemented

    def __le__(self, other: int) -> bool:
        if not isinstance(other, builtins.int):
            return NotImplemented
        return self.path.ask(poly_of(other) - self.poly, ">=", builtins.int.__le__(self, other))

    def __gt__(self, other: int) -> bool:
        return not self <= other if isinstance(other, builtins.int) else NotImplemented

    def __bool__(self) -> bool:
        return self != 0

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of(other, self)

    def __hash__(self) -> int:
        return builtins.int.__hash__(self)

    def __str__(self) -> str:
        text = str(self.poly)
        text = f"({text})" if len(self.poly.terms) > 1 else text
        WRITTEN[text] = self
        return text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def _both(self, other: Any, numbers: Callable[[int, int], int], polys: Callable[[Poly, Poly], Poly]) -> Any:
        if not isinstance(other, builtins.int):
            return NotImplemented
        return self._make(numbers(self, other), polys(self.poly, poly_of(other)))


class Ratio(float):
    """A quotient of sizes, or of a number and a size, as a real number: number * over / by."""

    number: float
    over: Poly
    by: Poly

    @staticmethod
    def of(a: Any, b: Any) -> float:
        """a / b, of sizes, quotients of these and numbers; a plain number where it is the same for all sizes."""
        one, two = _quotient(a), _quotient(b)
        over, by = one[1] * two[2], one[2] * two[1]
        whole = over.over(by)
        if whole is not None and whole.constant is not None:
            return one[0] / two[0] * whole.constant
        self = Ratio(_plain(a) / _plain(b))
        self.number, self.over, self.by = one[0] / two[0], over, by
        return self

    def __mul__(self, other: Any) -> Any:
        return Ratio.of(self, Ratio.of(1.0, other)) if isinstance(other, builtins.int | float) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of(other, self)

    def __repr__(self) -> str:
        return f"{self.number!r}*({self.over})/({self.by})"

    __str__ = __repr__


def _quotient(value: Any) -> tuple[float, Poly, Poly]:
    """A number, a size or a quotient as number * over / by."""
    if isinstance(value, Ratio):
        return value.number, value.over, value.by
    if isinstance(value, Size):
        return 1.0, value.poly, Poly.number(1)
    return builtins.float(value), Poly.number(1), Poly.number(1)


def _plain(value: Any) -> float:
    return builtins.int(value) if isinstance(value, Size) else builtins.float(value)


def alike(one: Any, two: Any) -> bool | None:
    """Whether two quotients of sizes are the same for all sizes; None where neither is one, nor a size."""
    if not isinstance(one, Ratio | Size) and not isinstance(two, Ratio | Size):
        return None
    a, b = _quotient(one), _quotient(two)
    return a[1] * b[2] == b[1] * a[2] and math.isclose(a[0], b[0], rel_tol=1e-6)


def poly_of(value: int) -> Poly:
    """The polynomial of a size, or of a number."""
    return value.poly if isinstance(value, Size) else Poly.number(value)


def _floordiv(a: Any, b: Any) -> Any:
    if not isinstance(a, builtins.int) or not isinstance(b, builtins.int):
        return NotImplemented
    if isinstance(b, Size) and b < 0:
        return _floordiv(-a, -b)
    if not isinstance(b, Size) and b < 0:
        return _floordiv(-a, -b)
    path = next(size.path for size in (a, b) if isinstance(size, Size))
    value = builtins.int.__floordiv__(builtins.int(a), builtins.int(b))
    poly = path.quotient(poly_of(a), poly_of(b))
    return Size(value, poly, path)


def common(*values: int) -> int:
    """What `math.gcd` gives; of sizes, a factor of all their polynomials that is seen."""
    sizes = [value for value in values if isinstance(value, Size)]
    if not sizes:
        return math.gcd(*values)
    terms = [term for value in values for term in poly_of(value).terms]
    if not terms:
        return 0
    shared = terms[0][0]
    for key, _ in terms:
        shared = tuple(name for name in dict.fromkeys(shared) for _ in range(min(shared.count(name), key.count(name))))
    poly = Poly.of({tuple(sorted(shared)): math.gcd(*(value for _, value in terms))})
    value = poly.value(sizes[0].path.values)
    return Size(value, poly, sizes[0].path)


WRITTEN: dict[str, Size] = {}
"""Sizes by the text that they were written as, for rules that read a number of an attribute from its text."""


class _Integers(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Size):
            return args[0]
        if len(args) == 1 and isinstance(args[0], str) and args[0] in WRITTEN:
            return WRITTEN[args[0]]
        return builtins.int(*args, **kwargs)


class Integers(metaclass=_Integers):
    """`int`, for modules that would make a plain number of a size by it."""


class _Numbers(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        number = getattr(args[0], "quotient", args[0]) if len(args) == 1 else None
        if isinstance(number, Size | builtins.float):
            return number
        return builtins.float(*args, **kwargs)


class Numbers(metaclass=_Numbers):
    """`float`, likewise."""


class Range:
    """A range of sizes: it can be gone through, and its length is a size."""

    def __init__(self, *args: int) -> None:
        self.begin, self.past = (0, args[0]) if len(args) == 1 else args[:2]
        self.step = args[2] if len(args) > 2 else 1

    def __iter__(self) -> Iterator[int]:
        place = self.begin
        while place < self.past if self.step > 0 else place > self.past:
            yield place
            place = place + self.step

    @property
    def count(self) -> int:
        """How many numbers are in it."""
        if self.step > 0:
            return (self.past - self.begin + self.step - 1) // self.step if self.begin < self.past else 0
        return (self.begin - self.past - self.step - 1) // -self.step if self.begin > self.past else 0


def ranges(*args: int) -> Any:
    """`range`."""
    return (
        Range(*args)
        if any(isinstance(arg, Size) and arg.poly.constant is None for arg in args)
        else range(*map(builtins.int, args))
    )


def length(value: Any) -> int:
    """`len`."""
    if isinstance(value, Range):
        return value.count
    return value.shape[0] if type(value).__name__ == "Known" else builtins.len(value)


@contextmanager
def replacing(places: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes of modules or classes replaced for a while."""
    missing = object()
    before = [(place, name, vars(place).get(name, missing)) for place, name, _ in places]
    try:
        for place, name, value in places:
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in reversed(before):
            if value is missing:
                delattr(place, name)
            else:
                setattr(place, name, value)
