"""The first half of a separable convolution: a window's results in shared memory.

They are those of a rectangle of pixels, a stretch of channels at a time. Asynchronous copies bring the positions that
the windows look at, zero where they are outside of the operand, as rows [position][channel], and the stretch's weights
as [tap][channel]. A thread then has a strip of pixels at a vector of channels: each position is read once for all of
its windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from math import prod

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.separable.geometry import Staged
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.lane_columns import RoundedPanels
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.rows import Rows
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.forms.channelwise import Side
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load, certain_loads
from compiler.ir.kernel import Store
from compiler.ir.tensor import DType

ALIGNED = 16
"""Bytes to which parts of shared memory are rounded up."""


def aligned(nbytes: int) -> int:
    """The bytes rounded up to a multiple of ALIGNED."""
    return -(-nbytes // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class StagedWindow:
    """Results at `rows` x `columns` pixels and `depth` channels, as `element` in rows of `layout`.

    Rounded to tf32 where `as_tf32`. Threads take strips of `strip_rows` x `strip_columns` pixels. C in its text:
    `first_m` is the first row of the block tile.
    """

    staged: Staged
    slots: Slots
    rows: int
    columns: int
    strip_rows: int
    strip_columns: int
    depth: int
    threads: int
    element: DType
    as_tf32: bool
    layout: Rows

    # What lies in shared memory

    @cached_property
    def spans(self) -> tuple[int, int]:
        """Positions that the windows of the rectangle look at, down and across."""
        down, across = (
            _span(side, size) for side, size in zip(self.staged.sides, (self.rows, self.columns), strict=True)
        )
        return down, across

    @property
    def _vectors(self) -> int:
        """Of a stretch of channels."""
        return self.depth // self.staged.count

    @property
    def _operand(self) -> DType:
        return self.slots.buffers[self.staged.load.slot].dtype

    @property
    def _weights(self) -> RoundedPanels | None:
        return self.staged.weights[1] if self.staged.weights else None

    @property
    def position_bytes(self) -> int:
        """Shared memory of the inputs of one step."""
        return aligned(prod(self.spans) * self.depth * self._operand.bytes)

    @property
    def weight_bytes(self) -> int:
        """Shared memory of the packed weights of one step; 0 if they are read where they lie."""
        return aligned(self.staged.window.taps * self.depth * self._weights.dtype.bytes) if self._weights else 0

    @property
    def _channels(self) -> int:
        return self.staged.window.channel.extent

    @property
    def _is_ragged(self) -> bool:
        """Whether the last stretch has channels that there are not."""
        return self._channels % self.depth > 0

    # The copies

    def declare(self, writer: Writer) -> None:
        """Where the rectangle begins; of each position that the thread copies, the address and whether it is inside."""
        rectangles, (down, across) = self.staged.rectangles(self.rows, self.columns), self.spans
        rectangles.declare(writer)
        for side, axis, size in zip(rectangles.sides, rectangles.tiles[-2:], rectangles.sizes, strict=True):
            place = f"{axis} * {size}" if axis.extent > 1 else "0"
            writer.line(f"const int {_first(side)} = {place};")
        taps = f"{self.staged.window.rows.taps} x {self.staged.window.columns.taps}"
        count = self.staged.count
        writer.line(f"/* {down} x {across} positions for windows of {taps}, {count} channels a copy */")
        passes = -(-down * across * self._vectors // self.threads)
        writer.line(f"int position_at[{passes}];")
        writer.line(f"bool position_in[{passes}];")
        with unrolled(writer, passes, "i"):
            writer.line(f"const int piece = thread + i * {self.threads}, position = piece / {self._vectors};")
            writer.line(f"const int down = position / {across}, across = position % {across};")
            emitter = self._emitter(writer)
            tests = [f"position < {down * across}"] * (down * across * self._vectors % self.threads > 0)
            for side, size, name in zip(self.staged.sides, (self.rows, self.columns), ("down", "across"), strict=True):
                place = f"({_first(side)}{f' * {side.stride}' if side.stride > 1 else ''} + {name})"
                emitter.names[side.position] = place
                if side.output.extent % size:
                    tests.append(f"{place} < {_span(side, side.output.extent)}")
            tests += [emitter.condition(guard) for guard in self.staged.window.guards]
            writer.line(f"position_in[i] = {' && '.join(tests) or 'true'};")
            emitter.names[self.staged.window.channel] = f"(piece % {self._vectors} * {count})"
            offset = self.slots.address(self.staged.load.slot, self.staged.load.index)[1]
            writer.line(f"position_at[i] = {emitter.index(offset)};")

    def fetch_positions(self, writer: Writer) -> None:
        """The body of a function of `step` and `into`: starts the copies of a stretch."""
        slot, pieces = self.staged.load.slot, prod(self.spans) * self._vectors
        nbytes = self.staged.count * self._operand.bytes
        with unrolled(writer, -(-pieces // self.threads), "i"):
            writer.line(f"const int piece = thread + i * {self.threads};")
            inside = "position_in[i]"
            if self._is_ragged:
                inside += f" && step * {self.depth} + piece % {self._vectors} * {self.staged.count} < {self._channels}"
            writer.line(f"const bool inside = {inside};")
            source = f"inside ? {slot} + (position_at[i] + step * {self.depth}) : {slot}"
            skip = f"if (piece < {pieces}) " if pieces % self.threads else ""
            writer.line(f"{skip}tw_cp_async_{nbytes}(into + piece * {nbytes}, {source}, inside ? {nbytes} : 0);")

    def fetch_weights(self, writer: Writer, slot: str) -> None:
        """The same for the stretch's weights, which are constants packed in `slot`."""
        panels = self._weights
        assert panels is not None
        count = self.staged.weight_count
        vectors, nbytes = self.depth // count, count * panels.dtype.bytes
        pieces = self.staged.window.taps * vectors
        with unrolled(writer, -(-pieces // self.threads), "i"):
            writer.line(f"const int piece = thread + i * {self.threads};")
            writer.line(f"const int channel = step * {self.depth} + piece % {vectors} * {count};")
            source = f"{slot} + (piece / {vectors} * {self._channels} + channel)"
            skip = f"if (piece < {pieces}) " if pieces % self.threads else ""
            place = f"into + piece * {nbytes}"
            if self._is_ragged:
                there = f"channel < {self._channels}"
                writer.line(
                    f"{skip}tw_cp_async_{nbytes}({place}, {there} ? {source} : {slot}, {there} ? {nbytes} : 0);"
                )
            else:
                writer.line(f"{skip}tw_cp_async_{nbytes}({place}, {source}, {nbytes});")

    # The window

    def compute(self, writer: Writer) -> None:
        """The body of a function of `step`, `from` and `weights` (what was copied) and `into`, the tile of results."""
        down, across = self.rows // self.strip_rows, self.columns // self.strip_columns
        count, vectors = self.staged.count, self._vectors
        with in_rounds(writer, "strip", down * across * vectors, "thread", self.threads, 1):
            writer.line(f"const int own = strip % {vectors} * {count}, channel = step * {self.depth} + own;")
            writer.line(f"const int strip_row = strip / {vectors * across} * {self.strip_rows};")
            writer.line(f"const int strip_column = strip / {vectors} % {across} * {self.strip_columns};")
            kind, nbytes = CUDA_TYPES[self.element], min(count * self.element.bytes, ALIGNED)
            sizes = f"[{self.strip_rows}][{self.strip_columns}][{count}]"
            writer.line(f"{kind} results{sizes} = {{}};")
            with writer.block(f"if (channel < {self._channels})" if self._is_ragged else ""):
                self._strip(writer, sizes)
            for row in range(self.strip_rows):
                for column in range(self.strip_columns):
                    pixel = f"((strip_row + {row}) * {self.columns} + strip_column + {column})"
                    place = self.layout.place(pixel, f"own * {self.element.bytes}")
                    writer.line(f"tw_write<{nbytes}>(({kind} *)(into + {place}), results[{row}][{column}]);")

    def _strip(self, writer: Writer, sizes: str) -> None:
        """The sums of a strip, then their maps."""
        window, emitter = self.staged.window, self._emitter(writer)
        held = self._channel_vectors(writer, emitter)
        writer.line(f"float total{sizes} = {{}};")
        strides = [f" * {side.stride}" if side.stride > 1 else "" for side in self.staged.sides]
        first = f"(strip_row{strides[0]} * {self.spans[1]} + strip_column{strides[1]}) * {self.depth} + own"
        ctype = CUDA_TYPES[self._operand]
        writer.line(f"const {ctype} *const first = (const {ctype} *)from + {first};")
        for row, downs in window.rows.readers(self.strip_rows).items():
            weights = self._weight_rows(writer, sorted({tap for _, tap in downs}))
            for column, acrosses in window.columns.readers(self.strip_columns).items():
                readers = [(a, b, c, d) for a, c in downs for b, d in acrosses]
                self._position(writer, emitter, row, column, readers, weights)
        self._results(writer, emitter, held)

    def _weight_rows(self, writer: Writer, downs: list[int]) -> Mapping[int, str]:
        """The weights of whole rows of taps, by tap."""
        panels, names = self._weights, {}
        if panels is None:
            return {}
        across, ctype = self.staged.window.columns.taps, CUDA_TYPES[panels.dtype]
        for tap in (down * across + at for down in downs for at in range(across)):
            names[tap] = writer.name("weight")
            writer.line(f"{ctype} {names[tap]}[{self.staged.count}];")
            nbytes = self.staged.weight_count * panels.dtype.bytes
            writer.line(f"tw_read<{nbytes}>({names[tap]}, (const {ctype} *)weights + {tap * self.depth} + own);")
        return names

    def _position(
        self,
        writer: Writer,
        emitter: CudaEmitter,
        row: int,
        column: int,
        readers: list[tuple[int, int, int, int]],
        weights: Mapping[int, str],
    ) -> None:
        """One position, into the sums of all windows that look at it.

        `readers` are rows and columns of outputs, then of taps.
        """
        count, panels = self.staged.count, self._weights
        name = writer.name("x")
        writer.line(f"{CUDA_TYPES[self._operand]} {name}[{count}];")
        offset = (row * self.spans[1] + column) * self.depth
        writer.line(f"tw_read<{count * self._operand.bytes}>({name}, first + {offset});")
        with unrolled(writer, count, "part"), emitter.scope():
            emitter.held = {self.staged.load: convert(f"{name}[part]", self._operand, self.staged.load.dtype)}
            value = emitter.scalar(self.staged.window.value)
            writer.line(f"const float value = {value};")
            for at_row, at_column, down, across in readers:
                factor = ""
                if panels is not None:
                    weight = weights[down * self.staged.window.columns.taps + across]
                    factor = f" * {convert(f'{weight}[part]', panels.dtype, DType.F32)}"
                writer.line(f"total[{at_row}][{at_column}][part] += value{factor};")

    def _channel_vectors(self, writer: Writer, emitter: CudaEmitter) -> Mapping[Expr, str]:
        """What the maps load along the channel, a bias say, requested before the sums."""
        channel, count = self.staged.window.channel, self.staged.count
        emitter.names[channel] = "channel"
        values = [value for block in self.staged.window.epilogue for value in block.values]
        found: dict[Expr, str] = {}
        for load in dict.fromkeys(load for value in values for load in certain_loads(value)):
            if load.slot not in self.slots.buffers or load.axes != {channel}:
                continue
            buffer, offset = self.slots.buffers[load.slot], self.slots.address(load.slot, load.index)[1]
            if offset.coefficient(channel) != 1 or (offset.const + buffer.offset) % count:
                continue
            name, ctype = writer.name(load.slot), CUDA_TYPES[buffer.dtype]
            writer.line(f"{ctype} {name}[{count}];")
            nbytes = min(count * buffer.dtype.bytes, ALIGNED)
            writer.line(f"tw_read<{nbytes}>({name}, {load.slot} + ({emitter.index(offset)}));")
            found[load] = convert(f"{name}[part]", buffer.dtype, load.dtype)
        return found

    def _results(self, writer: Writer, emitter: CudaEmitter, held: Mapping[Expr, str]) -> None:
        """The maps of each sum, and the results as they lie in shared memory."""
        window = self.staged.window
        for row in range(self.strip_rows):
            for column in range(self.strip_columns):
                with ExitStack() as stack:
                    stack.enter_context(unrolled(writer, self.staged.count, "part"))
                    stack.enter_context(emitter.scope())
                    for side, at in zip(
                        self.staged.sides, (f"strip_row + {row}", f"strip_column + {column}"), strict=True
                    ):
                        emitter.names[side.output] = f"({_first(side)} + {at})"
                    emitter.names[window.channel] = "(channel + part)"
                    emitter.held = dict(held)
                    value = f"total[{row}][{column}][part]"
                    emitter.held[_result(window.product.stores[0])] = value
                    for block in window.epilogue:
                        value = emitter.scalar(block.values[0])
                        emitter.held[_result(block.stores[0])] = value
                    writer.line(f"results[{row}][{column}][part] = {self._converted(value)};")

    def _converted(self, value: str) -> str:
        return f"__uint_as_float(tw_to_tf32({value}))" if self.as_tf32 else convert(value, DType.F32, self.element)

    def _emitter(self, writer: Writer) -> CudaEmitter:
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        return CudaEmitter(writer, self.slots.address, elements)


def _span(side: Side, outputs: int) -> int:
    """Positions that so many neighbouring outputs look at."""
    return (outputs - 1) * side.stride + (side.taps - 1) * side.dilation + 1


def _first(side: Side) -> str:
    """The variable that holds the rectangle's first output along a side."""
    return f"first_{side.output}"


def _result(store: Store) -> Load:
    """What a block has stored, as those after it read it."""
    return Load(store.slot, store.index, DType.F32)
