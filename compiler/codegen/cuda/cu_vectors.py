"""What the generic CUDA lowering loads and stores by 16 bytes: elements of a row that lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.ir.expr import Expr, Load, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block
from compiler.ir.normal_form import Address
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
    """Loads and stores that take `count` elements along an axis at once."""

    axis: Axis
    count: int
    loads: tuple[Load, ...]
    stores: tuple[Place, ...]

    @property
    def per_row(self) -> int:
        return -(-self.axis.extent // self.count)

    @property
    def row(self) -> Axis:
        """The axis of vectors."""
        return Axis(f"{self.axis.name}Vector", self.per_row)


def vectors_along(
    axis: Axis, blocks: Sequence[Block], address: Address, element: Callable[[str], DType]
) -> Vectors | None:
    """What may be loaded and stored by VECTOR_BYTES along an axis: stores where the blocks store along it, else loads.

    `element` gives the dtype that a slot's elements have in memory.
    """

    def is_whole(place: Load | Place, count: int) -> bool:
        """Whether `count` elements along the axis lie side by side, from multiples of `count` on."""
        offset = address(place.slot, place.index)[1]
        others = (factor for atom, factor in offset.terms if atom != axis)
        return offset.coefficient(axis) == 1 and not any(number % count for number in (*others, offset.const))

    stores = [Place(store.slot, store.index) for block in blocks for store in block.stores]
    written = {place.slot for place in stores}
    certain = (load for block in blocks for value in block.values for load in _certain_loads(value))
    loads = [load for load in certain if load.slot not in written]
    places: list[Load | Place] = [*loads, *stores]
    widths = [element(place.slot).bytes for place in places if is_whole(place, 1)]
    count = min(VECTOR_BYTES // max(widths, default=VECTOR_BYTES), MAX_VECTOR)
    along = any(axis in address(place.slot, place.index)[1].axes for place in stores)
    while count > 1:
        whole_loads = tuple(dict.fromkeys(load for load in loads if is_whole(load, count)))
        whole_stores = tuple(dict.fromkeys(place for place in stores if is_whole(place, count)))
        if whole_stores if along else whole_loads:
            return Vectors(axis, count, whole_loads, whole_stores)
        count //= 2
    return None


def _certain_loads(expr: Expr) -> Iterator[Load]:
    """The loads that are carried out whatever conditions say."""
    if isinstance(expr, Load):
        yield expr
    for child in (expr.condition,) if isinstance(expr, Where) else expr.children:
        yield from _certain_loads(child)
