"""How the micro-kernel reaches the rows of A: where they lie, in a staged image of them, or gathered one by one.

    InPlace   A is a tensor read in constant steps of every m and k axis: nothing is copied
    Staged    A is an image over swept positions (`compiler.forms.windowed`) that is zero outside a box: what a block of
              rows needs of it is copied into scratch, with its padding and with whatever was fused into the operand,
              and then read in constant steps
    None      neither: rows are gathered element by element, an implicit im2col

Either way a tile of rows lies at constant distances from its first, and so does every step of k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.forms.cache_lines import ALIAS, LINE
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots, joined_axis
from compiler.forms.windowed import Sweep, as_image
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where, conjuncts
from compiler.ir.index import Axis, Index

MOST_IN_A_SET = 7
"""Rows of a tile that one set may hold: of its 8 or 12 ways B and the results need some too."""


@dataclass(frozen=True)
class InPlace:
    """A read where it lies, in `steps` (elements) of each m and k axis."""

    load: Load
    steps: Mapping[Axis, int]


@dataclass(frozen=True)
class Dim:
    """One dimension of a staged image.

    A block of `count` outputs from `first` on looks at the elements first * step .. (first + count - 1) * step + reach
    - 1; a dimension without an output is there whole. Elements outside low .. past - 1 are zero.
    """

    axis: Axis
    output: Axis | None
    step: int
    reach: int
    low: Index
    past: Index

    def extent(self, blocks: Mapping[Axis, int]) -> int:
        """Elements that a block with so many points of each m axis needs."""
        return self.reach if self.output is None else (blocks[self.output] - 1) * self.step + self.reach

    @property
    def is_whole(self) -> bool:
        """Whether every position along the axis is inside: none is zero for padding."""
        return self.low == Index.of(0) and self.past == Index.of(self.axis.extent)


@dataclass(frozen=True)
class Staged:
    """A as an image: `value` at each point of `dims`, in the order of the operand in memory, outermost first."""

    value: Expr
    dims: tuple[Dim, ...]
    sweeps: tuple[Sweep, ...]

    def pitches(self, blocks: Mapping[Axis, int], innermost: Axis | None) -> tuple[int, ...]:
        """Steps in scratch of each dimension. Rows along `innermost` that would share cache sets are moved apart."""
        pitches: list[int] = []
        size = 1
        for dim in reversed(self.dims):
            while dim.output is not None and dim.output == innermost and size * dim.step % ALIAS == 0:
                size += LINE
            pitches.append(size)
            size *= dim.extent(blocks)
        return tuple(reversed(pitches))

    def floats(self, blocks: Mapping[Axis, int], innermost: Axis | None) -> int:
        """Elements of scratch."""
        return self.pitches(blocks, innermost)[0] * self.dims[0].extent(blocks) if self.dims else 1

    def steps(self, axes: Sequence[Axis], blocks: Mapping[Axis, int], innermost: Axis | None) -> dict[Axis, int]:
        """Steps in scratch of each m and k axis."""
        pitch = dict(zip((dim.axis for dim in self.dims), self.pitches(blocks, innermost), strict=True))
        steps = {axis: pitch.get(axis, 0) for axis in axes}
        for sweep in self.sweeps:
            steps[sweep.output] = sweep.stride * pitch[sweep.position]
            steps[sweep.tap] = sweep.dilation * pitch[sweep.position]
        return steps


def operand(view: Contraction, slots: Slots, tile: Mapping[Axis, int]) -> InPlace | Staged | None:
    """How A is reached by register tiles of `tile` rows along each m axis (one, for an axis that it leaves out)."""
    direct = _in_place(view, slots)
    if direct is not None and not _collides(direct.steps, tile):
        return direct
    return _staged(view, slots)


def row_axes(view: Contraction) -> dict[str, Axis]:
    """The axes along which a register tile has rows: `m`, the innermost, and `y` around it, as far as there are any."""
    return dict(zip(("m", "y"), reversed(view.m[-2:]), strict=False))


def merged(nest: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Loops (extent, step) of which neighbours that go on where the inner one ends are one."""
    loops: list[tuple[int, int]] = []
    for extent, step in nest:
        if loops and loops[-1][1] == extent * step:
            loops[-1] = (loops[-1][0] * extent, step)
        else:
            loops.append((extent, step))
    return tuple(loops)


def offsets_of(tile: Sequence[tuple[Axis, int]], steps: Mapping[Axis, int]) -> tuple[int, ...]:
    """Distance of each row of a tile from its first, the last axis fastest."""
    offsets = [0]
    for axis, count in tile:
        offsets = [offset + at * steps[axis] for offset in offsets for at in range(count)]
    return tuple(offsets)


def _in_place(view: Contraction, slots: Slots) -> InPlace | None:
    if not isinstance(view.a, Load):
        return None
    offset = slots.address(view.a.slot, view.a.index)[1]
    found = {axis: offset.coefficient(axis) for axis in (*view.m, *view.k)}
    steps = {axis: step for axis, step in found.items() if step is not None}
    if len(steps) < len(found):
        return None
    inner = [steps[axis] for axis in (*view.m[-1:], *view.k[-1:])]
    return InPlace(view.a, steps) if min(inner, default=1) <= 1 else None


def _collides(steps: Mapping[Axis, int], tile: Mapping[Axis, int]) -> bool:
    """Whether more rows of a tile fall into one set of the first-level cache than it has room for."""
    lines = {offset // LINE for offset in offsets_of([*tile.items()], steps)}
    return max(Counter(line % (ALIAS // LINE) for line in lines).values()) > MOST_IN_A_SET


def _staged(view: Contraction, slots: Slots) -> Staged | None:
    image = as_image(view.a, view.m, view.k)
    if image is None:
        return None
    condition, value = guarded(image.value)
    swept = {sweep.position: sweep for sweep in image.sweeps}
    axes = (*swept, *image.others)
    bounds = _box(conjuncts(condition) if condition is not None else [], axes, frozenset(view.batch))
    loads = [slots.address(load.slot, load.index)[1] for load in value.loads]
    if bounds is None or not loads or any(load.coefficient(axis) is None for load in loads for axis in axes):
        return None

    def stride(axis: Axis) -> int:
        return max(abs(load.coefficient(axis) or 0) for load in loads)

    dims = []
    for axis in sorted(axes, key=stride, reverse=True):
        low, past = bounds[axis]
        if axis in swept:
            sweep = swept[axis]
            reach = (sweep.tap.extent - 1) * sweep.dilation + 1
            dims.append(Dim(axis, sweep.output, sweep.stride, reach, low, past))
        elif axis in view.m:
            dims.append(Dim(axis, axis, 1, 1, low, past))
        else:
            dims.append(Dim(axis, None, 0, axis.extent, low, past))
    if dims and any(load.coefficient(dims[-1].axis) not in (0, 1) for load in loads):
        return None
    return Staged(value, tuple(dims), image.sweeps)


def guarded(expr: Expr) -> tuple[Expr | None, Expr]:
    """Splits `Where(condition, value, 0)` into its condition and value."""
    if isinstance(expr, Where) and not expr.condition.loads and getattr(expr.otherwise, "value", None) == 0:
        return expr.condition, expr.then
    return None, expr


def bound_of(condition: Expr, axis: Axis) -> tuple[str, Index] | None:
    """`ge` and the least position along an axis where a condition holds, or `lt` and the first past them.

    None for a condition of another form.
    """
    if not (isinstance(condition, Apply) and condition.function in ("ge", "lt")):
        return None
    left, right = condition.args
    if not (isinstance(left, Position) and isinstance(right, Const)) or left.index.coefficient(axis) != 1:
        return None
    return condition.function, Index.of(int(right.value)) - left.index.substitute({axis: Index.of(0)})


def _box(
    conditions: Sequence[Expr], axes: Sequence[Axis], fixed: frozenset[Axis]
) -> dict[Axis, tuple[Index, Index]] | None:
    """For each axis the first index at which all conditions hold and the one past the last; None where they are no box.

    Bounds may depend on `fixed` axes.
    """
    box = {axis: (Index.of(0), Index.of(axis.extent)) for axis in axes}
    for condition in conditions:
        bounded = [axis for axis in axes if axis in condition.axes]
        found = bound_of(condition, bounded[0]) if len(bounded) == 1 else None
        if found is None or not found[1].axes <= fixed:
            return None
        (axis,), (function, bound) = bounded, found
        at = int(function == "lt")
        known = box[axis][at]
        if known != Index.of((0, axis.extent)[at]):
            return None
        box[axis] = (bound, box[axis][1]) if not at else (box[axis][0], bound)
    return box


def joined_dims(staged: Staged, slots: Slots, pitches: Sequence[int]) -> tuple[Expr, tuple[tuple[Dim, int], ...]]:
    """The value and the dimensions, each with its step in scratch.

    The innermost ones are joined if operand and scratch are both contiguous.
    """
    value, dims = staged.value, [*zip(staged.dims, pitches, strict=True)]
    while len(dims) > 1:
        (outer, pitch), (inner, step) = dims[-2:]
        size = inner.axis.extent
        if not inner.is_whole or inner.output is not None or pitch != size * step:
            break
        axis = joined_axis(outer.axis, inner.axis)
        flat = Index.of(axis)
        candidate = value.substitute({outer.axis: flat // size, inner.axis: flat % size})
        loads = [slots.address(load.slot, load.index)[1] for load in candidate.loads]
        if any(load.coefficient(axis) not in (0, 1) for load in loads):
            break
        value = candidate
        joined = replace(
            outer,
            axis=axis,
            step=outer.step * size,
            reach=outer.reach * size if outer.output is not None else axis.extent,
            low=outer.low * size,
            past=outer.past * size,
        )
        dims[-2:] = [(joined, step)]
    return value, tuple(dims)
