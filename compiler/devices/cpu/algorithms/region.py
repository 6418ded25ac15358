"""Regions: calls that run while a condition holds, one of two lists of calls, or a batch in slices, as one C function.

The kernels of the bodies are functions of the same text. The function around them calls them in their order, with what
an iteration hands to the next in two places in turn: it reads one and writes the other, which then change places. Where
a call may write the new value over the old one, both are one place, the result's own. Rows are written where they stay.
A body's other values lie in an arena in the lane's scratch, in front of that of its kernels. The slices of a batch are
tile tasks, one each, so that lanes share them; all that a lane runs lie in the same arena, which stays in its caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from compiler.codegen.calls import function_name, workload_of
from compiler.codegen.functions import describe
from compiler.codegen.region_bodies import carried_in_place, packed, updating, uses_of
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, Lower
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, signature
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import InternalError
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.plans.plan import Place
from compiler.ir.region import Loop, Region
from compiler.ir.tile import Tile
from compiler.schedule.memory.buffers import place_buffers
from compiler.tuning.proposal import Proposal

ALIGNMENT = 64
PLAIN = Tile("loops")
LegalTiles = Callable[[Workload, CpuTarget, int, str], list[Proposal]]


def region_algorithm(legal_tiles: LegalTiles, lower: Lower) -> Algorithm:
    """The algorithm `region`, for bodies whose calls are tiled and lowered by these."""

    def tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
        region = workload.kernel
        if not isinstance(region, Region):
            return []
        each = (
            sum(
                min(option.seconds for option in legal_tiles(workload_of(body, call), target, 1, "fp32"))
                for call in body.calls
            )
            for body in region.bodies
        )
        return [Proposal(Tile("region"), 1e-9 * CALL_NS + region.times * max(each))]

    def lowering(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
        assert isinstance(workload.kernel, Region)
        return RegionLowering(name, workload, workload.kernel, target, legal_tiles, lower)

    return Algorithm(("region",), tiles, lowering)


class RegionLowering(Lowering):
    """One tile task does all of it, or a slice of a batch."""

    def __init__(
        self, name: str, workload: Workload, region: Region, target: CpuTarget, legal: LegalTiles, lower: Lower
    ) -> None:
        self.name, self.workload, self.region, self.target = name, workload, region, target
        self._legal, self._lower = legal, lower

    @property
    def grid(self) -> None:
        """None: tasks are not cut along axes of a kernel."""

    @property
    def tasks(self) -> int:
        """As many as a batch has slices; else one, and one lane carries it out."""
        return max(self.region.slices, 1)

    @cached_property
    def _bodies(self) -> list[_Body]:
        known: dict[tuple[Workload, Tile], Lowered] = {}
        return [_Body(self, number, known) for number in range(len(self.region.bodies))]

    def lower(self) -> Lowered:
        """Raises InternalError where an operand is not plain."""
        if any(not one.is_contiguous or not one.layout.is_plain for one in (*self._own_inputs, *self.workload.outputs)):
            raise InternalError(f"region {self.name} needs plain buffers", fix="report this model: it is our fault")
        kernels = [kernel for body in self._bodies for kernel in body.kernels]
        texts = dict.fromkeys(kernel.text for kernel in kernels)
        headers = frozenset[str]().union(*(kernel.headers for kernel in kernels))
        writer = Writer()
        describe(writer, self.workload, *self._note())
        with writer.block(signature(self.name)):
            if self.region.slices:
                self._write_slices(writer)
            else:
                writer.line("(void)begin, (void)end;")
                if self.region.loop:
                    _Loop(self, self._bodies[0], self.region.loop).write(writer)
                else:
                    self._write_choice(writer)
        packings = {
            use.slot: packing
            for body in self._bodies
            for use, packing in packed(body.graph, body.uses, [kernel.packings for kernel in body.kernels])
        }
        return Lowered(
            self.name, "\n".join((*texts, writer.text())), self.tasks, self.scratch_bytes, packings, headers=headers
        )

    @property
    def _own_inputs(self) -> tuple[Buffer, ...]:
        return self.workload.inputs[: len(self.workload.inputs) - len(self.region.uses)]

    def _note(self) -> tuple[str, ...]:
        names = [", ".join(kernel.name for kernel in body.kernels) for body in self._bodies]
        loop = self.region.loop
        if self.region.slices:
            return (f"for each of {self.region.slices} slices of a batch: {names[0]}",)
        if loop is None:
            return (f"one or the other of {' | '.join(names)}",)
        return (f"{f'up to {loop.most} times' if loop.most else 'again and again'}: {names[0]}",)

    def _write_choice(self, writer: Writer) -> None:
        for at, body in enumerate(self._bodies):
            head = "if (*(const uint8_t *)p[0])" if at == 0 else "else"
            with writer.block(head):
                inputs = [f"p[{1 + place}]" for place in range(len(body.graph.inputs))]
                first = len(self.workload.inputs)
                body.write(writer, inputs, [f"p[{first + place}]" for place in range(len(body.graph.outputs))], 0)

    def _write_slices(self, writer: Writer) -> None:
        (body,) = self._bodies

        def pointers(inner: Sequence[int], outer: Sequence[Buffer], first: int) -> list[str]:
            found = []
            for place, (id, whole) in enumerate(zip(inner, outer, strict=True), first):
                own = body.graph.buffers[id].type
                found.append(f"p[{place}]" if own == whole.type else f"((char *)p[{place}] + slice * {own.bytes})")
            return found

        first, slices = self.region.first, self.region.slices
        if self.region.counted:
            order = ", ".join(map(str, spread(slices)))
            writer.line("/* Each lane takes a stretch of these, of which about as many are below any count. */")
            writer.line(f"static const int order[{slices}] = {{{order}}};")
        with writer.block("for (long turn = begin; turn < end; turn++)"):
            writer.line(f"const long slice = {'order[turn]' if self.region.counted else 'turn'};")
            if self.region.counted:
                writer.line("if (slice >= *(const int64_t *)p[0]) continue;")
            inputs = pointers(body.graph.inputs, self._own_inputs[first:], first)
            outputs = pointers(body.graph.outputs, self.workload.outputs, len(self.workload.inputs))
            body.write(writer, inputs, outputs, 0)

    @property
    def scratch_bytes(self) -> int:
        """Bytes for the larger of the bodies, and for the loop's own values."""
        extra = _Loop(self, self._bodies[0], self.region.loop).bytes if self.region.loop else 0
        return extra + max(body.bytes for body in self._bodies)


def spread(count: int) -> list[int]:
    """The numbers below `count` by their reversed bits (van der Corput): any stretch has some of the whole range."""
    bits = max(count - 1, 1).bit_length()
    reversed_bits = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in reversed_bits if number < count]


class _Body:
    """One body: its kernels, and where its values lie."""

    def __init__(self, of: RegionLowering, number: int, known: dict[tuple[Workload, Tile], Lowered]) -> None:
        self.graph: KernelGraph = of.region.bodies[number]
        self.places, self.arena_bytes = place_buffers(self.graph)
        self.uses = uses_of(of.region, number)
        loop = of.region.loop
        self.in_place = carried_in_place(self.graph, loop) if loop else []
        self.kernels: list[Lowered] = []
        for at, call in enumerate(self.graph.calls):
            workload = workload_of(self.graph, call)
            tile = of.region.tiles[number][at] if of.region.tiles else _best(of, workload)
            if loop and at in self.in_place and tile == PLAIN:
                workload = updating(workload, self.graph, call, self.in_place.index(at), loop)
            key = workload.nameless, tile
            if key not in known:
                name = f"{of.name}_{function_name(workload, len(known))}"
                known[key] = of._lower(name, workload, tile, of.target).lower()
            self.kernels.append(known[key])

    @property
    def bytes(self) -> int:
        """Of the arena and the scratch of the kernels behind it."""
        return self.arena_bytes + max((_whole(kernel.scratch_bytes) for kernel in self.kernels), default=0)

    def write(self, writer: Writer, inputs: Sequence[str], outputs: Sequence[str], scratch: int) -> None:
        """The calls in their order, on these pointers; the arena begins at a byte of the scratch."""
        for at, (call, kernel) in enumerate(zip(self.graph.calls, self.kernels, strict=True)):
            operands = [
                self._operand(at, place, id, kernel, inputs, outputs, scratch)
                for place, id in enumerate((*call.inputs, *call.outputs))
            ]
            with writer.block(""):
                writer.line(f"void *const q[] = {{{', '.join(operands)}}};")
                writer.line(f"{kernel.name}(q, scratch + {scratch + self.arena_bytes}, 0, {kernel.tiles});")

    def _operand(
        self,
        call: int,
        operand: int,
        id: int,
        kernel: Lowered,
        inputs: Sequence[str],
        outputs: Sequence[str],
        scratch: int,
    ) -> str:
        buffer = self.graph.buffers[id]
        place: Place = self.places[buffer.storage]
        offset = buffer.offset * buffer.dtype.bytes
        if place.space == "constant":
            base = f"p[{self.uses[call, operand].slot}]"
            offset = 0 if kernel.packings.get(operand) else offset
        elif place.space == "arena":
            return f"scratch + {scratch + place.at + offset}"
        else:
            base = (inputs if place.space == "input" else outputs)[place.at]
        return f"(char *){base} + {offset}" if offset else f"(void *){base}"


class _Loop:
    """A body again and again."""

    def __init__(self, of: RegionLowering, body: _Body, loop: Loop) -> None:
        self.of, self.body, self.loop = of, body, loop
        self.in_place = [at is not None for at in body.in_place]
        self.sizes = [of.workload.outputs[at].type.bytes for at in range(loop.carried)]

    @property
    def bytes(self) -> int:
        """Of second places."""
        return sum(_whole(size) for size, same in zip(self.sizes, self.in_place, strict=True) if not same)

    def write(self, writer: Writer) -> None:
        """The loop: what is carried, the turns, what is left."""
        loop, workload = self.loop, self.of.workload
        first, results = loop.first, len(workload.inputs)
        at = 0
        writer.line(f"void *now[{max(loop.carried, 1)}], *next[{max(loop.carried, 1)}];")
        for place, (size, same) in enumerate(zip(self.sizes, self.in_place, strict=True)):
            own = f"p[{results + place}]"
            if same:
                writer.line(f"memcpy({own}, p[{first + place}], {size});")
                writer.line(f"now[{place}] = next[{place}] = {own};")
            else:
                writer.line(f"now[{place}] = p[{first + place}], next[{place}] = {own};")
        writer.line("int64_t number = 0;")
        writer.line(
            f"uint8_t going = {'*(const uint8_t *)p[' + str(int(loop.given[0])) + ']' if loop.given[1] else 1};"
        )
        limits = ["*(const int64_t *)p[0]"] * loop.given[0] + [str(loop.most)] * bool(loop.most)
        test = " && ".join([*(f"number < {limit}" for limit in limits), "going"])
        with writer.block(f"for (; {test}; number++)"):
            inputs = ["&number", *(f"now[{place}]" for place in range(loop.carried))]
            inputs += [f"p[{first + loop.carried + place}]" for place in range(loop.outer)]
            outputs = ["&going"] * loop.decides + [f"next[{place}]" for place in range(loop.carried)]
            columns = range(results + loop.carried, results + loop.carried + loop.columns)
            rows = [workload.outputs[place - results].type.bytes // loop.most for place in columns]
            outputs += [f"((char *)p[{place}] + number * {row})" for place, row in zip(columns, rows, strict=True)]
            self.body.write(writer, inputs, outputs, self.bytes)
            for place, same in enumerate(self.in_place):
                if not same:
                    spare = f"scratch + {at}"
                    at += _whole(self.sizes[place])
                    writer.line(f"void *const old_{place} = number ? now[{place}] : {spare};")
                    writer.line(f"now[{place}] = next[{place}], next[{place}] = old_{place};")
        for place, (size, same) in enumerate(zip(self.sizes, self.in_place, strict=True)):
            if not same:
                own = f"p[{results + place}]"
                writer.line(f"if (now[{place}] != {own}) memcpy({own}, now[{place}], {size});")
        for place, row in zip(columns, rows, strict=True):
            writer.line(f"memset((char *)p[{place}] + number * {row}, 0, ({loop.most} - number) * {row});")
        writer.line(f"*(int64_t *)p[{results + loop.carried + loop.columns}] = number;")


def _best(of: RegionLowering, workload: Workload) -> Tile:
    options = of._legal(workload, of.target, 1, "fp32")
    return min(options, key=lambda option: option.seconds).tile


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
