"""A QDQ network as a TFLite file in int8: tensors, their scales and layouts. `operators` has the operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, shape_inference

from compiler.accelerate.tflite.flatbuffer import Program, TfliteWriter
from compiler.errors import Refusal, UnsupportedModel
from compiler.quantize.network import Network, attributes, named
from compiler.quantize.scheme import affine, quantised_weights, weight_scales

Scale = tuple[float, int]
"""Scale and zero point of an int8 tensor: real = scale * (q - zero point)."""
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class Held:
    """A tensor of the file: its number, its shape there, its scale, and whether channels were moved to the end."""

    number: int
    shape: tuple[int, ...]
    scale: Scale
    last: bool


@dataclass(frozen=True)
class Port:
    """An input or output of the file, as the model has it in `shape`: `last` says that the file has channels last.

    `stored` is its shape in the file.
    """

    name: str
    shape: tuple[int, ...]
    scale: Scale
    last: bool
    stored: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As the loader reads it."""
        scale, zero = self.scale
        return {
            "name": self.name,
            "dtype": "float32",
            "shape": list(self.shape),
            "scale": float(np.float32(scale)),
            "zero_point": zero,
            "channels_last": self.last,
            "stored": list(self.stored),
        }


@dataclass(frozen=True)
class Converted:
    """The file and what it holds, its ports, and by tensor the operator of the model that made it.

    `held` are the tensors of the file that are the model's, by name.
    """

    model: bytes
    program: Program
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    origin: dict[str, str]
    held: dict[str, Held]


def refused(node: NodeProto, why: str, fix: str) -> UnsupportedModel:
    """What an operator that cannot be converted raises, by its name."""
    text = f"{node.op_type} {named(node)!r:.100}: {why}"
    return UnsupportedModel(text, fix=fix, refusals=(Refusal(why, "", named(node), node.op_type),))


class Converter:
    """What operators are written with: tensors by the model's names, each scale decided once.

    `schemes` are scales that are known before: of a part of a model, those of the whole and of the parts before.
    """

    def __init__(
        self,
        network: Network,
        ranges: Mapping[str, tuple[float, float]],
        schemes: Mapping[str, Scale] | None = None,
    ) -> None:
        self.network, self.ranges = network, ranges
        self.writer = TfliteWriter()
        self.held: dict[str, Held] = {}
        self.alias = aliases(network)
        self.schemes = {**(schemes_of(network) if schemes is None else schemes)}
        self.turned: dict[int, Held] = {}
        self.origin: dict[str, str] = {}
        self.done: set[str] = set()
        self.shapes = shapes_of(network)

    def root(self, name: str) -> str:
        """The tensor that a name stands for, behind QuantizeLinear and DequantizeLinear."""
        return self.alias.get(name, name)

    def shape(self, name: str) -> tuple[int, ...]:
        """In the model's order of axes."""
        return self.shapes[name]

    def wanted(self, name: str) -> Scale:
        """The scale of a tensor: the model's, or from its range on the samples."""
        if name not in self.schemes:
            if name not in self.ranges:
                raise UnsupportedModel(
                    f"tensor {name!r:.100} has no scale, and the front end leaves it out of what is calibrated",
                    fix="put a QuantizeLinear and a DequantizeLinear behind it",
                )
            low, high = self.ranges[name]
            one = affine(low, high, np.int8)
            self.schemes[name] = float(one.scale), int(one.zero)
        return self.schemes[name]

    def fixed(self, name: str) -> np.ndarray | None:
        """The real elements of a constant, also of one that is stored as integers."""
        found = self.network.constant(name)
        node = self.network.producer.get(name)
        if found is None and node is not None and node.op_type == "DequantizeLinear":
            stored = self.stored(name)
            if stored is not None:
                q, scales, axis = stored
                shape = [1] * q.ndim
                if scales.size > 1:
                    shape[axis] = -1
                return np.asarray(q * scales.reshape(shape), np.float32)
        return found

    def stored(self, name: str) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Integers, scales and axis of a constant behind a DequantizeLinear; integers less their zero point."""
        node = self.network.producer.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        q, scales = self.network.constant(node.input[0]), self.network.constant(node.input[1])
        if q is None or scales is None:
            return None
        zero = self.network.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        axis = int(attributes(node)["axis"].i) if "axis" in attributes(node) else 1
        axis %= max(q.ndim, 1)
        less: Any = 0 if zero is None else zero.astype(np.int32)
        if zero is not None and zero.size > 1:
            less = less.reshape([-1 if at == axis else 1 for at in range(q.ndim)])
        return q.astype(np.int32) - less, scales.astype(np.float32), axis

    def weights(self, node: NodeProto, position: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Int8 weights of a layer, and one scale for each index of `axis`. Raises UnsupportedModel for data."""
        stored = self.stored(node.input[position])
        if (
            stored is not None
            and np.abs(stored[0]).max(initial=0) <= 128
            and (stored[1].size == 1 or stored[2] == axis)
        ):
            count = stored[0].shape[axis]
            return np.clip(stored[0], -127, 127).astype(np.int8), np.broadcast_to(stored[1].reshape(-1), (count,))
        real = self.fixed(node.input[position])
        if real is None:
            raise refused(node, "its weights are data", "export it with its weights as constants")
        real = np.asarray(real, np.float64)
        scales = weight_scales(real, axis)
        return quantised_weights(real, scales, axis).astype(np.int8), scales

    def bias(self, node: NodeProto, channels: int, products: np.ndarray) -> int:
        """The number of a bias in int32, zeros where the layer has none."""
        real: Any = np.zeros(channels)
        if len(node.input) > 2 and node.input[2]:
            real = self.fixed(node.input[2])
            if real is None:
                raise refused(node, "its bias is data", "export it with its bias as a constant")
            real = np.broadcast_to(np.asarray(real, np.float64).reshape(-1), (channels,))
        limit = (1 << 31) - 1
        q = np.clip(np.rint(real / products.astype(np.float64)), -limit, limit).astype(np.int32)
        return self.writer.constant(f"{node.output[0]}.bias", q, products)

    def ints(self, *values: int) -> int:
        """The number of a vector of int32."""
        return self.writer.constant("indices", np.array(values, np.int32))

    def plain(self, name: str) -> Held:
        """A tensor with its axes as in the model, transposed where the file has channels last."""
        held = self.held[self.root(name)]
        return self._turned(held, TO_FIRST) if held.last else held

    def last(self, name: str) -> Held:
        """A tensor of four axes with channels last."""
        held = self.held[self.root(name)]
        return held if held.last else self._turned(held, TO_LAST)

    def _turned(self, held: Held, order: tuple[int, ...]) -> Held:
        if held.number not in self.turned:
            shape = tuple(held.shape[at] for at in order)
            number = self.writer.tensor(f"layout.{held.number}", shape, "int8", *held.scale)
            self.writer.operator("TRANSPOSE", [held.number, self.ints(*order)], [number])
            self.turned[held.number] = Held(number, shape, held.scale, order == TO_LAST)
        return self.turned[held.number]

    def requantised(self, held: Held, scale: Scale, name: str) -> Held:
        """The tensor in another scale."""
        if np.float32(held.scale[0]) == np.float32(scale[0]) and held.scale[1] == scale[1]:
            return held
        number = self.writer.tensor(name, held.shape, "int8", *scale)
        self.writer.operator("QUANTIZE", [held.number], [number])
        return Held(number, held.shape, scale, held.last)

    def emit(
        self,
        kind: str,
        inputs: Sequence[int],
        node: NodeProto,
        name: str,
        shape: Sequence[int],
        *,
        last: bool,
        must: Scale | None = None,
        **options: Any,
    ) -> None:
        """Writes an operator that makes `name`. `must` is a scale that its kernel demands of the result."""
        scale = must or self.wanted(name)
        number = self.writer.tensor(name, shape, "int8", *scale)
        self.writer.operator(kind, inputs, [number], **options)
        self.give(node, name, Held(number, tuple(shape), scale, last))

    def give(self, node: NodeProto, name: str, held: Held) -> None:
        """Names a tensor that was made, in the scale that the model wants of it where it wants one."""
        self.origin[name] = f"{node.op_type} {named(node)}"
        if name in self.schemes:
            held = self.requantised(held, self.schemes[name], f"{name}.rescaled")
        else:
            self.schemes[name] = held.scale
        self.held[name] = held

    def convert(self, operators: Mapping[str, Any], handed_on: Collection[str] = ()) -> Converted:
        """All nodes in order. Raises UnsupportedModel for an operator without an entry.

        Outputs that are `handed_on` to other parts lie as inputs do: of four axes, with channels last.
        """
        network, inputs = self.network, []
        for name in network.inputs:
            shape = self.shape(name)
            last = len(shape) == 4
            stored = tuple(shape[at] for at in TO_LAST) if last else shape
            scale = self.wanted(name)
            self.held[name] = Held(self.writer.tensor(name, stored, "int8", *scale), stored, scale, last)
            inputs.append(name)
        for node in network.nodes:
            name = node.output[0]
            if name in self.done or name in self.alias or self.fixed(name) is not None:
                continue
            if (write := operators.get(network.operator(node))) is None:
                known = ", ".join(sorted(operators))
                raise refused(node, "there is no int8 operator for it", f"rewrite it with {known}")
            write(self, node)
        outputs = [one.name for one in network.proto.graph.output]
        ends = [
            self.last(name) if name in handed_on and len(self.shape(name)) == 4 else self.held[self.root(name)]
            for name in outputs
        ]
        numbers = [self.held[name].number for name in inputs], [held.number for held in ends]
        return Converted(
            self.writer.finish(*numbers),
            self.writer.program(*numbers),
            tuple(self._port(name, self.held[name]) for name in inputs),
            tuple(self._port(name, held) for name, held in zip(outputs, ends, strict=True)),
            self.origin,
            self.held,
        )

    def _port(self, name: str, held: Held) -> Port:
        return Port(name, self.shape(name), held.scale, held.last, held.shape)


def aliases(network: Network) -> dict[str, str]:
    """Results of QuantizeLinear and DequantizeLinear of data, each with the tensor that it stands for."""
    found: dict[str, str] = {}
    for node in network.nodes:
        rounds = node.op_type == "QuantizeLinear"
        if rounds or (node.op_type == "DequantizeLinear" and network.constant(node.input[0]) is None):
            found[node.output[0]] = found.get(node.input[0], node.input[0])
    return found


def schemes_of(network: Network) -> dict[str, Scale]:
    """The scales of tensors that a QuantizeLinear reads. Raises UnsupportedModel for one that is data."""
    alias, found = aliases(network), dict[str, Scale]()
    for node in network.nodes:
        if node.op_type == "QuantizeLinear":
            found.setdefault(alias[node.output[0]], _parameters(network, node))
    return found


def _parameters(network: Network, node: NodeProto) -> Scale:
    scale = network.constant(node.input[1])
    if scale is None or scale.size != 1:
        raise refused(node, "its scale is no constant number", "quantise activations with one constant scale")
    zero = network.constant(node.input[2]) if len(node.input) > 2 else np.zeros((), np.uint8)
    assert zero is not None
    return float(scale.reshape(())), int(zero.reshape(())) - (128 if zero.dtype == np.uint8 else 0)


def shapes_of(network: Network) -> dict[str, tuple[int, ...]]:
    """Of every tensor. Raises UnsupportedModel for one whose size is not known while compiling."""
    model = shape_inference.infer_shapes(network.model(), data_prop=True)
    found: dict[str, tuple[int, ...]] = {}
    graph = model.graph
    for one in (*graph.input, *graph.value_info, *graph.output):
        dims = one.type.tensor_type.shape.dim
        if any(not dim.HasField("dim_value") for dim in dims):
            raise UnsupportedModel(
                f"tensor {one.name!r:.100} has an open size, and an accelerator's memory is laid out once",
                fix="export the model with fixed shapes",
            )
        found[one.name] = tuple(dim.dim_value for dim in dims)
    found.update({name: tuple(array.shape) for name, array in network.constants.items()})
    return found


def floats_without_scale(network: Network) -> list[str]:
    """Results that no QuantizeLinear follows, and inputs: what needs a range from samples."""
    scaled = {node.input[0] for node in network.nodes if node.op_type == "QuantizeLinear"}
    skipped = ("QuantizeLinear", "DequantizeLinear", "Constant", "Shape")
    made = [name for node in network.nodes if node.op_type not in skipped for name in node.output]
    return [name for name in (*network.inputs, *made) if name not in scaled and network.constant(name) is None]
