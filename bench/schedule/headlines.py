"""What scheduling is worth on the GPUs on which others published it, by the model of costs: nothing is run.

One operator after another, as those works compare with, is one stream of launches. Of it there are three: the host
waits after each launch, or launches ahead, or has put all of them into one CUDA graph. What the first two take longer
for each launch than the graph is what was measured on a V100 (A. Gray, "Getting started with CUDA graphs", NVIDIA,
2019: 9.6, 3.8 and 3.4 us for kernels of 2.9 us in turn). Schedules are CUDA graphs.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bench.schedule.plan_facts import launches
from bench.settled import Settled, settled
from bench.stages import stages
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cuda.device import CudaBackend
from compiler.devices.cuda.target import KIB, MIB, PROFILES, CudaTarget
from compiler.ir.plans.lanes import LaneCosts
from compiler.schedule import schedule
from compiler.schedule.rules import CRITICAL_FIRST, LINEAR_CLUSTERS, RUNS_ALONE
from compiler.steps.costs.lanes import USUAL, WAKE_SECONDS

WAITED_S, AHEAD_S = 6.2e-6, 0.4e-6
"""By which a launch takes longer than in a graph where the host waits after each, and where it launches ahead."""
RTX3090 = next(one for one in PROFILES if one.name == "cuda:rtx3090")
V100 = replace(
    next(one for one in PROFILES if one.name == "cuda:sm_80"),
    name="V100 (predicted)",
    product="Tesla V100 SXM2 16 GB",
    multiprocessors=80,
    shared_bytes=96 * KIB,
    block_shared_bytes=96 * KIB,
    l2_bytes=6 * MIB,
    memory_bytes=16 << 30,
    dram_per_ns=900.0,
    l2_per_ns=2155.0,
    clock_ghz=1.53,
    mma_per_clock=1,
)
"""Facts for predictions alone. By NVIDIA, "Tesla V100 GPU architecture", 1.1 (2017); the second-level cache's rate by
Jia et al. (arXiv 1804.06826). Kernels are those for sm_80, whose asynchronous copies a V100 lacks; its tensor cores
take no tf32, so that no product by them may seem fast."""
GPUS: tuple[CudaTarget, ...] = (RTX3090, V100)
NETWORKS = (
    "squeezenet1_0",
    "inception_v3",
    "resnext50_32x4d",
    "ensemble",
    "nasnet_a_mobile",
    "nasnet_a_large",
    "randwire_large",
)
EARLY, STAGES = "early_start", "stages"
WITHOUT: Mapping[str, tuple[str, frozenset[str]]] = {
    "early_start": (EARLY, frozenset()),
    "early_start without critical_first": (EARLY, frozenset({CRITICAL_FIRST})),
    "early_start without runs_alone": (EARLY, frozenset({RUNS_ALONE})),
    "early_start without both": (EARLY, frozenset({CRITICAL_FIRST, RUNS_ALONE})),
    "stages": (STAGES, frozenset()),
    "stages without linear_clusters": (STAGES, frozenset({LINEAR_CLUSTERS})),
}
"""Schedulers, and the rules that each does without."""


CORES = (1, 2, 4, 8, 16, 32)
"""With 64 the search takes many minutes."""
ON_CORES: Mapping[str, tuple[int, ...]] = {
    "squeezenet1_0": CORES,
    "inception_v3": CORES,
    "nasnet_a_mobile": (1, 2, 4, 8),
}
"""Of the networks that are simulated, on how many: NASNet's search takes as long at 8 as Inception's at 32."""
SERVER = "cpu:neoverse-v1"
"""A CPU of many cores for which no record of this machine counts."""
FAR = LaneCosts(2 * 1e-9 * USUAL["far"].ns + WAKE_SECONDS, USUAL["far"].byte_s, USUAL["far"].upgrade_s)
"""Between cores, as it was measured between those that are far from each other."""


def on_cores(one: Subject) -> Iterator[dict[str, Any]]:
    """A row of plain JSON for each number of cores in ON_CORES, or in CORES. Raises what the compiler raises.

    A simulation by the model of costs: `ms` has the kernels one after another, each split over the cores (`in turn`),
    and two schedules with kernels side by side, or the kernels in turn on one core where those are predicted faster.
    """
    asked = {**one.options, "target": SERVER, "tuning_budget_s": 0}
    begun = stages(one, CompileOptions.from_json({**asked, "threads": 1}))
    for count in ON_CORES.get(one.name, CORES):
        ready = settled(one, CompileOptions.from_json({**asked, "threads": count}), (), begun)

        def ms(scheduler: str, ready: Settled = ready) -> float:
            found = schedule(
                *(ready.kernels, ready.menus, ready.lanes, FAR, scheduler),
                regions=ready.regions,
            )
            return 1e3 * found[0].plan.predicted_s

        found = {"in turn": ms("sequential"), EARLY: ms(EARLY), STAGES: ms(STAGES)}
        yield {
            "model": one.name,
            "target": SERVER,
            "cores": count,
            "date": today(),
            "ms": {name: round(value, 4) for name, value in found.items()},
        }


def predicted(one: Subject, precision: str = "fp32") -> Iterator[dict[str, Any]]:
    """A row of plain JSON for each of GPUS. Raises what the compiler raises.

    `ms` has what is predicted by schedule: one launch after another in three ways, each of WITHOUT or the sequential
    graph where that is predicted faster, and the `best` of all.
    """
    options = CompileOptions.from_json({**one.options, "target": RTX3090.name, "precision": precision})
    begun = stages(one, options)
    backend = begun.backend
    assert isinstance(backend, CudaBackend), "its target is a GPU"
    for gpu in GPUS:
        there = replace(begun, backend=replace(backend, target=gpu))
        yield row(one.name, gpu, precision, settled(one, options, (), there))


def today() -> str:
    """The day, as rows have it."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


def row(model: str, gpu: CudaTarget, precision: str, ready: Settled) -> dict[str, Any]:
    """Of one network on one GPU."""
    joint_launch = ready.backend.joint_launch(ready.kernels)

    def ms(scheduler: str, without: frozenset[str] = frozenset()) -> float:
        found = schedule(
            *(ready.kernels, ready.menus, ready.lanes, ready.costs, scheduler),
            joint_launch=joint_launch,
            without=without,
        )
        return 1e3 * min(one.plan.predicted_s for one in found)

    (in_turn,) = schedule(
        *(ready.kernels, ready.menus, ready.lanes, ready.costs, "sequential"), joint_launch=joint_launch
    )
    count, seconds = launches(in_turn.plan), in_turn.plan.predicted_s
    found = {
        "waited": 1e3 * (seconds + count * WAITED_S),
        "ahead": 1e3 * (seconds + count * AHEAD_S),
        "graph": 1e3 * seconds,
        **{name: ms(*asked) for name, asked in WITHOUT.items()},
        "best": ms("auto"),
    }
    return {
        "model": model,
        "gpu": gpu.product,
        "precision": precision,
        "launches": count,
        "date": today(),
        "ms": {name: round(value, 4) for name, value in found.items()},
    }
