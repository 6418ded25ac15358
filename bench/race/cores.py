"""The cores that a race is run on: which, how fast, how far apart, and whether they were taken away meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.codegen.build import environment_compiler, find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.measure.timer import TIMER_SOURCE, Timer
from compiler.devices.cpu.target import this_machine
from compiler.ir.plans.lanes import Handover
from tilewright.errors import UsageError

PROBES = 3
"""The best of so many says how fast a core is: one alone may meet a tick of the kernel's clock."""
RALLIES = 400


@contextlib.contextmanager
def held_to(threads: int) -> Iterator[None]:
    """This thread, and every process it starts meanwhile, on the last `threads` of the cores it may use.

    Each thread of an engine then has one core, and the probe looks at just these. Raises `UsageError` where there are
    fewer.
    """
    allowed = os.sched_getaffinity(0)
    if threads > len(allowed):
        raise UsageError(
            f"{threads} threads on {len(allowed)} cores", fix=f"ask for at most {len(allowed)}, or free more cores"
        )
    os.sched_setaffinity(0, sorted(allowed)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass(frozen=True)
class Probe:
    """What is asked of the cores between turns."""

    timer: Timer

    def rate(self, threads: int) -> float:
        """fp32 FLOP/s of the slowest of the cores at nothing but multiply-adds."""
        return max(self.timer.probe(threads) for _ in range(PROBES))

    def handover(self) -> Handover:
        """What one core needs to see another's store."""
        return Handover.of(self.timer.handover(RALLIES))


@contextlib.contextmanager
def probe() -> Iterator[Probe]:
    """Probes built for this machine. Raises the compiler's `ToolchainMissing` without a C compiler."""
    toolchain = find_toolchain(environment_compiler(os.environ))
    with Timer(build_library({"timer.c": TIMER_SOURCE}, this_machine(), toolchain)) as timer:
        yield Probe(timer)
