"""Graph: what the model says, in SSA form over logical operators.

Operators carry the names and the newest semantics of ONNX; parameters that must be known when compiling (a Reshape's
shape, a Slice's bounds) are attributes, never inputs. Names that come from the model (`Value.name`, `Node.source`) are
data for messages and manifests and never reach generated code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from compiler.errors import VerifyError
from compiler.ir.tensor import TensorType
from compiler.ir.text import print_graph

Attr = int | float | str | bool | None | tuple["Attr", ...]
"""An attribute's value: a scalar, or nested tuples of them. Tensors are constants, not attributes."""


@dataclass(frozen=True)
class Value:
    """One tensor; `id` is its identity, `name` what the model calls it (empty where the compiler made it)."""

    id: int
    type: TensorType
    name: str = ""

    def __str__(self) -> str:
        return f"%{self.id}: {self.type}"


@dataclass(frozen=True)
class Node:
    """One operator applied. An absent optional input is None; `source` is the model's own name of the node."""

    op: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    source: str = ""

    @property
    def used(self) -> tuple[int, ...]:
        """Inputs that are there, in order."""
        return tuple(value for value in self.inputs if value is not None)

    def __str__(self) -> str:
        outputs = ", ".join(f"%{value}" for value in self.outputs)
        inputs = ", ".join("_" if value is None else f"%{value}" for value in self.inputs)
        attrs = "".join(f" {name}={value!r}" for name, value in sorted(self.attrs.items()))
        return f"{outputs} = {self.op}({inputs}){attrs}"


@dataclass(frozen=True)
class Graph:
    """Values by id, nodes in an order where each value is defined before it is read."""

    values: Mapping[int, Value]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, np.ndarray]

    def type(self, value: int) -> TensorType:
        """The type of the value with this id. Raises KeyError for an id of no value."""
        return self.values[value].type

    @cached_property
    def producer(self) -> Mapping[int, Node]:
        """The node that defines a value; graph inputs and constants have none."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def readers(self) -> Mapping[int, tuple[Node, ...]]:
        """Nodes that read a value, one entry for each reading."""
        found: dict[int, list[Node]] = {value: [] for value in self.values}
        for node in self.nodes:
            for value in node.used:
                found[value].append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def next_id(self) -> int:
        """An id above those of all values."""
        return max(self.values, default=-1) + 1

    def with_nodes(self, nodes: tuple[Node, ...]) -> Graph:
        """The same graph over other nodes; values and constants that nothing mentions any more are dropped."""
        kept = {*self.inputs, *self.outputs}
        for node in nodes:
            kept.update(node.used, node.outputs)
        return replace(
            self,
            nodes=nodes,
            values={id: value for id, value in self.values.items() if id in kept},
            constants={id: array for id, array in self.constants.items() if id in kept},
        )

    def verify(self) -> None:
        """Raises VerifyError, with the program around the fault, unless the graph is in SSA form and typed."""
        defined = {*self.inputs, *self.constants}
        if untyped := [value for value in self.inputs if value not in self.values]:
            raise VerifyError(f"graph input %{untyped[0]} has no type")
        for value, array in self.constants.items():
            if value not in self.values or tuple(array.shape) != self.type(value).shape:
                raise VerifyError(
                    f"constant %{value} has shape {list(array.shape)} but is declared {self.values.get(value)}"
                )
            if array.dtype != self.type(value).dtype.numpy:
                raise VerifyError(f"constant %{value} has dtype {array.dtype} but is declared {self.values[value]}")
        for position, node in enumerate(self.nodes):
            for value in node.used:
                if value not in defined:
                    raise self._fault(position, f"reads %{value} before it is defined")
            for value in node.outputs:
                if value not in self.values:
                    raise self._fault(position, f"defines %{value}, which has no type")
                if value in defined:
                    raise self._fault(position, f"defines %{value} a second time")
            defined.update(node.outputs)
        for value in self.outputs:
            if value not in defined:
                raise VerifyError(f"graph output %{value} is never defined")

    def _fault(self, position: int, what: str) -> VerifyError:
        around = self.nodes[max(0, position - 5) : position + 5]
        listing = "\n".join(f"  {'>' if node is self.nodes[position] else ' '} {node}" for node in around)
        return VerifyError(f"node {position} `{self.nodes[position]}` {what}\n{listing}")

    def __str__(self) -> str:
        return print_graph(self)
