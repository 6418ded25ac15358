"""What right sides are written with: nodes with all their attributes, and weighted sums of ReLUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.legalise.program import context_of
from compiler.rewrite.view import Rewrite, View

DEFAULTS: dict[str, dict[str, Attr]] = {
    "Conv": {"auto_pad": "NOTSET", "group": 1},
    "Reshape": {"allowzero": 0},
    "ReduceMean": {"keepdims": 1, "noop_with_empty_axes": 0},
    "ReduceSum": {"keepdims": 1, "noop_with_empty_axes": 0},
    "AveragePool": {"auto_pad": "NOTSET", "ceil_mode": 0, "count_include_pad": 0},
    "Pad": {"mode": "constant"},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
}
PARAMETERS = {"Reshape": 2, "ReduceMean": 2, "ReduceSum": 2, "Slice": 3, "Split": 2, "Pad": 2}
"""Operators some of whose inputs are attributes here, with the number of inputs that a node then lists."""


class Writer:
    """A draft, and what is known of the values in it."""

    def __init__(self, view: View, root: Node) -> None:
        self.view, self.root, self.draft = view, root, view.draft(root)
        self.dtype = view.type(root.outputs[0]).dtype

    def dims(self, value: int) -> tuple[int, ...]:
        """Of a value of the program, or of one written here."""
        made = self.draft.made_type(value)
        return self.view.dims(value) if made is None else made.dims

    def node(self, op: str, *inputs: int, **attrs: Attr) -> int:
        """A node with its one output."""
        given = (*inputs, *(None,) * (PARAMETERS.get(op, 0) - len(inputs)))
        return self.draft.node(op, given, {**DEFAULTS.get(op, {}), **attrs})

    def number(self, value: float) -> int:
        """A constant of one element."""
        return self.draft.constant(np.asarray(value, self.dtype.numpy))

    def array(self, array: np.ndarray) -> int:
        """A constant in the type of the result."""
        return self.draft.constant(np.asarray(array, self.dtype.numpy))

    def done(self, why: str) -> Rewrite:
        """The last node is what replaces the root."""
        return self.draft.done(why)

    def reshaped(self, x: int, dims: Sequence[int]) -> int:
        """A Reshape; none where the shape is that already."""
        return x if self.dims(x) == tuple(dims) else self.node("Reshape", x, shape=tuple(dims))

    def convolution(self, x: int, weights: np.ndarray, bias: np.ndarray | None, **attrs: Attr) -> int:
        """A Conv with constant weights."""
        inputs = [x, self.array(weights)] + ([] if bias is None else [self.array(bias)])
        return self.node("Conv", *inputs, **{"kernel_shape": tuple(weights.shape[2:]), **attrs})

    def image(self, x: int) -> int:
        """A tensor of any rank as one channel of one image, [1, 1, rows, last]; one of rank 4 stays as it is."""
        dims = self.dims(x)
        if len(dims) == 4:
            return x
        last = dims[-1] if dims else 1
        return self.reshaped(x, (1, 1, int(np.prod(dims)) // max(last, 1), last))

    def relus(self, x: int, scales: np.ndarray, shifts: np.ndarray, weights: np.ndarray, constant: np.ndarray) -> int:
        """`constant + sum_i weights_i * relu(scales_i * x + shifts_i)`.

        The arrays have a row for each term and a column for each channel of x, or one for all; `constant` a number for
        each channel. Three nodes where the accelerator has groups, else a depthwise convolution for each term.
        """
        outside = self.dims(x)
        here = self.image(x)
        channels = self.dims(here)[1]
        terms = len(scales)

        def spread(array: np.ndarray) -> np.ndarray:
            """A row for each channel."""
            return np.broadcast_to(np.asarray(array, np.float64), (terms, channels)).T

        first, shift, second = spread(scales), spread(shifts), spread(weights)
        last = np.broadcast_to(np.asarray(constant, np.float64).reshape(-1), (channels,))
        conv = context_of(self.view).context.profile.operators.get("Conv")
        if conv is not None and (conv.group == "any" or channels == 1):
            many = self.convolution(here, first.reshape(-1, 1, 1, 1), shift.reshape(-1), group=channels)
            one = self.convolution(self.node("Relu", many), second.reshape(channels, terms, 1, 1), last, group=channels)
            return self._back(one, outside)
        total = -1
        for at in range(terms):
            size, sign = np.abs(second[:, at]), np.sign(second[:, at])
            negative = bool((sign < 0).all())
            mixed = not negative and bool((sign < 0).any())
            factor = np.ones(channels) if mixed else size
            kernel = (first[:, at] * factor).reshape(-1, 1, 1, 1)
            term = self.node("Relu", self.convolution(here, kernel, shift[:, at] * factor, group=channels))
            if mixed:
                term = self.convolution(term, second[:, at].reshape(-1, 1, 1, 1), None, group=channels)
            if total < 0:
                total = self.scaled(term, -1.0) if negative else term
            else:
                total = self.node("Sub" if negative else "Add", total, term)
        if last.any():
            total = self.node("Add", total, self.array(last.reshape(1, -1, 1, 1)))
        return self._back(total, outside)

    def scaled(self, x: int, factor: float, shift: float = 0.0) -> int:
        """factor * x + shift, as a depthwise convolution."""
        outside, here = self.dims(x), self.image(x)
        channels = self.dims(here)[1]
        kernel, bias = np.full((channels, 1, 1, 1), factor), np.full(channels, shift)
        return self._back(self.convolution(here, kernel, bias if shift else None, group=channels), outside)

    def _back(self, x: int, dims: tuple[int, ...]) -> int:
        return self.reshaped(x, dims)


def is_float(view: View, node: Node) -> bool:
    """Whether a node gives floating-point numbers, of which there are some."""
    type = view.type(node.outputs[0])
    return type.dtype.is_float and type.is_static and type.elements > 0
