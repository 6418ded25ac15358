"""Mutated cases of onnx's conformance suite, their inputs as constants or as inputs; and files with broken bytes.

Model number N is the same in every run.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from tests.conformance import collected

EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 100, 1000)
NUMBERS = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-40, 3e38, float("inf"), float("-inf"), float("nan"))
DTYPES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16)
OP_TYPES = [schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""]


@functools.cache
def seeds() -> tuple[tuple[str, bytes, bytes], ...]:
    """Models of few nodes by name: with integer inputs and all but the first float input as constants, and as it is."""
    found = []
    for case in collected():
        if case.model is None or not case.data_sets or len(case.model.graph.node) > 3:
            continue
        try:
            bound = _with_constants(case.model, case.data_sets[0][0])
            found.append((case.name, bound, bytes(case.model.SerializeToString())))
        except (TypeError, ValueError, AttributeError):  # sequences and optionals are no arrays
            continue
    return tuple(sorted(found))


def _with_constants(model: onnx.ModelProto, arrays: Sequence[Any]) -> bytes:
    model = copy.deepcopy(model)
    inputs = list(zip(list(model.graph.input), arrays, strict=True))
    del model.graph.input[:]
    for at, (info, array) in enumerate(inputs):
        array = numpy_helper.to_array(array) if isinstance(array, TensorProto) else np.asarray(array)
        if at and (array.dtype.kind in "iub" or at > 1):
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            model.graph.input.append(info)
    return bytes(model.SerializeToString())


def mutant(number: int) -> tuple[str, bytes]:
    """The name of the seed, and the model."""
    rng = random.Random(number)
    name, bound, fed = rng.choice(seeds())
    model = onnx.ModelProto()
    model.ParseFromString(fed if rng.random() < 0.3 else bound)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
        try:
            rng.choice(MUTATIONS)(model, rng)
        except (ValueError, TypeError, OverflowError, IndexError):
            continue  # protobuf or helper refuses this value here
    return name, bytes(model.SerializeToString())


def broken(number: int) -> tuple[str, bytes]:
    """The name of the seed, and a file of which some bytes are others, more, or missing."""
    rng = random.Random(number)
    name, bound, _ = rng.choice(seeds())
    data = bytearray(bound)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at : at + rng.choice((1, 2, 9, len(data)))]
                data = data or bytearray(b"\0")
            case _:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 30)))
    return name, bytes(data)


def _attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """Sets an attribute of a node, or one that its operator has, to an odd value."""
    node = rng.choice(model.graph.node)
    kinds = onnx.defs.get_schema(node.op_type).attributes if onnx.defs.has(node.op_type) else {}
    if not kinds:
        return
    name = rng.choice(sorted(kinds))
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    old = [helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name]
    del node.attribute[:]
    node.attribute.extend(kept)
    value = _value(kinds[name].type, old[0] if old else None, rng)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def _value(kind: Any, old: Any, rng: random.Random) -> Any:
    types = onnx.defs.OpSchema.AttrType
    if kind == types.INT:
        return rng.choice((*NUMBERS, *DTYPES))
    if kind == types.FLOAT:
        return rng.choice(FLOATS)
    if kind == types.STRING:
        return rng.choice(
            ("", "nowhere", "SAME_UPPER", "SAME_LOWER", "VALID", "add", "cubic", "linear", "bidirectional")
        )
    if kind in (types.INTS, types.FLOATS):
        numbers = EXTENTS[:9] + NUMBERS if kind == types.INTS else FLOATS
        values = list(old) if isinstance(old, list | tuple) and len(old) else [1, 1]
        for _ in range(rng.choice((1, 1, 2))):
            values[rng.randrange(len(values))] = rng.choice(numbers)
        return values if rng.random() < 0.9 else values[:-1] or [1]
    return None


def _shape(model: onnx.ModelProto, rng: random.Random) -> None:
    """Changes an extent of an input, or its rank."""
    dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
    if dims and rng.random() < 0.85:
        dims[rng.randrange(len(dims))].dim_value = rng.choice(EXTENTS)
    elif dims and rng.random() < 0.5:
        dims.pop()
    else:
        dims.add().dim_value = rng.choice(EXTENTS)


def _dtype(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another element type of all inputs and constants that had one."""
    info = rng.choice(model.graph.input)
    old, new = info.type.tensor_type.elem_type, rng.choice(DTYPES)
    for one in (*model.graph.input, *model.graph.output):
        if one.type.tensor_type.elem_type == old:
            one.type.tensor_type.elem_type = new
    for tensor in model.graph.initializer:
        if tensor.data_type == old:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(new))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _constant(model: onnx.ModelProto, rng: random.Random) -> None:
    """Odd elements of a constant, or another shape of it."""
    tensor = rng.choice(model.graph.initializer)
    array = numpy_helper.to_array(tensor).copy()
    if array.size and rng.random() < 0.7:
        flat = array.reshape(-1)
        numbers = FLOATS if array.dtype.kind == "f" else EXTENTS[:9] + NUMBERS
        flat[rng.randrange(flat.size)] = np.array(rng.choice(numbers)).astype(array.dtype)
    else:
        array = rng.choice((array[..., None], array.reshape(-1)[:1], array.reshape(-1), array[:0]))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _operator(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another operator in the place of one."""
    rng.choice(model.graph.node).op_type = rng.choice(OP_TYPES)


def _inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """An input of a node dropped, left out, doubled, or replaced by another."""
    node = rng.choice(model.graph.node)
    names = [*(info.name for info in model.graph.input), *(tensor.name for tensor in model.graph.initializer), ""]
    at = rng.randrange(len(node.input))
    match rng.randrange(3):
        case 0:
            node.input[at] = rng.choice(names)
        case 1:
            del node.input[at]
        case _:
            node.input.append(rng.choice(names))


def _behind(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another node behind, of an operator of one input."""
    node = rng.choice(model.graph.node)
    name = rng.choice([name for name in node.output if name])
    op = rng.choice(("Relu", "Neg", "Exp", "Transpose", "Flatten", "Softmax", "Cast", "ReduceMax", "Shape", "Identity"))
    attrs: dict[str, Any] = {"to": rng.choice(DTYPES)} if op == "Cast" else {}
    model.graph.node.append(helper.make_node(op, [name], ["behind"], name="behind", **attrs))
    model.graph.output.append(helper.make_tensor_value_info("behind", rng.choice((1, 7)), None))
    if rng.random() < 0.5:
        del model.graph.output[:-1]


def _fields(model: onnx.ModelProto, rng: random.Random) -> None:
    """A field anywhere set to a value of its type that is odd."""
    message = rng.choice(list(_messages(model)))
    present = message.ListFields()
    if not present:
        return
    field, value = rng.choice(present)
    if field.message_type is not None:
        message.ClearField(field.name)
        return
    odd = rng.choice(FLOATS if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE) else NUMBERS)
    new = rng.choice(("", "nowhere", "x")) if field.cpp_type == field.CPPTYPE_STRING else odd
    if hasattr(value, "append"):
        value[rng.randrange(len(value))] = new
    else:
        setattr(message, field.name, new)


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if hasattr(value, "append") else [value]:
                yield from _messages(inner)


Mutation = Callable[[onnx.ModelProto, random.Random], None]
MUTATIONS: tuple[Mutation, ...] = (
    *(_attribute, _attribute, _attribute, _shape, _shape, _shape, _dtype),
    *(_constant, _constant, _operator, _inputs, _behind, _behind, _fields),
)
