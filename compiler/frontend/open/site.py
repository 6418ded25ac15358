"""One call with an open axis or with sizes among its elements, as a rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import ModelTooLarge
from compiler.frontend.expansions.site import NotKnown
from compiler.frontend.open.extent import Extent, Number, Numbers, Size, Undecided, high, in_range, in_steps, is_equal
from compiler.frontend.open.values import Narrower, OpenValues, SameSize, WholeSteps, Wider, as_number
from compiler.ir.graph import Attr
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported


@dataclass(frozen=True)
class OpenSite:
    """`attrs` has every default of the newest form; inputs that other stages take as attributes are still inputs."""

    values: OpenValues
    op: str
    ids: tuple[int | None, ...]
    attrs: Mapping[str, Attr]
    outputs: int

    @property
    def first(self) -> int:
        """The first input's id."""
        return self.given(0)

    def given(self, position: int) -> int:
        """The id of an input that must be there."""
        id = self.ids[position] if position < len(self.ids) else None
        if id is None:
            raise Unsupported(f"input {position} is absent but required", "export the model again")
        return id

    def kind(self, position: int) -> TensorType:
        """The type of an input at capacity."""
        return self.values.graph.type(self.given(position))

    def shape(self, position: int = 0) -> Numbers:
        """The real shape of an input."""
        return self.values.shape(self.given(position))

    def known(self, position: int, name: str) -> list[Number] | None:
        """The numbers of an input that must follow from shapes; None where it is absent. Raises NotKnown."""
        id = self.ids[position] if position < len(self.ids) else None
        if id is None:
            return None
        array = self.values.known(id)
        if array is None:
            raise NotKnown(position, name)
        return [as_number(item) for item in array.reshape(-1)]

    def ints(self, position: int, name: str) -> list[int] | None:
        """Likewise, where numbers must not depend on sizes."""
        numbers = self.known(position, name)
        if numbers is None:
            return None
        if depending := [number for number in numbers if isinstance(number, Extent)]:
            raise Unsupported(f"input {name!r} depends on the size {depending[0]}", "bind that dimension to a number")
        return [number for number in numbers if isinstance(number, int)]

    def integer(self, name: str, default: int) -> int:
        """An attribute that is one int."""
        value = self.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def axis(self, rank: int, name: str = "axis", default: int = 0) -> int:
        """An attribute that names an axis, counted from 0. Raises Unsupported."""
        axis = self.integer(name, default)
        if not -rank <= axis < rank:
            raise Unsupported(f"{name} is {axis}, the tensor has rank {rank}", "export with an axis of the tensor")
        return axis % rank

    def refuse(self, why: str) -> Unsupported:
        """What is raised where an open axis meets an operator that has no rule for it there."""
        shapes = ", ".join(f"[{', '.join(map(str, self.values.shape(id)))}]" for id in self.ids if id is not None)
        return Unsupported(f"{why} ({shapes})", "bind that dimension to a number, or to several")


def same(values: OpenValues, one: Number, other: Number) -> Number:
    """The size that two axes have together. Raises SameSize to have two dimensions of inputs made one.

    Sizes that data decide are assumed to be equal, which a run checks: the result is the one of fewer elements at
    capacity, and operands have to be cut to that (`OpenValues.settled`). Raises Wider to have a bound that is no more
    than assumed be the other's, and Unsupported where they differ whatever data say, or would have to be a number.
    """
    if one == other:
        return one
    _widen(values, one, other)
    _widen(values, other, one)
    mine, yours = _alone(one), _alone(other)
    if mine and yours:
        raise SameSize(mine, yours)
    try:
        if not is_equal(one, other):
            raise Unsupported(f"sizes {one} and {other} are put side by side", "bind dimensions that fit each other")
    except Undecided:
        if any(_equal_in(one, other, size, size.low, size.high) for size in _given_sizes(one, other)):
            return one
        if is_by_data(one, other):
            return _assumed(values, one, other)
        _demand_less(one, other)
    raise Unsupported(
        f"sizes {one} and {other} are put side by side, which fits for some sizes alone",
        "bind these dimensions to numbers",
    )


def is_by_data(one: Number, other: Number) -> bool:
    """Whether data decide how far two numbers are apart."""
    difference = one - other
    return isinstance(difference, Extent) and any(size.measured for size in difference.sizes)


def _widen(values: OpenValues, one: Number, other: Number) -> None:
    """Raises Wider where a bound that was assumed ends `one` before `other` ends."""
    if values.wide is None or not isinstance(one, Extent) or not values.capped or high(one) >= high(other):
        return
    for size in sorted(one.sizes & values.capped.keys(), key=str):
        source = values.capped[size]
        most = min(high(other), values.assumed[source] * -(-high(other) // max(high(one), 1)))
        if most > max(values.wide.get(source, 0), values.assumed[source]):
            raise Wider(source, most)


def _assumed(values: OpenValues, one: Number, other: Number) -> Number:
    values.demand_equal(one, other)
    return min(one, other, key=high)


STEPS = (2, 4, 8, 16, 32, 64, 128, 3, 5, 6, 7, 9, 10, 12, 14, 20, 24, 28, 40, 48, 80, 96, 160, 256, 320, 512)


def _demand_less(one: Number, other: Number) -> None:
    """Raises what leaves sizes furthest apart for which two numbers are equal, and the most: WholeSteps or Narrower."""
    kept: list[tuple[tuple[int, int], Exception]] = []
    for size in _given_sizes(one, other):
        kept += [*_steps(one, other, size), *_ranges(one, other, size)]
    if kept:
        raise max(kept, key=lambda found: found[0])[1]


def _steps(one: Number, other: Number, size: Size) -> Iterator[tuple[tuple[int, int], Exception]]:
    """Steps of whose multiples two numbers are equal, how far these reach and how many there are."""
    for step in STEPS:
        count = size.high // step - -(-size.low // step) + 1
        if count > 1 and in_steps(one, size, step) == in_steps(other, size, step):
            yield ((count - 1) * step, count), WholeSteps(size, step)


def _equal_in(one: Number, other: Number, size: Size, least: int, most: int) -> bool:
    return in_range(one, size, least, most) == in_range(other, size, least, most)


def _ranges(one: Number, other: Number, size: Size) -> Iterator[tuple[tuple[int, int], Exception]]:
    """Ranges at either end for which two numbers are equal, how far they reach and how many sizes they have."""

    def equal(least: int, most: int) -> bool:
        return _equal_in(one, other, size, least, most)

    if equal(size.low, size.low):
        most = _last(lambda most: equal(size.low, most), size.low, size.high)
        yield (most - size.low, most - size.low + 1), Narrower(size, size.low, most)
    if equal(size.high, size.high):
        least = -_last(lambda least: equal(-least, size.high), -size.high, -size.low)
        yield (size.high - least, size.high - least + 1), Narrower(size, least, size.high)


def _last(holds: Callable[[int], bool], first: int, past: int) -> int:
    """The greatest number below `past` up to which something holds that does for `first`, by halving."""
    while past - first > 1:
        middle = (first + past) // 2
        first, past = (middle, past) if holds(middle) else (first, middle)
    return first


def _given_sizes(*numbers: Number) -> list[Size]:
    """Sizes of inputs that numbers depend on."""
    sizes = {size for number in numbers if isinstance(number, Extent) for size in number.sizes}
    return sorted((size for size in sizes if not size.measured), key=str)


def _alone(number: Number) -> Size | None:
    if isinstance(number, Extent) and len(number.terms) == 1:
        (atoms, factor), *_ = number.terms
        if factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Size) and not atoms[0].measured:
            return atoms[0]
    return None


def broadcast(values: OpenValues, shapes: Sequence[Numbers]) -> Numbers:
    """The shape that numpy's rules give. An open axis beside another fits when their sizes are one (see `same`)."""
    rank = max(map(len, shapes), default=0)
    found: list[Number] = [1] * rank
    for shape in shapes:
        for place, dim in enumerate(shape, rank - len(shape)):
            if found[place] == 1:
                found[place] = dim
            elif dim != 1:
                found[place] = same(values, found[place], dim)
    return tuple(found)


def fitted(values: OpenValues, id: int, whole: Numbers) -> int:
    """An operand that is broadcast to a shape, with the capacities that this has: one size may have a tighter one."""
    shape = values.shape(id)
    own = whole[len(whole) - len(shape) :]
    wanted = tuple(1 if dim == 1 else large for dim, large in zip(shape, own, strict=True))
    if capacities(wanted) == values.graph.type(id).shape:
        return id
    return values.settled(id, wanted, padded=False)


def iota(values: OpenValues, count: int, rank: int = 1, axis: int = 0) -> int:
    """The constant 0, 1, ... count - 1 along one axis of a tensor of a rank. Raises ModelTooLarge."""
    if 8 * count > values.limits.fold_bytes:
        raise ModelTooLarge(
            f"{values.source!r:.100} has to count up to {count} positions", fix="give ranges that end earlier"
        )
    shape = [1] * rank
    shape[axis] = count
    key = ("iota", b"", tuple(shape))
    if key not in values.entered:
        values.entered[key] = values.constant(np.arange(count, dtype=np.int64).reshape(shape))
    return values.entered[key]


def capacities(shape: Numbers) -> tuple[int, ...]:
    """The extents that a shape has in the graph."""
    return tuple(map(high, shape))
