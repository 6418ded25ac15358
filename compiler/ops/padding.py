"""Pad: with a constant, or with elements of the tensor itself."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load, Where, conjunction, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import Shape, TensorType, extent
from compiler.ops.attributes import axes_of, ints, number_of
from compiler.ops.build import number, view_kernel
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given

MODES = ("constant", "reflect", "edge", "wrap")


def _pads(node: Node, dims: Shape) -> tuple[tuple[int, int], ...]:
    """Elements added (negative: cut off) before and after, on each axis."""
    pads, axes = ints(node, "pads") or (), axes_of(node, len(dims))
    axes = tuple(range(len(dims))) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads do not fit {len(axes)} axes", "give a begin and an end for each axis")
    found = [(0, 0)] * len(dims)
    for position, axis in enumerate(axes):
        found[axis] = (pads[position], pads[position + len(axes)])
    return tuple(found)


def _kept(extent: int, pad: tuple[int, int]) -> int:
    """How many elements of an axis negative pads leave."""
    return extent + min(pad[0], 0) + min(pad[1], 0)


def _mode(node: Node) -> str:
    mode = node.attrs.get("mode", "constant")
    if not isinstance(mode, str) or mode not in MODES:
        raise Unsupported(f"mode is {mode!r}", f"use {', '.join(MODES[:-1])} or {MODES[-1]}")
    return mode


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, mode = given(types, 0), _mode(node)
    pads = _pads(node, x.shape)
    for dim, (begin, end) in zip(x.shape, pads, strict=True):
        if (begin, end) == (0, 0):
            continue
        whole = extent(dim)
        kept = _kept(whole, (begin, end))
        if kept < 0:
            raise Unsupported(f"pads {(begin, end)} cut off more than {whole} elements", "bind larger dimensions")
        room = {"constant": None, "edge": None if kept else 0, "reflect": kept - 1, "wrap": kept}[mode]
        if room is not None and max(begin, end, 0) > max(room, 0):
            reason = f"pads {(begin, end)} are wider than {kept} elements can fill by {mode}"
            raise Unsupported(reason, "pad in several steps, or bind larger dimensions")
    padded = zip(x.shape, pads, strict=True)
    return (TensorType(x.dtype, tuple(dim if pad == (0, 0) else extent(dim) + sum(pad) for dim, pad in padded)),)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Negative pads cut first; the others repeat what is left, as in ONNX Runtime (ONNX does not say)."""
    (x,) = arrays_at(arrays, 0)
    if not x.ndim:
        return (x,)
    pads = _pads(node, x.shape)
    ends = zip(x.shape, pads, strict=True)
    left = x[tuple(slice(max(-begin, 0), extent - max(-end, 0)) for extent, (begin, end) in ends)]
    grow = [(max(begin, 0), max(end, 0)) for begin, end in pads]
    if _mode(node) == "constant":
        return (np.pad(left, grow, constant_values=number_of(node, "constant_value", 0)),)
    return (np.pad(left, grow, mode=_mode(node)),)  # type: ignore[call-overload]


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, mode = given(types, 0), _mode(node)
    pads = _pads(node, x.dims)

    def element(axes: tuple[Axis, ...]) -> Expr:
        if mode != "constant":
            return _repeated(axes, pads, x, mode)
        index = tuple(Index.of(axis) - begin for axis, (begin, _) in zip(axes, pads, strict=True))
        tests = (inside(position, extent) for position, extent in zip(index, x.dims, strict=True))
        condition, load = conjunction([test for test in tests if test is not None]), Load("x0", index, x.dtype)
        return (
            load if condition is None else Where(condition, load, number(number_of(node, "constant_value", 0), x.dtype))
        )

    return view_kernel("Pad", types[:1], outs[0], element)


def _repeated(axes: tuple[Axis, ...], pads: tuple[tuple[int, int], ...], x: TensorType, mode: str) -> Expr:
    """The element that stands before, in or after what is left of the tensor: axis by axis, each an affine index."""

    def choose(axis: int, chosen: tuple[Index, ...]) -> Expr:
        if axis == x.rank:
            return Load("x0", chosen, x.dtype)
        begin, cut = max(pads[axis][0], 0), max(-pads[axis][0], 0)
        here, last = Index.of(axes[axis]) - begin, _kept(x.dims[axis], pads[axis]) - 1
        low, high = here.range

        def rest(place: Index) -> Expr:
            return choose(axis + 1, (*chosen, place + cut))

        value = rest(here)
        if high > last:
            after = {"reflect": here * -1 + 2 * last, "edge": Index.of(last), "wrap": here - last - 1}[mode]
            value = _else(inside(here - low, last + 1 - low), value, rest(after))
        if low < 0:
            before = {"reflect": here * -1, "edge": Index.of(0), "wrap": here + last + 1}[mode]
            value = _else(inside(here, high + 1), value, rest(before))
        return value

    return choose(0, ())


def _else(condition: Expr | None, value: Expr, otherwise: Expr) -> Expr:
    return value if condition is None else Where(condition, value, otherwise)


OPERATORS: tuple[Operator, ...] = (
    Operator("Pad", _infer, _reference, _define, ((1, "pads"), (2, "constant_value"), (3, "axes"))),
)
