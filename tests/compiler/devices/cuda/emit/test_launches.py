"""Launches of a plan: edges are those of lanes and waits, without the ones that follow from others."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.emit.launches import Launch, launches, scratch_offsets
from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.ir.tile import Tile
from tests.parse import parse_kernel


def kernel(grid: int = 1, scratch_bytes: int = 0) -> CudaLowered:
    return CudaLowered("k", "", grid, 32, scratch_bytes=scratch_bytes)


def plan_of(lanes: int, *tasks: Task) -> Plan:
    tiles = tuple((Tile("loops"), task.last) for task in tasks)
    return Plan(lanes, tasks, tiles, {}, 0, "sequential")


def test_one_lane_is_a_chain() -> None:
    plan = plan_of(1, Task(0, 0, 0, 1), Task(1, 0, 0, 1), Task(2, 0, 0, 1))
    assert launches(plan, [kernel()] * 3) == [Launch((0,), ()), Launch((1,), (0,)), Launch((2,), (1,))]


def test_waits_are_edges_and_those_that_follow_from_others_are_dropped() -> None:
    """Two lanes.

    The last call waits for the other lane's second task, and so need not wait for its first, nor for call 0.
    """
    plan = plan_of(
        2,
        Task(0, 0, 0, 1),
        Task(1, 1, 0, 1, (Wait(0, 1),)),
        Task(2, 1, 0, 1),
        Task(3, 0, 0, 1, (Wait(1, 1), Wait(1, 2), Wait(1, 0))),
    )
    assert [one.after for one in launches(plan, [kernel()] * 4)] == [(), (0,), (1,), (2,)]


def test_two_branches_meet_in_one_call() -> None:
    plan = plan_of(
        2,
        Task(0, 0, 0, 1),
        Task(1, 1, 0, 1, (Wait(0, 1),)),
        Task(2, 0, 0, 1),
        Task(3, 0, 0, 1, (Wait(1, 1),)),
    )
    assert [one.after for one in launches(plan, [kernel()] * 4)] == [(), (0,), (0,), (1, 2)]


def test_a_call_without_blocks_is_not_launched_and_hands_its_edges_on() -> None:
    plan = plan_of(1, Task(0, 0, 0, 4), Task(1, 0, 0, 0), Task(2, 0, 0, 4))
    assert launches(plan, [kernel(4), kernel(0), kernel(4)]) == [Launch((0,), ()), Launch((2,), (0,))]


def test_a_call_in_parts_is_refused() -> None:
    plan = plan_of(1, Task(0, 0, 0, 2), Task(0, 0, 2, 4))
    with pytest.raises(VerifyError, match=r"call 0 has 4 blocks and a task for 0\.\.2"):
        launches(plan, [kernel(4)])


def test_calls_of_one_lane_share_scratch_and_lanes_do_not() -> None:
    plan = plan_of(2, Task(0, 0, 0, 1), Task(1, 1, 0, 1), Task(2, 0, 0, 1))
    lowered = [kernel(1, 100), kernel(1, 300), kernel(1, 700)]
    assert scratch_offsets(plan, lowered, launches(plan, lowered)) == ([0, 768, 0], 768 + 512)


NEG = parse_kernel("kernel Neg(in x: f32[64]; out y: f32[64]) for i:64 y[i] = neg(x[i])")


def part(name: str = "k0_neg", grid: int = 1, block: int = 32, **others: Any) -> CudaLowered:
    """A kernel that can share a launch."""
    x, y = (Buffer.whole(at, slot.type) for at, slot in enumerate((*NEG.inputs, *NEG.outputs)))
    workload = Workload(NEG, (x,), (y,), (False,))
    return framed(name, workload, ["y[tile] = -x[tile];"], Frame(grid=grid, block=block, **others))


def test_calls_that_run_beside_each_other_share_a_launch_whose_waits_are_the_firsts() -> None:
    plan = plan_of(
        2,
        Task(0, 0, 0, 1),
        Task(1, 1, 0, 1),
        Task(2, 0, 0, 1, (Wait(1, 1),)),
        Task(3, 0, 0, 1, beside=True),
        Task(4, 1, 0, 1, (Wait(0, 3),)),
        Task(5, 0, 0, 1),
    )
    assert launches(plan, [part()] * 6) == [
        Launch((0,), ()),
        Launch((1,), ()),
        Launch((2, 3), (0, 1)),
        Launch((4,), (2,)),
        Launch((5,), (2,)),
    ]


def test_who_waits_for_the_first_call_of_a_launch_waits_for_the_launch() -> None:
    plan = plan_of(2, Task(0, 0, 0, 1), Task(1, 0, 0, 1, beside=True), Task(2, 1, 0, 1, (Wait(0, 1),)))
    assert launches(plan, [part()] * 3) == [Launch((0, 1), ()), Launch((2,), (0,))]


def test_of_calls_that_share_a_launch_those_with_clusters_come_first() -> None:
    plan = plan_of(1, Task(0, 0, 0, 1), Task(1, 0, 0, 4, beside=True), Task(2, 0, 0, 1, beside=True))
    assert launches(plan, [part(), part(grid=4, cluster=4), part()]) == [Launch((1, 0, 2), ())]


def test_a_launch_is_left_out_of_which_no_call_has_blocks_and_a_call_without_blocks_takes_no_part() -> None:
    plan = plan_of(
        1,
        Task(0, 0, 0, 1),
        Task(1, 0, 0, 0),
        Task(2, 0, 0, 0, beside=True),
        Task(3, 0, 0, 0),
        Task(4, 0, 0, 1, beside=True),
    )
    lowered = [part(), kernel(0), kernel(0), kernel(0), part()]
    assert launches(plan, lowered) == [Launch((0,), ()), Launch((4,), (0,))]


def test_calls_that_cannot_share_a_launch_are_refused() -> None:
    plan = plan_of(1, Task(0, 0, 0, 1), Task(1, 0, 0, 1, beside=True))
    with pytest.raises(VerifyError, match="calls 0, 1 cannot share a launch"):
        launches(plan, [part(), part(block=48)])
