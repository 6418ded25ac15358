"""The windows of a transposed convolution, as a gather: which taps of which inputs reach an output."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.expr import Apply, Const, Expr, Position, conjunction, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported
from compiler.ops.window import OUTPUT_NAMES, TAP_NAMES, check_rank, ints


@dataclass(frozen=True)
class Nest:
    """The loops of one spatial axis and what they index."""

    shared: tuple[Axis, ...]
    tap: Axis
    read: Index
    weight: Index
    output: Index
    condition: Expr | None


@dataclass(frozen=True)
class TransposedWindow:
    """One spatial axis: input i adds tap t to output i * stride + t * dilation - before."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    outputs: int

    @property
    def reach(self) -> int:
        """Output positions from the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def nest(self, place: int) -> Nest:
        """The loops; `place` is the position among three spatial axes, which gives their names.

        Where stride divides kernel and output, an output is stride * block + phase, and only the kernel / stride taps
        of its phase are visited: no product is wasted and no remainder has to be tested.
        """
        name, tap_name = OUTPUT_NAMES[place], TAP_NAMES[place]
        if self.stride > 1 and self.dilation == 1 and self.kernel % self.stride == self.outputs % self.stride == 0:
            return self._by_phase(name, tap_name)
        output, tap = Axis(name, self.outputs), Axis(tap_name, self.kernel)
        distance = Index.of(output) + self.before - Index.of(tap) * self.dilation
        read = distance // self.stride
        conditions = [inside(read, self.extent)]
        if not (distance % self.stride).is_const:
            conditions.insert(0, Apply("eq", (Position(distance % self.stride), Const(0, DType.I64))))
        condition = conjunction([part for part in conditions if part is not None])
        return Nest((output,), tap, read, Index.of(tap), Index.of(output), condition)

    def _by_phase(self, name: str, tap_name: str) -> Nest:
        block, phase = Axis(name, self.outputs // self.stride), Axis(f"{name}p", self.stride)
        tap = Axis(tap_name, self.kernel // self.stride)
        shifted = Index.of(phase) + self.before
        read = Index.of(block) + shifted // self.stride - Index.of(tap)
        weight = Index.of(tap) * self.stride + shifted % self.stride
        output = Index.of(block) * self.stride + phase
        return Nest((block, phase), tap, read, weight, output, inside(read, self.extent))


def transposed_windows(node: Node, extents: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[TransposedWindow, ...]:
    """The windows of a ConvTranspose, from strides, dilations, pads, auto_pad, output_padding and output_shape.

    Raises Unsupported unless there are one to three axes and every extent is positive.
    """
    rank = len(extents)
    check_rank(rank)
    strides = ints(node.attrs.get("strides"), rank, 1)
    dilations = ints(node.attrs.get("dilations"), rank, 1)
    extra = ints(node.attrs.get("output_padding"), rank, 0)
    pads = ints(node.attrs.get("pads"), 2 * rank, 0)
    mode = node.attrs.get("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad is {mode!r}", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    if min((*strides, *dilations, *kernel)) < 1:
        raise Unsupported("a stride, dilation or kernel extent is below 1", "export with positive ones")
    wanted = node.attrs.get("output_shape")
    if isinstance(wanted, tuple) and len(wanted) == rank + 2:
        wanted = wanted[2:]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(extent * stride for extent, stride in zip(extents, strides, strict=True))
    sizes = ints(wanted, rank, -1)
    found = []
    for axis in range(rank):
        whole = strides[axis] * (extents[axis] - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        if sizes[axis] >= 0:
            total = max(whole - sizes[axis], 0)
            before, outputs = (total // 2 if mode == "SAME_UPPER" else total - total // 2), sizes[axis]
        else:
            before, after = (pads[axis], pads[rank + axis]) if mode == "NOTSET" else (0, 0)
            outputs = whole - before - after
        if outputs < 1:
            raise Unsupported(f"spatial axis {axis} has {outputs} outputs", "bind larger input dimensions")
        found.append(TransposedWindow(extents[axis], kernel[axis], strides[axis], dilations[axis], before, outputs))
    return tuple(found)
