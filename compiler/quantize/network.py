"""A model as a list of nodes over names, which may be taken out, changed and put in.

The model was read by the front end before, and so is whole and sorted.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter

from compiler.errors import ModelTooLarge, UnsupportedModel
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Foreign, Model
from compiler.frontend.reading.read import read
from compiler.frontend.reading.tensors import Source, array_of

OLDEST_OPSET = 13
"""The first in which a QuantizeLinear has a scale for each channel."""
INITIALISERS_ALONE = 4
"""The first IR version in which an initialiser need not be an input."""
PLAIN_DOMAINS = ("", "ai.onnx")
CHAIN = 16
"""Operators between a constant and what reads it that are looked through, at most."""


class Network:
    """Nodes in order, and constants by name; `proto` holds the rest of the model."""

    def __init__(
        self, proto: ModelProto, nodes: Iterable[NodeProto], constants: Mapping[str, np.ndarray], source: Source
    ) -> None:
        self.proto = proto
        """The rest of the model: no nodes, and only initialisers of types that numpy does not know."""
        self.nodes = [_copied(node) for node in nodes]
        self.constants = dict(constants)
        """Initialisers by name, all of them."""
        self.source = source
        self.inputs = [one.name for one in proto.graph.input if one.name not in self.constants]
        self.outputs = {one.name for one in proto.graph.output}
        self._names = {name for node in self.nodes for name in (*node.input, *node.output)}
        self._names |= {*self.constants, *self.inputs, *self.outputs, *captured(self.nodes)}
        self.look()

    def look(self) -> None:
        """After nodes changed: who makes and who reads a name."""
        self.producer: dict[str, NodeProto] = {name: node for node in self.nodes for name in node.output if name}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                if name:
                    self.readers.setdefault(name, []).append(node)
        self.captured = captured(self.nodes)

    def operator(self, node: NodeProto) -> str:
        """The node's operator, with its domain unless that is ONNX's own."""
        return node.op_type if node.domain in PLAIN_DOMAINS else f"{node.domain}::{node.op_type}"

    def made_by(self, name: str) -> str:
        """The operator that makes a value; empty for inputs and constants."""
        node = self.producer.get(name)
        return "" if node is None else self.operator(node)

    def only_reader(self, name: str) -> NodeProto | None:
        """The one node that reads a value which nothing else can see."""
        readers = self.readers.get(name, [])
        alone = len(readers) == 1 and name not in self.outputs and name not in self.captured
        return readers[0] if alone else None

    def constant(self, name: str, steps: int = CHAIN) -> np.ndarray | None:
        """The elements of an initialiser or a Constant, also behind Identity and Transpose; else None."""
        if name in self.constants:
            return self.constants[name]
        node = self.producer.get(name)
        if node is None or not steps:
            return None
        attrs = attributes(node)
        match self.operator(node):
            case "Constant" if "value" in attrs:
                found = array_of(attrs["value"].t, self.source)
                return None if isinstance(found, Foreign) else found
            case "Identity":
                return self.constant(node.input[0], steps - 1)
            case "Transpose":
                array = self.constant(node.input[0], steps - 1)
                perm = list(attrs["perm"].ints) if "perm" in attrs else None
                return None if array is None else np.ascontiguousarray(array.transpose(perm))
        return None

    def fresh(self, name: str) -> str:
        """A name like this one that is not taken."""
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def add_constant(self, name: str, array: np.ndarray) -> str:
        """A new initialiser's name."""
        name = self.fresh(name)
        self.constants[name] = array
        return name

    def copy(self) -> Network:
        """A network of its own; arrays are shared."""
        return Network(self.proto, self.nodes, self.constants, self.source)

    def model(self) -> ModelProto:
        """The model as it is now, without constants and nodes that nothing reads, all elements inside.

        Initialisers are no inputs any more, as older files have them: nobody may give other weights.
        """
        made = ModelProto()
        made.CopyFrom(self.proto)
        made.ir_version = max(made.ir_version, INITIALISERS_ALONE)
        graph = made.graph
        wanted = {*self.outputs}
        kept = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                kept.append(node)
                wanted |= {*node.input, *captured([node])}
        graph.node.extend(reversed(kept))
        foreign = [tensor for tensor in self.proto.graph.initializer if tensor.name in wanted]
        del graph.initializer[:]
        graph.initializer.extend(foreign)
        kept_as_is = {tensor.name for tensor in foreign}
        for name, array in self.constants.items():
            if name in wanted and name not in kept_as_is:
                graph.initializer.append(
                    numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
                )
        inputs = [one for one in graph.input if one.name not in self.constants]
        del graph.input[:], graph.value_info[:]
        graph.input.extend(inputs)
        return made

    def bytes(self) -> bytes:
        """The same as a file. Raises ModelTooLarge for one of more than protobuf's 2 GiB."""
        try:
            return bytes(self.model().SerializeToString())
        except (EncodeError, ValueError) as error:
            raise ModelTooLarge(
                f"the model with its weights is too large for one file: {error}",
                fix="give its parts one by one: files of more than 2 GiB are not written",
            ) from error


def attributes(node: NodeProto) -> dict[str, AttributeProto]:
    """By name."""
    return {attribute.name: attribute for attribute in node.attribute}


@dataclass(frozen=True)
class Left:
    """A node that looks like a layer and stays as it is, with the reason."""

    node: NodeProto
    reason: str

    @property
    def name(self) -> str:
        """What messages and the report call it."""
        return named(self.node)


def named(node: NodeProto) -> str:
    """What a node is called: its name, or that of its first result."""
    return node.name or next(iter(node.output), "")


def set_attribute(node: NodeProto, name: str, value: float | int) -> None:
    """Gives a node an attribute in place of the one of this name."""
    others = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend([*others, helper.make_attribute(name, value)])


def captured(nodes: Iterable[NodeProto]) -> set[str]:
    """Names that bodies of these nodes read, their own among them."""
    return {name for node in nodes for graph in _bodies(node) for name in _reads(graph)}


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _reads(graph: GraphProto) -> Iterator[str]:
    yield from (one.name for one in graph.output)
    for node in graph.node:
        yield from node.input
        for inner in _bodies(node):
            yield from _reads(inner)


def open_network(
    path: Path, data: Mapping[str, Path] | None = None, oldest: int = OLDEST_OPSET
) -> tuple[Model, Network]:
    """A model file, read safely, and as a network.

    One of an opset below `oldest`, of which the default is the first that has a scale for each channel, is converted.
    Raises what `read` raises, and UnsupportedModel where that fails.
    """
    limits = Limits()
    model = read(path, limits, data)
    proto = onnx.ModelProto()
    proto.ParseFromString(path.read_bytes())
    version = max((one.version for one in proto.opset_import if one.domain in PLAIN_DOMAINS), default=1)
    if version < oldest:
        with tempfile.TemporaryDirectory() as folder:
            newer = Path(folder) / "model.onnx"
            newer.write_bytes(_converted(proto, version, oldest))
            return open_network(newer, None, oldest)
    constants = {name: array for name, array in model.body.constants.items() if not isinstance(array, Foreign)}
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    names = Counter(node.name for node in nodes)
    for node in nodes:
        if node.name and names[node.name] > 1:
            node.name = ""
    foreign = [one for one in proto.graph.initializer if not _is_plain(constants.get(one.name))]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(foreign)
    return model, Network(proto, nodes, constants, Source(path, limits, data))


def _converted(proto: ModelProto, version: int, newer: int) -> bytes:
    """The model in a newer opset. Raises UnsupportedModel where onnx cannot convert it, or its data lie elsewhere."""
    why = "its data lie in other files"
    if not any(one.data_location == TensorProto.EXTERNAL for one in proto.graph.initializer):
        try:
            proto.ir_version = max(proto.ir_version, INITIALISERS_ALONE)
            return bytes(version_converter.convert_version(proto, newer).SerializeToString())
        except Exception as error:  # the C++ of onnx raises what it likes
            reason = str(error).strip() or type(error).__name__
            why = f"onnx cannot convert it ({reason.splitlines()[-1]:.200})"
    raise UnsupportedModel(
        f"the model has opset {version}, this needs opset {newer}, and {why}",
        fix=f"export it with opset {newer}, its data in the file",
    )


def _is_plain(array: np.ndarray | None) -> bool:
    """Whether an initialiser can be written anew from its elements."""
    return array is not None and array.dtype.isbuiltin == 1 and array.dtype.kind in "fiub"


def _copied(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made
