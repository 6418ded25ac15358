"""Rows of an image on their way to shared memory, as [channel][row][column] of the positions that a rectangle looks at.

Neighbouring threads take neighbours of a row, so that whole rows are read along memory where the image lies by planes.
Elements go through registers: they are converted to what the product takes, whatever was fused into them is computed,
and what lies outside of the operand is zero. Of 16 bits two neighbours are one register of a fragment, which is read at
even places alone: where pixels are an odd number of positions apart there is a second copy, moved by one position, for
those that begin at an odd one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.image.geometry import QUAD, FewChannels, Window, window_of
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.forms.channelwise import Side
from compiler.forms.normal_form import Slots
from compiler.ir.tensor import DType

WORD = 4
"""Bytes of a register of a fragment."""
BANKS = 128
"""Bytes of shared memory that lie in different banks."""
LANES = (32, 16, 8)
"""Threads that go along a row together."""
HELD = 16
"""Elements that a thread has on their way at most."""
PACK = {DType.F16: "tw_pack_f16", DType.BF16: "tw_pack_bf16"}


@dataclass(frozen=True)
class Extents:
    """The image of a rectangle of `rows` x `columns` pixels in shared memory, whatever it is of.

    `strides` are positions between pixels, down and across; `dilation` is that of the window's rows.
    """

    window: Window
    rows: int
    columns: int
    strides: tuple[int, int]
    dilation: int
    element: DType

    @property
    def down(self) -> int:
        """Rows of positions."""
        return (self.rows - 1) * self.strides[0] + (self.window.rows - 1) * self.dilation + 1

    @property
    def across(self) -> int:
        """Positions of a row, those of whole quads."""
        count = (self.columns - 1) * self.strides[1] + self.window.across * QUAD
        return -(-count // self.together) * self.together

    @property
    def together(self) -> int:
        """Positions that make a word."""
        return WORD // self.element.bytes

    @property
    def is_twofold(self) -> bool:
        """Whether there is a second copy, for pixels at odd positions."""
        return self.strides[1] % self.together > 0

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next.

        Where a warp reads two rows of the window at once, these are in different banks.
        """
        size = self.across * self.element.bytes
        while self.together > 1 and self.window.across == 1 and not BANKS // 3 <= size % BANKS <= 2 * BANKS // 3:
            size += WORD
        return size

    @property
    def copy_bytes(self) -> int:
        """Of one copy; the second one begins in other banks."""
        size = self.window.channels * self.down * self.pitch
        return -(-size // BANKS) * BANKS + BANKS // 2 if self.is_twofold else size

    @property
    def bytes(self) -> int:
        """Of all of it, a multiple of 16."""
        return -(-self.copy_bytes * (2 if self.is_twofold else 1) // 16) * 16

    def offset(self, quad: int) -> int:
        """Bytes from where a pixel's window begins to a quad."""
        channel, row, column = self.window.place(quad)
        return (channel * self.down + row * self.dilation) * self.pitch + column * self.element.bytes

    @property
    def lines(self) -> int:
        """Rows of all channels."""
        return self.window.channels * self.down

    def turns(self, threads: int) -> Turns:
        """How threads share out the image: with the fewest words each, and of such along the longest parts of rows."""
        return min((Turns(self, threads, lanes) for lanes in LANES), key=lambda one: (one.words, -one.lanes))


@dataclass(frozen=True)
class Turns:
    """An image shared out among threads: `lanes` of them go along each row, and every so many rows are theirs."""

    extents: Extents
    threads: int
    lanes: int

    @property
    def step(self) -> int:
        """Rows that all threads have at once."""
        return self.threads // self.lanes

    @property
    def along(self) -> int:
        """Words of a row that a thread has."""
        return -(-self.extents.across // (self.extents.together * self.lanes))

    @property
    def rows(self) -> int:
        """Rows that a thread has a part of."""
        return -(-self.extents.lines // self.step)

    @property
    def words(self) -> int:
        """Words of a thread, those that there are not included."""
        return self.rows * self.along

    @property
    def at_once(self) -> int:
        """Rows whose elements are on their way together."""
        return -(-self.rows // self.count)

    @property
    def count(self) -> int:
        """How often elements are waited for."""
        return -(-self.rows // max(HELD // (self.along * self.extents.together), 1))


def extents_of(found: FewChannels, rows: int, columns: int, element: DType) -> Extents:
    """The image of a rectangle of so many pixels, of elements as they are multiplied."""
    strides = found.rows.stride, found.columns.stride
    return Extents(window_of(found, element), rows, columns, strides, found.rows.dilation, element)


def first_of(side: Side) -> str:
    """The variable that holds the rectangle's first position along a side."""
    return f"first_{side.position}"


@dataclass(frozen=True)
class Staging:
    """The text that brings an image.

    C in it: `first_m` is the first row of the block tile, `image` the place in shared memory.
    """

    found: FewChannels
    slots: Slots
    extents: Extents
    threads: int

    def declare(self, writer: Writer) -> None:
        """Where the rectangle's image begins."""
        rectangles = self.found.rectangles(self.extents.rows, self.extents.columns)
        rectangles.declare(writer)
        for side, axis, size in zip(rectangles.sides, rectangles.tiles[-2:], rectangles.sizes, strict=True):
            place = f"{axis} * {size * side.stride}" if axis.extent > 1 else "0"
            writer.line(f"const int {first_of(side)} = {place};")

    @cached_property
    def turns(self) -> Turns:
        """Which thread brings what."""
        return self.extents.turns(self.threads)

    def write(self, writer: Writer) -> None:
        """Loads this thread's words of some rows, stores them, and goes on to others."""
        extents, turns = self.extents, self.turns
        text = f"{extents.window.channels} x {extents.down} x {extents.across} positions"
        writer.line(f"/* {text}, of a row {turns.lanes} x {extents.together} at once */")
        if turns.count > 1:
            writer.line("#pragma unroll 1")
        with writer.block(f"for (int turn = 0; turn < {turns.count}; turn++)" if turns.count > 1 else ""):
            writer.line(f"float held[{turns.at_once}][{turns.along}][{extents.together}];")
            for store in (False, True):
                with unrolled(writer, turns.at_once, "i"):
                    place = f"(turn * {turns.at_once} + i)" if turns.count > 1 else "i"
                    writer.line(f"const int line = thread / {turns.lanes} + {place} * {turns.step};")
                    with unrolled(writer, turns.along, "j"):
                        writer.line(f"const int word = thread % {turns.lanes} + j * {turns.lanes};")
                        self._store(writer) if store else self._load(writer)

    @property
    def _inside(self) -> list[str]:
        """Conditions under which there is such a word."""
        extents, turns = self.extents, self.turns
        lines = turns.count * turns.at_once * turns.step
        tests = [f"line < {extents.lines}"] * (lines > extents.lines)
        words = extents.across // extents.together
        return [*tests, *[f"word < {words}"] * (turns.along * turns.lanes > words)]

    def _load(self, writer: Writer) -> None:
        """held[i][j] = the elements of a word."""
        for part in range(self.extents.together):
            writer.line(f"held[i][j][{part}] = 0.0f;")
            with writer.block(""):
                scale = f" * {self.extents.together}" if self.extents.together > 1 else ""
                writer.line(f"const int across = word{scale}{f' + {part}' if part else ''};")
                self._element(writer, f"held[i][j][{part}]")

    def _element(self, writer: Writer, into: str) -> None:
        """One element, where it is inside."""
        found, extents = self.found, self.extents
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        emitter = CudaEmitter(writer, self.slots.address, elements)
        if found.channel:
            emitter.names[found.channel] = f"(line / {extents.down})"
        emitter.names |= {axis: "0" for axis in found.outer if axis.extent == 1}
        tests = self._inside
        down = f"line % {extents.down}" if extents.window.channels > 1 else "line"
        sizes = (extents.rows, extents.columns), (extents.down, extents.across), (down, "across")
        for side, size, span, name in zip(found.sides, *sizes, strict=True):
            emitter.names[side.position] = f"({first_of(side)} + {name})"
            last = (-(-side.output.extent // size) - 1) * size * side.stride + span
            if last > side.position.extent:
                tests.append(f"{first_of(side)} + {name} < {side.position.extent}")
        tests += [emitter.condition(guard) for guard in found.guards]
        with writer.block(f"if ({' && '.join(tests)})" if tests else ""), emitter.scope():
            writer.line(f"{into} = {emitter.scalar(found.value)};")

    def _store(self, writer: Writer) -> None:
        """The word as the product takes it, to one copy or both."""
        extents, element = self.extents, self.extents.element
        with writer.block(f"if ({' && '.join(self._inside)})" if self._inside else ""):
            writer.line(f"unsigned char *const at = image + line * {extents.pitch} + word * {WORD};")
            if element is DType.F32:
                writer.line("*(unsigned *)at = tw_to_tf32(held[i][j][0]);")
                return
            writer.line(f"const unsigned pair = {PACK[element]}(held[i][j][0], held[i][j][1]);")
            writer.line("*(unsigned *)at = pair;")
            if extents.is_twofold:
                moved = f"((unsigned short *)(at + {extents.copy_bytes}))"
                writer.line(f"{moved}[-1] = pair & 0xffff; /* of a row's first word: where nothing reads */")
                writer.line(f"{moved}[0] = pair >> 16;")
