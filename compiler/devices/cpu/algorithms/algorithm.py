"""What an algorithm of CPU targets is: the tiles that it proposes and how it lowers a kernel under one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

Tiles = Callable[[Workload, CpuTarget, int], list[Proposal]]
"""The legal tiles of one workload on one target, for a plan of so many lanes.

Empty for a kernel that the algorithm does not take.
"""
Lower = Callable[[str, Workload, Tile, CpuTarget], Lowering]
"""A kernel as a C function of a name, under a tile that the algorithm proposed."""


TakesShort = Callable[[Workload], bool]
"""Whether a kernel whose buffers have elements shorter in memory (`Buffer.element`) can be lowered as they are."""


def no_short(workload: Workload) -> bool:
    """Of an algorithm that reads or writes memory as fp32 by itself."""
    return all(buffer.element is None for buffer in (*workload.inputs, *workload.outputs))


def any_short(workload: Workload) -> bool:
    """Of an algorithm that leaves all loads and stores of buffers to emitters, which convert."""
    return True


@dataclass(frozen=True)
class Algorithm:
    """One way to carry out a kernel.

    names      what its tiles call it (`Tile.algorithm`): one, or one for each form of its constants
    precision  of the jobs that ask it beside those of fp32. What it rounds away is what they asked for, and no part of
               their tolerance
    takes      which elements in memory it can do with
    """

    names: tuple[str, ...]
    tiles: Tiles
    lower: Lower
    precision: str = "fp32"
    takes: TakesShort = no_short
