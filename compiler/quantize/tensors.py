"""Which tensors are bytes, and which of them share one scale.

What a layer reads is; and what it gives, behind a clamp that only limits it (Relu, Clip) and behind the Add of a bias,
unless that is a result of the model. From there on against the flow: what moves elements, or takes the greatest of
them, gives the bytes it takes, with their scale; a sum, a product, a Concat or a mean takes bytes where all its
operands come from layers, and its result has a scale of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.quantize.layers import Layer, Product, id_of, ids_of
from compiler.quantize.network import Network

CLAMPS = ("Relu", "Clip")
"""What a runtime takes into the rounding to bytes, which clamps anyway."""
JOINS = ("Add", "Mul", "Concat")
SAME = (having(Trait.MOVES) | {"MaxPool"}) - {"Concat"}
"""Operators whose results are elements of their first input."""
MEANS = having(Trait.POOL) - {"MaxPool"}


@dataclass(frozen=True)
class Tensors:
    """The tensors that are bytes, by name, each with the one whose scale it has; and the nodes that keep to bytes."""

    roots: dict[str, str]
    made: frozenset[str]
    """Those that are nothing but bytes: all that read them read what the bytes stand for."""
    passing: frozenset[int]
    """By Python's identity of the node."""


def tensors_of(network: Network, graph: Graph, layers: Collection[Layer | Product], *, outputs: bool) -> Tensors:
    """The tensors around these layers; `outputs`: also the model's results."""
    return _Spread(network, graph, layers, outputs).tensors()


class _Spread:
    def __init__(self, network: Network, graph: Graph, layers: Collection[Layer | Product], outputs: bool) -> None:
        self.network = network
        self.graph = graph
        self.ids = ids_of(graph)
        self.outputs = outputs
        self.layers = {id(layer.node) for layer in layers}
        self.given = [name for layer in layers for name in layer.given]
        self.results = [self.behind_clamps(layer.node) for layer in layers if isinstance(layer, Layer)]
        self.passing: set[int] = set()
        self.wanted: dict[str, None] = {}
        self.made: set[str] = set()

    def tensors(self) -> Tensors:
        for name in self.results:
            if self.may_be_bytes(name):
                self.want(name)
        for name in self.given:
            self.want(name)
        waiting = list(self.wanted)
        while waiting:
            name = waiting.pop()
            for source in self.sources(name):
                if source not in self.wanted:
                    self.want(source)
                    waiting.append(source)
        return Tensors({name: self.root(name) for name in self.wanted}, frozenset(self.made), frozenset(self.passing))

    def want(self, name: str) -> None:
        self.wanted[name] = None

    def may_be_bytes(self, name: str) -> bool:
        """Whether a layer's result is to be rounded: it is read, and no result of the model unless these are."""
        return self.is_real(name) and (self.outputs or name not in self.network.outputs)

    def behind_clamps(self, node: NodeProto) -> str:
        """The result of a layer, or of what follows it and is part of it."""
        name: str = node.output[0]
        adds = 1 if node.op_type == "MatMul" else 0
        while (reader := self.network.only_reader(name)) is not None:
            operator = self.network.operator(reader)
            if operator == "Add" and adds and self.data(reader, {name}) == []:
                adds = 0
            elif operator not in CLAMPS or reader.input[0] != name:
                break
            name = reader.output[0]
        return name

    def data(self, node: NodeProto, but: Collection[str] = ()) -> list[str]:
        """Inputs that are no constants."""
        return [name for name in node.input if name and name not in but and self.network.constant(name) is None]

    def maker(self, name: str) -> NodeProto | None:
        """What makes a value; of one that was clamped, and seen nowhere before, what was clamped."""
        node = self.network.producer.get(name)
        while node is not None and self.network.operator(node) in CLAMPS:
            before = node.input[0]
            if self.network.only_reader(before) is not node or before not in self.network.producer:
                break
            node = self.network.producer[before]
        return node

    def sources(self, name: str) -> Iterable[str]:
        """What is to be bytes because this is."""
        node = self.maker(name)
        if node is None:
            return ()
        if name in self.results or id(node) in self.layers:
            self.made.add(name)
            return ()
        operator = self.network.operator(node)
        if operator in SAME and node is self.network.producer.get(name) and self.is_real(node.input[0]):
            self.passing.add(id(node))
            self.made.add(name)
            return (node.input[0],)
        if self.joins(node) and all(map(self.comes_from_bytes, self.operands(node))):
            self.passing.add(id(node))
            self.made.add(name)
            return self.operands(node)
        return ()

    def joins(self, node: NodeProto) -> bool:
        operator = self.network.operator(node)
        return operator in JOINS or operator in MEANS or operator in CLAMPS

    def operands(self, node: NodeProto) -> list[str]:
        """The tensors that a node joins: of a clamp or a mean the first input alone."""
        operands = self.data(node) if self.network.operator(node) in JOINS else list(node.input[:1])
        return list(dict.fromkeys(operands))

    def comes_from_bytes(self, name: str) -> bool:
        """Whether this is the result of layers, or is bytes anyway."""
        waiting, seen = [name], {name}
        while waiting:
            current = waiting.pop()
            if not self.is_real(current):
                return False
            if current in self.wanted:
                continue
            node = self.maker(current)
            if node is None or current in self.network.outputs:
                return False
            if id(node) in self.layers:
                continue
            same = self.network.operator(node) in SAME and node is self.network.producer.get(current)
            if not same and not self.joins(node):
                return False
            further = [node.input[0]] if same else self.operands(node)
            waiting += [one for one in further if one not in seen]
            seen.update(further)
        return True

    def is_real(self, name: str) -> bool:
        """Whether a value is float32 that the front end knows and that is computed from inputs."""
        value = id_of(self.network, self.ids, name)
        if value is None or value in self.graph.constants:
            return False
        return self.graph.type(value).dtype is DType.F32 and self.graph.type(value).dtype.numpy == np.float32

    def root(self, name: str) -> str:
        """The tensor at which a chain of moved elements begins."""
        while (node := self.network.producer.get(name)) is not None and id(node) in self.passing:
            if self.network.operator(node) not in SAME or node.input[0] not in self.wanted:
                break
            name = node.input[0]
        return name
