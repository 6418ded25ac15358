"""Resident blocks: what they take, beside a simulation of each block and each task; and plans made of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Menu, Variant
from compiler.schedule import PERSISTENT, schedule
from compiler.schedule.gpu.resident import Resident, ResidentBlocks, ResidentCall
from tests.compiler.schedule.gpu.test_on_gpu import device
from tests.compiler.schedule.test_schedule import adder, chain, variant
from tests.parse import parse_plan

TIMES = st.integers(0, 40).map(lambda number: number * 1e-7)


@st.composite
def residents(draw: st.DrawFn) -> tuple[Resident, tuple[tuple[int, ...], ...]]:
    count = draw(st.integers(1, 6))
    calls = tuple(ResidentCall(draw(st.integers(1, 9)), draw(TIMES), 0.0) for _ in range(count))
    before = tuple(tuple(one for one in range(at) if draw(st.booleans())) for at in range(count))
    return Resident(1, draw(st.integers(1, 5)), calls, draw(TIMES), draw(TIMES), draw(TIMES)), before


def simulated(one: Resident, before: tuple[tuple[int, ...], ...]) -> float:
    """Who is free first takes the next ticket, whatever it waits for; step by step."""
    free = dict.fromkeys(range(one.blocks), one.start_s)
    ends: dict[int, list[float]] = {}
    for call, own in enumerate(one.calls):
        ends[call] = []
        for _ in range(own.tiles):
            block = min(free, key=lambda block: free[block])
            awaited = [max(ends[earlier]) + one.handover_s for earlier in before[call]]
            end = max([free[block], *awaited]) + own.tile_s
            ends[call].append(end)
            free[block] = end + one.turn_s
    return max(max(each) for each in ends.values())


@settings(max_examples=200, deadline=None)
@given(residents())
def test_tasks_are_given_out_in_order_and_wait_for_what_they_read(
    made: tuple[Resident, tuple[tuple[int, ...], ...]],
) -> None:
    one, before = made
    assert one.makespan(before) == pytest.approx(simulated(one, before))


def test_it_takes_no_less_than_the_device_needs_for_all_of_it() -> None:
    one = Resident(1, 100, (ResidentCall(2, 1e-6, 5e-6),), 1e-6, 0.0, 0.0)
    assert one.makespan(((),)) == pytest.approx(6e-6)


def blocks(tile_s: float, refused: int | None = None) -> ResidentBlocks:
    def load(calls: Sequence[tuple[int, Variant]]) -> Resident:
        return Resident(3, 8, tuple(ResidentCall(4, tile_s, 0.0) for _ in calls), 1e-6, 1e-7, 0.0)

    return ResidentBlocks(lambda call, _: call != refused, load)


def test_a_plan_of_blocks_that_stay_is_one_of_the_plans_and_trusted_by_nobody() -> None:
    kernels, menus = chain(), [Menu("", (variant(seconds=5e-6),))] * 4
    quick = schedule(kernels, menus, 1, LaneCosts(), "auto", joint_launch=device(1), resident_blocks=blocks(1e-7))
    names = [one.plan.scheduler for one in quick]
    assert names[:2] == ["sequential", PERSISTENT]
    assert [one.plan.residents for one in quick[:2]] == [0, 3]
    assert [one.trusted for one in quick if one.plan.scheduler == PERSISTENT] == [False]
    assert any(one.trusted for one in quick)
    assert parse_plan(str(quick[1].plan)) == quick[1].plan
    assert quick[1].plan.predicted_s == pytest.approx(1e-6 + 4 * 1e-7 + 3 * 1e-7)


@pytest.mark.parametrize(("tile_s", "taken"), [(1e-7, PERSISTENT), (1e-3, "sequential")])
def test_who_asks_for_them_gets_them_where_they_are_predicted_to_be_faster(tile_s: float, taken: str) -> None:
    kernels, menus = chain(), [Menu("", (variant(seconds=5e-6),))] * 4
    (one,) = schedule(
        kernels, menus, 1, LaneCosts(), PERSISTENT, joint_launch=device(1), resident_blocks=blocks(tile_s)
    )
    assert one.plan.scheduler == taken


def test_where_one_call_cannot_be_carried_out_there_is_no_such_plan() -> None:
    kernels, menus = chain(), [Menu("", (variant(seconds=5e-6),))] * 4
    found = schedule(
        kernels, menus, 1, LaneCosts(), "auto", joint_launch=device(1), resident_blocks=blocks(1e-7, refused=2)
    )
    assert PERSISTENT not in [one.plan.scheduler for one in found]


def test_a_plan_waits_for_what_its_calls_read_and_nothing_else() -> None:
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(4)}
    one, two = (Call(adder(40, 1), (0,), (id,)) for id in (1, 2))
    kernels = KernelGraph(buffers, (one, two, Call(adder(40, 2), (1, 2), (3,))), (0,), (3,))
    menus = [Menu("", (variant(seconds=5e-6),))] * 3
    found = schedule(kernels, menus, 1, LaneCosts(), "auto", joint_launch=device(1), resident_blocks=blocks(1e-7))
    plan = next(one.plan for one in found if one.plan.residents)
    plan.verify(kernels)
    assert sum(len(task.waits) for task in plan.runs) == 1
