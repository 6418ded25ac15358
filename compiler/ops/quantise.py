"""Linear quantisation: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.

`y = saturate(round(x / scale) + zero)`, rounding half to even, computed in f32; scale and zero point belong to the
tensor, to one index of an axis, or to one block of an axis. What becomes a small float is not rounded to a whole number
first: `y = round(x / scale + zero)`.
"""

from __future__ import annotations

import numpy as np
import onnx

from compiler.ir import arithmetic
from compiler.ir.expr import Expr, Load, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.small import FLOATS
from compiler.ir.tensor import DType, Shape, TensorType, extent
from compiler.ops.arrays import alike, as_array
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.pieces import InPieces, Pieces, Region, regions
from compiler.ops.slots import arrays_at, given, input_slots, optional, output_slots, present
from compiler.ops.traits import Trait

INTEGERS = (DType.I8, DType.U8, DType.I16, DType.U16, DType.I4, DType.U4, DType.I2, DType.U2)
QUANTISED = (*INTEGERS, *(dtype for dtype in FLOATS if dtype is not DType.F8E8M0))


def _dtype_attr(node: Node) -> DType | None:
    """The dtype that `output_dtype` names, None for none. Raises Unsupported for one that tensors cannot have here."""
    code = node.attrs.get("output_dtype", 0)
    if not code:
        return None
    assert isinstance(code, int)
    try:
        return DType.of(onnx.helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise Unsupported(
            f"output_dtype {code} is not supported", "use integers or floats of at most 16 bits"
        ) from None


def _per(node: Node, x: Shape, scale: Shape) -> tuple[int, int] | None:
    """(axis, block) of the scale; None when it belongs to the whole tensor. Raises Unsupported when it does not fit."""
    if scale in ((), (1,)):
        return None
    axis = axis_of(node, len(x), default=1)
    block = node.attrs.get("block_size", 0)
    assert isinstance(block, int)
    if not block and scale == (x[axis],):
        return axis, 1
    if block and len(scale) == len(x) and scale == (*x[:axis], -(-extent(x[axis]) // block), *x[axis + 1 :]):
        return axis, block
    reason = f"a scale of shape {list(scale)} does not fit axis {axis} of a tensor of shape {list(x)}"
    raise Unsupported(reason, "give one for the tensor, for each index of the axis, or for each block of block_size")


def _scale_index(node: Node, x: TensorType, scale: TensorType, index: tuple[Index, ...]) -> tuple[Index, ...]:
    per = _per(node, x.dims, scale.dims)
    if per is None:
        return (Index.of(0),) * scale.rank
    axis, block = per
    if (scale.rank == 1 and x.rank != 1) or (block == 1 and scale.rank == 1):
        return (index[axis],)
    return (*index[:axis], index[axis] // block, *index[axis + 1 :])


def _size(type: TensorType) -> int | Shape:
    """What is equal where two types have equally many elements: their number, or the shape where it has symbols."""
    return type.elements if type.is_static else type.shape


def _check_zero(types: Types) -> None:
    if present(types, 2) and _size(given(types, 2)) != _size(given(types, 1)):
        raise Unsupported(
            f"the zero point {given(types, 2)} does not fit the scale {given(types, 1)}", "give both the same shape"
        )


def _infer_quantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, scale = given(types, 0), given(types, 1)
    _per(node, x.shape, scale.shape)
    _check_zero(types)
    dtype = given(types, 2).dtype if present(types, 2) else _dtype_attr(node) or DType.U8
    if dtype not in QUANTISED:
        raise Unsupported(f"quantisation to {dtype} is not supported", "use integers or small floats of ONNX's schema")
    return (TensorType(dtype, x.shape),)


def _map(node: Node, types: Types, outputs: tuple[TensorType, ...], axes: tuple[Axis, ...], value: Expr) -> Kernel:
    block = Block((), (value,), (Store("y0", at(axes)),))
    return Kernel(node.op, input_slots(types), output_slots(outputs), (block,), shared=axes)


def _define_quantize(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x, scale = given(types, 0), given(types, 1)
    axes = axes_for(x.dims)
    index = at(axes)
    place = _scale_index(node, x, scale, index)
    f32, target = DType.F32, outputs[0].dtype
    divided = call("div", cast(Load("x0", index, x.dtype), f32), cast(Load("x1", place, scale.dtype), f32))
    rounded = divided if target in FLOATS else call("round", divided)
    if present(types, 2):
        zero = given(types, 2)
        rounded = call("add", rounded, cast(Load("x2", _reshaped(place, zero), zero.dtype), f32))
    return _map(node, types, outputs, axes, cast(rounded, target, saturate=_saturates(node, target)))


def _saturates(node: Node, target: DType) -> bool:
    """Integers always do; small floats unless the attribute says that they do not."""
    return target not in FLOATS or bool(node.attrs.get("saturate", 1))


def _reshaped(place: tuple[Index, ...], type: TensorType) -> tuple[Index, ...]:
    """The index of the scale for its zero point, which may be [1] beside []."""
    return place if len(place) == type.rank else (Index.of(0),) * type.rank


def _repeated(node: Node, array: np.ndarray, x: np.ndarray, region: Region | None = None) -> np.ndarray:
    """For references: a scale or zero point spread over the shape of x, or over a region of it."""
    per = _per(node, x.shape, array.shape)
    if per is None:
        return array.reshape(())
    region = region or tuple(slice(0, extent) for extent in x.shape)
    axis, block = per
    if array.ndim == 1 and block == 1:
        return array[region[axis]].reshape(-1, *(1,) * (x.ndim - axis - 1))
    places = alike(np.arange(region[axis].start, region[axis].stop) // block, array)
    whole = np.take(array, places, axis=axis)
    return whole[tuple(slice(None) if at == axis else region[at] for at in range(whole.ndim))]


def _reference_quantize(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale = arrays_at(arrays, 0, 1)
    zero = optional(arrays, 2)
    dtype = DType.of(zero.dtype) if zero is not None else _dtype_attr(node) or DType.U8
    # In f32 whatever x is: ONNX divides in f32, and a finer quotient would fall on the other side of some ties.
    divided = x.astype(np.float32) / _repeated(node, scale, x).astype(np.float32)
    rounded = divided if dtype in FLOATS else np.rint(divided)
    if zero is not None:
        rounded = rounded + _repeated(node, zero, x).astype(np.float32)
    if dtype in FLOATS:
        return (arithmetic.cast(rounded, dtype, _saturates(node, dtype)),)
    return (np.clip(rounded, *arithmetic.bounds(dtype)).astype(dtype.numpy),)


def _infer_dequantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, scale = given(types, 0), given(types, 1)
    _per(node, x.shape, scale.shape)
    _check_zero(types)
    dtype = _dtype_attr(node) or scale.dtype
    if not dtype.is_float or dtype.is_small:
        raise Unsupported(f"dequantisation to {dtype} is not supported", "use a float")
    return (TensorType(dtype, x.shape),)


def _define_dequantize(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """(x - zero) * scale; the difference in i32, of small floats in f32."""
    x, scale = given(types, 0), given(types, 1)
    axes = axes_for(x.dims)
    index = at(axes)
    place = _scale_index(node, x, scale, index)
    exact = DType.F32 if x.dtype in FLOATS else DType.I32
    difference = cast(Load("x0", index, x.dtype), exact)
    if present(types, 2):
        zero = given(types, 2)
        difference = call("sub", difference, cast(Load("x2", _reshaped(place, zero), zero.dtype), exact))
    kind = DType.F64 if scale.dtype is DType.F64 else DType.F32
    value = call("mul", cast(difference, kind), cast(Load("x1", place, scale.dtype), kind))
    return _map(node, types, outputs, axes, cast(value, outputs[0].dtype))


def _pieces_dequantize(node: Node, arrays: Arrays) -> Pieces:
    """In float64, some rows at a time: weights of a gigabyte are eight of it as whole numbers."""
    x, scale = arrays_at(arrays, 0, 1)
    zero = optional(arrays, 2)
    exact = np.float64 if DType.of(x.dtype) in FLOATS else np.int64
    precise = scale if scale.dtype.itemsize >= 4 else scale.astype(np.float32)

    def part(region: Region) -> np.ndarray:
        less = 0 if zero is None else _repeated(node, zero, x, region).astype(exact)
        return as_array((x[region].astype(exact) - less) * _repeated(node, precise, x, region))

    return Pieces(x.shape, np.dtype(np.float64), ((region, part(region)) for region in regions(x.shape, 1)))


def _infer_dynamic(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    outputs = (TensorType(DType.U8, x.shape), TensorType(DType.F32, ()), TensorType(DType.U8, ()))
    return outputs[: len(node.outputs)]


def _define_dynamic(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """Scale and zero point of the range of x, 0 included, over 0 .. 255; a range of one point has scale 1.

    The bytes are a map of x and of both as they are stored, so that fusion may take it away.
    """
    x = given(types, 0)
    axes = axes_for(x.dims)
    index = at(axes)
    f32, scalar, byte = DType.F32, TensorType(DType.F32, ()), TensorType(DType.U8, ())
    zero = number(0.0, f32)
    scale, point = ("t2", "y1")[len(outputs) > 1], ("t3", "y2")[len(outputs) > 2]
    blocks = [
        Block((), (Load("x0", index, f32),), (Store(slot, ()),), axes, monoid, f32)
        for slot, monoid in (("t0", "min"), ("t1", "max"))
    ]
    low, high = call("min", Load("t0", (), f32), zero), call("max", Load("t1", (), f32), zero)
    step = call("div", call("sub", high, low), number(255.0, f32))
    start = call("round", call("div", call("sub", zero, low), Load(scale, (), f32)))
    rounded = call("round", call("div", Load("x0", index, f32), Load(scale, (), f32)))
    y = cast(call("add", rounded, cast(Load(point, (), DType.U8), f32)), DType.U8, saturate=True)
    blocks += [
        Block((), (nonzero(step),), (Store(scale, ()),)),
        Block((), (cast(start, DType.U8, saturate=True),), (Store(point, ()),)),
        Block(axes, (y,), (Store("y0", index),)),
    ]
    kinds = {"t0": scalar, "t1": scalar, scale: scalar, point: byte}
    temps = tuple(Slot(name, type) for name, type in kinds.items() if name.startswith("t"))
    return Kernel(node.op, input_slots(types), output_slots(outputs), tuple(blocks), temps)


def nonzero(step: Expr) -> Expr:
    """A scale, 1 in the place of 0."""
    return Where(call("eq", step, number(0.0, step.dtype)), number(1.0, step.dtype), step)


def _reference_dynamic(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    # In f32 for the same reason.
    x = x.astype(np.float32)
    low, high = (np.float32(float(find())) if x.size else np.float32(0) for find in (x.min, x.max))
    low, high = min(np.float32(0), low), max(np.float32(0), high)
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    y = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255).astype(np.uint8)
    return (y, np.asarray(scale, np.float32), np.asarray(zero))[: len(node.outputs)]


OPERATORS: tuple[Operator, ...] = (
    Operator("QuantizeLinear", _infer_quantize, _reference_quantize, _define_quantize, traits=Trait.QUANTISED),
    Operator(
        "DequantizeLinear", _infer_dequantize, InPieces(_pieces_dequantize), _define_dequantize, traits=Trait.QUANTISED
    ),
    Operator("DynamicQuantizeLinear", _infer_dynamic, _reference_dynamic, _define_dynamic, traits=Trait.QUANTISED),
)
