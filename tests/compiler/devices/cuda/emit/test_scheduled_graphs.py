"""Every schedule of a network as a CUDA graph on the double.

Equal results in whatever order the edges allow, and a missing edge is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.tiny import tiny_inception
from compiler.contract import CompileOptions
from compiler.devices.cuda.emit import program as emit
from compiler.devices.cuda.emit.host import Image
from compiler.errors import VerifyError
from compiler.frontend import load
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.found import Found
from compiler.steps import Subject
from tests.compiler.devices.cuda.artifact_on_double import Twin, artifact_of, on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiling import compile_file
from tests.cuda_double.double import MODES, Mode

pytestmark = [needs_double, needs_nvrtc]
HOPPER = "cuda:sm_90"
ORDERS = (Mode("random", "late", seed=11, resident=4), Mode("random", "random", seed=12, resident=3), MODES[2])
RUNS = 4
"""Of a graph in one process: where the order is random, it is another each time."""
IN_MANY_ORDERS = f"""
for turn in range({RUNS}):
    outputs.update({{f"{{name}}/{{turn}}": array.copy() for name, array in model.run(inputs).items()}})
"""


def fires(g: GraphBuilder) -> None:
    """Two fire modules as in SqueezeNet, with complex bypass: a convolution beside each of them."""
    x = g.relu(g.conv(g.input("image", (1, 3, 12, 12)), 8, 3, 2, bias=True))
    for squeezed, expanded in ((4, 8), (8, 12)):
        narrow = g.relu(g.conv(x, squeezed, 1, bias=True))
        wide = g.concat([g.relu(g.conv(narrow, expanded, kernel, bias=True)) for kernel in (1, 3)])
        x = g.add(wide, g.conv(x, 2 * expanded, 3, bias=True))
    g.output("logits", g.flatten(g.global_avg_pool(x)))


def cells(g: GraphBuilder) -> None:
    """Two cells as in NASNet.

    Each reads the two before it, its five sums are of separable convolutions, pools and what came in.
    """

    def separable(x: Value, kernel: int) -> Value:
        return g.bn(g.conv(g.conv(g.relu(x), 8, kernel, groups=8), 8, 1))

    before = x = g.conv(g.input("image", (1, 3, 10, 10)), 8, 3, bias=True)
    for _ in range(2):
        left, right = (g.bn(g.conv(g.relu(one), 8, 1)) for one in (before, x))
        before, x = (
            x,
            g.concat(
                [
                    g.add(separable(right, 5), separable(left, 3)),
                    g.add(g.avg_pool(right, 3, 1, 1), left),
                    g.add(separable(right, 3), right),
                ]
            ),
        )
    g.output("logits", g.flatten(g.global_avg_pool(g.relu(x))))


NETWORKS: Mapping[str, Callable[[GraphBuilder], None]] = {
    "fires": fires,
    "cells": cells,
    "tiny_inception": tiny_inception,
}


class _Scheduled(Exception):
    """The compilation has come far enough."""


@dataclass(frozen=True)
class Network:
    """A compiled network.

    All plans that were found, what goes in, what has to come out, and what was told of its tiles.
    """

    kernels: KernelGraph
    found: tuple[Found, ...]
    image: np.ndarray
    wanted: np.ndarray
    reported: str

    @property
    def plans(self) -> Mapping[str, Plan]:
        return {one.plan.scheduler: one.plan for one in self.found}

    def twin(self, plan: Plan, folder: Path, flavour: str = "plain") -> Twin:
        return on_double(
            artifact_of(self.kernels, plan, folder / f"{hashlib.sha256(str(plan).encode()).hexdigest()}.tw"), flavour
        )


def unread_images(texts: Sequence[str], wanted: Sequence[str], jobs: int, kept: object) -> list[Image]:
    """In place of what NVRTC makes: the double tells images apart and reads nothing in them."""
    return [
        Image(unit, name, hashlib.sha256(f"{name}{text}".encode()).digest())
        for name in wanted
        for unit, text in enumerate(texts)
    ]


@pytest.fixture(autouse=True)
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "compile_units", unread_images)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scheduled_graphs")


@lru_cache(maxsize=8)
def network(folder: Path, name: str, target: str = HOPPER, precision: str = "fp32", scheduler: str = "auto") -> Network:
    """Compiled for a GPU that is not here as far as to its schedules."""
    caught: list[tuple[KernelGraph, tuple[Found, ...]]] = []

    def caught_plans(found: tuple[Found, ...], subject: Subject, *_: object) -> None:
        caught.append((subject.kernels, found))
        raise _Scheduled

    g = GraphBuilder(name)
    NETWORKS[name](g)
    model = folder / f"{name}.onnx"
    model.write_bytes(g.finish().SerializeToString())
    options = CompileOptions(target=target, precision=precision, scheduler=scheduler, tuning_budget_s=0.0)
    dump = folder / f"{name} {target} {precision} {scheduler}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
        patch.setattr("compiler.steps.planning.step.choose_plan", caught_plans)
        with pytest.raises(_Scheduled):
            compile_file(model, folder / "never.tw", options, measure=False, dump=dump)
    graph = load(model, options, OPERATORS).graph
    ((image,), (output,)) = graph.inputs, graph.outputs
    given = np.random.default_rng(5).standard_normal(graph.values[image].type.dims).astype(np.float32)
    ((kernels, found),) = caught
    (reported,) = (path.read_text() for path in dump.iterdir() if path.stem.endswith("_tile"))
    return Network(kernels, found, given, evaluate_graph(graph, {image: given}, OPERATORS)[output], reported)


def launches_of(plan: Plan) -> int:
    return sum(not task.beside for task in plan.runs)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_schedule_gives_the_same_bits_in_every_order(folder: Path, name: str) -> None:
    """Those of other schedules too, where all kernels are under the same tiles.

    Then nothing but the order differs.
    """
    whole = network(folder, name)
    assert {"sequential", "shared launches", "streams"} <= {*whole.plans}
    assert whole.plans["sequential"].tiles == whole.plans["streams"].tiles
    first: dict[object, np.ndarray] = {}
    for plan in whole.plans.values():
        twin = whole.twin(plan, folder)
        for mode in ORDERS:
            outcome = twin.run({"image": whole.image}, mode, script=IN_MANY_ORDERS)
            assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), plan.scheduler
            assert sum("cuGraphAddKernelNode" in call for call in outcome.calls) == launches_of(plan), plan.scheduler
            for found in outcome.outputs.values():
                same = first.setdefault(plan.tiles, found)
                np.testing.assert_array_equal(found, same, err_msg=f"{plan.scheduler} in {mode}")
    for found in first.values():
        np.testing.assert_allclose(found, whole.wanted, rtol=1e-4, atol=1e-4 * np.abs(whole.wanted).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_tile_that_a_schedule_uses_is_told(folder: Path, name: str) -> None:
    """Frugal ones too, of which some schedule has at least one here."""
    whole = network(folder, name)
    tiles = {tile for plan in whole.plans.values() for tile, _ in plan.tiles}
    assert all(str(tile) in whole.reported for tile in tiles)
    if name == "fires":
        assert tiles > {tile for tile, _ in whole.plans["sequential"].tiles}


@pytest.mark.parametrize(
    ("name", "target", "precision"),
    [("fires", HOPPER, "fp32"), ("cells", HOPPER, "fp16"), ("fires", "cuda:sm_80", "fp16")],
)
def test_no_schedule_has_calls_that_race(folder: Path, name: str, target: str, precision: str) -> None:
    """What begins early on sm_90 by a programmatic edge begins after its predecessor on sm_80."""
    whole = network(folder, name, target, precision)
    for plan in whole.plans.values():
        outcome = whole.twin(plan, folder, "checked").run({"image": whole.image}, ORDERS[1])
        assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), plan.scheduler
        np.testing.assert_allclose(
            outcome.outputs["logits"], whole.wanted, rtol=2e-2, atol=1e-2 * np.abs(whole.wanted).max()
        )


def test_every_edge_between_streams_is_missed_where_it_is_left_out(folder: Path) -> None:
    """By the verifier, which the artifact is made without here, and by the double as a race, whatever the order was."""
    whole = network(folder, "fires")
    plan = whole.plans["streams"]
    broken = list(without_a_wait(plan))
    assert len(broken) >= plan.lanes > 1
    for one in broken:
        with pytest.raises(VerifyError):
            one.verify(whole.kernels)
        outcome = whole.twin(one, folder, "checked").run({"image": whole.image}, MODES[0])
        assert "race" in outcome.error + outcome.fault, outcome


def test_a_call_in_the_launch_of_what_it_reads_is_missed_as_well(folder: Path) -> None:
    whole = network(folder, "fires")
    plan, before = whole.plans["sequential"], predecessors(whole.kernels)
    tasks = list(plan.runs)
    at = next(at for at in range(1, len(tasks)) if tasks[at - 1].call in before[tasks[at].call])
    tasks[at] = replace(tasks[at], beside=True)
    joined = replace(plan, tasks=tuple(tasks))
    with pytest.raises(VerifyError, match="reads what call"):
        joined.verify(whole.kernels)
    outcome = whole.twin(joined, folder, "checked").run({"image": whole.image}, MODES[2])
    assert "race" in outcome.error + outcome.fault, outcome


def test_memory_placed_for_one_call_after_another_is_missed_under_streams(folder: Path) -> None:
    whole = network(folder, "cells")
    plan, crowded = whole.plans["streams"], whole.plans["sequential"]
    assert plan.arena_bytes > crowded.arena_bytes
    crowded = replace(plan, places=crowded.places, arena_bytes=crowded.arena_bytes)
    with pytest.raises(VerifyError, match="overlap"):
        crowded.verify(whole.kernels)
    outcome = whole.twin(crowded, folder, "checked").run({"image": whole.image}, MODES[2])
    assert "race" in outcome.error + outcome.fault, outcome


def without_a_wait(plan: Plan) -> Iterator[Plan]:
    for at, task in enumerate(plan.runs):
        for wait in task.waits:
            fewer = replace(task, waits=tuple(one for one in task.waits if one != wait))
            yield replace(plan, tasks=(*plan.runs[:at], fewer, *plan.runs[at + 1 :]))
