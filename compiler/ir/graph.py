"""Graph: what the model says, in SSA form over logical operators.

Operators carry the names and the newest semantics of ONNX; parameters that must be known when compiling (a Reshape's
shape, a Slice's bounds) are attributes, never inputs. Names that come from the model (`Value.name`, `Node.source`) are
data for messages and manifests and never reach generated code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from compiler.errors import VerifyError
from compiler.ir.tensor import TensorType
from compiler.ir.text import print_graph

Attr: TypeAlias = "int | float | str | bool | Body | tuple[Attr, ...] | None"
"""An attribute's value: a scalar, nested tuples of them, or the body of a region. Tensors are constants, not
attributes."""


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

    @property
    def bodies(self) -> Mapping[str, Body]:
        """The bodies among its attributes; empty for an operator (`compiler.ir.region`)."""
        return {name: attr for name, attr in self.attrs.items() if isinstance(attr, Body)}

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
            for body in node.bodies.values():
                body.graph.verify()
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


@dataclass(frozen=True, eq=False)
class Body:
    """A graph as an attribute of a node, which says how often it runs. Equal where what they compute is written alike.

    Its values have ids of their own: what it reads of the graph around it are inputs of the node.
    """

    graph: Graph

    @cached_property
    def digest(self) -> str:
        """24 hex digits of the SHA-256 of all that it consists of."""
        found = hashlib.sha256(str(self.graph).encode())
        for array in self.graph.constants.values():
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:24]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"body {self.digest}"
