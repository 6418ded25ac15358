"""A device on which tiles decide what a trial takes, and three kernels to be tiled for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from compiler.contract import Event
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.devices.kinds import tiles_of
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.tile import Tile
from compiler.knowledge.budget import TuningBudget
from compiler.trace import StopRequest, Trace, never_stops
from compiler.tuning.tune import Tiled
from tests.compiler.tuning.tuned import tuned
from tests.parse import parse_kernel

SETTING = Setting("cache", "gcc 12")
TARGET = replace(PROFILES[0], hardware="here", lanes=2)
PRODUCT = """
kernel MatMul(in x0: f32[{m}, 64], in x1: f32[64, 96]; out y0: f32[{m}, 96])
  for m:{m}, n:96
    y0[m, n] = sum<f32> k:64 . mul(x0[m, k], x1[k, n])
"""
POINTWISE = """
kernel MatMul(in x0: f32[49, 512], in x1: f32[512, 96]; out y0: f32[49, 96])
  for m:49, n:96
    y0[m, n] = sum<f32> k:512 . mul(x0[m, k], x1[k, n])
"""
MAP = "kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7]) for i:5, j:7 y0[i, j] = max(x0[i, j], 0.0:f32)"


def workload(text: str, constant: Sequence[bool] = (), *, name: str = "") -> Workload:
    kernel = parse_kernel(text)
    inputs = tuple(Buffer.whole(0, slot.type, name=name) for slot in kernel.inputs)
    outputs = tuple(Buffer.whole(0, slot.type, name=name) for slot in kernel.outputs)
    return Workload(kernel, inputs, outputs, tuple(constant) or (False,) * len(inputs))


WORKLOADS = [
    workload(PRODUCT.format(m=32), (False, True)),
    workload(MAP),
    workload(PRODUCT.format(m=48), (False, True)),
]


@dataclass
class FakeMachine:
    """A device on which every trial takes a time that its tile decides."""

    asked: list[Trial] = field(default_factory=list)
    hardware: str = "here"
    lanes: int = 2
    broken: float | None = None

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        for trial in trials:
            self.asked.append(trial)
            yield record_of(trial, seconds_of(trial.tile) if self.broken is None else self.broken)


def seconds_of(tile: Tile) -> float:
    """Widest panels first: not the model's order."""
    return 1e-3 / (1 + tile.extent("register", "n"))


def record_of(trial: Trial, seconds: float) -> Record:
    variant = {**trial.tile.to_json(), "lanes": trial.lanes, **SETTING.to_json()}
    return Record("kernel", trial.key, "op", "", TARGET.name, "here", variant, 1, seconds, seconds, seconds, 9)


def tiled(
    machine: FakeMachine | None,
    records: Sequence[Record] = (),
    budget_s: float = 60.0,
    target: CpuTarget = TARGET,
    trace: Trace | None = None,
    stop_requested: StopRequest = never_stops,
) -> Tiled:
    budget = TuningBudget(budget_s, stop_requested=stop_requested)
    return tuned(
        WORKLOADS,
        target,
        tiles_of(target),
        2,
        records,
        SETTING,
        machine,
        budget,
        lambda workload, tile: 4,
        trace or Trace(),
    )


def kept(first: Tiled, trace_events: Sequence[Event]) -> list[Record]:
    """All records that left, in order."""
    records = [Record.from_json(event.data) for event in trace_events if event.kind == "record"]
    assert [record for record in records if record.kind == "kernel"] == list(first.measured)
    return records
