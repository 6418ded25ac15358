"""Plans for a GPU: every graph of launches is a plan that verifies, whose every wait counts.

Which one is trusted unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.schedule import JointLaunch, schedule
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.on_gpu import MARGIN, SEQUENTIAL, SHARED
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.found import Found
from tests.compiler.schedule.test_schedule import adder, chain, kernel_graphs, variant

GAP = 1e-6
FRUGAL = Tile("frugal")


def device(
    most: int, share: float = 0.25, gap_s: float = GAP, cross_s: float = 0.0, fan_in_s: float = 0.0
) -> JointLaunch:
    """At most so many calls share a launch.

    Each keeps the same part of the device at work, under a frugal variant half of it.
    """

    def load(calls: list[tuple[int, Variant]]) -> LaunchLoad | None:
        works = [one.cost.seconds - gap_s for _, one in calls]
        spread = sum(
            work * share * (0.5 if one.tile == FRUGAL else 1.0) for work, (_, one) in zip(works, calls, strict=True)
        )
        work_s = max([*works, spread])
        kept = spread / work_s if work_s else 0.0
        return LaunchLoad(gap_s, 0.0, work_s, share, kept, cross_s, fan_in_s) if len(calls) <= most else None

    return load  # type: ignore[return-value]  # it is given a list


def found_for(
    kernels: KernelGraph, menus: list[Menu], joint_launch: JointLaunch, scheduler: str = "auto"
) -> tuple[Found, ...]:
    return schedule(kernels, menus, 1, LaneCosts(), scheduler, joint_launch=joint_launch)


def groups(plan: Plan) -> list[list[int]]:
    """The calls of each launch."""
    last: dict[int, list[int]] = {}
    found = []
    for task in plan.runs:
        if not task.beside:
            last[task.lane] = []
            found.append(last[task.lane])
        last[task.lane].append(task.call)
    return found


def branches() -> tuple[KernelGraph, list[Menu]]:
    """Calls 0 to 2 are one branch and 3, 4 the other, listed one after the other; 5 joins them."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(8)}
    reads = {2: (0,), 3: (2,), 4: (3,), 5: (1,), 6: (5,), 7: (4, 6)}
    calls = tuple(Call(adder(40, len(read)), read, (id,)) for id, read in reads.items())
    return KernelGraph(buffers, calls, (0, 1), (7,)), [Menu("", (variant(seconds=4e-6),))] * 6


@given(kernel_graphs(), st.integers(1, 6), st.sampled_from([0.25, 1.0]), st.sampled_from([0.0, 1e-6]), st.data())
@settings(max_examples=150, deadline=None)
def test_every_graph_is_a_plan_the_sequential_one_first_and_one_is_trusted(
    kernels: KernelGraph, most: int, share: float, cross_s: float, data: st.DataObject
) -> None:
    menus = [drawn_menu(data) for _ in kernels.calls]
    found = found_for(kernels, menus, device(most, share, cross_s=cross_s, fan_in_s=cross_s / 4))
    launched = [call for call, menu in enumerate(menus) if menu.best.tiles]
    first, *others = found
    assert first.plan.scheduler == SEQUENTIAL
    assert (first.plan.lanes, [task.call for task in first.plan.runs]) == (1, launched)
    assert first.plan.predicted_s == pytest.approx(sum(menus[call].best.cost.seconds for call in launched))
    assert sum(one.trusted for one in found) == 1
    assert [one.plan.predicted_s for one in others] == sorted(one.plan.predicted_s for one in others)
    for one in found:
        one.plan.verify(kernels)
        assert sorted(task.call for task in one.plan.runs) == launched
        assert max(map(len, groups(one.plan)), default=0) <= most
        for group in groups(one.plan):
            for pair in combinations(group, 2):
                assert apart(kernels, one.plan, *pair)
                assert apart(kernels, one.plan, *pair[::-1])


def drawn_variant(data: st.DataObject) -> Variant:
    return variant(
        tiles=data.draw(st.sampled_from([0, 1, 4, 4])), seconds=data.draw(st.sampled_from([1e-6, 3e-6, 4e-6]))
    )


def drawn_menu(data: st.DataObject) -> Menu:
    """A variant, and for some a frugal one."""
    fast = drawn_variant(data)
    frugal = replace(fast, tile=FRUGAL, cost=Cost(1.25 * fast.cost.seconds, "model"))
    return Menu("", (fast, frugal) if fast.tiles and data.draw(st.booleans()) else (fast,))


def apart(kernels: KernelGraph, plan: Plan, writer: int, other: int) -> bool:
    """Whether what one call writes lies apart from all that another touches."""
    written = {kernels.buffers[id].storage for id in kernels.calls[writer].outputs}
    touched = {kernels.buffers[id].storage for id in (*kernels.calls[other].inputs, *kernels.calls[other].outputs)}
    spans = [(plan.places[one], plan.places[two]) for one in written for two in touched]
    return not any(a.space == b.space == "arena" and a.at < b.at + b.bytes and b.at < a.at + a.bytes for a, b in spans)


def without_a_wait(plan: Plan) -> Iterator[Plan]:
    for at, task in enumerate(plan.runs):
        for wait in task.waits:
            fewer = replace(task, waits=tuple(one for one in task.waits if one != wait))
            yield replace(plan, tasks=(*plan.runs[:at], fewer, *plan.runs[at + 1 :]))


@given(kernel_graphs(), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_every_wait_of_streams_counts_and_a_missing_one_is_found(kernels: KernelGraph, most: int) -> None:
    menus = [Menu("", (variant(seconds=4e-6),))] * len(kernels.calls)
    found = found_for(kernels, menus, device(most))
    assert found
    for one in found:
        if not one.plan.scheduler.startswith("early_start"):  # whose calls also wait for room
            for broken in without_a_wait(one.plan):
                with pytest.raises(VerifyError):
                    broken.verify(kernels)


def test_a_call_that_reads_from_one_beside_it_is_found() -> None:
    judged = 0

    @given(kernel_graphs())
    @settings(max_examples=60, deadline=None)
    def drawn(kernels: KernelGraph) -> None:
        nonlocal judged
        before = predecessors(kernels)
        menus = [Menu("", (variant(),))] * len(kernels.calls)
        plan = found_for(kernels, menus, device(1))[0].plan
        for at, task in enumerate(plan.runs[1:], 1):
            beside = replace(plan, tasks=(*plan.runs[:at], replace(task, beside=True), *plan.runs[at + 1 :]))
            if plan.runs[at - 1].call in before[task.call]:
                judged += 1
                with pytest.raises(VerifyError, match="reads what call"):
                    beside.verify(kernels)

    drawn()
    assert judged


def test_two_branches_by_every_scheduler() -> None:
    kernels, menus = branches()
    found = {one.plan.scheduler: one.plan for one in found_for(kernels, menus, device(4))}
    assert groups(found[SEQUENTIAL]) == [[call] for call in range(6)]
    assert groups(found[SHARED]) == [[0, 3], [1, 4], [2], [5]]
    assert found[SHARED].predicted_s == pytest.approx(4 / 6 * found[SEQUENTIAL].predicted_s)
    beside = found["streams"]
    assert (beside.lanes, sum(len(task.waits) for task in beside.tasks)) == (2, 1)
    assert beside.predicted_s == pytest.approx(found[SHARED].predicted_s)
    assert beside.arena_bytes > found[SEQUENTIAL].arena_bytes


@pytest.mark.parametrize(
    ("scheduler", "taken"),
    [("sequential", SEQUENTIAL), ("early_start", "early_start critical"), ("stages", "stages")],
)
def test_a_scheduler_alone_gives_one_plan(scheduler: str, taken: str) -> None:
    kernels, menus = branches()
    (found,) = found_for(kernels, menus, device(1), scheduler)
    assert found.plan.scheduler == taken


def test_a_chain_has_one_plan() -> None:
    menus = [Menu("", (variant(),))] * 4
    for scheduler in ("auto", "sequential", "early_start", "stages"):
        (found,) = found_for(chain(), menus, device(4), scheduler)
        assert (found.plan.scheduler, found.plan.lanes) == (SEQUENTIAL, 1)


def trusted(joint_launch: JointLaunch) -> str:
    kernels, menus = branches()
    (one,) = (one.plan.scheduler for one in found_for(kernels, menus, joint_launch) if one.trusted)
    return one


def test_what_is_simpler_is_trusted_where_the_others_promise_little() -> None:
    """Six calls of 4 us in a row.

    Four launches where two pairs share one, of which each pair takes up to as long as both calls.
    """
    assert trusted(device(1, share=1.0, gap_s=0.1e-6)) == SEQUENTIAL
    assert trusted(device(4, share=0.25)) == SHARED
    assert trusted(device(1, share=0.25)) == "streams"
    kernels, menus = branches()
    for gap_s in (0.5e-6, 1e-6, 1.5e-6, 2e-6):
        found = found_for(kernels, menus, device(4, 1.0, gap_s))
        first, shared = found[0].plan, next(one for one in found if one.plan.scheduler == SHARED)
        assert shared.trusted == (shared.plan.predicted_s <= MARGIN * first.predicted_s)


def test_streams_are_not_trusted_where_joining_them_costs_what_they_gain() -> None:
    """Two of six calls of 4 us run beside others: 16 us instead of 24, and what the join at the end costs."""
    assert trusted(device(1, share=0.25, cross_s=4e-6)) == "streams"
    assert trusted(device(1, share=0.25, cross_s=6e-6)) == SEQUENTIAL
    kernels, menus = branches()
    for cross_s, fan_in_s in ((0.0, 0.0), (1e-6, 0.5e-6), (4e-6, 0.0)):
        found = {
            one.plan.scheduler: one.plan for one in found_for(kernels, menus, device(1, 0.25, GAP, cross_s, fan_in_s))
        }
        assert found["streams"].predicted_s == pytest.approx(16e-6 + cross_s)
        assert found[SEQUENTIAL].predicted_s == pytest.approx(24e-6)


def test_calls_that_share_a_launch_and_fill_the_device_run_under_variants_that_leave_each_other_room() -> None:
    kernels, menus = branches()
    fast = menus[0].best
    frugal = replace(fast, tile=FRUGAL, cost=Cost(4.5e-6, "model"))
    both = [Menu("", (fast, frugal))] * 6
    alone, beside = (
        {one.plan.scheduler: one.plan for one in found_for(kernels, given, device(4, share=0.75))}[SHARED]
        for given in (menus, both)
    )
    assert beside.predicted_s < alone.predicted_s
    beside.verify(kernels)
    chosen = [tile for tile, _ in beside.tiles]
    assert sorted(map(len, groups(beside))) == [1, 1, 2, 2]
    for group in groups(beside):
        assert (FRUGAL in [chosen[call] for call in group]) == (len(group) == 2)


def test_where_there_is_no_room_a_call_runs_under_the_variant_that_leaves_some() -> None:
    """A call that fills half the device beside two others; its frugal variant needs a quarter."""
    fast, frugal = (Variant(Tile(name), 4, 1, Cost(seconds, "model")) for name, seconds in (("a", 6e-6), ("b", 7e-6)))
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(4)}
    calls = (Call(adder(40, 1), (0,), (1,)), Call(adder(40, 1), (0,), (2,)), Call(adder(40, 2), (1, 2), (3,)))
    kernels = KernelGraph(buffers, calls, (0,), (3,))

    def joint_launch(calls: list[tuple[int, Variant]]) -> LaunchLoad | None:
        ((_, one),) = calls[:1]
        share = 0.25 if one.tile.algorithm == "b" else 0.75
        return LaunchLoad(GAP, 0.0, one.cost.seconds - GAP, share, share) if len(calls) == 1 else None

    menus = [Menu("", (fast, frugal))] * 3
    found = {one.plan.scheduler.split()[0]: one.plan for one in found_for(kernels, menus, joint_launch)}  # type: ignore[arg-type]
    assert sorted(tile.algorithm for tile, _ in found["early_start"].tiles) == ["a", "a", "b"]
    assert found["early_start"].predicted_s < found["streams"].predicted_s < found[SEQUENTIAL].predicted_s


def test_rules_of_scheduling_are_left_out_by_name() -> None:
    """Launches of 0.64 of the device each.

    Where what follows the first of each branch takes half of that, it pays to hold the short branch up: it runs beside
    the second of the long one.
    """
    kernels, (full, *_) = branches()
    half = Menu("", (replace(full.best, tile=FRUGAL),))

    def early(menus: list[Menu], *without: str) -> Plan:
        found = schedule(
            *(kernels, menus, 1, LaneCosts(), "early_start"), joint_launch=device(1, 0.64), without=frozenset(without)
        )
        return found[0].plan

    def waits(plan: Plan) -> int:
        return sum(len(task.waits) for task in plan.tasks)

    held = [full, half, half, full, half, half]
    assert early(held).predicted_s == pytest.approx(16e-6)
    assert early(held, "runs_alone").predicted_s == pytest.approx(16e-6 + 0.28 * (4e-6 - GAP))
    assert waits(early(held)) > 1 == waits(early(held, "runs_alone")), "the join has two branches"
    alike = [full] * 6
    assert early(alike) == early(alike, "runs_alone"), "no two fit the device together, yet sharing it costs nothing"
    assert "critical" in early(alike).scheduler
    assert "critical" not in early(alike, "critical_first").scheduler
