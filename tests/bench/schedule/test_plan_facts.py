from __future__ import annotations

from bench.schedule.plan_facts import depth, fan_in, handovers, joins, launches
from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.ir.tile import Tile

TILES = 4


def plan(*tasks: Task, lanes: int = 2) -> Plan:
    return Plan(lanes, tasks, ((Tile("loops"), TILES),) * 4, {}, 0, "by hand")


def task(call: int, lane: int, *waits: Wait, beside: bool = False) -> Task:
    return Task(call, lane, 0, TILES, waits, beside)


def test_a_chain_is_as_deep_as_it_has_launches() -> None:
    chain = plan(*(task(call, 0) for call in range(4)), lanes=1)
    assert (launches(chain), depth(chain), handovers(chain)) == (4, 4, 0)


def test_tasks_that_share_a_launch_are_one_and_make_the_chain_no_longer() -> None:
    shared = plan(task(0, 0), task(1, 0), task(2, 0, beside=True), task(3, 0), lanes=1)
    assert (launches(shared), depth(shared), handovers(shared)) == (3, 3, 0)


def test_what_runs_on_two_streams_is_less_deep_than_it_has_launches() -> None:
    streams = plan(task(0, 0), task(1, 0), task(2, 1, Wait(0, 1)), task(3, 0, Wait(1, 1)))
    assert (launches(streams), depth(streams), handovers(streams)) == (4, 3, 2)


def test_a_lane_that_waits_for_nothing_adds_no_depth() -> None:
    apart = plan(task(0, 0), task(1, 0), task(2, 1), task(3, 1))
    assert (launches(apart), depth(apart), handovers(apart)) == (4, 2, 0)


def test_joins_are_the_launches_of_the_longest_chain_that_wait_for_other_streams() -> None:
    """Of the two chains that are as long, the one over the second stream, which waits for the first before."""
    fork = plan(task(0, 0), task(1, 0), task(2, 1, Wait(0, 1)), task(3, 0, Wait(1, 1)))
    assert (joins(fork), fan_in(fork)) == (2, 0)
    assert joins(plan(*(task(call, 0) for call in range(4)), lanes=1)) == 0
    off_the_chain = plan(task(0, 0), task(1, 1), task(2, 1, Wait(0, 1)), task(3, 2), task(4, 2), task(5, 2), lanes=3)
    assert (depth(off_the_chain), joins(off_the_chain)) == (3, 0)


def test_the_fan_in_is_how_many_streams_beyond_one_each_they_wait_for() -> None:
    roots = (task(0, 0), task(1, 1), task(2, 2))
    three = plan(*roots, task(3, 0, Wait(1, 1), Wait(2, 1)), task(4, 0), lanes=3)
    assert (depth(three), joins(three), fan_in(three)) == (3, 1, 1)
    assert fan_in(plan(*roots, lanes=3)) == 0
