"""Artifacts that hold several plans: which of them runs, and that all of them compute the same."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.program import emit
from compiler.errors import VerifyError
from compiler.ir.plans.plan import Plan
from compiler.pack.loader import Model
from tests.compiler.devices.cpu.runtimes import TARGET, Workshop, branchy, inputs_of, plans_of

pytestmark = pytest.mark.usefixtures("host_as_shipped", "new_pool")

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def workshop() -> Workshop:
    return Workshop(branchy())


@pytest.fixture(scope="module")
def plans(workshop: Workshop) -> list[Plan]:
    """Two plans for two lanes, of different tasks, and one for three and for one."""
    one, other, *_ = plans_of(workshop.kernels, 2)
    return [one, other, plans_of(workshop.kernels, 3)[-1], plans_of(workshop.kernels, 1)[0]]


@pytest.fixture(scope="module")
def expected(workshop: Workshop, plans: list[Plan], tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    folder = workshop.folder(plans[:1], tmp_path_factory.mktemp("alone") / "plan")
    with Model(folder, lanes=1, verify=False) as model:
        (result,) = model.run_flat(inputs_of(workshop.kernels, 1))
    return np.asarray(result)


def limited(plans: list[Plan], *limits: float) -> list[Plan]:
    return [replace(plan, most_handover_s=limit) for plan, limit in zip(plans, limits, strict=False)]


@pytest.fixture(scope="module")
def three(workshop: Workshop, plans: list[Plan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of which the second is for all cores whose hand-over can be measured."""
    return workshop.folder(limited(plans, 0.0, 10.0, math.inf), tmp_path_factory.mktemp("guards") / "three")


@pytest.fixture
def one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("lanes", [None, 1, 2])
def test_each_plan_can_be_forced_and_gives_the_same_bits(
    workshop: Workshop, plans: list[Plan], expected: np.ndarray, three: Path, number: int, lanes: int | None
) -> None:
    given = inputs_of(workshop.kernels, 1)
    with Model(three, lanes, verify=False, plan=number) as model:
        assert (model.plan.number, model.plan.handover_s) == (number, None)
        assert (model.plan.lanes, model.plan.tasks) == (plans[number - 1].lanes, len(plans[number - 1].tasks))
        assert model.lanes == (model.plan.lanes if lanes is None or lanes >= model.plan.lanes else 1)
        for _ in range(20):
            assert np.array_equal(model.run_flat(given)[0], expected)


@pytest.mark.skipif(CORES < 2, reason="one core")
def test_the_first_plan_is_taken_whose_limit_the_measured_handover_keeps(
    workshop: Workshop, expected: np.ndarray, three: Path
) -> None:
    with Model(three, verify=False) as model:
        found = model.plan.handover_s
        assert found is not None
        assert found > 0
        assert model.plan.number == (3 if found == math.inf else 2)  # infinite where the machine was too busy to tell
        assert np.array_equal(model.run_flat(inputs_of(workshop.kernels, 1))[0], expected)
        assert f"it took {1e9 * found:.0f} ns" in str(model.plan)


@pytest.mark.usefixtures("one_core")
def test_lanes_that_share_a_core_take_the_last_plan(workshop: Workshop, expected: np.ndarray, three: Path) -> None:
    with Model(three, verify=False) as model:
        assert (model.plan.number, model.plan.handover_s, model.plan.most_handover_s) == (3, math.inf, None)
        assert np.array_equal(model.run_flat(inputs_of(workshop.kernels, 1))[0], expected)


def test_nothing_is_measured_where_no_choice_depends_on_it(
    three: Path, workshop: Workshop, plans: list[Plan], tmp_path: Path
) -> None:
    with Model(three, lanes=1, verify=False) as model:
        assert model.plan.handover_s is None
    with Model(workshop.folder(plans[:1], tmp_path / "one"), verify=False) as model:
        assert (model.plan.number, model.plan.handover_s, model.plan.most_handover_s) == (1, None, None)


def test_a_plan_for_as_many_lanes_as_are_wanted_goes_before_one_for_more(
    workshop: Workshop, plans: list[Plan], expected: np.ndarray, tmp_path: Path
) -> None:
    three, alone = limited([plans[2], plans[3]], 10.0, math.inf)
    folder = workshop.folder([three, alone], tmp_path / "lanes")
    for lanes in (1, 2):
        with Model(folder, lanes, verify=False) as model:
            assert (model.plan.number, model.lanes) == (2, 1)
            assert np.array_equal(model.run_flat(inputs_of(workshop.kernels, 1))[0], expected)


@pytest.mark.parametrize(("lanes", "number"), [(None, 1), (4, 1), (3, 1), (2, 2), (1, 3)])
def test_the_first_plan_that_needs_no_more_lanes_than_are_wanted_is_taken(
    workshop: Workshop, plans: list[Plan], expected: np.ndarray, tmp_path: Path, lanes: int | None, number: int
) -> None:
    by_lanes = limited([plans[2], plans[0], plans[3]], 10.0, 20.0, math.inf)
    with Model(workshop.folder(by_lanes, tmp_path / "lanes"), lanes, verify=False) as model:
        if model.plan.handover_s == math.inf:
            number = 3  # the machine was too busy to tell
        assert (model.plan.number, model.lanes) == (number, by_lanes[number - 1].lanes)
        assert np.array_equal(model.run_flat(inputs_of(workshop.kernels, 1))[0], expected)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("lanes", [None, 1, 2, 3, 4])
def test_a_forced_plan_has_a_thread_for_each_lane_but_the_callers_or_none_at_all(
    plans: list[Plan], three: Path, number: int, lanes: int | None
) -> None:
    """With fewer lanes than it needs the caller carries out all of it."""
    before = len(os.listdir("/proc/self/task"))
    with Model(three, lanes, verify=False, plan=number):
        started = len(os.listdir("/proc/self/task")) - before
    needed = plans[number - 1].lanes
    assert needed == {1: 2, 3: 3}[number]
    assert started == (needed - 1 if lanes is None or lanes >= needed else 0)


def test_another_number_of_a_plan_is_refused(three: Path) -> None:
    for number in (0, 4, -1):
        with pytest.raises(ValueError, match=f"plan is {number}. Fix: give 1 to 3"):
            Model(three, verify=False, plan=number)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((2e-7, 1e-7, math.inf), "2e-07, 1e-07, inf s: each must be above the one before"),
        ((1e-7, 1e-7, math.inf), "each must be above the one before"),
        ((math.inf, 1e-7), "each must be above the one before"),
        ((1e-7, 2e-7), "the last one must be infinite"),
    ],
)
def test_tables_in_a_wrong_order_are_refused(
    workshop: Workshop, plans: list[Plan], limits: tuple[float, ...], reason: str
) -> None:
    with pytest.raises(VerifyError, match=re.escape(reason)):
        workshop.sources(limited(plans, *limits))


def test_emit_puts_plans_in_order_and_compiles_kernels_once(workshop: Workshop, plans: list[Plan]) -> None:
    far, near = limited(plans, math.inf, 1e-7)
    program = emit(workshop.kernels, far, TARGET, find_toolchain(), 2, others=[near])
    rows = re.findall(r"^ *\{(\S+), \d, .*tasks_(\d), waits_\d\},$", program.sources["model.c"], re.MULTILINE)
    assert rows == [("100", "1"), ("INFINITY", "2")]
    alone = emit(workshop.kernels, far, TARGET, find_toolchain(), 2)
    units = [name for name in alone.sources if name.startswith("kernels")]
    assert [program.sources[name] for name in units] == [alone.sources[name] for name in units]
    assert "_2[" not in alone.sources["model.c"]
    with pytest.raises(VerifyError, match="the last one must be infinite"):
        emit(workshop.kernels, near, TARGET, find_toolchain(), 2)


@pytest.mark.parametrize("number", [None, 3])
@pytest.mark.parametrize("pin", [False, True])
def test_lanes_can_be_pinned_and_the_caller_stays_as_it_is(
    workshop: Workshop, plans: list[Plan], expected: np.ndarray, three: Path, pin: bool, number: int | None
) -> None:
    mine = os.sched_getaffinity(0)
    others = {int(name) for name in os.listdir("/proc/self/task")}
    with Model(three, verify=False, plan=number, pin=pin) as model:
        lanes = {int(name) for name in os.listdir("/proc/self/task")} - others
        cores = [os.sched_getaffinity(lane) for lane in lanes]
        assert len(cores) == model.lanes - 1
        alone = [next(iter(allowed)) for allowed in cores if len(allowed) == 1 and allowed != mine]
        assert len(alone) == (min(len(cores), CORES - 1) if pin else 0)
        assert len(set(alone)) == len(alone)
        assert os.sched_getaffinity(0) == mine
        for _ in range(5):
            assert np.array_equal(model.run_flat(inputs_of(workshop.kernels, 1))[0], expected)


@pytest.mark.parametrize("lanes", [None, 1])
def test_a_trace_says_when_each_task_ran_and_keeps_every_wait(
    workshop: Workshop, plans: list[Plan], three: Path, lanes: int | None
) -> None:
    """In each single run; a median over runs may not."""
    for number, plan in enumerate(plans[:3], 1):
        with Model(three, lanes, verify=False, plan=number) as model:
            names = [spec.name for spec in model.inputs]
            given = dict(zip(names, inputs_of(workshop.kernels, 1), strict=True))
            library, arrays = model._program.opened(), model._arrays(given)
            results = model._ports.results([None] * len(model.outputs), arrays)
            begins, ends = (np.full(len(plan.tasks), -1.0) for _ in range(2))
            doubles = [np.ctypeslib.as_ctypes(times) for times in (begins, ends)]
            for _ in range(10):
                model._program.call(arrays, results, library.calls.tw_trace, *doubles)
                ended: dict[int, list[float]] = {lane: [] for lane in range(plan.lanes)}
                for task, begin, end in zip(plan.tasks, begins, ends, strict=True):
                    assert 0 <= begin <= end
                    assert begin >= max(ended[task.lane], default=0.0)
                    for wait in task.waits:
                        assert begin >= max(ended[wait.lane][: wait.count], default=0.0)
                    ended[task.lane].append(end)
            assert len(model.trace(given, repeats=3)) == len(plan.tasks)


def test_an_artifact_tells_all_of_its_plans(workshop: Workshop, plans: list[Plan], three: Path) -> None:
    with Model(three, verify=False) as model:
        described = model._program.opened().describe()
    assert [(one["lanes"], one["tasks"], one["most_handover_ns"]) for one in described["plans"]] == [
        (plan.lanes, len(plan.tasks), limit) for plan, limit in zip(plans, (0.0, 1e10, None), strict=False)
    ]
    assert described["lanes"] == 3
    assert described["arena_bytes"] == max(plan.arena_bytes for plan in plans[:3])
