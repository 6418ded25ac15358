"""The `byte_groups` algorithm: convolutions in groups of bytes as windows channel by channel, by dot products.

A lane is an output channel. At each position of the window the members of its group are brought to it, as many as a
lane holds: the bytes of a vector of channels are loaded once and permuted, or, where a group is no narrower than a
vector, four of them are loaded into all lanes. Then they are multiplied with the weights of each output that looks at
the position.

Where the target multiplies bytes, the operand is held as unsigned bytes (VPDPBUSD, USDOT) or as signed ones (SDOT),
moved by 128 if it is of the other kind, and what zero points add is taken from each sum, as `integer` does. What lies
beside the image is the zero point there, so that this is the same everywhere. Anywhere else bytes are widened to 16
bits (VPMADDWD, SMLAL), less their zero point.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from compiler.codegen.expressions import INTEGERS, Vector
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.products.window.lowering import BlockedWindow, Strip
from compiler.devices.cpu.products.window.tiles import blocked, window_shapes
from compiler.devices.cpu.products.window.tilings import Shape
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.byte_groups import ByteGroups, byte_groups
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.ir.expr import Expr
from compiler.ir.index import Index
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

MOST_SHARED = 4
"""Vectors of channels that share what is loaded, at most."""
PAIRS = 0.85
"""Of the time that as many steps take in fp32, where each member is converted and permuted by itself."""


def byte_group_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles of rows x columns of registers, cheapest by the model first.

    Empty unless the kernel is a convolution of bytes in groups that fit the target's vectors.
    """
    form = byte_groups(workload)
    if form is None or not _fits(form, target):
        return []
    shapes = window_shapes(form.view, target)
    if target.multiplies_bytes:
        shapes += [shape for shape in _wide(form, shapes, target) if shape not in shapes]
    together = _together(target)
    per_step = 1.0 if target.multiplies_bytes else PAIRS / target.halves_per_fma
    steps = form.view.group / together * per_step
    return blocked("byte_groups", form.view, workload, target, lanes, shapes, steps)


def _fits(form: ByteGroups, target: CpuTarget) -> bool:
    """Whether vectors hold whole groups, or groups whole vectors, and nothing is left over."""
    width, group = target.vector_floats, form.view.group
    if form.view.channel.extent % width or (group % width and width % group):
        return False
    return not target.multiplies_bytes or form.weights is DType.I8


def _wide(form: ByteGroups, shapes: Sequence[tuple[int, int, int]], target: CpuTarget) -> list[tuple[int, int, int]]:
    """Shapes of several vectors that lie in one group, and share what is loaded."""
    view, found = form.view, []
    for rows, columns, _ in shapes:
        for vectors in range(2, MOST_SHARED + 1):
            registers = rows * columns * vectors + min(view.columns.taps, 4) * vectors + 2
            if view.group % (vectors * target.vector_floats) == 0 and registers <= target.vector_registers:
                found.append((rows, columns, vectors))
    return found


def _together(target: CpuTarget) -> int:
    """Members that a lane takes at a time."""
    return LANE_BYTES if target.multiplies_bytes else LANE_BYTES // DType.I16.bytes


def grouped_bytes(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `byte_groups` accepts, blocked as `tile` says.

    Levels `block` and `register`, axes rows, columns and channels.
    """
    form = byte_groups(workload)
    assert form is not None, "the tile stage offers `byte_groups` only to kernels of that form"
    return GroupedBytes(name, workload, form.view, tile, target, Writer(), form=form)


@dataclass(kw_only=True)
class GroupedBytes(BlockedWindow):
    """One lowering."""

    form: ByteGroups

    def __post_init__(self) -> None:
        super().__post_init__()
        position, panels = self.form.packing(self.workload, self.lanes, _together(self.target))
        dtype = DType.I8 if self.target.multiplies_bytes else DType.I16
        self.groups = Groups(panels, dtype, sums=self.padding != 0)
        self.weights = position, self.groups

    @cached_property
    def shift(self) -> int:
        """What is added to a byte of the operand as it is held."""
        if not self.target.multiplies_bytes:
            return -self.form.zero
        signed = self.form.load.type is DType.I8
        if self.target.takes_signed(signed):
            return 0 if signed else -128
        return 128 if signed else 0

    @property
    def padding(self) -> int:
        """The zero point as it is held, and what lies beside the image."""
        return self.form.zero + self.shift

    @property
    def dot(self) -> str:
        """The C function of a step."""
        if not self.target.multiplies_bytes:
            return "tw_dot_halves"
        return "tw_dot_signed" if self.target.takes_signed(self.form.load.type is DType.I8) else "tw_dot_bytes"

    def strip(self, shape: Shape, vectors: int, vector: Vector) -> Strip:
        """The code of one register tile."""
        return _ByteStrip(self, shape, vectors, vector)


class _ByteStrip(Strip):
    """Sums are kept as integers, and become floats when they are complete."""

    def __init__(self, window: GroupedBytes, shape: Shape, vectors: int, vector: Vector) -> None:
        super().__init__(window, shape, vectors, vector)
        self.bytes, self.groups = window, window.groups
        self.together = window.groups.group
        self.by_bytes = window.target.multiplies_bytes
        self.panel_bytes = self.groups.panel_elements * self.groups.dtype.bytes
        self.shared = self.by_bytes and self.view.group % (vectors * self.lanes) == 0
        """Whether all vectors lie in one group."""

    def write(self) -> None:
        """The statements of the tile."""
        view, writer, channel = self.view, self.writer, self.view.channel
        assert self.bytes.weights is not None
        slot = self.bytes.workload.kernel.inputs[self.bytes.weights[0]].name
        start = f"(const char *){slot} + {channel} / {self.lanes} * {self.panel_bytes}L"
        writer.line(f"const char *const weights = {start};")
        for output in self.outputs:
            writer.line(f"vi sum{output} = {{0}};")
        with writer.block(f"for (long step = 0; step < {view.group // self.together}; step++)"), self.emitter.scope():
            self._rows()
        for vector in self.vectors if self.bytes.padding else ():
            sums = f"weights + {vector * self.panel_bytes + self.groups.groups * self.lanes * LANE_BYTES}"
            zeros = f"tw_splat_i({self.bytes.padding})"
            writer.line(f"const vi below{vector} = tw_mul_i({zeros}, tw_load_i((const int32_t *)({sums})));")
        for output in self.outputs:
            total = f"tw_sub_i(sum{output}, below{output.vector})" if self.bytes.padding else f"sum{output}"
            writer.line(f"const vf total{output} = tw_float_of({total});")
        self._epilogue()

    def _rows(self) -> None:
        """One step of each position that the tile reads, for the outputs whose windows cover it."""
        width = min(self.view.group, self.lanes)
        if width < self.lanes or not self.by_bytes:
            inner = f"step % {width // self.together}" if self.view.group > self.lanes else "step"
            self.writer.line(f"const vi lanes = TW_GROUPS_OF({width}) / {self.together} + (int32_t)({inner});")
        rows = self.shape.rows
        for row, readers in rows.side.readers(rows.size).items():
            tests = self._needed(rows, row)
            if tests is None and not self.bytes.padding:
                continue
            with ExitStack() as stack:
                if tests and not self.bytes.padding:
                    stack.enter_context(self.writer.block(f"if ({self._all(tests)})"))
                    tests = []
                else:
                    stack.enter_context(self.writer.block(""))
                stack.enter_context(self.emitter.scope())
                self._row_of_bytes(row, readers, tests)

    def _row_of_bytes(self, row: int, readers: Sequence[tuple[int, int]], tests: Sequence[Expr] | None) -> None:
        """One row of positions, which is inside where `tests` hold; None where it is nowhere."""
        writer, columns, taps = self.writer, self.shape.columns, self.view.columns.taps
        downs, octets = sorted({down for _, down in readers}), self.lanes * LANE_BYTES
        for down, tap, vector in itertools.product(downs, range(taps), self.vectors):
            place = (down * taps + tap) * octets + vector * self.panel_bytes
            at = f"weights + step * {self.view.taps * octets}L + {place}"
            writer.line(f"const vi w{down}_{tap}_{vector} = tw_groups({at});")
        for column, across in columns.side.readers(columns.size).items():
            beside = self._needed(columns, column)
            guards = None if tests is None or beside is None else [*tests, *beside]
            if guards is None and not self.bytes.padding:
                continue
            for vector in self.vectors:
                value = f"x{column}_{0 if self.shared else vector}"
                if not self.shared or not vector:
                    self._position(value, row, column, vector, guards)
                for (output_row, down), (output_column, tap) in itertools.product(readers, across):
                    total = f"sum{output_row}_{output_column}_{vector}"
                    writer.line(f"{total} = {self.bytes.dot}({total}, {value}, w{down}_{tap}_{vector});")

    def _position(self, name: str, row: int, column: int, vector: int, guards: Sequence[Expr] | None) -> None:
        """Declares the members that lanes take at a position, where `guards` hold; padding elsewhere."""
        writer, beside = self.writer, f"tw_splat_i({self._padding})"
        if guards is None:
            writer.line(f"const vi {name} = {beside};")
        elif not guards:
            writer.line(f"const vi {name} = {self._loaded(row, column, vector)};")
        else:
            writer.line(f"vi {name} = {beside};")
            writer.line(f"if ({self._all(guards)}) {name} = {self._loaded(row, column, vector)};")

    @property
    def _padding(self) -> int:
        """What lies beside the image, as all bytes of a lane."""
        lane = (self.bytes.padding & 0xFF) * 0x01010101 if self.by_bytes else 0
        return lane - (1 << 32) if lane >= 1 << 31 else lane

    def _loaded(self, row: int, column: int, vector: int) -> str:
        """The members that lanes take at a position, counted from the tile's first."""
        view, window, load = self.view, self.bytes, self.bytes.form.load
        channel = Index.of(view.channel) + vector * self.lanes
        if view.group > self.lanes:
            channel = channel // view.group * view.group
        rows, columns = view.rows, view.columns
        place = {
            rows.position: Index.of(rows.output) * rows.stride + row,
            columns.position: Index.of(columns.output) * columns.stride + column,
            view.channel: channel,
        }
        slot, offset = window.address(load.slot, tuple(index.substitute(place) for index in load.index))
        at = f"{slot} + {self.emitter.index(offset)}"
        if not self.by_bytes:
            width = self.lanes // self.together
            block = f" + step / {width} * {self.lanes}" if view.group > self.lanes else ""
            self.writer.include("tw_spread.h")
            return f"tw_spread_halves_{INTEGERS[load.type]}({at}{block}, lanes, {window.form.zero})"
        members = f"tw_group({at} + step * {LANE_BYTES})"
        if view.group < self.lanes:
            self.writer.include("tw_spread.h")
            members = f"tw_spread_bytes({at}, lanes)"
        return f"({members} ^ (int32_t)0x80808080)" if window.shift else members


BYTE_GROUPS = Algorithm(("byte_groups",), byte_group_tiles, grouped_bytes)
