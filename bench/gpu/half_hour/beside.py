"""A model in parts on cores and a GPU that nobody would choose: the GPU in the middle, by two queues.

What a division is worth the compiler predicts, and seldom would a small model be cut at all. Whether parts, copies and
queues work on a GPU shows only where one is.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.parts import Parts
from compiler.schedule.parts.dividing import on_two_queues, parts_of
from compiler.schedule.solvers.ideals import Division
from compiler.steps.dividing import step as dividing

CORES, GPU = 0, 1
"""Places of the devices `cpu` and `cuda:0`."""


def there_and_back(kernels: KernelGraph, names: Sequence[str], division: Division, queues: int = 2) -> Parts:
    """The first call and the last on the cores, all between them on the GPU."""
    last = len(kernels.calls) - 1
    inner = division.whole & ~1 & ~(1 << last)
    parts = parts_of(kernels, names, division, [(CORES, 1), (GPU, inner), (CORES, 1 << last)], "pipeline")
    return on_two_queues(kernels, names, division, parts) if queues > 1 else parts


def cut_for_two_queues() -> None:
    """From now on this process divides every model so, whatever is predicted."""
    for solver in ("replicas", "pipeline"):
        setattr(dividing, solver, there_and_back)
