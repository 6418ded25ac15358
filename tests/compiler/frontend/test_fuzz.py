"""Mutated models: whatever the bytes, either a Graph comes out or an error that is the caller's.

Anything else fails the test.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import CallerError
from compiler.frontend import Limits, load
from compiler.ops import OPERATORS
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
SMALL = Limits(tensor_bytes=2**20, fold_bytes=2**16, fold_total=2**18, fold_products=2**16, nodes=2000, fields=200_000)
"""A mutant may ask for anything; these keep what is granted to it quick."""


def _seeds(make: Maker) -> list[bytes]:
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.zeros(4, np.float32)}
    convolution = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    shapes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["f"]),
        helper.make_node(
            "ConstantOfShape", ["target2"], ["k"], value=numpy_helper.from_array(np.array([2], np.float32))
        ),
        helper.make_node("Split", ["f"], ["a", "b"], axis=1),
        helper.make_node("Range", ["start", "limit", "delta"], ["steps"]),
        helper.make_node("Gather", ["a", "steps"], ["g"], axis=1),
        helper.make_node("MatMul", ["g", "k"], ["y"]),
    ]
    numbers = {
        **{"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1]), "target2": np.array([3, 2])},
        **{"start": np.array(0), "limit": np.array(3), "delta": np.array(1)},
    }
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "b", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    choice = [
        helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Elu", ["z"], ["y"]),
    ]
    opsets = [helper.make_opsetid("", 17)]
    body = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Gemm", ["a", "a"], ["b"], transB=1)], opsets
    )
    call = [
        helper.make_node("F", ["x"], ["h"], domain="local"),
        helper.make_node("LayerNormalization", ["h", "g"], ["y"]),
    ]
    infos = {name: helper.make_tensor_value_info(name, kind, None) for name, kind in (("i", 7), ("on", 9), ("s", 1))}
    row = helper.make_graph(
        [helper.make_node("Add", ["state", "slice"], ["next"]), helper.make_node("Mul", ["next", "s"], ["row"])],
        "row",
        [helper.make_tensor_value_info(name, 1, None) for name in ("state", "slice")],
        [helper.make_tensor_value_info(name, 1, None) for name in ("next", "row")],
    )
    turn = helper.make_graph(
        [
            helper.make_node(
                "Scan",
                ["zero", "s"],
                ["sum", "rows"],
                body=row,
                num_scan_inputs=1,
                scan_input_axes=[-1],
                scan_output_axes=[1],
                scan_input_directions=[1],
            ),
            helper.make_node("ReduceSum", ["rows", "axes"], ["t"], keepdims=0),
        ],
        "turn",
        list(infos.values()),
        [infos["on"], *(helper.make_tensor_value_info(name, 1, None) for name in ("t", "sum"))],
        [numpy_helper.from_array(np.array([1]), "axes"), numpy_helper.from_array(np.array(0, np.float32), "zero")],
    )
    loops = [helper.make_node("Loop", ["n", "c", "x"], ["y", "sums"], body=turn)]
    turns = {"n": np.array(3), "c": np.array(True)}
    return [
        make(convolution, {"x": ["n", 3, 8, 8]}, ["y"], opset=11, initializers=weights),
        make(shapes, {"x": [1, 4, 2]}, ["y"], opset=13, initializers=numbers),
        make(choice, {"x": [2]}, ["y"], initializers={"c": np.array(True)}, dtypes={"x": TensorProto.FLOAT16}),
        make(
            call, {"x": [2, 3]}, ["y"], initializers={"g": np.ones(2, np.float32)}, functions=[body], domains=["local"]
        ),
        make(loops, {"x": [3]}, ["y", "sums"], initializers=turns),
    ]


def _mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        position = rng.randrange(len(mutant))
        match rng.randrange(5):
            case 0:
                mutant[position] = rng.randrange(256)
            case 1:
                mutant[position] ^= 1 << rng.randrange(8)
            case 2:
                del mutant[position : position + rng.choice((1, 1, 4, 30))]
            case 3:
                mutant[position:position] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 9))))
            case _:
                other = rng.randrange(len(mutant))
                mutant[position:position] = mutant[other : other + 12]
        if not mutant:
            mutant = bytearray(b"\0")
    return bytes(mutant)


NUMBERS = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
FLOATS = (0.0, -1.0, 1e-40, 3e38, float("inf"), float("nan"))
OP_TYPES = [schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""]


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if hasattr(value, "append") else [value]:
                yield from _messages(inner)


def _mutated_fields(data: bytes, rng: random.Random) -> bytes:
    """The model with a few fields set to values of their type that are odd, or that stand elsewhere in it."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    everything = list(_messages(model))
    names = [
        name
        for message in everything
        if isinstance(message, onnx.NodeProto)
        for name in (*message.input, *message.output)
    ]
    for _ in range(rng.choice((1, 1, 2, 4))):
        message = rng.choice(everything)
        fields = message.ListFields()
        if not fields:
            continue
        field, value = rng.choice(fields)
        new = _odd(field, rng, names)
        try:
            if field.message_type is not None:
                if hasattr(value, "append") and len(value) and rng.random() < 0.5:
                    value.append(rng.choice(value))
                else:
                    message.ClearField(field.name)
            elif hasattr(value, "append"):
                if rng.random() < 0.3:
                    value.append(new)
                else:
                    value[rng.randrange(len(value))] = new
            else:
                setattr(message, field.name, new)
        except (ValueError, TypeError, OverflowError):
            continue  # protobuf itself refuses this value for this field
    return bytes(model.SerializeToString())


def _odd(field: object, rng: random.Random, names: list[str]) -> object:
    kind = field.cpp_type  # type: ignore[attr-defined]
    if field.name == "op_type":  # type: ignore[attr-defined]
        return rng.choice(OP_TYPES)
    if kind == field.CPPTYPE_STRING:  # type: ignore[attr-defined]
        return rng.choice((*names, "", "nowhere", "a\0b")) if field.type == field.TYPE_STRING else b"\xff\0"  # type: ignore[attr-defined]
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):  # type: ignore[attr-defined]
        return rng.choice(FLOATS)
    return rng.choice(NUMBERS)


@pytest.mark.parametrize("mutate", [_mutated_bytes, _mutated_fields], ids=["bytes", "fields"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ours", [False, True], ids=["onnx's operators", "our operators"])
def test_a_mutated_model_is_loaded_or_refused(
    mutate: Callable[[bytes, random.Random], bytes], seed: int, ours: bool, operators: Operators, make_model: Maker
) -> None:
    operators = OPERATORS if ours else operators
    rng = random.Random(seed)
    original = _seeds(make_model)[seed]
    load(original, CompileOptions(), operators, SMALL)
    refused = 0
    for _ in range(200):
        mutant = mutate(original, rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numpy's, about the values of a mutant
                load(mutant, CompileOptions(), operators, SMALL).graph.verify()
        except CallerError:
            refused += 1
    assert refused > 20
