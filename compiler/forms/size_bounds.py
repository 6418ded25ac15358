"""What one size exceeds a multiple of another by at most, whatever sizes a program is given.

Sizes are scalars (i64) that blocks without axes compute from others. They are linear in the sizes that the program is
given, none of which is negative, and in quotients, minima and maxima of such sums, so bounds follow from
d * (x / d) <= max(x, 0). What is computed in another way is a size of which nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.ir.buffers import KernelGraph
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType

MOST_STEPS = 64
"""Of a search for a bound: sizes are sums of a few terms, and what takes longer has none."""


@dataclass(frozen=True)
class Quotient:
    """`value` / `divisor`, rounded towards zero."""

    value: Sum
    divisor: int


@dataclass(frozen=True)
class Extreme:
    """The greatest of two sums, or the least."""

    one: Sum
    other: Sum
    is_greatest: bool


Atom = int | Quotient | Extreme
"""An int is the id of a scalar buffer of which nothing else is known."""


@dataclass(frozen=True)
class Sum:
    """const + sum of factor * atom, no atom twice and no factor 0."""

    terms: frozenset[tuple[Atom, int]]
    const: int = 0

    @staticmethod
    def of(factors: Mapping[Atom, int], const: int = 0) -> Sum:
        """The sum of products of atoms and factors, and `const`; factors of 0 are left out."""
        return Sum(frozenset((atom, factor) for atom, factor in factors.items() if factor), const)

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """self + times * other."""
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + times * factor
        return Sum.of(factors, self.const + times * other.const)


class Sizes:
    """The scalars of a kernel graph as sums."""

    def __init__(self, kernels: KernelGraph) -> None:
        self.kernels = kernels
        self.known: dict[int, Sum] = {}
        self.given = [id for id in kernels.inputs if id in kernels.buffers and not kernels.buffers[id].type.rank]
        for call in kernels.calls:
            if isinstance(call.kernel, Kernel):
                self._add(call.kernel, call.inputs, call.outputs)

    def excess(self, size: int, factor: int, other: int, times: int = 1) -> int | None:
        """A number that factor * size - times * other never exceeds, of two scalars by id; None where none is known."""
        zero = Sum(frozenset())
        return self._most(zero.plus(self._sum(size), factor).plus(self._sum(other), -times), iter(range(MOST_STEPS)))

    def is_times(self, size: int, other: int, times: int) -> bool:
        """Whether a scalar is known to be `times` another one."""
        return self._sum(size) == Sum(frozenset()).plus(self._sum(other), times)

    def parts(self, size: int, factor: int) -> tuple[int, ...]:
        """The scalars, by id, that times `factor` are a size."""
        whole = self._sum(size)
        scalars = {*self.known, *self.given, *(atom for atom, _ in whole.terms if isinstance(atom, int))}
        return tuple(id for id in sorted(scalars) if Sum(frozenset()).plus(self._sum(id), factor) == whole)

    def _sum(self, id: int) -> Sum:
        return self.known.get(id) or Sum.of({id: 1})

    def _add(self, kernel: Kernel, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """What a kernel computes of scalars; of what it sums, counts or reads elsewhere nothing is known."""
        own = {slot.name: id for slot, id in zip(kernel.outputs, outputs, strict=True)}
        found = {slot.name: self._sum(id) for slot, id in zip(kernel.inputs, inputs, strict=True)}
        for block in kernel.blocks:
            for value, store in zip(block.values, block.stores, strict=True):
                if value.dtype is not DType.I64 or kernel.slots[store.slot].type.rank:
                    continue
                known = None if block.axes or block.monoid else self._sum_of(value, found)
                if known is None and store.slot in own:
                    known = Sum.of({own[store.slot]: 1})
                if known is not None:
                    found[store.slot] = known
        self.known.update({id: found[name] for name, id in own.items() if name in found})

    def _most(self, total: Sum, steps: Iterator[int]) -> int | None:
        """An upper bound of a sum: one term after another is replaced by what it does not exceed.

        Extremes come last: one that a quotient is of may be among the other terms.
        """
        if next(steps, None) is None:
            return None
        for atom, factor in sorted(total.terms, key=lambda term: (isinstance(term[0], Extreme), str(term))):
            left = total.plus(Sum.of({atom: factor}), -1)
            if isinstance(atom, Extreme):
                ends = [self._most(left.plus(one, factor), steps) for one in (atom.one, atom.other)]
                bounds = [end for end in ends if end is not None]
                if (factor > 0) == atom.is_greatest:  # either may be what it is
                    return max(bounds) if len(bounds) == len(ends) else None
                return min(bounds, default=None)
            if isinstance(atom, Quotient) and factor % atom.divisor == 0:
                more = Sum(frozenset(), 0 if factor > 0 else atom.divisor - 1)
                above = self._most(left.plus(atom.value.plus(more, -1), factor // atom.divisor), steps)
                if factor < 0 or self._is_natural(atom.value):
                    return above
                zero = self._most(left, steps)
                return None if above is None or zero is None else max(above, zero)
        bounded = all(factor < 0 and self._is_natural(atom) for atom, factor in total.terms)
        return total.const if bounded else None

    def _is_natural(self, value: Atom | Sum) -> bool:
        """Whether a value is never negative, as far as its form says: a quotient is not from 1 - divisor on."""
        if isinstance(value, Sum):
            return value.const >= 0 and all(factor > 0 and self._is_natural(atom) for atom, factor in value.terms)
        if isinstance(value, Extreme):
            each = [self._is_natural(one) for one in (value.one, value.other)]
            return any(each) if value.is_greatest else all(each)
        if isinstance(value, Quotient):
            return self._is_natural(value.value.plus(Sum(frozenset(), value.divisor - 1)))
        return value in self.kernels.inputs

    def _sum_of(self, value: Expr, known: Mapping[str, Sum]) -> Sum | None:
        if isinstance(value, Const):
            return Sum(frozenset(), int(value.value))
        if isinstance(value, Load):
            return known.get(value.slot)
        if not isinstance(value, Apply) or len(value.args) != 2:
            return None
        one, other = (self._sum_of(part, known) for part in value.args)
        if one is None or other is None:
            return None
        if value.function in ("add", "sub"):
            return one.plus(other, 1 if value.function == "add" else -1)
        if value.function == "mul" and not (one.terms and other.terms):
            times, of = (one, other) if not one.terms else (other, one)
            return Sum(frozenset()).plus(of, times.const)
        if value.function == "div" and not other.terms and other.const > 0:
            return Sum.of({Quotient(one, other.const): 1})
        if value.function in ("max", "min"):
            return Sum.of({Extreme(one, other, value.function == "max"): 1})
        return None
