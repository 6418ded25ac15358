"""Sliding windows: how convolutions and pools walk over the spatial axes of their input."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.expr import Apply, Cast, Const, Expr, Position, conjunction, inside
from compiler.ir.graph import Attr, Node
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

OUTPUT_NAMES = ("oz", "oy", "ox")
TAP_NAMES = ("q", "r", "s")
"""Names of output positions and of window positions; the last is the innermost axis."""


@dataclass(frozen=True)
class Window:
    """One spatial axis: tap t of output o reads input position o * stride + t * dilation - before."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    outputs: int

    @property
    def reach(self) -> int:
        """Input positions from the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def at(self, output: Index | Axis, tap: Index | Axis) -> Index:
        """The input's position that a tap reads for an output; it may lie in the padding, outside the input."""
        return Index.of(output) * self.stride + Index.of(tap) * self.dilation - self.before


def ints(value: Attr, count: int, default: int) -> tuple[int, ...]:
    """An attribute that holds one int for each of `count` axes, or nothing.

    Raises Unsupported for another number of them.
    """
    if value is None:
        return (default,) * count
    if not isinstance(value, tuple) or len(value) != count or not all(isinstance(item, int) for item in value):
        raise Unsupported(f"expected {count} integers, got {value!r:.80}", "give one for each spatial axis")
    return tuple(int(item) for item in value if isinstance(item, int))


def windows(node: Node, extents: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Window, ...]:
    """The windows of a Conv or a pool over an input of spatial `extents`.

    From strides, dilations, pads, auto_pad and ceil_mode.

    Raises Unsupported unless there are one to three axes, steps are positive and the window fits into the padded input.
    """
    rank = len(extents)
    check_rank(rank)
    if len(kernel) != rank:
        raise Unsupported(f"the kernel has {len(kernel)} axes, the input {rank}", "give one for each spatial axis")
    strides = ints(node.attrs.get("strides"), rank, 1)
    dilations = ints(node.attrs.get("dilations"), rank, 1)
    if min((*strides, *dilations, *kernel)) < 1:
        raise Unsupported("a stride, dilation or kernel extent is below 1", "export with positive ones")
    found = []
    for axis in range(rank):
        before, after, outputs = _placed(node, axis, rank, extents[axis], strides[axis], dilations[axis], kernel[axis])
        if outputs < 1:
            reason = f"the window of axis {axis} does not fit its padded input of {extents[axis] + before + after}"
            raise Unsupported(reason, "bind larger input dimensions")
        found.append(Window(extents[axis], kernel[axis], strides[axis], dilations[axis], before, after, outputs))
    return tuple(found)


def check_rank(rank: int) -> None:
    """Raises Unsupported unless there are one to three spatial axes."""
    if not 1 <= rank <= 3:
        raise Unsupported(f"{rank} spatial axes are not supported", "use one to three spatial axes")


def _placed(
    node: Node, axis: int, rank: int, extent: int, stride: int, dilation: int, kernel: int
) -> tuple[int, int, int]:
    """Padding before and after one axis, and the number of outputs."""
    mode = node.attrs.get("auto_pad", "NOTSET")
    reach = (kernel - 1) * dilation + 1
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        outputs = -(-extent // stride)
        total = max((outputs - 1) * stride + reach - extent, 0)
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        return before, total - before, outputs
    if mode not in ("NOTSET", "VALID"):
        raise Unsupported(f"auto_pad is {mode!r}", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = ints(node.attrs.get("pads"), 2 * rank, 0) if mode == "NOTSET" else (0,) * (2 * rank)
    before, after = pads[axis], pads[rank + axis]
    if before < 0 or after < 0:
        raise Unsupported(f"pads {list(pads)} are negative", "cut the input by a Slice instead")
    room = extent + before + after - reach
    if room < 0:
        return before, after, 0
    if not node.attrs.get("ceil_mode", 0):
        return before, after, room // stride + 1
    outputs = -(-room // stride) + 1
    # A window that would start beyond the input and its left padding is not counted.
    return before, after, outputs - ((outputs - 1) * stride >= extent + before)


def output_axes(extents: tuple[int, ...]) -> tuple[Axis, ...]:
    """Parallel axes of a result of spatial `extents`, named by the last of OUTPUT_NAMES."""
    return tuple(Axis(name, extent) for name, extent in zip(OUTPUT_NAMES[-len(extents) :], extents, strict=True))


def tap_axes(extents: tuple[int, ...]) -> tuple[Axis, ...]:
    """Axes over the taps of a kernel of spatial `extents`, named by the last of TAP_NAMES."""
    return tuple(Axis(name, extent) for name, extent in zip(TAP_NAMES[-len(extents) :], extents, strict=True))


def within(positions: tuple[Index, ...], extents: tuple[int, ...]) -> Expr | None:
    """The condition that a position lies in a tensor; None where it always does."""
    parts = [inside(position, extent) for position, extent in zip(positions, extents, strict=True)]
    return conjunction([part for part in parts if part is not None])


def taps_inside(window: Window, output: Axis, low: int, high: int, dtype: DType) -> Expr | int:
    """How many taps of an output read positions in low .. high - 1; an int where that is the same for all outputs."""
    start = Index.of(output) * window.stride - window.before
    least, most = start.range
    if least >= low and most + window.reach <= high:
        return window.kernel
    first = (Index.of(low) - start + (window.dilation - 1)) // window.dilation
    last = (Index.of(high) - start + (window.dilation - 1)) // window.dilation
    count = Apply("sub", (_clamped(last, window.kernel), _clamped(first, window.kernel)))
    return Cast(count, dtype)


def _clamped(index: Index, high: int) -> Expr:
    """An index limited to 0 .. high, as a number."""
    expr: Expr = Position(index)
    if index.range[0] < 0:
        expr = Apply("max", (expr, Const(0, DType.I64)))
    if index.range[1] > high:
        expr = Apply("min", (expr, Const(high, DType.I64)))
    return expr
