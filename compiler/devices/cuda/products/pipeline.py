"""A product by steps of k that come through a pipeline of stages in shared memory, all of k or a part of it a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.operands import Operand, Packed
from compiler.devices.cuda.products.lowering import CudaContraction, Operands, switches_of
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, axes_of
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tile import Tile

MBARRIER_BYTES = 8
Place = Callable[[Operand, str], str]
"""C for where a stage's tile of an operand lies in shared memory."""


def pipelined(
    name: str, workload: Workload, view: Contraction, tile: Tile, operands: Operands, target: CudaTarget
) -> CudaContraction:
    """A product of such operands, whose steps come through the pipeline."""
    return CudaContraction(name, workload, view, tile, operands, Even(), Pipeline(), **switches_of(target))


@dataclass(frozen=True)
class Even:
    """All steps of k, in parts of equally many; `counts`: they are a loop."""

    counts: bool = True

    def steps(self, of: CudaContraction) -> int:
        """Of all of k."""
        return -(-of.view.depth // of.depth)

    def parts(self, of: CudaContraction) -> int:
        """Of a cluster, or as many as have steps."""
        return of.cluster if of.cluster > 1 else max(-(-of.steps // of.part_steps), 1)

    def declare(self, of: CudaContraction, writer: Writer, part: str) -> None:
        """The steps of the block, and which part of k they are; `part` is empty where k is whole."""
        if part:
            writer.line(f"const int part = {part}, first_step = part * {of.part_steps};")
            const = "" if of.bounds else "const "
            writer.line(f"{const}int past_step = min({of.steps}, first_step + {of.part_steps});")
        elif of.bounds:
            writer.line("const int first_step = 0;")
            writer.line(f"int past_step = {of.steps};")
        elif self.counts:
            writer.line(f"const int first_step = 0, past_step = {of.steps};")

    def begin(self, of: CudaContraction, writer: Writer) -> None:
        """Nothing depends on the tile."""


@dataclass(frozen=True)
class Pipeline:
    """While one step is multiplied, the next ones are under way."""

    def ahead(self, of: CudaContraction) -> int:
        """All stages but those that are being read."""
        ahead = of.stages - 1 - of.product.lag
        assert ahead > 0, "a stage is filled while others are read"
        return ahead

    def shared_bytes(self, of: CudaContraction) -> int:
        """Stages, or the sums that take their place, and an mbarrier for each stage where copies are bulk ones."""
        return of.barriers_at + MBARRIER_BYTES * of.stages * of.b.is_bulk

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """B alone."""
        return {} if of.packing is None else dict([of.packing])

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """The maps of a whole tile."""
        return Epilogue(of.view, of.slots, of.m, of.n, of.product.threads, of.total, of.cluster, of.constants)

    def notes(self, of: CudaContraction) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        view = of.view
        over = f"batch {axes_of(view.batch)}, m {axes_of(view.m)}, n {axes_of((view.n,))}, k {axes_of(view.k)}"
        parts = f", k in {of.parts} parts" if of.parts > 1 else ""
        parts += " of a cluster" if of.cluster > 1 else ""
        return [
            f"sums of products over {over}",
            f"tiles of {of.m} x {of.n} by {of.depth} of k in {of.stages} stages{parts}: "
            f"{of.operands.called[of.tile.algorithm]}",
        ]

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """What threads keep of both operands, and the functions that bring them."""
        for operand in (of.a, of.b):
            operand.declare(writer)
            functions(writer, operand)

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """The first stages: constants before the wait for the predecessor."""
        fill(of, writer, prefetch)

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """The loop over steps."""
        loop(of, writer, (of.b, of.a), staged(of))


PIPELINE = Pipeline()


def staged(of: CudaContraction) -> Place:
    """Tiles of A, and behind them those of B, in the stages."""

    def place(operand: Operand, stage: str) -> str:
        offset = of.a.side.bytes if operand is of.b else 0
        return f"shared + {f'{offset} + ' if offset else ''}{stage} * {of.stage_bytes}"

    return place


def fill(of: CudaContraction, writer: Writer, before: Callable[[CudaContraction, Writer], None]) -> None:
    """The first stages: constants, and what is to be done `before`, come before the wait for the predecessor."""
    ahead = of.ahead
    for constant in (True, False):
        operands = [operand for operand in (of.b, of.a) if operand.is_constant is constant]
        if not constant:
            before(of, writer)
            writer.line("tw_grid_dependency_wait();")
        if not operands:
            continue
        with unrolled(writer, ahead, "stage"):
            with writer.block("if (first_step + stage < past_step)"):
                for operand in operands:
                    fetch(writer, operand, "first_step + stage", "stage", staged(of))
                    put(writer, operand, "stage", staged(of))
            if not constant:
                writer.line("tw_cp_async_commit();")


def functions(writer: Writer, operand: Operand) -> None:
    """`fetch_a`, and `put_a` for what goes through registers."""
    name = operand.side.name
    into = "" if operand.in_registers else ", unsigned char *into"
    into += ", unsigned long long *arrival" * operand.is_bulk
    with writer.block(f"const auto fetch_{name} = [&](int step{into})", "};"):
        operand.fetch(writer)
    if operand.in_registers:
        with writer.block(f"const auto put_{name} = [&](unsigned char *into)", "};"):
            operand.put(writer)


def fetch(writer: Writer, operand: Operand, step: str, stage: str, place: Place) -> None:
    """Begins copies of a step's tile of an operand to a stage."""
    into = "" if operand.in_registers else f", {place(operand, stage)}"
    into += f", landed + {stage}" * operand.is_bulk
    writer.line(f"fetch_{operand.side.name}({step}{into});")


def put(writer: Writer, operand: Operand, stage: str, place: Place) -> None:
    """Stores what registers hold of it."""
    if operand.in_registers:
        writer.line(f"put_{operand.side.name}({place(operand, stage)});")


def prefetch(of: CudaContraction, writer: Writer) -> None:
    """Weights that no stage has room for yet are on their way to the second-level cache."""
    if of.prefetch and isinstance(of.b, Packed) and of.part_steps > of.ahead:
        of.b.prefetch(writer, of.ahead)


def loop(of: CudaContraction, writer: Writer, fetched: Sequence[Operand], place: Place) -> None:
    """The loop over steps.

    Wait for this one, start the one that the stage of an earlier one has room for, multiply.
    """
    last = of.stages - 1
    writer.line(f"int stage = 0, free_stage = {of.ahead};")
    if of.b.is_bulk:
        writer.line("unsigned parity = 0;")
    with writer.block("for (int step = first_step; step < past_step; step++)"):
        writer.line(f"tw_cp_async_wait<{of.ahead - 1}>();")
        if of.product.is_asynchronous:
            writer.line("tw_fence_proxy_async();")
        writer.line("__syncthreads();")
        writer.line(f"const bool more = step + {of.ahead} < past_step;")
        with writer.block("if (more)"):
            for operand in fetched:
                fetch(writer, operand, f"step + {of.ahead}", "free_stage", place)
        writer.line("tw_cp_async_commit();")
        if of.b.is_bulk:
            writer.line("tw_mbarrier_wait(landed + stage, parity);")
        writer.line(f"const unsigned char *const a_tile = {place(of.a, 'stage')};")
        writer.line(f"const unsigned char *const b_tile = {place(of.b, 'stage')};")
        of.product.multiply(writer, of.depth, (of.a.rounded, of.b.rounded))
        if of.a.in_registers or of.b.in_registers:
            with writer.block("if (more)"):
                for operand in fetched:
                    put(writer, operand, "free_stage", place)
        if of.b.is_bulk:
            writer.line(f"parity ^= stage == {last};")
        writer.line(f"stage = stage == {last} ? 0 : stage + 1;")
        writer.line(f"free_stage = free_stage == {last} ? 0 : free_stage + 1;")
    of.product.finish(writer)
