"""What a program does per inference, counted without a device: arithmetic, and bytes that nodes read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from compiler.ir.graph import Node
from compiler.ir.tensor import TensorType
from compiler.ops import having
from compiler.ops.attributes import ints
from compiler.ops.convolution import TRANSPOSED_BYTES
from compiler.ops.traits import Trait

TypeOf = Callable[[int], TensorType]

VIEWS = having(Trait.VIEW) | {"Cast"}
"""Operators counted as if they cost nothing: their results are their inputs' elements in other places, or converted."""
WINDOWED_POOLS = having(Trait.POOL) & having(Trait.WINDOW)
REDUCTIONS = having(Trait.REDUCTION) | having(Trait.POOL) - having(Trait.WINDOW)
"""Operators that read each element once, into one element of the result."""
RECURRENT = having(Trait.RECURRENT)


@dataclass(frozen=True)
class Work:
    """The number of nodes, their arithmetic operations (2 per multiply-accumulate), the bytes they read and write."""

    nodes: int = 0
    operations: int = 0
    bytes: int = 0

    def __sub__(self, other: Work) -> Work:
        return Work(self.nodes - other.nodes, self.operations - other.operations, self.bytes - other.bytes)

    def __add__(self, other: Work) -> Work:
        return Work(self.nodes + other.nodes, self.operations + other.operations, self.bytes + other.bytes)

    def __str__(self) -> str:
        """What is saved: `saves 3 nodes, 1.2 Mop, 340 kB`; what is negative is added."""
        parts = [(self.nodes, _nodes), (self.operations, _operations), (self.bytes, _bytes)]
        saved = ", ".join(text(amount) for amount, text in parts if amount > 0)
        added = ", ".join(text(-amount) for amount, text in parts if amount < 0)
        return " and ".join(f"{verb} {what}" for verb, what in (("saves", saved), ("adds", added)) if what)


def work(nodes: Iterable[Node], type_of: TypeOf) -> Work:
    """The work of some nodes, each by itself: no operator is taken to be fused with another."""
    return sum((_work(node, type_of) for node in nodes), Work())


def operations(node: Node, type_of: TypeOf) -> int:
    """Arithmetic operations of a node, 2 per multiply-accumulate; one per element of the results if it sums nothing."""
    if node.op in VIEWS:
        return 0
    results = sum(type_of(value).elements for value in node.outputs)
    if node.op in ("Conv", "ConvInteger"):
        return 2 * results * prod(type_of(node.used[1]).dims[1:])
    if node.op in ("ConvTranspose", TRANSPOSED_BYTES):
        return 2 * type_of(node.used[0]).elements * prod(type_of(node.used[1]).dims[1:])
    if node.op in ("MatMul", "MatMulInteger"):
        return 2 * results * type_of(node.used[0]).dims[-1]
    if node.op == "Gemm":
        return 2 * results * type_of(node.used[0]).dims[0 if node.attrs.get("transA", 0) else 1]
    if node.op in RECURRENT:
        steps, batch = type_of(node.used[0]).dims[:2]
        return 2 * steps * batch * sum(type_of(weights).elements for weights in node.used[1:3])
    if node.op in WINDOWED_POOLS:
        return results * prod(ints(node, "kernel_shape") or ())
    if node.op in REDUCTIONS:
        return type_of(node.used[0]).elements
    return results


def _work(node: Node, type_of: TypeOf) -> Work:
    if node.op in VIEWS:
        return Work(1)
    touched = {*node.used, *node.outputs}
    moved = sum(type_of(value).elements * type_of(value).dtype.bytes for value in touched)
    return Work(1, operations(node, type_of), moved)


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _operations(count: int) -> str:
    return _scaled(count, "op")


def _bytes(count: int) -> str:
    return _scaled(count, "B")


def _scaled(count: int, unit: str) -> str:
    """With three digits and a decimal prefix: `1.23 Mop`."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {prefix}{unit}"
    return f"{count} {unit}"
