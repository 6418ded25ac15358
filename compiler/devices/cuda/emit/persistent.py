"""A plan as one persistent kernel, whose resident blocks take its tile tasks in order (`tw_persistent.h`).

    __constant__ const tw_call tw_calls[]; int tw_waits[]; long long tw_places[];
    __device__ void k0_..._tile(inputs..., outputs..., [scratch], [counters], number of the call, tile)
    extern "C" __global__ void persistent(arena, weights, ...)      takes tickets, and calls tile functions

The tile functions are those of launches, but that they wait for calls where these wait for a grid, and that barriers
of a block are for the threads that a tile function has, since others of the block wait for the next task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.host_tables import Operand
from compiler.codegen.writer import Writer
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.entry import TileFunction, declaration
from compiler.devices.cuda.codegen.lowered import COUNTER_BYTES, CudaLowered
from compiler.devices.cuda.emit.launches import Launch
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.errors import VerifyError
from compiler.ir.tile import Tile

NAME = "persistent"
BLOCK_BYTES, BLOCK_ALIGNMENT = 48, 16
"""Of a `tw_block`, behind what tile functions have of shared memory."""
LINE_BYTES = 128
"""From one count of ended tasks to the next, behind the next ticket: each has a cache line of its own."""
TIME_BYTES = 8
TIMED_AT = 8
"""Where it says whether calls are timed."""
CALL_BYTES, MOST_CONSTANT = 24, 48 << 10
"""Of a `tw_call`; and of tables that lie in constant memory, of which a module has 64 KiB: longer ones lie in global
memory."""
FRAME = """\
#undef __syncthreads
#undef __syncthreads_or
#undef tw_grid_dependency_wait
#define __syncthreads() tw_barrier_sync(TW_TILE_BARRIER, TILE_THREADS)
#define __syncthreads_or(said) tw_barrier_or(TW_TILE_BARRIER, TILE_THREADS, said)
#define tw_grid_dependency_wait() TILE_WAIT
"""
TOGETHER, DONE = "tw_await(TW_OWN, tw_calls, tw_waits, tw_number, TILE_THREADS)", "(void)0"
"""What a tile function does to wait: all its threads together, or nothing where that was done before it is called."""
PARAMETERS: Mapping[str, tuple[str, str]] = {
    "SPACE_ARENA": ("unsigned char *", "arena"),
    "SPACE_WEIGHTS": ("const unsigned char *__restrict__ ", "weights"),
    "SPACE_SCRATCH": ("unsigned char *", "scratch_memory"),
    "SPACE_COUNTERS": ("unsigned char *", "counts"),
    "SPACE_INPUT": ("unsigned char *", "input_"),
    "SPACE_OUTPUT": ("unsigned char *", "output_"),
}
"""Of the kernel, by space: C type and name; inputs and outputs have one for each port."""
WAIT, OUTERMOST = re.compile(r"^( *)tw_grid_dependency_wait\(\);", re.MULTILINE), " " * 4
"""Where tile functions wait, by how far the line is indented; and how far those are that no condition stands before."""
WARPGROUPS = "wgmma"
"""In the names of algorithms whose operands come at barriers of their own."""
INCLUDE = re.compile(r'#include "(\w+\.h)"\n')


def can_be_resident(tile: Tile) -> bool:
    """Whether resident blocks may carry out a tile, by what it names; `refusal` has the last word."""
    return WARPGROUPS not in tile.algorithm and all(level.name != "cluster" for level in tile.levels)


def refusal(lowered: CudaLowered) -> str:
    """Why resident blocks cannot carry out a kernel, in words; empty where they can.

    They are in no cluster. A barrier for arrivals of copies is set up once in the life of a block's shared memory. Of
    barriers for all threads those in a kernel's own text become ones for its own threads.
    """
    if len(lowered.tiles) != 1:
        return "it is no tile function"
    if lowered.cluster > 1:
        return "its blocks work in clusters"
    if lowered.block % WARP:
        return "its threads are no whole warps"
    if "mbarrier" in lowered.text or lowered.needs:
        return "it has barriers for bulk copies, or asks for an architecture of its own"
    for name in INCLUDE.findall(lowered.text):
        if "__syncthreads" in nvrtc.headers().get(name, ""):
            return f"functions of {name} meet with all threads of a block"
    return ""


@dataclass(frozen=True)
class Shape:
    """Threads and shared memory of resident blocks: of the greediest of their tasks, and what they know themselves."""

    threads: int
    shared_bytes: int

    @staticmethod
    def of(members: Sequence[CudaLowered]) -> Shape:
        """Blocks that can carry out any of the members."""
        shared = max((one.shared_bytes for one in members), default=0)
        shared = -(-shared // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT + BLOCK_BYTES
        return Shape(max((one.block for one in members), default=WARP), shared)


@dataclass(frozen=True)
class Persistent:
    """The kernel, what it is given, and the bytes of all counters, of which its own come first.

    From `times_at` on they have begin and end of each call, in the order of tasks.
    """

    kernel: CudaLowered
    operands: tuple[Operand, ...]
    counter_bytes: int
    times_at: int


def persistent(
    nodes: Sequence[Launch],
    lowered: Sequence[CudaLowered],
    given: Mapping[int, Sequence[Operand]],
    residents: int,
    target: CudaTarget,
) -> Persistent:
    """The launches of a plan, in its order, as one kernel.

    `lowered` is in call order; `given` says of each call where its operands lie, scratch memory after them.

    Raises VerifyError for a call that cannot be carried out so, and where a launch waits for a later one.
    """
    return _Emission(nodes, lowered, given, residents, target).emitted()


@dataclass(frozen=True)
class _Call:
    """A call of the plan, from its `first` task on: after which others, by their places, and what it is given."""

    call: int
    lowered: CudaLowered
    first: int
    after: tuple[int, ...]
    operands: tuple[Operand, ...]


class _Emission:
    def __init__(
        self,
        nodes: Sequence[Launch],
        lowered: Sequence[CudaLowered],
        given: Mapping[int, Sequence[Operand]],
        residents: int,
        target: CudaTarget,
    ) -> None:
        self.residents, self.blocks = residents, residents * target.multiprocessors
        count = sum(len(node.calls) for node in nodes)
        self.times_at = LINE_BYTES * (1 + count)
        self.counter_bytes = self.times_at + 2 * TIME_BYTES * count
        self.calls: list[_Call] = []
        self.tasks = 0
        places: list[tuple[int, ...]] = []
        for at, node in enumerate(nodes):
            if any(earlier >= at for earlier in node.after):
                raise VerifyError(
                    f"launch {at} waits for one that comes later: a persistent kernel would wait for ever"
                )
            after = tuple(sorted(place for earlier in node.after for place in places[earlier]))
            places.append(tuple(range(len(self.calls), len(self.calls) + len(node.calls))))
            for call in node.calls:
                self._add(call, lowered[call], after, given[call])
        self.shape = Shape.of([one.lowered for one in self.calls])
        self.kernels = {one.lowered.name: one.lowered for one in self.calls}
        self.spaces = [*dict.fromkeys((one.space, one.port) for call in self.calls for one in call.operands)]
        if ("SPACE_COUNTERS", 0) not in self.spaces:
            self.spaces.append(("SPACE_COUNTERS", 0))

    def _add(self, call: int, lowered: CudaLowered, after: tuple[int, ...], given: Sequence[Operand]) -> None:
        if reason := refusal(lowered):
            raise VerifyError(f"a persistent kernel cannot carry out call {call} ({lowered.name}): {reason}")
        operands = [*given]
        if lowered.counters:
            operands.append(Operand("SPACE_COUNTERS", 0, self.counter_bytes))
            self.counter_bytes += COUNTER_BYTES * lowered.counters
        self.calls.append(_Call(call, lowered, self.tasks, after, tuple(operands)))
        self.tasks += lowered.grid

    def emitted(self) -> Persistent:
        """All of it."""
        writer = Writer()
        headers = dict.fromkeys(name for one in self.kernels.values() for name in INCLUDE.findall(one.text))
        for name in ("tw_persistent.h", *headers):
            writer.line(f'#include "{name}"')
        self._tables(writer)
        functions = "".join(self._function(one.tiles[0]) for one in self.kernels.values())
        text = f"{writer.text()}{FRAME}{functions}{self._entry()}"
        kernel = CudaLowered(NAME, text, self.blocks, self.shape.threads, self.shape.shared_bytes)
        operands = tuple(Operand(space, port, 0) for space, port in self.spaces)
        return Persistent(kernel, operands, self.counter_bytes, self.times_at)

    def _tables(self, writer: Writer) -> None:
        sizes = {"TASKS": self.tasks, "THREADS": self.shape.threads, "BLOCKS": self.blocks}
        writer.line(f"enum {{ {', '.join(f'TW_{name} = {size}' for name, size in sizes.items())} }};")
        writer.line(f"#define TW_OWN ((tw_block *)(tw_dynamic_shared() + {self.shape.shared_bytes - BLOCK_BYTES}))")
        numbers = {name: at for at, name in enumerate(self.kernels)}
        waits: list[int] = []
        places: list[int] = []
        rows: list[str] = []
        for one in self.calls:
            past, past_wait = one.first + one.lowered.grid, len(waits) + len(one.after)
            row = (numbers[one.lowered.name], one.first, past, len(waits), past_wait, len(places))
            rows.append(f"{{{', '.join(map(str, row))}}}, /* call {one.call} of the plan */")
            waits += one.after
            places += [operand.at for operand in one.operands]
        size = CALL_BYTES * len(rows) + 4 * len(waits) + 8 * len(places)
        space = "__constant__" if size <= MOST_CONSTANT else "__device__"
        with writer.block(f"{space} const tw_call tw_calls[] =", "};"):
            for text in rows:
                writer.line(text)
        for kind, name, of in (("int", "tw_waits", waits), ("long long", "tw_places", places)):
            writer.line(f"{space} const {kind} {name}[] = {{{', '.join(map(str, of)) or '0'}}};")

    def _function(self, tile: TileFunction) -> str:
        """A tile function that is told for which call it works, and is compiled by itself.

        As parts of one function all of them would share registers, and take the assembler far longer.
        """
        head, body = tile.text.index(f"__device__ __forceinline__ void {tile.name}_tile("), ") {\n"
        begin = tile.text.index(body, head) + len(body)
        index = tile.text[head : begin - len(body)].rpartition(", ")[2]
        declared = declaration([*tile.parameters, ("int ", "tw_number")])
        known = [f"    tw_assume_global({name});\n" for _, name in tile.parameters]
        known += ["    unsigned char *const shared = tw_dynamic_shared();\n"] * tile.shared
        own = f"__device__ __noinline__ void {tile.name}_tile({declared}, {index}) {{\n{''.join(known)}"
        text = INCLUDE.sub("", f"{tile.text[:head]}{own}{tile.text[begin:]}")
        wait = TOGETHER if _waits_together(tile) else DONE
        defined = f"#define TILE_THREADS {tile.threads}\n#define TILE_WAIT {wait}\n"
        return f"{defined}{text}#undef TILE_WAIT\n#undef TILE_THREADS\n"

    def _entry(self) -> str:
        declared = ", ".join(f"{PARAMETERS[space][0]}{_parameter(space, port)}" for space, port in self.spaces)
        writer = Writer()
        line = writer.line
        with writer.block(
            f'extern "C" __global__ void __launch_bounds__(TW_THREADS, {self.residents}) {NAME}({declared})'
        ):
            line("tw_block *const own = TW_OWN;")
            line(f"unsigned *const ended = (unsigned *)(counts + {LINE_BYTES});")
            line(f"unsigned long long *const times = (unsigned long long *)(counts + {self.times_at});")
            line("tw_tickets tickets = {(unsigned long long *)counts, 0, 0};")
            line("if (threadIdx.x == 0) tw_begin(own, tickets, ended, times, tw_calls, TW_TASKS, TW_BLOCKS);")
            line("tw_barrier_sync(TW_TURN_BARRIER, TW_THREADS);")
            with writer.block("for (int turn = 0; own->turns[turn].task < TW_TASKS; turn ^= 1)"):
                line("const tw_turn now = own->turns[turn];")
                line("const unsigned long long next = threadIdx.x == 0 ? tw_take_ticket(tickets) : 0;")
                line("const unsigned long long began = threadIdx.x == 0 && own->times ? tw_global_timer() : 0;")
                line("const tw_call &call = tw_calls[now.call];")
                line("const long long *const place = tw_places + call.first_operand;")
                line("(void)place;")
                line("const int tile = now.task - call.first;")
                with writer.block("switch (call.kernel)"):
                    for number, name in enumerate(self.kernels):
                        self._case(writer, number, name)
                line("tw_cp_async_wait<0>(); /* none lands in the next task */")
                line("if (threadIdx.x == 0) own->turns[turn ^ 1] = tw_turn_of(tickets, next, tw_calls, TW_TASKS);")
                line("tw_barrier_sync(TW_TURN_BARRIER, TW_THREADS);")
                with writer.block("if (threadIdx.x == 0)"):
                    line("if (own->times) tw_time(own, tw_calls, tw_waits, now, began);")
                    line("tw_count_release(ended + TW_LINE * now.call);")
        return writer.text()

    def _case(self, writer: Writer, number: int, name: str) -> None:
        """One tile function, for each call that has it: what differs between these is read from the table of places."""
        tile = self.kernels[name].tiles[0]
        calls = [one for one in self.calls if one.lowered.name == name]
        arguments = []
        for at, (kind, _) in enumerate(tile.parameters):
            given = {call.operands[at] for call in calls}
            bases = list(dict.fromkeys((call.operands[at].space, call.operands[at].port) for call in calls))
            if len(given) == 1:
                base = f"{_parameter(*bases[0])} + {calls[0].operands[at].at}"
            elif len(bases) == 1:
                base = f"{_parameter(*bases[0])} + place[{at}]"
            else:
                base = f"{self._chosen(bases, calls, at)} + place[{at}]"
            arguments.append(f"({kind.replace('__restrict__ ', '').strip()})({base})")
        arguments += ["now.call", "tile"]
        with writer.block(f"case {number}: /* {name} */ if (threadIdx.x < {tile.threads})"):
            if not _waits_together(tile):
                writer.line(f"tw_await(own, tw_calls, tw_waits, now.call, {tile.threads});")
            writer.line(f"{tile.name}_tile({', '.join(arguments)});")
        writer.line("break;")

    def _chosen(self, bases: Sequence[tuple[str, int]], calls: Sequence[_Call], at: int) -> str:
        """The base of an operand that lies in another space, or port, in one call than in another."""
        usual = max(
            bases, key=lambda base: sum((one.operands[at].space, one.operands[at].port) == base for one in calls)
        )
        text = _parameter(*usual)
        for place, one in enumerate(self.calls):
            if one in calls and (base := (one.operands[at].space, one.operands[at].port)) != usual:
                text = f"(now.call == {place} ? {_parameter(*base)} : {text})"
        return text


def _waits_together(tile: TileFunction) -> bool:
    """Whether a tile function waits itself, with all of its threads: not within a condition that some may not meet."""
    waits = WAIT.findall(tile.text)
    return tile.waits and bool(waits) and all(indent == OUTERMOST for indent in waits)


def _parameter(space: str, port: int) -> str:
    name = PARAMETERS[space][1]
    return f"{name}{port}" if space in ("SPACE_INPUT", "SPACE_OUTPUT") else name
