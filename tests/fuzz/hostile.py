"""Models that are made to harm: bombs, loops without end, numbers that overflow, files that are none.

Each attack is drawn with numbers of its own, and some are mutated once more. Model number N is the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper, numpy_helper

from tests.end_to_end.models import doubling, model, outside
from tests.fuzz import mutants

HUGE = (2**20, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)
ODD = (*HUGE, 0, 1, -1, -2, 3, -(2**31), -(2**63))
TEXTS = (
    "",
    " ",
    "\n",
    "a*b",
    "a+1",
    "batch.0",
    "0",
    "-1",
    "__import__('os')",
    "%s%n",
    "\u202e",
    "ß" * 300,
    "x" * 100_000,
)
PATHS = ("/dev/zero", "/proc/self/mem", "/etc/passwd", "..", ".", "../../x", "a/../../b", "w\0x", "C:\\w", "//w", "~/w")
SPECIAL = (0.0, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
UNARY = ("Relu", "Neg", "Sqrt", "Softmax", "Transpose", "Identity", "Exp", "Flatten")

Draw = random.Random


def hostile(number: int) -> tuple[str, bytes]:
    """The name of the attack, and the model."""
    rng = random.Random(number)
    attack = rng.choice(ATTACKS)
    data = attack(rng)
    if rng.random() < 0.3:
        whole = onnx.ModelProto()
        try:
            whole.ParseFromString(data)
            rng.choice(mutants.MUTATIONS)(whole, rng)
            data = bytes(whole.SerializeToString())
        except Exception:  # no model, or nothing in it that this mutation changes
            pass
    return attack.__name__, data


def ints(name: str, values: Sequence[int]) -> TensorProto:
    """A constant of 64-bit integers."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> NodeProto:
    """A node with a name."""
    return helper.make_node(operator, list(inputs), list(outputs), name=f"n_{outputs[0]}", **attributes)


def swell(rng: Draw) -> bytes:
    """A constant, or a value, of more elements than there is memory for."""
    sizes = [rng.choice(ODD) for _ in range(rng.choice((1, 2, 3)))]
    operator = rng.choice(
        ("Expand", "ConstantOfShape", "Tile", "Range", "Pad", "OneHot", "Resize", "EyeLike", "Reshape")
    )
    x: dict[str, Sequence[int | str] | None] = {"x": [1] * len(sizes)}
    if operator in ("Expand", "Tile", "Reshape"):
        return model([node(operator, ["x", "s"])], x, ["y"], tensors=[ints("s", sizes)])
    if operator == "ConstantOfShape":
        nodes = [node(operator, ["s"], ["c"]), node("Add", ["x", "c"])]
        return model(nodes, x, ["y"], tensors=[ints("s", sizes)])
    if operator == "Range":
        bounds = [numpy_helper.from_array(np.array(rng.choice(ODD), np.int64), name) for name in "abc"]
        nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["f"], to=1), node("Add", ["x", "f"])]
        return model(nodes, {"x": [1]}, ["y"], tensors=bounds)
    if operator == "Pad":
        pads = [rng.choice((0, 0, *ODD)) for _ in range(2 * len(sizes))]
        mode = rng.choice(("constant", "reflect", "edge", "wrap"))
        return model([node("Pad", ["x", "p"], mode=mode)], x, ["y"], opset=19, tensors=[ints("p", pads)])
    if operator == "OneHot":
        depth = [ints("d", [rng.choice(ODD)]), numpy_helper.from_array(np.array([0, 1], np.float32), "v")]
        return model([node("OneHot", ["x", "d", "v"])], {"x": [3]}, ["y"], tensors=depth)
    if operator == "Resize":
        scales = numpy_helper.from_array(np.array([rng.choice((*SPECIAL, 1e9, 1e-9)) for _ in sizes], np.float32), "s")
        return model([node("Resize", ["x", "", "s"])], x, ["y"], tensors=[scales])
    shape: Sequence[int | str] = [rng.choice(ODD), rng.choice(ODD)]
    return model([node("EyeLike", ["x"], k=rng.choice(ODD))], {"x": shape}, ["y"])


def folding(rng: Draw) -> bytes:
    """Constants that fold to ever larger ones, each of which is no more than twice the last."""
    count = rng.choice((5, 20, 28, 40, 70))
    operator = rng.choice(("Concat", "Tile", "Add"))
    nodes, last = [], "c0"
    for at in range(count):
        inputs = [last, "two"] if operator == "Tile" else [last, last]
        more = {"axis": 0} if operator == "Concat" else {}
        nodes.append(node(operator, inputs, [f"c{at + 1}"], **more))
        last = f"c{at + 1}"
    nodes.append(node("ReduceSum", [last], ["r"]))
    nodes.append(node("Add", ["x", "r"]))
    start = numpy_helper.from_array(np.ones(rng.choice((1, 1000)), np.float32), "c0")
    return model(nodes, {"x": [1]}, ["y"], tensors=[start, ints("two", [2])])


def without_end(rng: Draw) -> bytes:
    """A loop of very many rounds, or none that ends; its body may be another."""

    def loop(depth: int) -> NodeProto:
        nodes = [node("Identity", ["go"], [f"on{depth}"]), node(rng.choice(UNARY), [f"v{depth}"], [f"w{depth}"])]
        if depth and rng.random() < 0.7:
            nodes = [nodes[0], loop(depth - 1), node("Identity", [f"z{depth - 1}"], [f"w{depth}"])]
        infos = [
            helper.make_tensor_value_info(f"i{depth}", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"c{depth}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"v{depth}", TensorProto.FLOAT, None),
        ]
        outputs = [onnx.ValueInfoProto(name=f"on{depth}"), onnx.ValueInfoProto(name=f"w{depth}")]
        body = helper.make_graph(nodes, "b", infos, outputs)
        return node("Loop", [rng.choice(("trips", "")), "go", "x"], [f"z{depth}"], body=body)

    go = numpy_helper.from_array(np.array(True), "go")
    trips = numpy_helper.from_array(np.array(rng.choice(ODD), np.int64), "trips")
    depth = rng.choice((0, 1, 3))
    nodes = [loop(depth), node("Relu", [f"z{depth}"])]
    return model(nodes, {"x": [rng.choice((1, 4))]}, ["y"], tensors=[go, trips])


def nested(rng: Draw) -> bytes:
    """Branches within branches; deeper ones protobuf does not write, which `bytes_alone` does."""
    depth = rng.choice((2, 10, 20, 30))
    inner = node("Relu", ["x"], ["y0"])
    for at in range(depth):
        branch = helper.make_graph([inner], f"g{at}", [], [onnx.ValueInfoProto(name=f"y{at}")])
        other = helper.make_graph([node("Neg", ["x"], [f"o{at}"])], f"o{at}", [], [onnx.ValueInfoProto(name=f"o{at}")])
        inner = node("If", ["c"], [f"y{at + 1}"], then_branch=branch, else_branch=other)
    constant = rng.random() < 0.5
    inputs: dict[str, Sequence[int | str] | None] = {"x": [4]}
    tensors = [numpy_helper.from_array(np.array(True), "c")] if constant else []
    return model([inner], inputs if constant else {**inputs, "c": []}, [f"y{depth}"], tensors=tensors)


def recursive(rng: Draw) -> bytes:
    """Functions that call themselves or each other, or double."""
    if rng.random() < 0.4:
        return doubling(rng.choice((1, 8, 16, 30, 200, 900)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    count = rng.choice((1, 2, 5))

    def calling(at: int) -> FunctionProto:
        call = helper.make_node(f"F{(at + 1) % count}", ["x"], ["y"], domain="local")
        return helper.make_function("local", f"F{at}", ["x"], ["y"], [call], opsets)

    call = helper.make_node("F0", ["x"], ["y"], domain="local", name="top")
    return model([call], {"x": [4]}, ["y"], functions=[calling(at) for at in range(count)])


def long(rng: Draw) -> bytes:
    """Very many nodes, inputs or outputs, or paths through few nodes."""
    count = rng.choice((60, 1000, 4000))
    kind = rng.choice(("chain", "paths", "inputs", "outputs"))
    if kind == "chain":
        names = ["x", *(f"v{at}" for at in range(count))]
        nodes = [node(rng.choice(UNARY), [names[at]], [names[at + 1]]) for at in range(count)]
        return model(nodes, {"x": [2, 2]}, [names[-1]])
    if kind == "paths":
        names = ["x", *(f"v{at}" for at in range(count))]
        pick = rng.choice(("Add", "Mul", "Concat", "MatMul"))
        more = {"axis": 0} if pick == "Concat" else {}
        nodes = [node(pick, [names[at], names[at]], [names[at + 1]], **more) for at in range(count)]
        return model(nodes, {"x": [2, 2]}, [names[-1]])
    if kind == "inputs":
        return model([node(rng.choice(("Concat", "Sum", "Max")), ["x"] * count)], {"x": [2, 2]}, ["y"])
    outputs = [f"y{at}" for at in range(count)]
    return model([node("Split", ["x"], outputs, axis=0)], {"x": [rng.choice((count, 2))]}, outputs)


def texts(rng: Draw) -> bytes:
    """Patterns that backtrack, and strings where numbers are meant."""
    subject = numpy_helper.from_array(np.array(["a" * rng.choice((1, 30, 5000)) + "!"], object), "s")
    pattern = rng.choice((r"(a+)+$", r"(a|a)*b", r"((((a*)*)*)*)*b", "(" * 3000, "[", "(?P<a", r"a{1,99999}{1,99999}"))
    nodes = [
        node("RegexFullMatch", ["s"], ["m"], pattern=pattern),
        node("Cast", ["m"], ["f"], to=1),
        node("Add", ["x", "f"]),
    ]
    if rng.random() < 0.3:
        nodes[0] = node(rng.choice(("StringConcat", "Sqrt", "Equal")), ["s", "s"], ["m"])
    return model(nodes, {"x": [1]}, ["y"], opset=20, tensors=[subject])


def sizes(rng: Draw) -> bytes:
    """Sizes of a window, a group, a block, of which none fits."""
    operator = rng.choice(
        ("Conv", "MaxPool", "AveragePool", "ConvTranspose", "DepthToSpace", "TopK", "Gather", "Split")
    )
    some = (1, 1, 2, 3, *ODD)

    def pair() -> list[int]:
        return [rng.choice(some), rng.choice(some)]

    weights = numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "w")
    if operator in ("Conv", "ConvTranspose"):
        chosen: dict[str, Any] = {"pads": [*pair(), *pair()], "strides": pair(), "dilations": pair()}
        chosen["group"] = rng.choice(some)
        chosen = {name: value for name, value in chosen.items() if rng.random() < 0.6}
        return model([node(operator, ["x", "w"], **chosen)], {"x": [1, 2, 8, 8]}, ["y"], tensors=[weights])
    if operator in ("MaxPool", "AveragePool"):
        chosen = {"pads": [*pair(), *pair()], "strides": pair(), "ceil_mode": rng.choice((0, 1))}
        chosen = {name: value for name, value in chosen.items() if rng.random() < 0.6}
        return model([node(operator, ["x"], kernel_shape=pair(), **chosen)], {"x": [1, 2, 8, 8]}, ["y"])
    if operator == "DepthToSpace":
        return model([node(operator, ["x"], blocksize=rng.choice(ODD))], {"x": [1, 4, 8, 8]}, ["y"])
    if operator == "TopK":
        nodes = [node(operator, ["x", "k"], ["y", "z"], axis=rng.choice((0, -1, 5)))]
        return model(nodes, {"x": [8]}, ["y"], tensors=[ints("k", [rng.choice(ODD)])])
    if operator == "Gather":
        return model(
            [node(operator, ["x", "i"], axis=rng.choice((0, 9)))], {"x": [8]}, ["y"], tensors=[ints("i", pair())]
        )
    return model([node(operator, ["x", "s"], ["y", "z"])], {"x": [8]}, ["y"], tensors=[ints("s", pair())])


def tensors(rng: Draw) -> bytes:
    """A constant whose dims, type or bytes contradict each other, or which lies in another file."""
    if rng.random() < 0.35:
        whole = onnx.ModelProto()
        whole.ParseFromString(outside(rng.choice(PATHS)))
        if rng.random() < 0.5:
            for key in ("offset", "length", "checksum"):
                value = rng.choice((*map(str, ODD), "x", "1e9", ""))
                whole.graph.initializer[0].external_data.add(key=key, value=value)
        return bytes(whole.SerializeToString())
    dims = [rng.choice((1, 2, *ODD)) for _ in range(rng.choice((0, 1, 2, 50)))]
    tensor = TensorProto(name="w", data_type=rng.choice((*range(25), 999, -1)), dims=dims)
    match rng.randrange(4):
        case 0:
            tensor.raw_data = rng.randbytes(rng.choice((0, 1, 4, 8, 4096)))
        case 1:
            tensor.float_data.extend([rng.choice(SPECIAL)] * rng.choice((1, 2, 100)))
        case 2:
            tensor.string_data.extend([b"\xff\xfe", b"a"])
        case _:
            tensor.segment.begin, tensor.segment.end = rng.choice(ODD), rng.choice(ODD)
    if rng.random() < 0.3:
        sparse = onnx.SparseTensorProto(values=tensor, indices=ints("i", [rng.choice(ODD)]), dims=[rng.choice(ODD)])
        constant = NodeProto(op_type="Constant", output=["w"], name="n_w")
        constant.attribute.append(
            AttributeProto(name="sparse_value", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse)
        )
        return model([constant, node("Add", ["x", "w"])], {"x": [4]}, ["y"])
    return model([node("Add", ["x", "w"])], {"x": [4]}, ["y"], tensors=[tensor])


def scales(rng: Draw) -> bytes:
    """Quantised values with scales that are no scales."""
    scale = numpy_helper.from_array(np.array(rng.choice(SPECIAL), np.float32), "s")
    zero = numpy_helper.from_array(np.array(rng.choice((0, 128, 255)), np.uint8), "z")
    axis = {"axis": rng.choice((0, 1, 7))} if rng.random() < 0.5 else {}
    block = {"block_size": rng.choice(ODD)} if rng.random() < 0.3 else {}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"], **axis, **block), node("DequantizeLinear", ["q", "s", "z"])]
    return model(nodes, {"x": [4, 4]}, ["y"], opset=21, tensors=[scale, zero])


def equations(rng: Draw) -> bytes:
    """An Einsum whose equation is long, empty or none."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    word = "".join(rng.choice(letters + "., ->") for _ in range(rng.choice((0, 3, 8, 60))))
    equation = rng.choice((word, "ij,jk->ik", "ii->i", "i,i", "...i,...i->...", "->", ",", letters + "," + letters))
    return model([node("Einsum", ["x", "x"], equation=equation)], {"x": [3, 3]}, ["y"])


def names(rng: Draw) -> bytes:
    """Names, sizes and versions that are no names, sizes and versions."""
    shape: list[int | str] = [rng.choice((*TEXTS, *ODD)) for _ in range(rng.choice((1, 2, 4)))]
    x, y = rng.choice(TEXTS), rng.choice(TEXTS)
    return model([node("Relu", [x], [y])], {x: shape}, [rng.choice((y, x))], opset=rng.choice((17, *ODD)))


def types(rng: Draw) -> bytes:
    """Sequences of optionals of maps, element types that nobody knows, and graphs that contradict themselves."""
    whole = onnx.ModelProto()
    whole.ParseFromString(model([node("Relu", ["x"])], {"x": [4]}, ["y"]))
    match rng.randrange(6):
        case 0:
            inner = whole.graph.input[0].type
            for _ in range(rng.choice((1, 20, 45, 90))):
                inner = inner.sequence_type.elem_type if rng.random() < 0.5 else inner.optional_type.elem_type
            inner.tensor_type.elem_type = 1
        case 1:
            whole.graph.input[0].type.tensor_type.elem_type = rng.choice((0, 8, 14, 17, 20, 23, 999, -5))
        case 2:
            for _ in range(rng.choice((1, 5))):
                whole.graph.node.add().CopyFrom(whole.graph.node[0])
        case 3:
            whole.graph.output.extend([onnx.ValueInfoProto(name=rng.choice(("x", "y", "nowhere", "")))] * 3)
        case 4:
            whole.opset_import.extend([helper.make_opsetid("", rng.choice((7, 17, 21))) for _ in range(3)])
        case _:
            reference = AttributeProto(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT)
            whole.graph.node[0].op_type = "LeakyRelu"
            whole.graph.node[0].attribute.extend([reference] * rng.choice((1, 2)))
    return bytes(whole.SerializeToString())


def bytes_alone(rng: Draw) -> bytes:
    """Bytes that a parser of messages may choke on."""
    match rng.randrange(5):
        case 0:  # a graph within a node's attribute within a graph, by bytes alone: deeper than any parser goes
            data = b""
            for _ in range(rng.choice((10, 40, 120, 3000))):
                attribute = b"\x32" + _varint(len(data)) + data
                inner = b"\x2a" + _varint(len(attribute)) + attribute
                data = b"\x0a" + _varint(len(inner)) + inner
            return b"\x3a" + _varint(len(data)) + data
        case 1:
            return b"\x3a" + _varint(rng.choice(HUGE)) + rng.randbytes(20)
        case 2:
            return bytes([rng.choice((0x08, 0x3A, 0x42))]) + b"\xff" * rng.choice((1, 9, 10, 11, 1000))
        case 3:
            return b"\x0b" * rng.choice((1, 100, 100_000))  # groups that never end
        case _:
            return model([node("Relu", ["x"])], {"x": [4]}, ["y"]) * rng.choice((2, 1000))  # merged by a parser


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


ATTACKS: tuple[Callable[[Draw], bytes], ...] = (
    swell,
    folding,
    without_end,
    nested,
    recursive,
    long,
    texts,
    sizes,
    tensors,
    scales,
    equations,
    names,
    types,
    bytes_alone,
)
