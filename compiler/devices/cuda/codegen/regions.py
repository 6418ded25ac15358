"""What lowering a region to CUDA gives: kernels of bodies, where their operands lie, and what the host decides by.

    loop      `entry`; while the number is below the limits and the body has not said otherwise: body, `turn`
    choice    one body or the other

All that a body touches lies at one place in every iteration, so that its launches are a graph that is made once. What
is carried lies in the region's results: `entry` copies the first values there; a body writes the next ones beside them,
or over them where nothing reads the old ones any more; `turn` copies those beside to their place, and rows to their
columns, and counts. So the host only launches graphs, and reads a number or a flag where it has to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ir.region import Loop, Use


@dataclass(frozen=True)
class Spot:
    """Where something lies: so many bytes behind an argument of the region.

    Its arguments are its operands, its results, then scratch memory, by position.
    """

    argument: int
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """A kernel that is no call of a body, and what it is given."""

    kernel: CudaLowered
    given: tuple[Spot, ...]


@dataclass(frozen=True)
class CudaBody:
    """Calls in their order on one stream.

    lowered        their kernels
    inputs         where the inputs and the outputs of the kernel graph lie
    uses           the operand of the region that is a constant of a call, by call and operand
    arena          where the plan's arena lies, and behind it the scratch memory of the kernels
    """

    kernels: KernelGraph
    plan: Plan
    lowered: tuple[CudaLowered, ...]
    inputs: tuple[Spot, ...]
    outputs: tuple[Spot, ...]
    uses: Mapping[tuple[int, int], Use]
    arena: Spot
    scratch: Spot


@dataclass(frozen=True)
class CudaRegion(CudaLowered):
    """A region: no kernel of its own, and a launch only as far as a plan is concerned.

    `scratch_bytes` and `counters` are those of all its kernels. `trips` (i64) and `going` (bool) are what the host
    reads before it decides, `again` (bool) what it reads after each iteration, where they are there.
    """

    loop: Loop | None = None
    bodies: tuple[CudaBody, ...] = ()
    entry_step: Step | None = None
    turn_step: Step | None = None
    trips: Spot | None = None
    going: Spot | None = None
    again: Spot | None = None
