"""Kernels that read their first operand through a sliding window: convolution, pooling, with any geometry.

Output position o and tap t read the input at o * stride + t * dilation, shifted by the padding. Where an expression
mentions o and t in that combination alone, it is a function of one **swept** position P = o * stride + t * dilation
instead. The operand, with its padding and whatever was fused into it, is then an image over swept positions. It can be
computed once, however many windows look at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from compiler.ir.expr import Expr
from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod


@dataclass(frozen=True)
class Sweep:
    """One spatial axis: `position` = `output` * stride + `tap` * dilation."""

    position: Axis
    output: Axis
    tap: Axis
    stride: int
    dilation: int


@dataclass(frozen=True)
class Image:
    """An operand over swept positions: `value` has `sweeps`' positions instead of outputs and taps, `others` as is."""

    value: Expr
    sweeps: tuple[Sweep, ...]
    others: tuple[Axis, ...]


def as_image(value: Expr, outputs: Sequence[Axis], taps: Sequence[Axis]) -> Image | None:
    """The operand as an image, or None where an output and a tap are added in another way than a window's.

    `outputs` are the axes along which a window moves or may move, `taps` those of the reduction. A tap that is added
    to no output stays among `others` (channels), and so does an output without a tap.
    """
    sweeps: list[Sweep] = []
    for tap in taps:
        pairs = {(output, *pair) for output in outputs if (pair := _pair(value, output, tap)) is not None}
        if not pairs:
            continue
        if len(pairs) > 1:
            return None
        output, stride, dilation = pairs.pop()
        if any(sweep.output == output for sweep in sweeps):
            return None
        extent = (output.extent - 1) * stride + (tap.extent - 1) * dilation + 1
        sweeps.append(Sweep(Axis(f"{output.name}{tap.name}", extent), output, tap, stride, dilation))
    for sweep in sweeps:
        swept = _swept(value, sweep)
        if swept is None:
            return None
        value = swept
    moved = {axis for sweep in sweeps for axis in (sweep.output, sweep.tap)}
    others = tuple(axis for axis in (*outputs, *taps) if axis in value.axes and axis not in moved)
    return Image(value, tuple(sweeps), others)


def _pair(value: Expr, output: Axis, tap: Axis) -> tuple[int, int] | None:
    """Stride and dilation, when some load's index adds up multiples of both axes."""
    for index in _linear(value):
        o, t = index.coefficient(output) or 0, index.coefficient(tap) or 0
        if o > 0 and t > 0:
            common = gcd(o, t)
            return o // common, t // common
    return None


def _linear(value: Expr) -> Iterator[Index]:
    for load in value.loads:
        yield from load.index


def _swept(value: Expr, sweep: Sweep) -> Expr | None:
    """The expression over the swept position, or None where output and tap occur apart from one another."""
    output, tap = sweep.output, sweep.tap
    failed = False

    def index_of(index: Index) -> Index:
        nonlocal failed
        if not index.axes & {output, tap}:
            return index
        total = Index((), index.const)
        o = t = 0
        for atom, factor in index.terms:
            if atom == output:
                o = factor
            elif atom == tap:
                t = factor
            elif isinstance(atom, FloorDiv):
                total = total + (index_of(atom.index) // atom.divisor) * factor
            elif isinstance(atom, Mod):
                total = total + (index_of(atom.index) % atom.divisor) * factor
            elif isinstance(atom, Indirect) and atom.expr.axes & {output, tap}:
                failed = True
            else:
                total = total + Index(((atom, factor),))
        if o * sweep.dilation != t * sweep.stride or o % sweep.stride:
            failed = True
            return index
        return total + Index.of(sweep.position) * (o // sweep.stride)

    def rewrite(expr: Expr) -> Expr:
        if not expr.axes & {output, tap}:
            return expr
        return expr.rebuild(tuple(map(rewrite, expr.children)), tuple(map(index_of, expr.indices)))

    result = rewrite(value)
    return None if failed else result
