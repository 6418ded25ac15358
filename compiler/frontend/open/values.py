"""What is known of values beside their types: real shapes, and elements that are sizes; and how new ones are made.

A value with an open axis has the axis's capacity in the graph and is zero from its size on. `emit` keeps that: what it
makes is padded again wherever the operator may have left something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.frontend.assembly import Assembly
from compiler.frontend.limits import Limits
from compiler.frontend.model import NEWEST_OPSET
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
from compiler.frontend.schema import form_of
from compiler.frontend.tensors import CODES, check_size
from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Operator, Unsupported

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
        super().__init__(f"{one} must lie between {low} and {high}")
        self.name, self.low, self.high = one.name, low * one.step, high * one.step


class WholeSteps(Exception):
    """A size that inputs bring must be a multiple of `step`: else two axes that an operator joins would differ."""

    def __init__(self, one: Size, step: int) -> None:
        super().__init__(f"{one} must be a multiple of {step}")
        self.name, self.step = one.name, one.step * step


@dataclass
class OpenValues:
    """Mutable while the front end walks the model.

    shapes    of values with an open axis
    elements  of values that hold sizes: an array of objects, each an int or an Extent; such a value has no node until
              something reads it at run time
    sizes     the graph's scalar for each size
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

    def ints(self, *values: int) -> int:
        """A constant vector of i64."""
        return self.constant(np.array(values, np.int64))

    def node(self, op: str, ids: Sequence[int | None], attrs: Mapping[str, Attr] | None = None) -> int:
        """One more node at capacity, and the id of its only result: nothing is said of sizes."""
        return self.node_of(op, ids, attrs, 1)[0]

    def node_of(
        self, op: str, ids: Sequence[int | None], attrs: Mapping[str, Attr] | None = None, count: int = 1
    ) -> tuple[int, ...]:
        """One more node at capacity with so many results. Raises Unsupported."""
        form = form_of(op, NEWEST_OPSET)
        defaults: dict[str, Attr] = {} if form is None else {**form.defaults}  # type: ignore[dict-item]
        ids = tuple(None if id is None else self.at_run_time(id) for id in ids)
        first = len(self.graph.values)
        node = Node(op, ids, tuple(range(first, first + count)), {**defaults, **(attrs or {})}, self.source)
        results = self.operators[op].infer(node, tuple(None if id is None else self.graph.type(id) for id in ids))
        for result in results[:count]:
            check_size(result.dims, result.dtype, f"a result of {self.source!r:.100} at its greatest size", self.limits)
            self.graph.value(result, "")
        self.graph.node(node)
        return node.outputs

    def emit(self, op: str, ids: Sequence[int | None], shape: Numbers, attrs: Mapping[str, Attr] | None = None) -> int:
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
            part = self.constant(np.array(factor, np.int64))
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
        quotient = self.node("Div", (lifted, self.constant(np.array(atom.divisor, np.int64))))
        return quotient if not above else self.node("Sub", (quotient, self.constant(np.array(above, np.int64))))

    def at_run_time(self, id: int) -> int:
        """The value itself; of one that holds sizes, one with nodes that compute them."""
        if id not in self.elements or id in self.made:
            return id
        self.made.add(id)
        kind, flat = self.graph.type(id), self.elements[id].reshape(-1)
        rows = [self.node("Unsqueeze", (self._element(item, kind.dtype), None), {"axes": (0,)}) for item in flat]
        joined = rows[0] if len(rows) == 1 else self.node("Concat", rows, {"axis": 0})
        self._define("Reshape", [joined, None], id, {"shape": kind.dims, "allowzero": 1})
        return id

    def _element(self, item: object, dtype: DType) -> int:
        """The scalar of a dtype that is one element at run time."""
        factor = item.factor if isinstance(item, Scaled) else None
        whole = self.scalar(item.extent if isinstance(item, Scaled) else as_number(item))
        found = whole if dtype is DType.I64 else self.node("Cast", (whole,), {"to": CODES[dtype]})
        return found if factor is None else self.node("Mul", (found, self.constant(np.array(factor, dtype.numpy))))

    def _define(self, op: str, ids: Sequence[int | None], result: int, attrs: Mapping[str, Attr] | None = None) -> None:
        form = form_of(op, NEWEST_OPSET)
        defaults: dict[str, Attr] = {} if form is None else {**form.defaults}  # type: ignore[dict-item]
        self.graph.node(Node(op, tuple(ids), (result,), {**defaults, **(attrs or {})}, self.source))


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
