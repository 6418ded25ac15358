"""A TFLite program as TOSA: each int8 operator as operators of integers, with its scales as RESCALE or TABLE.

An operator of one int8 operand, elementwise, becomes a TABLE of what `compiler.accelerate.tflite.kernels` makes of each
of the 256 bytes. What sums products becomes CONV2D, DEPTHWISE_CONV2D or MATMUL in int32, and RESCALE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from compiler.accelerate.tflite.flatbuffer import Program, Step, Tensor
from compiler.accelerate.tosa import elementwise, moves, sums
from compiler.accelerate.tosa.execute import Graph
from compiler.accelerate.tosa.lowering import Lowering, NoForm
from compiler.accelerate.tosa.softmax import softmax
from compiler.accelerate.tosa.transposed import transpose_conv


class Lowered(NamedTuple):
    """A program in TOSA.

    names    of its tensors in the graph, by their number; none of a padding that windows state themselves
    of       by the name of each tensor in the graph, the program's result that it was made for
    refused  why operators have no form, by the number of their result; with any, the graph is of no use
    """

    graph: Graph
    names: Mapping[int, str]
    of: Mapping[str, str]
    refused: Mapping[int, str]


def lowered(program: Program) -> Lowered:
    """Each operator in turn."""
    lowering, of, refused = Lowering(program), dict[str, str](), dict[int, str]()
    for number in program.inputs:
        one = program.tensors[number]
        lowering.names[number] = lowering.writer.tensor(one.name, one.shape, one.dtype)
    inputs = [lowering.names[number] for number in program.inputs]
    for step in program.steps:
        number, before = step.outputs[0], len(lowering.writer.tensors)
        out = program.tensors[number]
        if number in lowering.folded:
            continue
        try:
            if (lower := LOWERINGS.get(step.kind)) is None:
                raise NoForm(f"there is no form of {step.kind} in TOSA")
            lowering.names[number] = lower(lowering, step, out)
        except NoForm as why:
            refused[number] = str(why)
            lowering.names[number] = lowering.writer.tensor(out.name, out.shape, out.dtype)
        of |= dict.fromkeys([*lowering.writer.tensors][before:], out.name)
    graph = lowering.writer.graph(inputs, [lowering.names[number] for number in program.outputs])
    return Lowered(graph, lowering.names, of, refused)


LOWERINGS: dict[str, Callable[[Lowering, Step, Tensor], str]] = {
    "ABS": elementwise.table,
    "ADD": elementwise.add("ADD"),
    "AVERAGE_POOL_2D": sums.average_pool,
    "BATCH_MATMUL": sums.batch_matmul,
    "CONCATENATION": moves.concat,
    "CONV_2D": sums.conv,
    "DEPTHWISE_CONV_2D": sums.depthwise,
    "FULLY_CONNECTED": sums.dense,
    "GELU": elementwise.table,
    "HARD_SWISH": elementwise.table,
    "LEAKY_RELU": elementwise.table,
    "LOGISTIC": elementwise.table,
    "MAX_POOL_2D": sums.max_pool,
    "MEAN": sums.mean,
    "MUL": elementwise.mul,
    "PAD": moves.pad,
    "PADV2": moves.pad,
    "PRELU": elementwise.prelu,
    "QUANTIZE": elementwise.requantise,
    "RELU": elementwise.relu,
    "RELU6": elementwise.relu,
    "RESHAPE": moves.reshape,
    "RESIZE_BILINEAR": moves.resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": moves.resize_nearest,
    "RSQRT": elementwise.table,
    "SOFTMAX": softmax,
    "STRIDED_SLICE": moves.strided_slice,
    "SUB": elementwise.add("SUB"),
    "TABLE": elementwise.given_table,
    "TANH": elementwise.table,
    "TRANSPOSE": moves.transpose,
    "TRANSPOSE_CONV": transpose_conv,
}
"""By TFLite's name."""
