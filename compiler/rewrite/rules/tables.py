"""Functions of one byte, dear to compute, become tables of their 256 results.

A quantised network computes an activation between a DequantizeLinear and a QuantizeLinear, and some exporters put such
pairs behind each operator that an activation is written with. All of it is a function of one byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Apply
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS, having
from compiler.ops.byte_table import BYTES, SIZE, least
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait
from compiler.rewrite.rounding import wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

MAPS = having(Trait.ELEMENTWISE) | {"QuantizeLinear", "DequantizeLinear"}
DEAR = ("exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "log1p", "expm1")
"""What takes as long as a dozen additions: a table takes as long as a few."""
MOST = 40
"""Nodes from a table's result to its byte, at most."""
TABLE = "ByteTable"


def function_of_a_byte(view: View, node: Node) -> Rewrite | No | None:
    """quantise(f(dequantise(x))) = table[x], where f is dear to compute."""
    dtype = view.type(node.outputs[0]).dtype
    if dtype not in BYTES or view.producer(node.used[0], *MAPS) is None:
        return None
    trace = _Trace(view)
    found = trace.of(node.outputs[0])
    if found is None or trace.byte is None or not trace.is_dear:
        return None
    if view.dims(trace.byte) != view.dims(node.outputs[0]):
        return No("the result has another shape than the bytes")
    draft = view.draft(node)
    draft.node(TABLE, (trace.byte, draft.constant(np.broadcast_to(found, SIZE).astype(dtype.numpy))))
    return draft.done(f"a table holds what {len(trace.passed)} nodes make of each byte")


@dataclass
class _Trace:
    """What a value is for each value of one tensor of bytes, `byte`; that is found on the way up."""

    view: View

    def __post_init__(self) -> None:
        self.byte: int | None = None
        self.passed: dict[int, np.ndarray | None] = {}
        """Of the values met, what they are; None: no function of the byte."""
        self.is_dear = False
        self.met = 0

    def of(self, value: int) -> np.ndarray | None:
        """One number, or 256 of them; None where it is no function of the byte."""
        if (array := self.view.constant(value)) is not None:
            return _wide(array.reshape(())) if array.size == 1 else None
        if value not in self.passed:
            self.passed[value] = None
            self.passed[value] = self._made(value)
        return self.passed[value]

    def _made(self, value: int) -> np.ndarray | None:
        type, node = self.view.type(value), self.view.producer(value, TABLE, *MAPS)
        found = None
        if node is not None and len(node.outputs) == 1 and self.met < MOST:
            self.met += 1
            found = self._computed(node)
        if found is not None or type.dtype not in BYTES:
            return found
        if self.byte not in (None, value):
            return None
        self.byte = value
        return (np.arange(SIZE) + least(type.dtype)).astype(type.dtype.numpy)

    def _computed(self, node: Node) -> np.ndarray | None:
        """What a map makes of its operands."""
        dtype = self.view.type(node.outputs[0]).dtype
        if dtype.is_float and dtype is not DType.F32:
            return None
        before = self.byte, self.is_dear, dict(self.passed)
        if node.op == TABLE:
            operands = [self.of(node.used[0]), self.view.constant(node.used[1])]
        else:
            operands = [None if one is None else self.of(one) for one in node.inputs]
        if any(array is None for array, one in zip(operands, node.inputs, strict=True) if one is not None):
            self.byte, self.is_dear, self.passed = before
            return None
        with np.errstate(all="ignore"):
            (result,) = OPERATORS[node.op].reference(node, tuple(operands))
        self.is_dear = self.is_dear or node.op == TABLE or _is_dear(self.view, node)
        return result if dtype.is_float else result.astype(dtype.numpy)


def _wide(array: np.ndarray) -> np.ndarray:
    return wide(array) if array.dtype.kind == "f" else array


def _is_dear(view: View, node: Node) -> bool:
    """Whether an operator computes a transcendental function; one without a kernel does not."""
    types = tuple(None if value is None else view.type(value) for value in node.inputs)
    try:
        kernel = OPERATORS[node.op].define(node, types, tuple(view.type(value) for value in node.outputs))
    except Unsupported:
        return False
    return isinstance(kernel, Kernel) and any(
        isinstance(part, Apply) and part.function in DEAR
        for block in kernel.blocks
        for value in block.values
        for part in value.walk()
    )


RULES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("QuantizeLinear",), function_of_a_byte),)
