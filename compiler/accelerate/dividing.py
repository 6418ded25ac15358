"""A network in parts that the accelerator and the CPU carry out in turn: which nodes, and what passes between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from compiler.accelerate.tflite.convert import TO_FIRST, TO_LAST, Port, aliases
from compiler.errors import UnsupportedModel
from compiler.quantize.network import Network, captured


@dataclass(frozen=True)
class Segment:
    """Nodes that one device carries out in one go, as a network of their own.

    `nodes` are those that are placed here; the network holds what rounds or is constant besides, where it is read.
    """

    accelerated: bool
    network: Network
    nodes: tuple[NodeProto, ...]

    @property
    def inputs(self) -> Sequence[str]:
        """Tensors of the model that come from its inputs or from other segments."""
        return self.network.inputs

    @property
    def outputs(self) -> list[str]:
        """Tensors of the model that other segments read, or of which it gives the rounded elements."""
        return [one.name for one in self.network.proto.graph.output]


class Divisible:
    """A network whose nodes may be placed.

    Every node that computes has a device; constants, QuantizeLinear and DequantizeLinear go where they are read.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.alias = aliases(network)
        self.fixed = _constants(network)
        self.placed = [
            node
            for node in network.nodes
            if node.output[0] not in self.alias and not any(name in self.fixed for name in node.output)
        ]
        self._placed = {name for node in self.placed for name in node.output}

    def root(self, name: str) -> str:
        """The tensor that a name stands for, behind QuantizeLinear and DequantizeLinear."""
        return self.alias.get(name, name)

    def whole(self) -> Segment:
        """All of it, on the accelerator."""
        return Segment(True, self.network, tuple(self.placed))

    @cached_property
    def types(self) -> dict[str, ValueInfoProto]:
        """Type and shape of every tensor that has them."""
        graph = shape_inference.infer_shapes(self.network.model(), data_prop=True).graph
        return {one.name: one for one in (*graph.input, *graph.value_info, *graph.output)}

    def lacking(self, operators: Collection[str]) -> dict[str, str]:
        """Why nodes cannot be the accelerator's, by their first result: as far as a look at each alone tells.

        `operators` are those that are written for it.
        """
        found: dict[str, str] = {}
        for node in self.placed:
            if self.network.operator(node) not in operators:
                found[node.output[0]] = "there is no int8 operator for it"
            elif other := next(filter(None, map(self._other, (*self.data(node), *node.output))), ""):
                found[node.output[0]] = f"its elements are {other}"
        return found

    def _other(self, name: str) -> str:
        type = self.types[name].type.tensor_type.elem_type if name in self.types else TensorProto.FLOAT
        return "" if type == TensorProto.FLOAT else str(TensorProto.DataType.Name(type)).lower()

    def data(self, node: NodeProto) -> list[str]:
        """The tensors that a node reads, behind what rounds; no constants."""
        names = [self.root(name) for name in (*node.input, *sorted(captured([node]))) if name]
        return [name for name in names if name not in self.fixed]

    def segments(self, left: Collection[str]) -> list[Segment]:
        """The parts in the order in which they run, for the first results of nodes that are left to the CPU.

        A node comes as early as what it reads and its device permit, so that devices change as seldom as they can.
        """
        level: dict[str, int] = {}
        members: dict[int, list[NodeProto]] = {}
        for node in self.placed:
            first = -1 if node.output[0] in left else 0  # odd: the CPU's
            known = [level[name] for name in self.data(node) if name in level]
            at = max((first, *(one + (one - first) % 2 for one in known)))
            level.update(dict.fromkeys(node.output, at))
            members.setdefault(at, []).append(node)
        return [self._segment(at % 2 == 0, members[at], level, at) for at in sorted(members)]

    def _segment(self, accelerated: bool, nodes: list[NodeProto], level: Mapping[str, int], at: int) -> Segment:
        read = {name for node in self.placed if level[node.output[0]] != at for name in self.data(node)}
        read |= {self.root(one.name) for one in self.network.proto.graph.output}
        own = [name for node in nodes for name in node.output if name]
        ends = [name for name in own if name in read]
        inside, inputs, seen = {*own}, [], set[str]()
        kept: set[int] = set()
        wanted = [*ends, *own]
        while wanted:
            name = wanted.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self.network.producer.get(name)
            if node is not None and (name in inside or name not in self._placed):
                kept.add(id(node))
                wanted += [*filter(None, node.input), *captured([node])]
            elif name in self._placed or name in self.network.inputs:
                inputs.append(name)
        order = {name: number for number, name in enumerate((*self.network.inputs, *level))}
        proto = ModelProto()
        proto.CopyFrom(self.network.proto)
        del proto.graph.input[:], proto.graph.output[:], proto.graph.value_info[:]
        proto.graph.input.extend(self.type_of(name) for name in sorted(inputs, key=lambda name: order[name]))
        proto.graph.output.extend(self.type_of(name) for name in ends)
        inner = [node for node in self.network.nodes if id(node) in kept]
        return Segment(accelerated, Network(proto, inner, self.network.constants, self.network.source), tuple(nodes))

    def type_of(self, name: str) -> ValueInfoProto:
        """Type and shape of a tensor. Raises UnsupportedModel where they are not known while compiling."""
        found = self.types.get(name)
        if found is None or any(not dim.HasField("dim_value") for dim in found.type.tensor_type.shape.dim):
            raise UnsupportedModel(
                f"the shape of tensor {name!r:.100} is not known, and an accelerator's memory is laid out once",
                fix="export the model with fixed shapes, or compile it for a CPU",
            )
        return found


def _constants(network: Network) -> set[str]:
    """Initialisers, and what is computed of them alone."""
    found = {*network.constants, *(one.name for one in network.proto.graph.initializer)}
    for node in network.nodes:
        reads = [name for name in (*node.input, *captured([node])) if name]
        if node.op_type == "Constant" or (reads and all(name in found for name in reads)):
            found |= {*node.output}
    return found


def on_cpu(
    segment: Segment,
    given: Mapping[str, tuple[str, Port]],
    taken: Mapping[str, tuple[str, Port]],
    wanted: Collection[str],
) -> bytes:
    """A segment of the CPU's as a model that reads and writes the accelerator's bytes as they lie in its memory.

    `given` are those of its inputs that an accelerator makes, `taken` those of its outputs that one reads, by the
    tensor's name: what the bytes are called, and how they are stored. Outputs that are `wanted` are given as they are.
    """
    network = segment.network.copy()
    proto = ModelProto()
    proto.CopyFrom(network.proto)
    graph = proto.graph
    del graph.input[:], graph.output[:]
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for one in network.proto.graph.input:
        if one.name not in given:
            graph.input.append(one)
            continue
        name, port = given[one.name]
        graph.input.append(_bytes(name, port))
        steps: list[_Step] = [("DequantizeLinear", _scheme(network, port), {})]
        steps += [("Transpose", [], {"perm": TO_FIRST})] if port.last else []
        if tuple(port.stored[axis] for axis in TO_FIRST) != port.shape if port.last else port.stored != port.shape:
            steps.append(("Reshape", [network.add_constant("shape", np.array(port.shape, np.int64))], {}))
        before += _chain(network, name, steps, one.name)
    for one in network.proto.graph.output:
        if one.name in wanted:
            graph.output.append(one)
        if one.name in taken:
            name, port = taken[one.name]
            graph.output.append(_bytes(name, port))
            steps = [("Transpose", [], {"perm": TO_LAST})] if port.last else []
            after += _chain(network, one.name, [*steps, ("QuantizeLinear", _scheme(network, port), {})], name)
    return Network(proto, [*before, *network.nodes, *after], network.constants, network.source).bytes()


_Step = tuple[str, list[str], dict[str, Any]]
"""An operator, its inputs behind the first, and its attributes."""


def _bytes(name: str, port: Port) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT8, port.stored)


def _scheme(network: Network, port: Port) -> list[str]:
    scale, zero = port.scale
    return [
        network.add_constant("scale", np.array(scale, np.float32)),
        network.add_constant("zero", np.array(zero, np.int8)),
    ]


def _chain(network: Network, name: str, steps: Sequence[_Step], end: str) -> Iterator[NodeProto]:
    """Operators one after the other from a tensor to another."""
    for number, (kind, others, attributes) in enumerate(steps):
        out = end if number == len(steps) - 1 else network.fresh(f"{end}.{number}")
        yield helper.make_node(kind, [name, *others], [out], **attributes)
        name = out
