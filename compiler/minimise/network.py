"""The file as nodes and tensors, and parts of it as files.

A part keeps some nodes. What they read of a node that is left out becomes an input of the part, in the type that the
value has in the whole model; what nobody reads any more becomes an output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from compiler.errors import CallerError, MalformedModel
from compiler.frontend.reading.tensors import data_name, data_path

WEIGHTS = "weights-of-the-minimised-model.bin"
"""Beside the parts while they are tried: the elements of large tensors, which parts refer to."""
LARGE_BYTES = 1 << 12
"""Tensors above lie in that file."""
PLAIN = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32}
PLAIN |= {TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL, TensorProto.INT16, TensorProto.UINT16}
"""Element types of tensors that may be made smaller; others stay as they are."""


@dataclass(frozen=True)
class ValueType:
    """Element type, and dimensions: numbers, names, or None for what is unknown; `dims` None is an unknown rank."""

    dtype: int
    dims: tuple[int | str | None, ...] | None

    def info(self, name: str) -> ValueInfoProto:
        """As the file says it."""
        return helper.make_tensor_value_info(name, self.dtype, self.dims)


@dataclass(frozen=True)
class Part:
    """What of a network is kept.

    nodes    positions, ascending
    sizes    by size of an axis of inputs and initializers: the smaller one that all such axes have instead
    filled   initializers whose elements are all the same number
    """

    nodes: tuple[int, ...]
    sizes: Mapping[int, int] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal parts."""
        return self.nodes, tuple(sorted(self.sizes.items())), self.filled

    def only(self, nodes: Iterable[int]) -> Part:
        """The same with these nodes."""
        return replace(self, nodes=tuple(sorted(nodes)))


@dataclass
class Network:
    """A model file. `sources` are the nodes' names as messages of the compiler have them."""

    model: ModelProto
    folder: Path
    data: Mapping[str, Path]
    nodes: list[NodeProto]
    sources: list[str]
    initializers: dict[str, TensorProto]
    types: dict[str, ValueType]
    inputs: list[str]
    outputs: list[str]
    reads: list[tuple[str, ...]]
    producer: dict[str, int]
    readers: dict[str, list[int]]
    _stored: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, folder: Path, data: Mapping[str, Path] | None) -> Network:
        """Of a file; `folder` is where parts and their weights lie. Raises MalformedModel where it is no ONNX."""
        model = ModelProto()
        try:
            model.ParseFromString(path.read_bytes())
        except DecodeError as error:
            raise MalformedModel(
                f"this is not an ONNX file: {error}", fix="there is nothing in it to minimise: export the model again"
            ) from None
        graph = model.graph
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        nodes, sources = [], []
        for place, node in enumerate(graph.node):
            if (constant := _constant(node)) is not None:
                initializers[node.output[0]] = constant
                continue
            nodes.append(node)
            sources.append(node.name or f"#{place} {node.op_type}")
        infos = (*graph.value_info, *graph.output, *graph.input)
        types = {info.name: found for info in infos if (found := _type(info))}
        reads = [tuple(dict.fromkeys(_reads(node))) for node in nodes]
        producer = {name: place for place, node in enumerate(nodes) for name in node.output if name}
        readers: dict[str, list[int]] = {}
        for place, names in enumerate(reads):
            for name in names:
                readers.setdefault(name, []).append(place)
        inputs = [info.name for info in graph.input if info.name not in initializers]
        outputs = [info.name for info in graph.output]
        given = data or {}
        places = {
            data_path(location): given.get(data_name(given, location), path.parent / data_path(location))
            for location in _locations(model)
        }
        return cls(
            model, folder, places, nodes, sources, initializers, types, inputs, outputs, reads, producer, readers
        )

    def files(self) -> dict[str, Path]:
        """External data of parts, by path in the file."""
        (self.folder / WEIGHTS).touch()
        return {**self.data, WEIGHTS: self.folder / WEIGHTS}

    def ancestors(self, nodes: Iterable[int], depth: int) -> set[int]:
        """These nodes, and those that they read of, so many steps back."""
        found = edge = set(nodes)
        for _ in range(depth):
            edge = {self.producer[name] for place in edge for name in self.reads[place] if name in self.producer}
            edge -= found
            if not edge:
                break
            found = found | edge
        return found

    def needed(self, part: Part) -> list[str]:
        """Names that the part reads and does not compute, in order."""
        made = {name for place in part.nodes for name in self.nodes[place].output}
        return list(dict.fromkeys(name for place in part.nodes for name in self.reads[place] if name not in made))

    def inputs_of(self, part: Part) -> list[str]:
        """Names of the part's inputs."""
        return [name for name in self.needed(part) if name not in self.initializers]

    def tensors_of(self, part: Part) -> list[TensorProto]:
        """The initializers that the part reads, as the whole model has them."""
        return [self.initializers[name] for name in self.needed(part) if name in self.initializers]

    def axes(self, part: Part) -> list[int]:
        """The different sizes of axes of the part's inputs and initializers, the largest first."""
        shapes = [list(one.dims) for one in self.tensors_of(part)]
        shapes += [list(self.types[name].dims or ()) for name in self.inputs_of(part) if name in self.types]
        sizes = {part.sizes.get(size, size) for shape in shapes for size in shape if isinstance(size, int)}
        return sorted((size for size in sizes if size > 1), reverse=True)

    def outputs_of(self, part: Part) -> list[str]:
        """Names of the part's outputs: the model's, and what is read in the model and not in the part."""
        kept = {*part.nodes}
        found = []
        for place in part.nodes:
            names = [name for name in self.nodes[place].output if name]
            used = [name for name in names if name in self.outputs or name in self.readers] or names
            found += [
                name
                for name in used
                if name in self.outputs or not any(reader in kept for reader in self.readers.get(name, ()))
            ]
        return found

    def build(self, part: Part, *, whole: bool = False) -> ModelProto | None:
        """The part as a model; None where the type of an input is unknown, or nothing is left.

        whole  with all weights in it; otherwise large ones lie in `WEIGHTS`
        """
        inputs, outputs = self.inputs_of(part), self.outputs_of(part)
        if not outputs or any(name not in self.types for name in inputs):
            return None
        graph = GraphProto(name=self.model.graph.name or "minimised")
        graph.node.extend(self.nodes[place] for place in part.nodes)
        graph.input.extend(self._input(name, part) for name in inputs)
        graph.output.extend(self._output(name, part) for name in outputs)
        graph.initializer.extend(self._initializer(tensor, part, whole) for tensor in self.tensors_of(part))
        sparse = {one.values.name: one for one in self.model.graph.sparse_initializer}
        graph.sparse_initializer.extend(sparse[name] for name in self.needed(part) if name in sparse)
        made = ModelProto(ir_version=self.model.ir_version, producer_name="tilewright minimise", graph=graph)
        made.opset_import.extend(self.model.opset_import)
        made.functions.extend(self._functions(graph))
        return made

    def array(self, tensor: TensorProto) -> np.ndarray | None:
        """A tensor's elements; None for one whose type stays as it is."""
        if tensor.data_type not in PLAIN:
            return None
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        said = {entry.key: entry.value for entry in tensor.external_data}
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        place = self.data[data_path(said.get("location", ""))]
        count = math.prod(tensor.dims)
        flat = np.fromfile(place, dtype, count, offset=int(said.get("offset", 0)))
        return flat.reshape(tuple(tensor.dims)) if len(flat) == count else None

    def _functions(self, graph: GraphProto) -> list[onnx.FunctionProto]:
        """The model's own functions that the graph calls, and those that they call."""
        every = {(one.domain, one.name): one for one in self.model.functions}
        called: dict[tuple[str, str], onnx.FunctionProto] = {}
        left = list(graph.node)
        while left:
            node = left.pop()
            left += [inner for body in _bodies(node) for inner in body.node]
            key = (node.domain, node.op_type)
            if key in every and key not in called:
                called[key] = every[key]
                left += every[key].node
        return [one for key, one in every.items() if key in called]

    def _input(self, name: str, part: Part) -> ValueInfoProto:
        known = self.types[name]
        if known.dims is None:
            return known.info(name)
        dims = tuple(part.sizes.get(size, size) if isinstance(size, int) else size for size in known.dims)
        return replace(known, dims=dims).info(name)

    def _output(self, name: str, part: Part) -> ValueInfoProto:
        known = self.types.get(name)
        if known is None:
            return ValueInfoProto(name=name)
        if not part.sizes:
            return known.info(name)
        return helper.make_tensor_value_info(name, known.dtype, None)

    def _initializer(self, tensor: TensorProto, part: Part, whole: bool) -> TensorProto:
        dims = tuple(part.sizes.get(size, size) for size in tensor.dims)
        is_filled = tensor.name in part.filled
        is_same = dims == tuple(tensor.dims) and not is_filled
        is_outside = tensor.data_location == TensorProto.EXTERNAL
        if is_same and not is_outside and (whole or tensor.ByteSize() <= LARGE_BYTES):
            return tensor
        key = (tensor.name, dims, is_filled)
        if not whole and key in self._stored:
            return _outside(tensor, dims, *self._stored[key])
        array = self.array(tensor)
        if array is None:
            return tensor
        array = array[tuple(slice(size) for size in dims)]
        array = np.full_like(array, FILL) if is_filled else array
        if whole or array.nbytes <= LARGE_BYTES:
            return numpy_helper.from_array(np.ascontiguousarray(array), tensor.name)
        with (self.folder / WEIGHTS).open("ab") as file:
            self._stored[key] = (file.tell(), array.nbytes)
            file.write(np.ascontiguousarray(array).tobytes())
        return _outside(tensor, dims, *self._stored[key])


FILL = 0.5
"""What a weight becomes whose value does not matter: exact in every float type, and neither zero nor one."""


def floats(tensors: Sequence[TensorProto]) -> list[str]:
    """Names of those that hold floats, and may be filled."""
    types = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    return [tensor.name for tensor in tensors if tensor.data_type in types]


def _outside(tensor: TensorProto, dims: Sequence[int], offset: int, length: int) -> TensorProto:
    made = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", WEIGHTS), ("offset", str(offset)), ("length", str(length))):
        entry = made.external_data.add()
        entry.key, entry.value = key, value
    return made


def _constant(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant that has one."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            return tensor
    return None


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _reads(node: NodeProto) -> Iterator[str]:
    """Names that a node reads, those that its bodies read from outside as well."""
    yield from (name for name in node.input if name)
    for body in _bodies(node):
        own = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        yield from (name for inner in body.node for name in _reads(inner) if name not in own)
        yield from (info.name for info in body.output if info.name not in own)


def _locations(model: ModelProto) -> Iterator[str]:
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            if location.startswith(("/", "\\")) or ".." in data_path(location).split("/"):
                raise CallerError(
                    f"tensor {tensor.name!r} lies at {location!r}, outside of the model's folder",
                    fix="save the model with its external data beside it",
                )
            yield location


def _type(info: ValueInfoProto) -> ValueType | None:
    """What the file says of a value; None where it is no tensor with an element type."""
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.elem_type:
        return None
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    each = [(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None) for dim in tensor.shape.dim]
    return ValueType(tensor.elem_type, tuple(each))
