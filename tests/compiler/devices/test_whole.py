from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import workload_of
from compiler.devices import whole
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.emit.program import emit, emit_each
from compiler.devices.cpu.target import PROFILES, this_machine
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.tile import Cost, Menu, Variant
from compiler.measure.benchmark import Run
from compiler.pack.loader import Model, RunError
from compiler.schedule import schedule
from compiler.tuning.tune import workload_key
from tests.compiler.networks import Network, graph_of

TARGET = this_machine()


def branchy() -> KernelGraph:
    """Two branches of a convolution and a pooling each, added."""
    net = Network()
    x = net.input(1, 8, 12, 12)
    ends = []
    for kernel in (1, 3):
        pads = [kernel // 2] * 4
        y = net.node("Conv", [x, net.weight(16, 8, kernel, kernel)], (1, 16, 12, 12), pads=pads)
        ends.append(net.node("MaxPool", [y], (1, 16, 12, 12), kernel_shape=[3, 3], pads=[1] * 4))
    return fuse(
        graph_of(net.model([net.node("Softmax", [net.node("Add", ends, (1, 16, 12, 12))], (1, 16, 12, 12))]))
    ).kernels


@pytest.fixture(scope="module")
def kernels() -> KernelGraph:
    return branchy()


@pytest.fixture(scope="module")
def plans(kernels: KernelGraph) -> list[Plan]:
    """All that schedulers find for two lanes, and the sequential plan with another tile for its first kernel."""
    menus = []
    for call in kernels.calls:
        workload = workload_of(kernels, call)
        best, *others = propose(workload, TARGET, 1)[:2]
        menus.append(
            Menu(
                workload_key(workload),
                tuple(
                    Variant(one.tile, count_tiles(workload, one.tile, TARGET), 1, Cost(1e-3 * (1 + at), "model"))
                    for at, one in enumerate([best, *others])
                ),
            )
        )
    found = [one.plan for one in schedule(kernels, menus, 2, LaneCosts(1e-7))]
    assert len({plan.scheduler for plan in found}) > 1
    first, *rest = (
        Menu(menu.workload, menu.variants[1:] if at == 0 else menu.variants) for at, menu in enumerate(menus)
    )
    return [*found, schedule(kernels, [first, *rest], 2, LaneCosts(1e-7), "sequential")[0].plan]


def test_programs_of_several_plans_share_kernels_and_weights(kernels: KernelGraph, plans: list[Plan]) -> None:
    programs = emit_each(kernels, plans, TARGET, find_toolchain(), 2)
    alone = emit(kernels, plans[0], TARGET, find_toolchain(), 2)
    assert len({program.weights for program in programs}) == 1
    units = [name for name in alone.sources if name.startswith("kernels")]
    assert units
    for program in programs:
        assert [program.sources[name] for name in units] == [alone.sources[name] for name in units]
    extra = {name for name in programs[0].sources if name.startswith("more")}
    assert {name.split(".")[-1] for name in extra} == {"c", "h"}
    assert not any(name.startswith("more") for name in alone.sources)


def test_every_plan_is_run_by_the_loader_and_computes_the_same(
    kernels: KernelGraph, plans: list[Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit: a plan decides when a tile is computed, never how; the last one has another tile, and is near."""
    results: list[list[np.ndarray]] = []

    def race_plans(fresh: object, *rest: object, left: object) -> None:
        assert left is None
        assert callable(fresh)
        for _ in range(2):
            runs: Sequence[Run] = fresh()
            assert all(run() > 0 for run in runs)
            results.append([out.copy() for out in outputs])
            outputs.clear()

    outputs: list[np.ndarray] = []
    once = whole._bound

    def bound(model: Model, given: Mapping[str, np.ndarray]) -> Run:
        bind = model.bind

        def kept(inputs: Sequence[np.ndarray], out: Sequence[np.ndarray]) -> Run:
            outputs.extend(out)
            run: Run = bind(inputs, out)
            return run

        monkeypatch.setattr(model, "bind", kept)
        return once(model, given)

    monkeypatch.setattr(whole, "_bound", bound)
    monkeypatch.setattr(whole, "race_plans", race_plans)
    assert CpuBackend(TARGET, find_toolchain()).race(kernels, plans, 0, lambda: False, tmp_path) is None
    for found in results:
        assert len(found) == len(plans)
        assert np.abs(found[0]).sum() > 0
        for plan, out in zip(plans[:-1], found, strict=False):
            if plan.tiles == plans[0].tiles:
                assert np.array_equal(out, found[0])
        np.testing.assert_allclose(found[-1], found[0], rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.iterdir())


def test_a_race_of_real_plans_tells_their_times(kernels: KernelGraph, plans: list[Plan], tmp_path: Path) -> None:
    backend = CpuBackend(TARGET, find_toolchain())
    raced = backend.race(kernels, plans[:2], 0, lambda: False, tmp_path)
    assert raced is not None
    assert len(raced) == 2
    assert all(one.spread.median > 0 and one.ratio.ratio > 0 for one in raced)
    assert backend.objects
    for plan, one in zip(plans[:2], raced, strict=True):
        assert len(one.spans) == len(plan.tasks)
        assert all(0 <= begin <= end for begin, end in one.spans)
        timeline = [
            [span for task, span in zip(plan.tasks, one.spans, strict=True) if task.lane == lane] for lane in (0, 1)
        ]
        assert all(begin <= other for lane in timeline for (begin, _), (other, _) in pairwise(lane))


def test_one_plan_alone_is_timed_and_traced(kernels: KernelGraph, plans: list[Plan], tmp_path: Path) -> None:
    raced = CpuBackend(TARGET, find_toolchain()).race(kernels, plans[:1], 0, lambda: False, tmp_path)
    assert raced is not None
    (one,) = raced
    assert one.spread.median > 0
    assert one.ratio.ratio == 1
    assert len(one.spans) == len(plans[0].tasks)


def test_a_library_that_does_not_tell_when_its_tasks_run_is_timed_all_the_same(
    kernels: KernelGraph, plans: list[Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(*given: object) -> None:
        raise RunError("it does not say")

    monkeypatch.setattr(Model, "trace", untold)
    raced = CpuBackend(TARGET, find_toolchain()).race(kernels, plans[:1], 0, lambda: False, tmp_path)
    assert raced is not None
    (one,) = raced
    assert (one.spread.median > 0, one.spans) == (True, ())


def test_a_race_that_is_called_off_leaves_nothing(kernels: KernelGraph, plans: list[Plan], tmp_path: Path) -> None:
    backend = CpuBackend(TARGET, find_toolchain())
    assert backend.race(kernels, plans[:2], 0, lambda: True, tmp_path) is None
    assert backend.race(kernels, plans[:2], 0, lambda: any(tmp_path.iterdir()), tmp_path) is None
    assert backend.objects
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_run_or_written_nothing_is_measured(
    kernels: KernelGraph, plans: list[Plan], tmp_path: Path
) -> None:
    backend = CpuBackend(TARGET, find_toolchain())
    assert backend.race(kernels, plans[:2], 0, lambda: False, tmp_path / "missing") is None
    elsewhere = replace(backend, target=next(profile for profile in PROFILES if not profile.is_here))
    assert elsewhere.race(kernels, plans[:2], 0, lambda: False, tmp_path) is None
