"""Columns laid back into an image: Col2Im, the sum of overlapping blocks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from compiler.ir.expr import Expr, Load, Where, conjunction
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import TensorType
from compiler.ops import attributes
from compiler.ops.build import number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, output_slots
from compiler.ops.transposed import TransposedWindow
from compiler.ops.window import check_rank, ints


def _windows(node: Node, shape: tuple[int, ...]) -> tuple[TransposedWindow, ...]:
    """One for each spatial axis: `extent` counts blocks, `kernel` the elements of one, `outputs` the image's.

    `shape` is that of the columns, [N, C * elements of a block, blocks]. Raises Unsupported where they do not fit.
    """
    image, block = attributes.ints(node, "image_shape") or (), attributes.ints(node, "block_shape") or ()
    check_rank(len(image))
    rank = len(image)
    strides, dilations = ints(node.attrs.get("strides"), rank, 1), ints(node.attrs.get("dilations"), rank, 1)
    pads = ints(node.attrs.get("pads"), 2 * rank, 0)
    if len(block) != rank or min((*strides, *dilations, *block, *image)) < 1 or min(pads) < 0:
        reason = f"blocks {list(block)} of an image {list(image)}, strides {list(strides)}, pads {list(pads)}"
        raise Unsupported(reason, "give one positive number for each axis of the image")
    found = []
    for axis in range(rank):
        room = image[axis] + pads[axis] + pads[rank + axis] - (block[axis] - 1) * dilations[axis] - 1
        count = room // strides[axis] + 1
        found.append(TransposedWindow(count, block[axis], strides[axis], dilations[axis], pads[axis], image[axis]))
    fits = len(shape) == 3 and shape[1] % math.prod(block) == 0 and min(window.extent for window in found) > 0
    if not fits or shape[2] != math.prod(window.extent for window in found):
        raise Unsupported(
            f"columns of shape {list(shape)} are not those of an image {list(image)} in blocks {list(block)}",
            "give the shapes that the columns were made with",
        )
    return tuple(found)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    windows = _windows(node, x.dims)
    channels = x.dims[1] // math.prod(window.kernel for window in windows)
    return (TensorType(x.dtype, (x.dims[0], channels, *(window.outputs for window in windows))),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """Each element of the image gathers the columns that reach it."""
    x = given(types, 0)
    windows = _windows(node, x.dims)
    kernel = tuple(window.kernel for window in windows)
    nests = [window.nest(3 - len(windows) + place) for place, window in enumerate(windows)]
    batch, channel = Axis("n", x.dims[0]), Axis("c", outs[0].dims[1])
    row = Index.of(channel) * math.prod(kernel) + flatten(tuple(nest.weight for nest in nests), kernel)
    column = flatten(tuple(nest.read for nest in nests), tuple(window.extent for window in windows))
    value: Expr = Load("x0", (Index.of(batch), row, column), x.dtype)
    condition = conjunction([nest.condition for nest in nests if nest.condition is not None])
    if condition is not None:
        value = Where(condition, value, number(0, x.dtype))
    target = (Index.of(batch), Index.of(channel), *(nest.output for nest in nests))
    taps, kind = tuple(nest.tap for nest in nests), accumulator_of(x.dtype)
    block = Block((), (value,), (Store("y0", target),), taps, "sum", kind)
    shared = (batch, channel, *(axis for nest in nests for axis in nest.shared))
    return Kernel("Col2Im", input_slots(types), output_slots(outs), (block,), shared=shared)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Every tap adds its columns to the padded image, as a strided slice of it."""
    (x,) = arrays_at(arrays, 0)
    windows = _windows(node, x.shape)
    blocks = [window.extent for window in windows]
    parts: Any = x.reshape(x.shape[0], -1, *(window.kernel for window in windows), *blocks)
    room = [max((w.extent - 1) * w.stride + w.reach, w.before + w.outputs) for w in windows]
    image = np.zeros_like(x, shape=(*parts.shape[:2], *room))
    for tap in itertools.product(*(range(window.kernel) for window in windows)):
        places = tuple(
            slice(at * w.dilation, at * w.dilation + (w.extent - 1) * w.stride + 1, w.stride)
            for at, w in zip(tap, windows, strict=True)
        )
        image[:, :, *places] += parts[:, :, *tap]
    kept = tuple(slice(w.before, w.before + w.outputs) for w in windows)
    return (image[:, :, *kept],)


OPERATORS: tuple[Operator, ...] = (
    Operator("Col2Im", _infer, _reference, _define, ((1, "image_shape"), (2, "block_shape")), opsets=(18, 28)),
)
