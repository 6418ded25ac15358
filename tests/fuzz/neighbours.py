"""Parts of real networks, changed a little, and compiled under options that few use together.

Model number N is the same in every run. A part is some connected nodes of a network with their weights; what it reads
from the rest of the network becomes its inputs. Changes stay within what makes sense, so that most models are compiled:
another function of an element, another stride or padding, another size, more nodes, weights with zeros or few values.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from bench.zoo import build

NETWORKS: tuple[tuple[str, Mapping[str, int]], ...] = (
    *((f"tiny_{name}", {}) for name in ("cnn", "inception", "mobile", "transformer", "detector")),
    *((f"tiny_{name}", {}) for name in ("lstm", "llama", "unet", "lstm_cells")),
    *((name, {"size": 64}) for name in ("squeezenet1_1", "mobilenet_v3_large", "shufflenet_v2", "efficientnet_b0")),
    *((name, {"size": 64}) for name in ("nasnet_a_mobile", "resnet18", "densenet121", "yolov3_tiny")),
)
MOST_NODES, MOST_ELEMENTS = 9, 1 << 18
"""Of a part, and of its weights together."""
UNARY = ["Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "HardSwish", "HardSigmoid", "Elu", "LeakyRelu"]
UNARY += ["Selu", "Abs", "Neg", "Exp", "Sin", "Celu", "Identity", "Mish", "Clip", "Reciprocal"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min", "Div"]
REDUCED = ["ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
AXES_READ = 18
"""The opset from which on axes of reductions are inputs, and Split says into how many parts."""
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33)
BATCH = "batch"
RELATIVE = {"fp32": 2e-3, "bf16": 1e-1, "auto": 4e-2}
"""By which right answers may differ, by precision, of the largest number of an output."""


@dataclass
class Part:
    """A graph of a network under change; `types` are those of all values, as far as inference knows them."""

    name: str
    model: onnx.ModelProto
    chance: random.Random
    types: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)

    @property
    def graph(self) -> onnx.GraphProto:
        return self.model.graph

    def infer(self) -> None:
        """Finds the types anew. Raises InferenceError for a graph that makes no sense."""
        for one in self.graph.output:
            one.type.Clear()
        del self.graph.value_info[:]
        found = shape_inference.infer_shapes(self.model, strict_mode=True, data_prop=True).graph
        self.types = {one.name: one for one in (*found.input, *found.value_info, *found.output)}
        kept = [self.types[one.name] for one in self.graph.output]
        del self.graph.output[:]
        self.graph.output.extend(kept)

    @property
    def opset(self) -> int:
        return int(max(one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx")))

    def function(self) -> str:
        """One of an element."""
        known = [op for op in UNARY if onnx.defs.has(op, max_inclusive_version=self.opset)]
        return self.chance.choice(known)

    def floats(self, rank: int = 0) -> list[str]:
        """Values of floats of at least so many axes, which nodes made or callers give."""
        return [name for name, one in self.types.items() if is_float(one) and len(shape_of(one)) >= rank]

    def new(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The name of the result of a new node behind those that it reads."""
        name = f"new{len(self.graph.node)}_{self.chance.randrange(10**6)}"
        self.graph.node.append(helper.make_node(op, [*inputs], [name], name=name, **attributes))
        return name

    def held(self, array: np.ndarray) -> str:
        """The name of a new constant."""
        name = f"held{len(self.graph.initializer)}_{self.chance.randrange(10**6)}"
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def instead(self, value: str, other: str) -> None:
        """All that read a value read another one, but for what that is made of; outputs too."""
        behind = {other}
        for node in reversed(self.graph.node):
            if behind.intersection(node.output):
                behind.update(node.input)
        for node in self.graph.node:
            if not behind.intersection(node.output):
                for at, name in enumerate(node.input):
                    if name == value:
                        node.input[at] = other
        for one in self.graph.output:
            if one.name == value and value not in {given.name for given in self.graph.input}:
                one.name = other

    def order(self) -> None:
        """Brings the nodes into an order in which each follows what it reads."""
        left, nodes = list(self.graph.node), []
        known = {one.name for one in (*self.graph.input, *self.graph.initializer)} | {""}
        while left:
            ready = [node for node in left if known.issuperset(node.input)]
            if not ready:
                raise ValueError("the nodes read each other")
            nodes += ready
            known.update(name for node in ready for name in node.output)
            left = [node for node in left if not any(node is one for one in ready)]
        del self.graph.node[:]
        self.graph.node.extend(nodes)


def is_float(one: onnx.ValueInfoProto) -> bool:
    return bool(one.type.tensor_type.elem_type == TensorProto.FLOAT)


def shape_of(one: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim)


@functools.cache
def network(name: str, options: tuple[tuple[str, int], ...]) -> onnx.ModelProto:
    """A network of the zoo with the types of all values."""
    return shape_inference.infer_shapes(build(name, 1, **dict(options)), data_prop=True)


def part_of(whole: onnx.ModelProto, chance: random.Random) -> onnx.ModelProto:
    """Some connected nodes, the constants that they read, and what others read of them as outputs."""
    graph = whole.graph
    made = {name: at for at, node in enumerate(graph.node) for name in node.output}
    held = {one.name: one for one in graph.initializer}
    known = {one.name: one for one in (*graph.input, *graph.value_info, *graph.output)}
    readers: dict[str, list[int]] = {}
    for at, node in enumerate(graph.node):
        for name in node.input:
            readers.setdefault(name, []).append(at)
    taken = {chance.randrange(len(graph.node))}
    for _ in range(chance.randint(2, MOST_NODES)):
        edge = [made[name] for at in taken for name in graph.node[at].input if name in made]
        edge += [one for at in taken for name in graph.node[at].output for one in readers.get(name, ())]
        if more := sorted(set(edge) - taken):
            taken.add(chance.choice(more))
    nodes = [copy.deepcopy(graph.node[at]) for at in sorted(taken)]
    inner = {name for node in nodes for name in node.output}
    read = list(dict.fromkeys(name for node in nodes for name in node.input if name))
    given = [known[name] for name in read if name not in inner and name not in held]
    out = [name for at in sorted(taken) for name in graph.node[at].output if name]
    outer = [name for name in out if not readers.get(name) or set(readers[name]) - taken] or out[-1:]
    weights = [held[name] for name in read if name in held]
    part = helper.make_graph(nodes, "part", given, [known[name] for name in outer], weights)
    return helper.make_model(part, opset_imports=whole.opset_import, ir_version=whole.ir_version)


def _function(part: Part) -> None:
    """Another function of an element in the place of one, or of two."""
    found = [node for node in part.graph.node if node.op_type in (*UNARY, *BINARY)]
    node = part.chance.choice(found)
    node.op_type = part.chance.choice(BINARY) if node.op_type in BINARY else part.function()
    del node.attribute[:]


def _window(part: Part) -> None:
    """Another stride, dilation or padding of a convolution or pooling."""
    found = [node for node in part.graph.node if node.op_type in ("Conv", "MaxPool", "AveragePool")]
    node = part.chance.choice(found)
    name = part.chance.choice(["strides", "dilations", "pads", "auto_pad", "ceil_mode"])
    if (name == "ceil_mode") == (node.op_type == "Conv"):
        return
    kept = [one for one in node.attribute if one.name not in (name, "pads" if name == "auto_pad" else "auto_pad")]
    value: Any = [part.chance.choice((1, 1, 2, 3)) for _ in range(2)]
    if name == "pads":
        value = [part.chance.choice((0, 0, 1, 2)) for _ in range(4)]
    elif name == "auto_pad":
        value = part.chance.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif name == "ceil_mode":
        value = 1
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _size(part: Part) -> None:
    """Another size of an axis of inputs, of all that have the same size there, or of one."""
    one = part.chance.choice([one for one in part.graph.input if shape_of(one)])
    at = part.chance.randrange(len(shape_of(one)))
    old, new = shape_of(one)[at], part.chance.choice(EXTENTS)
    alike = [one] if part.chance.random() < 0.3 else [*part.graph.input]
    for other in alike:
        if len(shape_of(other)) > at and shape_of(other)[at] == old:
            other.type.tensor_type.shape.dim[at].dim_value = new


def _unary(part: Part) -> None:
    """A function of an element between two nodes."""
    value = part.chance.choice(part.floats())
    part.instead(value, part.new(part.function(), [value]))


def _moved(part: Part) -> None:
    """A rearrangement between two nodes that leaves the type as it is: a transpose and back, halves put together."""
    value = part.chance.choice(part.floats(2))
    rank, way = len(shape_of(part.types[value])), part.chance.randrange(4)
    axis = part.chance.randrange(rank)
    if way == 0:
        order = part.chance.sample(range(rank), rank)
        turned = part.new(part.function(), [part.new("Transpose", [value], perm=order)])
        result = part.new("Transpose", [turned], perm=[order.index(at) for at in range(rank)])
    elif way == 1:
        size = shape_of(part.types[value])[axis]
        cut, axes = part.chance.randint(0, max(size - 1, 0)), part.held(np.array([axis]))
        ends = [part.held(np.array([at])) for at in (0, cut, 2**31)]
        first, last = (part.new("Slice", [value, *pair, axes]) for pair in (ends[:2], ends[1:]))
        result = part.new("Concat", [last, first], axis=axis)
    elif way == 2:
        flat = part.new("Reshape", [value, part.held(np.array([-1]))])
        result = part.new("Reshape", [flat, part.held(np.array(shape_of(part.types[value])))])
    else:
        pads = np.zeros(2 * rank, np.int64)
        pads[axis], pads[rank + axis] = part.chance.choice(((1, -1), (2, -2), (-1, 1))) if axis else (1, -1)
        result = part.new("Pad", [value, part.held(pads)], mode="constant")
    part.instead(value, result)


def _reduced(part: Part) -> None:
    """A statistic of some axes that goes back into what it is of: squeeze and excitation, norms, softmax."""
    value = part.chance.choice(part.floats(2))
    rank = len(shape_of(part.types[value]))
    if part.chance.random() < 0.3:
        axis = part.chance.randrange(-1, rank)
        part.instead(value, part.new(part.chance.choice(("Softmax", "LogSoftmax")), [value], axis=axis))
        return
    axes = sorted(part.chance.sample(range(rank), part.chance.randint(1, rank - 1)))
    op = part.chance.choice(REDUCED)
    if part.opset >= AXES_READ or op == "ReduceSum":
        found = part.new(op, [value, part.held(np.array(axes))], keepdims=1)
    else:
        found = part.new(op, [value], keepdims=1, axes=axes)
    bounded = part.new(part.chance.choice(("Sigmoid", "Tanh", "Identity")), [found])
    part.instead(value, part.new(part.chance.choice(BINARY[:5]), [value, bounded]))


def _shared(part: Part) -> None:
    """Another value of the same type in the place of one that a node reads: residuals, values read twice."""
    node = part.chance.choice(part.graph.node)
    at = part.chance.randrange(len(node.input))
    old = part.types.get(node.input[at])
    if old is not None:
        alike = [name for name in part.types if part.types[name].type == old.type and name not in node.output]
        node.input[at] = part.chance.choice(alike)


def _output(part: Part) -> None:
    """One more output: a value from within, or one that is an output already."""
    name = part.chance.choice(sorted(set(part.types) - {one.name for one in part.graph.output}))
    if name not in {one.name for one in part.graph.input}:
        part.graph.output.append(copy.deepcopy(part.types[name]))


def _weights(part: Part) -> None:
    """Weights with zeros, of few values, large, or all alike."""
    found = [one for one in part.graph.initializer if one.data_type == TensorProto.FLOAT and np.prod(one.dims) > 1]
    tensor = part.chance.choice(found)
    array = numpy_helper.to_array(tensor).copy()
    random = np.random.default_rng(part.chance.randrange(2**32))
    match part.chance.randrange(6):
        case 0:
            array[random.random(array.shape) < part.chance.choice((0.5, 0.9, 0.99))] = 0
        case 1:
            array[random.random(len(array)) < 0.5] = 0
        case 2:
            array = np.round(array / (np.abs(array).max() + 1e-9) * 3) / np.float32(3)
        case 3:
            array *= part.chance.choice((1e-3, 30.0))
        case 4:
            array[:] = array.flat[0]
        case _:
            array[:] = array[:1]
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))


def _joined(part: Part) -> None:
    """Two values of one type side by side, and a part of that."""
    value = part.chance.choice(part.floats(1))
    alike = [name for name in part.types if part.types[name].type == part.types[value].type]
    axis = part.chance.randrange(len(shape_of(part.types[value])))
    joined = part.new("Concat", [value, part.chance.choice(alike)], axis=axis)
    halves = part.chance.random() < 0.5
    if halves:
        number = {"num_outputs": 2} if part.opset >= AXES_READ else {}
        name = part.new("Split", [joined], axis=axis, **number)
        part.graph.node[-1].output.append(f"{name}_second")
        part.instead(value, f"{name}_second" if part.chance.random() < 0.5 else name)
    else:
        part.graph.output.append(helper.make_tensor_value_info(joined, TensorProto.FLOAT, None))


CHANGES: tuple[Callable[[Part], None], ...] = (
    *(_function, _window, _window, _size, _size, _unary, _moved, _moved),
    *(_reduced, _reduced, _shared, _output, _weights, _weights, _joined),
)
Feeds = dict[str, np.ndarray]


def drawn(number: int) -> tuple[str, bytes, dict[str, Any], list[Feeds]]:
    """The network's name, the part, options to compile it with, and inputs."""
    chance = random.Random(number)
    part = None
    while part is None:
        part = part_drawn(chance)
    for _ in range(chance.randint(0, 5)):
        part = after(part, chance.choice(CHANGES)) or part
    asked = _options(part, chance)
    return part.name, bytes(part.model.SerializeToString()), asked, [_feeds(part, number, at, asked) for at in range(2)]


def part_drawn(chance: random.Random) -> Part | None:
    """A part of a network as it is; None for one of too many weights, without inputs, or of sizes that data decide."""
    name, options = chance.choice(NETWORKS)
    made = part_of(network(name, tuple(sorted(options.items()))), chance)
    if sum(int(np.prod(one.dims)) for one in made.graph.initializer) > MOST_ELEMENTS or not made.graph.input:
        return None
    return _sensible(Part(name, made, chance))


def after(part: Part, change: Callable[[Part], None]) -> Part | None:
    """The part after a change; None where that cannot be made, or makes no sense."""
    tried = Part(part.name, copy.deepcopy(part.model), part.chance, part.types)
    try:
        change(tried)
        tried.order()
    except (IndexError, ValueError):  # there is no such node, or no such axis
        return None
    return _sensible(tried)


def _sensible(part: Part) -> Part | None:
    try:
        part.infer()
    except (shape_inference.InferenceError, KeyError, RuntimeError):
        return None
    return part if all(size > 0 for one in part.types.values() for size in shape_of(one)) else None


def _options(part: Part, chance: random.Random) -> dict[str, Any]:
    """Precision, lanes, a scheduler, rules left out, an open batch, states, or several devices."""
    asked: dict[str, Any] = {"precision": chance.choice(("fp32", "fp32", "fp32", "bf16", "auto"))}
    asked["threads"] = chance.choice((1, 2))
    asked["seed"] = chance.randrange(100)
    way = chance.random()
    if way < 0.2 and _open(part):
        asked["dims"] = {BATCH: {"min": 1, "opt": chance.choice((1, 2, 3)), "max": chance.choice((3, 4, 6))}}
    elif way < 0.4 and (pairs := _pairs(part, chance)):
        asked["carry"] = pairs
    elif way < 0.5:
        asked |= {"devices": ["cpu:0", "cpu:1"], "objective": "throughput", "precision": "fp32"}
        del asked["threads"]
    elif way < 0.6:
        asked["weights"] = "ready"
    return asked


def _open(part: Part) -> bool:
    """Names the outermost axis of inputs of which it is 1, where the graph still makes sense."""
    tried = copy.deepcopy(part.model)
    for one in tried.graph.input:
        if shape_of(one)[:1] == (1,):
            one.type.tensor_type.shape.dim[0].dim_param = BATCH
    if tried == part.model:
        return False
    for one in tried.graph.output:
        one.type.tensor_type.ClearField("shape")
    part.model = tried
    return True


def _pairs(part: Part, chance: random.Random) -> dict[str, str]:
    """Outputs that are inputs of the next run: those of one type."""
    inputs = {one.name: one for one in part.graph.input}
    found: dict[str, str] = {}
    for one in part.graph.output:
        alike = [name for name, other in inputs.items() if other.type == one.type and name not in found.values()]
        if alike and one.name not in inputs and len(found) < len(inputs) - 1:
            found[one.name] = chance.choice(alike)
    return found


def _feeds(part: Part, number: int, at: int, asked: Mapping[str, Any]) -> Feeds:
    random = np.random.default_rng((number, at))
    low, high = (asked["dims"][BATCH][end] for end in ("min", "max")) if "dims" in asked else (1, 1)
    batch = int(random.integers(low, high + 1))
    found: Feeds = {}
    for one in part.graph.input:
        dims = one.type.tensor_type.shape.dim
        shape = [batch if dim.dim_param else dim.dim_value for dim in dims]
        dtype = helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        drawn = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        found[one.name] = np.asarray(drawn).astype(dtype)
    return found
