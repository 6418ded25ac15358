"""Left sides whose sizes are named: the drawings of the tests of rules, with a name for each number that is a size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.ir.expr import Const
from compiler.ir.graph import Graph, Value
from compiler.ir.tensor import DType, TensorType
from tests.compiler.rewrite.sketch import Sketch
from tests.proofs.known import ASSUMED, Known
from tests.proofs.sizes import Path, Poly, Ratio, Size

LIFTED = ("starts", "ends", "pads", "split", "kernel_shape", "strides", "dilations", "shape", "output_padding")
"""Attributes of operators whose numbers are sizes."""

STEPS = frozenset({"strides", "dilations"})
TAPS = STEPS | {"taps", "kernel_shape", "pads", "output_padding"}
LITERAL = (frozenset[str](), STEPS, TAPS)
"""Attributes that stay numbers where a proof with names for them does not end; "taps" are extents of weights."""
EVERYTHING = TAPS | {*LIFTED, "extents"}
"""No size has a name: what is shown then holds for the drawn sizes alone."""


class Replayed:
    """A source of random choices that gives, in a second run, what it gave in the first, whatever it is asked."""

    def __init__(self, seed: int, given: list[Any]) -> None:
        self._source, self._given, self._place = np.random.default_rng(seed), given, 0
        self._first = not given

    def __getattr__(self, name: str) -> Any:
        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._place == len(self._given):
                if not self._first:
                    raise ValueError("the drawing is another one for these sizes")
                plain = [int(arg) if isinstance(arg, Size) else arg for arg in args]
                self._given.append(getattr(self._source, name)(*plain, **kwargs))
            self._place += 1
            return self._given[self._place - 1]

        return draw


class Symbols(Sketch):
    """A sketch in which each size has a name of its own, unless it was computed of others.

    known       what names are, as polynomials of others
    values      numbers for names in the place of those drawn
    literal     attributes whose numbers stay numbers
    """

    def __init__(
        self,
        seed: int,
        dtype: DType,
        known: Mapping[str, Poly],
        values: Mapping[str, int],
        literal: frozenset[str] = frozenset(),
        draws: list[Any] | None = None,
    ) -> None:
        super().__init__(seed, dtype)
        self.rng = Replayed(seed, [] if draws is None else draws)  # type: ignore[assignment]
        self.path = Path()
        self.known, self.chosen, self.literal = known, values, literal
        self.arrays: dict[int, Known] = {}
        self._names: dict[str, int] = {}

    def named(self, drawn: int, prefix: str, low: int) -> int:
        """A drawn number as a size with a name."""
        if isinstance(drawn, Size):
            return drawn
        number = self._names[prefix] = self._names.get(prefix, -1) + 1
        name = f"{prefix}{number}"
        if name not in self.known:
            return self.path.size(name, self.chosen.get(name, drawn), low)
        poly = self.known[name]
        for inner in sorted(poly.names):  # what it is made of comes first
            if inner not in self.path.values:
                self.path.size(inner, self.chosen.get(inner, drawn), low)
        return Size(poly.value(self.path.values), poly, self.path)

    def dims_of(self, shape: tuple[int, ...], prefix: str = "d") -> tuple[int, ...]:
        """A shape with names."""
        if "extents" in self.literal:
            return tuple(shape)
        return tuple(self.named(extent, prefix, 1) for extent in shape)

    def x(self, *shape: int, dtype: DType | None = None) -> int:
        """A graph input of named sizes."""
        return super().x(*self.dims_of(shape), dtype=dtype)

    def drawn(self, shape: tuple[int, ...], dtype: DType | None = None) -> int:
        """A constant of which nothing is known."""
        named = 2 if "taps" in self.literal else len(shape)
        dims = (*self.dims_of(tuple(shape[:named]), "w"), *shape[named:])
        return self._constant(Known.drawn(f"c{len(self.values)}", dims, dtype or self.dtype))

    def _constant(self, array: Known) -> int:
        id = len(self.values)
        self.values[id] = Value(id, TensorType(DType.of(array.dtype), array.shape), "")
        self.arrays[id] = self.constants[id] = array  # type: ignore[assignment]
        return id

    def c(self, number: Any, dtype: DType | None = None) -> int:
        """A constant: its number, or, of several, any numbers."""
        if isinstance(number, Ratio):
            return self._constant(Known.of_sizes(number, dtype or self.dtype))
        array = np.asarray(number, (dtype or self.dtype).numpy)
        several = array.size > 1 and len(set(map(repr, array.reshape(-1).tolist()))) > 1
        if several and array.dtype.kind not in "iub":
            return self.drawn(array.shape, DType.of(array.dtype))
        return super().c(number, dtype)

    def full(self, number: float, *shape: int) -> int:
        """A constant of one number."""
        array = Known(shape, lambda index: Const(number, self.dtype), self.dtype.numpy, quotient=number)
        return self._constant(array)

    def normal(self, *shape: int) -> int:
        """A constant."""
        return self.drawn(shape)

    def positive(self, *shape: int) -> int:
        """A constant; that its numbers are positive is not used."""
        return self.drawn(shape)

    def many(self, op: str, *inputs: int | None, outputs: int, **attrs: Any) -> tuple[int, ...]:
        """A node; sizes among its attributes have names."""
        for name in LIFTED:
            value = attrs.get(name)
            if isinstance(value, tuple) and name not in self.literal:
                attrs[name] = tuple(self._attribute(name, item) for item in value)
        if op == "BatchNormalization" and (variance := self.arrays.get(inputs[4] or 0)) is not None:
            ASSUMED.append((variance.name, "gt", 0.0))
        return super().many(op, *inputs, outputs=outputs, **attrs)

    def _attribute(self, name: str, item: Any) -> Any:
        if not isinstance(item, int) or isinstance(item, Size) or abs(item) >= 2**30:
            return item
        if item < 0 or (name in ("shape", "starts") and item == 0):
            return item
        low = 1 if name in ("split", "kernel_shape", "strides", "dilations", "shape") else 0
        return self.named(
            item, {"kernel_shape": "k", "strides": "t", "dilations": "l", "output_padding": "u"}.get(name, name[0]), low
        )

    def graph(self, *outputs: int) -> Graph:
        """The graph with these outputs, or the last value."""
        return super().graph(*outputs)


def redrawn(graph: Graph) -> Any:
    """A graph of numbers as a drawing."""

    def drawing(s: Sketch) -> Graph:
        ids: dict[int | None, int | None] = {None: None}
        for value in graph.inputs:
            ids[value] = s.x(*graph.type(value).dims, dtype=graph.type(value).dtype)
        for value, array in graph.constants.items():
            ids[value] = s.c(array, graph.type(value).dtype)
        for node in graph.nodes:
            made = s.many(node.op, *(ids[value] for value in node.inputs), outputs=len(node.outputs), **node.attrs)
            ids |= dict(zip(node.outputs, made, strict=True))
        return s.graph(*(one for output in graph.outputs if (one := ids[output]) is not None))

    return drawing
