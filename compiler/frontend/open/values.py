"""What is known of values beside their types: real shapes, and elements that are sizes; and how new ones are made.

A value with an open axis has the axis's capacity in the graph and is zero from its size on. `emit` keeps that: what it
makes is padded again wherever the operator may have left something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from compiler.frontend.assembly import Assembly
from compiler.frontend.open.extent import (
    Extent,
    Extreme,
    Number,
    Numbers,
    Quotient,
    Scaled,
    Size,
    extent_of,
    high,
    is_open,
)
from compiler.frontend.opsets.schema import form_of
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import NEWEST_OPSET
from compiler.frontend.reading.tensors import CODES, check_size
from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops import having
from compiler.ops.operator import Operator, Unsupported
from compiler.ops.traits import Trait

Attrs = Mapping[str, Attr]
KEEPS = having(Trait.RESHAPE) | {"Cast"}
"""Operators whose result has the numbers of their first input, in its order."""
INDEX = TensorType(DType.I64, ())
"""What a size is in the graph."""


class SameSize(Exception):
    """Two sizes that inputs bring must be one, because an operator puts their axes side by side."""

    def __init__(self, one: Size, other: Size) -> None:
        super().__init__(f"{one} and {other} must be equal")
        self.names = (one.name, other.name)


class Narrower(Exception):
    """A size that inputs bring must lie in a narrower range, counted in its steps: else two axes would differ."""

    def __init__(self, one: Size, low: int, high: int) -> None:
        super().__init__(f"{one.name} must lie between {low * one.step} and {high * one.step}")
        self.name, self.low, self.high = one.name, low * one.step, high * one.step
        self._size, self._ends = one, (low, high)

    def beside(self) -> Narrower:
        """The wider one of the two ranges that this leaves out, which has no size where it leaves out none."""
        low, high = self._ends
        below, above = (self._size.low, low - 1), (high + 1, self._size.high)
        return Narrower(self._size, *max(below, above, key=lambda ends: ends[1] - ends[0]))


class WholeSteps(Exception):
    """A size that inputs bring must be a multiple of `step`: else two axes that an operator joins would differ."""

    def __init__(self, one: Size, step: int) -> None:
        super().__init__(f"{one} must be a multiple of {step}")
        self.name, self.step = one.name, one.step * step


class Rows(Exception):
    """A run appends another number of rows than was assumed."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"{rows} rows are appended")
        self.rows = rows


class Wider(Exception):
    """The greatest that sizes may be which data say at a node must be more than was assumed: else two would differ."""

    def __init__(self, source: str, most: int) -> None:
        super().__init__(f"sizes of {source!r:.100} must be able to be {most}")
        self.source, self.most = source, most


Demand = tuple[str, int, int, int]
"""What must hold of data: what is said of it, the scalar (i64) that it is demanded of, and its two ends."""


@dataclass(frozen=True)
class Moved:
    """Neighbouring axes of a value that hold elements of another one in an order that sizes say, or zeros.

    What moves them again is one Gather of the same line, and not a Gather of a Gather.

    line    the other value, in which one axis, as long as its capacity, stands in place of these axes
    start   the first of them
    steps   of each, by how much the numbers of neighbours differ
    first   the number of the first element
    count   how many numbers there are
    place   of numbers (i64) where in the line their elements lie, and which of them are no zeros (bool; None: all)
    """

    line: int
    start: int
    steps: Numbers
    first: Number
    count: Number
    place: Callable[[int], tuple[int, int | None]]


@dataclass
class OpenValues:
    """Mutable while the front end walks the model.

    shapes    of values with an open axis
    elements  of values that hold sizes: an array of objects, each an int or an Extent; such a value has no node until
              something reads it at run time
    sizes     the graph's scalar for each size
    demands   what must hold of data
    equal     what is said of sizes that are assumed to be equal: by the scalar that is 0 then, both of them
    examples  by id of a value that data say: legal ones, those of one place together
    bounds    the greatest size that data may say, by source, as options give it
    bounded   the same for every source where one was asked for; `assumed` has those that options do not give
    wide      what `assumed` has to be at least, by source; None: nothing is made wider
    capped    of sizes whose bound is assumed: the source that says them
    read      ids of values whose elements say such sizes
    guards    scalars (bool) all of which are true where what is made now counts
    roomy     of values that have room behind them along an axis: the value with all of it, zero there, and the axis
    growing   of these values those that are states of the program
    moved     of values that are one Gather of another: how
    source    what nodes that are made now are said to come from
    """

    graph: Assembly
    operators: Mapping[str, Operator]
    limits: Limits
    shapes: dict[int, Numbers] = field(default_factory=dict)
    elements: dict[int, np.ndarray] = field(default_factory=dict)
    sizes: dict[Size, int] = field(default_factory=dict)
    scalars: dict[Number, int] = field(default_factory=dict)
    entered: dict[tuple[str, bytes, tuple[int, ...]], int] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    demands: list[Demand] = field(default_factory=list)
    equal: dict[int, tuple[str, Number, Number]] = field(default_factory=dict)
    examples: dict[int, tuple[np.ndarray, ...]] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    bounded: dict[str, int] = field(default_factory=dict)
    assumed: dict[str, int] = field(default_factory=dict)
    wide: Mapping[str, int] | None = field(default_factory=dict)
    capped: dict[Size, str] = field(default_factory=dict)
    read: dict[int, None] = field(default_factory=dict)
    guards: list[int] = field(default_factory=list)
    roomy: dict[int, tuple[int, int]] = field(default_factory=dict)
    growing: set[int] = field(default_factory=set)
    moved: dict[int, Moved] = field(default_factory=dict)
    source: str = ""

    # What is known

    def concerns(self, ids: Sequence[int | None]) -> bool:
        """Whether any of these values has an open axis or holds sizes."""
        return any(id in self.shapes or id in self.elements for id in ids if id is not None)

    def shape(self, id: int) -> Numbers:
        """The real shape of a value."""
        return self.shapes.get(id) or self.graph.type(id).dims

    def type(self, id: int) -> TensorType:
        """The type with a symbol for each open axis, for rules that would take its capacity for its size."""
        kind = self.graph.type(id)
        if id not in self.shapes:
            return kind
        dims = tuple(dim.symbol if isinstance(dim, Extent) else dim for dim in self.shapes[id])
        return TensorType(kind.dtype, dims)

    def known(self, id: int) -> np.ndarray | None:
        """The elements of a constant, or of a value that holds sizes as objects; None where only data says them."""
        return self.elements.get(id, self.graph.constants.get(id))

    # What is made

    def constant(self, array: np.ndarray) -> int:
        """A constant's id; equal small ones are one."""
        if array.size > 4096:
            return self.graph.constant(array, "")
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self.entered:
            self.entered[key] = self.graph.constant(np.array(array), "")
        return self.entered[key]

    def node(self, op: str, ids: Sequence[int | None], attrs: Attrs | None = None) -> int:
        """One more node at capacity, and the id of its only result: nothing is said of sizes."""
        return self.node_of(op, ids, attrs, 1)[0]

    def node_of(
        self, op: str, ids: Sequence[int | None], attrs: Attrs | None = None, count: int = 1
    ) -> tuple[int, ...]:
        """One more node at capacity with so many results. Raises Unsupported."""
        ids = tuple(None if id is None else self.at_run_time(id) for id in ids)
        first = len(self.graph.values)
        node = self._call(op, ids, tuple(range(first, first + count)), attrs)
        results = self.operators[op].infer(node, tuple(None if id is None else self.graph.type(id) for id in ids))
        for result in results[:count]:
            check_size(result.dims, result.dtype, f"a result of {self.source!r:.100} at its greatest size", self.limits)
            self.graph.value(result, "")
        self.graph.node(node)
        return node.outputs

    def _call(self, op: str, ids: tuple[int | None, ...], results: tuple[int, ...], attrs: Attrs | None) -> Node:
        """A node with the defaults of the operator's newest form."""
        form = form_of(op, NEWEST_OPSET)
        defaults: dict[str, Attr] = {} if form is None else {**form.defaults}  # type: ignore[dict-item]
        return Node(op, ids, results, {**defaults, **(attrs or {})}, self.source)

    def cast(self, id: int, dtype: DType) -> int:
        """The value with elements of a type."""
        return id if self.graph.type(id).dtype is dtype else self.node("Cast", (id,), {"to": CODES[dtype]})

    def reshape(self, id: int, shape: tuple[int, ...]) -> int:
        """The elements at capacity, in the same order, in another shape at capacity."""
        return self.node("Reshape", (id, None), {"shape": shape, "allowzero": 1})

    def part(self, id: int, axis: int, start: int, end: int, step: int = 1) -> int:
        """Every `step`-th of the positions at capacity from `start` to before `end` along an axis."""
        bounds: Attrs = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (step,)}
        return self.node("Slice", (id, None, None), bounds)

    def joined(self, ids: Sequence[int], axis: int = 0) -> int:
        """Values one after another at capacity along an axis; one alone is itself."""
        return ids[0] if len(ids) == 1 else self.node("Concat", ids, {"axis": axis})

    def emit(self, op: str, ids: Sequence[int | None], shape: Numbers, attrs: Attrs | None = None) -> int:
        """A node whose result really has `shape`, and is zero beyond it. Raises Unsupported."""
        return self.settled(self.node(op, ids, attrs), shape)

    def settled(self, id: int, shape: Numbers, padded: bool = True) -> int:
        """The value as one of a real shape: cut or extended to its capacity, and zero from its sizes on.

        `padded` is False for what is zero there already.
        """
        capacity = tuple(map(high, shape))
        there = self.graph.type(id).dims
        smaller = tuple(map(min, capacity, there))
        if smaller != there:
            bounds: dict[str, Attr] = {"starts": (0,) * len(there), "ends": smaller, "axes": tuple(range(len(there)))}
            id = self.node("Slice", (id, None, None), {**bounds, "steps": (1,) * len(there)})
        if capacity != smaller:
            more = tuple(large - small for large, small in zip(capacity, smaller, strict=True))
            id = self.node("Pad", (id, None, None), {"pads": (*(0,) * len(more), *more), "mode": "constant"})
        if padded:
            for axis, dim in enumerate(shape):
                if isinstance(dim, Extent):
                    id = self.beyond(id, axis, dim, 0)
        if is_open(shape):
            self.shapes[id] = shape
        return id

    def beyond(self, id: int, axis: int, dim: Number, value: float) -> int:
        """The value with a number in place of all elements from a size on."""
        found = self.node("PadBeyond", (id, self.scalar(dim)), {"axis": axis, "value": value})
        if id in self.shapes:
            self.shapes[found] = self.shapes[id]
        return found

    def holding(self, elements: np.ndarray, dtype: DType) -> int:
        """A value that holds these sizes and numbers, of a dtype."""
        if not any(isinstance(item, Extent | Scaled) for item in elements.reshape(-1)):
            return self.constant(elements.astype(dtype.numpy))
        id = self.graph.value(TensorType(dtype, elements.shape), "")
        self.elements[id] = elements
        return id

    # What must hold of data

    def demand(self, scalar: int, low: int, high: int, says: str) -> None:
        """A scalar (i64) must lie between two ends, else a run means nothing; `says` is the message then."""
        for guard in self.guards:
            scalar = self.node("Where", (guard, scalar, self.scalar(low)))
        self.demands.append((says, scalar, low, high))

    def demand_equal(self, one: Number, other: Number) -> None:
        """Two sizes must have one value in each run: what a run is in which they have not, means nothing."""
        difference = self.scalar(one - other)
        if any((scalar, low, high) == (difference, 0, 0) for _, scalar, low, high in self.demands):
            return
        says = f"node {self.source!r:.100} takes sizes {one!s:.60} and {other!s:.60} for equal"
        self.demand(difference, 0, 0, says)
        self.equal[self.demands[-1][1]] = says, one, other

    def give_examples(self, id: int, arrays: Sequence[np.ndarray]) -> None:
        """Legal values of what data say: where it is an input, or an input's elements in another shape or type."""
        while id in self.graph.producer and self.graph.producer[id].op in KEEPS:
            first = self.graph.producer[id].inputs[0]
            assert first is not None
            id = first
        kind = self.graph.type(id)
        self.examples.setdefault(id, tuple(array.astype(kind.dtype.numpy).reshape(kind.dims) for array in arrays))

    @contextmanager
    def guarded(self, condition: int | None) -> Iterator[None]:
        """What is demanded inside counts where a condition, a scalar (bool), is true; None: always."""
        before, self.guards = self.guards, [*self.guards, *(() if condition is None else (condition,))]
        try:
            yield
        finally:
            self.guards = before

    # Sizes at run time

    def scalar(self, number: Number) -> int:
        """The scalar (i64) that is this number at run time."""
        if number not in self.scalars:
            self.scalars[number] = self._computed(number)
        return self.scalars[number]

    def _computed(self, number: Number) -> int:
        if isinstance(number, int):
            return self.constant(np.array(number, np.int64))
        whole: int | None = None
        for atoms, factor in number.terms:
            part = self.scalar(factor)
            for place, atom in enumerate(atoms):
                value = self._atom(atom)
                part = value if place == 0 and factor == 1 else self.node("Mul", (part, value))
            whole = part if whole is None else self.node("Add", (whole, part))
        assert whole is not None
        return whole

    def _atom(self, atom: Size | Quotient | Extreme) -> int:
        if isinstance(atom, Size):
            return self.sizes[atom]
        if isinstance(atom, Extreme):
            pair = (self.scalar(atom.one), self.scalar(atom.other))
            return self.node("Max" if atom.greatest else "Min", pair)
        above = -min(atom.low, 0)
        lifted = self.scalar(atom.numerator + above * atom.divisor)
        quotient = self.node("Div", (lifted, self.scalar(atom.divisor)))
        return quotient if not above else self.node("Sub", (quotient, self.scalar(above)))

    def at_run_time(self, id: int) -> int:
        """The value itself; of one that holds sizes, one with nodes that compute them."""
        if id not in self.elements or id in self.made:
            return id
        self.made.add(id)
        kind, flat = self.graph.type(id), self.elements[id].reshape(-1)
        rows = [self.node("Unsqueeze", (self._element(item, kind.dtype), None), {"axes": (0,)}) for item in flat]
        joined = self.joined(rows)
        self.graph.node(self._call("Reshape", (joined, None), (id,), {"shape": kind.dims, "allowzero": 1}))
        return id

    def _element(self, item: object, dtype: DType) -> int:
        """The scalar of a dtype that is one element at run time."""
        factor = item.factor if isinstance(item, Scaled) else None
        whole = self.scalar(item.extent if isinstance(item, Scaled) else as_number(item))
        found = self.cast(whole, dtype)
        return found if factor is None else self.node("Mul", (found, self.constant(np.array(factor, dtype.numpy))))


def as_number(item: object) -> Number:
    """One element of an array of sizes or of whole numbers. Raises Unsupported for what is neither."""
    if isinstance(item, Extent):
        return item
    if isinstance(item, int | np.integer):
        return int(item)
    if isinstance(item, float | np.floating) and float(item).is_integer():
        return int(item)
    raise Unsupported(f"{item!r:.40} is no whole number", "export the model again")


def of_size(one: Size) -> Number:
    """The whole size as a number: all of its steps."""
    return one.step * extent_of([((one,), 1)])


def measured(values: OpenValues, scalar: int, least: int, most: int, what: str) -> Number:
    """The number that a scalar (i64) of the graph holds, which lies between two others."""
    if least == most:
        return least
    size = Size(f"{what}.{len(values.sizes)}", least, most, measured=True)
    values.sizes[size] = scalar
    return of_size(size)
