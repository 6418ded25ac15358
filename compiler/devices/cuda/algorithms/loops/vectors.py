"""What the generic CUDA lowering loads and stores by 16 bytes: elements of a row that lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler.forms.factors import is_positional
from compiler.forms.normal_form import Address
from compiler.ir.expr import Apply, Expr, Load, Where, conjunction
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block
from compiler.ir.tensor import DType

VECTOR_BYTES = 16
"""What one instruction of a thread moves at most."""

MAX_VECTOR = 8
"""Elements of a thread at most: of bytes, 16 would need too many registers."""


@dataclass(frozen=True)
class Place:
    """Where a block stores."""

    slot: str
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Vectors:
    """Loads and stores that take `count` elements along an axis at once.

    A load with a condition does only where that holds.
    """

    axis: Axis
    count: int
    loads: Mapping[Load, Expr | None]
    stores: tuple[Place, ...]

    @property
    def per_row(self) -> int:
        """Vectors of a row; the last may be incomplete."""
        return -(-self.axis.extent // self.count)

    @property
    def row(self) -> Axis:
        """The axis of vectors."""
        return Axis(f"{self.axis.name}Vector", self.per_row)


def vectors_along(
    axis: Axis, blocks: Sequence[Block], address: Address, element: Callable[[str], DType], most: int = MAX_VECTOR
) -> Vectors | None:
    """What may be loaded and stored by VECTOR_BYTES, and by `most` elements, along an axis.

    Stores where the blocks store along it, else loads. `element` gives the dtype that a slot's elements have in memory;
    `address` counts from a place that is aligned to VECTOR_BYTES.
    """

    def is_whole(place: Load | Place, count: int) -> bool:
        """Whether `count` elements along the axis lie side by side, from multiples of `count` on."""
        offset = address(place.slot, place.index)[1]
        others = (factor for atom, factor in offset.terms if atom != axis)
        return offset.coefficient(axis) == 1 and not any(number % count for number in (*others, offset.const))

    stores = [Place(store.slot, store.index) for block in blocks for store in block.stores]
    written = {place.slot for place in stores}
    loads = {load: held for load, held in _conditions(blocks, axis).items() if load.slot not in written}
    places: list[Load | Place] = [*loads, *stores]
    widths = [element(place.slot).bytes for place in places if is_whole(place, 1)]
    most = min(VECTOR_BYTES // max(widths, default=VECTOR_BYTES), MAX_VECTOR, max(most, 1))
    count = 1 << (most.bit_length() - 1)
    along = any(axis in address(place.slot, place.index)[1].axes for place in stores)
    while count > 1:
        whole_loads = {load: held for load, held in loads.items() if is_whole(load, count)}
        whole_stores = tuple(dict.fromkeys(place for place in stores if is_whole(place, count)))
        if whole_stores if along else whole_loads:
            return Vectors(axis, count, whole_loads, whole_stores)
        count //= 2
    return None


def _conditions(blocks: Sequence[Block], axis: Axis) -> dict[Load, Expr | None]:
    """The loads that all elements of a vector carry out, or none: under which condition, None for always."""
    found: dict[Load, set[Expr | None]] = {}
    for block in blocks:
        for value in block.values:
            for load, condition in _loads_under(value, axis, ()):
                found.setdefault(load, set()).add(condition)
    return {
        load: None if None in held else next(iter(held))
        for load, held in found.items()
        if None in held or len(held) == 1
    }


def _loads_under(expr: Expr, axis: Axis, held: tuple[Expr, ...]) -> Iterator[tuple[Load, Expr | None]]:
    """The loads of an expression, with the conditions that they stand under.

    None under a condition that differs along the axis, or is data.
    """
    if isinstance(expr, Load):
        yield expr, conjunction([*held])
    if not isinstance(expr, Where):
        for child in expr.children:
            yield from _loads_under(child, axis, held)
        return
    yield from _loads_under(expr.condition, axis, held)
    if is_positional(expr.condition) and axis not in expr.condition.axes:
        yield from _loads_under(expr.then, axis, (*held, expr.condition))
        yield from _loads_under(expr.otherwise, axis, (*held, Apply("not", (expr.condition,))))
