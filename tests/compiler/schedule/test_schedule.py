from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Kernel
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.schedule import schedule
from compiler.schedule.memory.buffers import ALIGNMENT, place_buffers
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.solvers.sequential import choose_lanes, one_by_one, sequential
from tests.parse import parse_kernel

HANDOVER = 1e-6


def adder(size: int, inputs: int) -> Kernel:
    """The sum of some vectors."""
    value = "x0[i]"
    for slot in range(1, inputs):
        value = f"add({value}, x{slot}[i])"
    slots = ", ".join(f"in x{slot}: f32[{size}]" for slot in range(inputs))
    return parse_kernel(f"kernel Add({slots}; out y: f32[{size}]) for i:{size} y[i] = {value}")


@st.composite
def kernel_graphs(draw: st.DrawFn) -> KernelGraph:
    """Calls that each read some earlier values of their size; some in place, some into slices of a shared storage."""
    sizes = {0: 8, 1: 40}
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (size,))) for id, size in sizes.items()}
    calls: list[Call] = []
    for id in range(2, draw(st.integers(3, 14))):
        size = draw(st.sampled_from([8, 40]))
        same = [other for other, extent in sizes.items() if extent == size]
        read = tuple(draw(st.lists(st.sampled_from(same), min_size=1, max_size=3, unique=True)))
        sizes[id] = size
        buffers[id] = Buffer.whole(id, TensorType(DType.F32, (size,)))
        calls.append(Call(adder(size, len(read)), read, (id,), ((0, 0),) if draw(st.booleans()) else ()))
    outputs = tuple(
        draw(st.lists(st.sampled_from([call.outputs[0] for call in calls]), min_size=1, max_size=2, unique=True))
    )
    return KernelGraph(buffers, tuple(calls), (0, 1), outputs)


def variant(tiles: int = 4, seconds: float = 1e-3, lanes: int = 1) -> Variant:
    return Variant(Tile("loops"), tiles, lanes, Cost(seconds, "model"))


def plan_of(kernels: KernelGraph, lanes: int = 2, tiles: int = 4, scheduler: str = "sequential") -> Plan:
    return schedule(kernels, [Menu("", (variant(tiles),))] * len(kernels.calls), lanes, LaneCosts(HANDOVER), scheduler)[
        0
    ].plan


def live(kernels: KernelGraph) -> dict[int, tuple[int, int]]:
    """From the call that first touches a storage to the last."""
    found: dict[int, tuple[int, int]] = {}
    for position, call in enumerate(kernels.calls):
        for id in (*call.inputs, *call.outputs):
            storage = kernels.buffers[id].storage
            found[storage] = (found.get(storage, (position, 0))[0], position)
    return found


@given(kernel_graphs())
@settings(max_examples=150)
def test_storages_that_live_at_the_same_time_lie_apart(kernels: KernelGraph) -> None:
    places, arena = place_buffers(kernels)
    lives = live(kernels)
    assert set(lives) <= set(places)
    assert arena % ALIGNMENT == 0
    inner = [(storage, place) for storage, place in places.items() if place.space == "arena"]
    for storage, place in inner:
        assert place.at % ALIGNMENT == 0
        assert place.at + place.bytes <= arena
        assert place.bytes == 4 * kernels.buffers[storage].type.elements
    for at, (one, place) in enumerate(inner):
        for two, other in inner[at + 1 :]:
            if place.at < other.at + other.bytes and other.at < place.at + place.bytes:
                first, second = sorted((one, two), key=lambda storage: lives[storage])
                assert lives[first][1] <= lives[second][0]
                if lives[first][1] == lives[second][0]:  # only where a call writes over what it reads last
                    call = kernels.calls[lives[second][0]]
                    assert [call.inputs[into] for _, into in call.in_place] == [first]
                    assert place.at == other.at


@given(kernel_graphs(), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=100)
def test_a_sequential_plan_runs_every_tile_once_and_verifies(kernels: KernelGraph, lanes: int, tiles: int) -> None:
    plan = plan_of(kernels, lanes, tiles)
    plan.verify(kernels)
    assert plan.lanes in (1, lanes)
    for call in range(len(kernels.calls)):
        covered = [tile for task in plan.runs if task.call == call for tile in range(task.first, task.last)]
        assert sorted(covered) == list(range(tiles))


@given(kernel_graphs(), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=40)
def test_kernels_side_by_side_never_share_memory(kernels: KernelGraph, lanes: int, tiles: int) -> None:
    """The verifier derives what happens before what from lanes and waits alone."""
    menus = [Menu("", (variant(tiles),))] * len(kernels.calls)
    found = schedule(kernels, menus, lanes, LaneCosts(HANDOVER))
    for one in found:
        one.plan.verify(kernels)
        assert one.plan.lanes in (1, lanes)
    assert found[0].plan == plan_of(kernels, lanes, tiles)
    assert found[0].plan.scheduler == "sequential"
    for name in ("early_start", "stages"):
        (asked,) = schedule(kernels, menus, lanes, LaneCosts(HANDOVER), name)
        assert asked.plan.scheduler.split()[0] in ("sequential", name)
        assert asked.plan.predicted_s <= plan_of(kernels, 1, tiles).predicted_s


def test_where_each_kernel_needs_the_one_before_there_is_one_plan() -> None:
    menus = [Menu("", (variant(),))] * 4
    for name in ("auto", "sequential", "early_start"):
        (found,) = schedule(chain(), menus, 2, LaneCosts(HANDOVER), name)
        assert (found.plan.scheduler, found.plan.lanes) == ("sequential", 2)


def test_two_branches_do_not_lie_on_each_other() -> None:
    """One after the other their values share memory; side by side they may not."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(8)}
    reads = {2: (0,), 3: (2,), 4: (3,), 5: (1,), 6: (5,), 7: (4, 6)}
    calls = tuple(Call(adder(40, len(read)), read, (id,)) for id, read in reads.items())
    kernels = KernelGraph(buffers, calls, (0, 1), (7,))
    apart = plan_of(kernels, 2, 1, "early_start")
    assert apart.scheduler == "early_start"
    assert apart.arena_bytes > plan_of(kernels, 1, 1).arena_bytes
    with pytest.raises(VerifyError, match="overlap"):
        replace(apart, places=plan_of(kernels, 1, 1).places).verify(kernels)


@pytest.mark.parametrize("scheduler", ["early_start", "stages"])
def test_a_scheduler_that_is_asked_for_gives_way_where_one_lane_is_predicted_to_be_faster(scheduler: str) -> None:
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(8)}
    reads = {2: (0,), 3: (2,), 4: (3,), 5: (1,), 6: (5,), 7: (4, 6)}
    calls = tuple(Call(adder(40, len(read)), read, (id,)) for id, read in reads.items())
    kernels = KernelGraph(buffers, calls, (0, 1), (7,))
    menus = [Menu("", (variant(1),))] * len(calls)
    (near,) = schedule(kernels, menus, 2, LaneCosts(HANDOVER), scheduler)
    (apart,) = schedule(kernels, menus, 2, LaneCosts(1.0), scheduler)
    assert (near.plan.scheduler.split()[0], near.plan.lanes) == (scheduler, 2)
    assert (apart.plan.scheduler, apart.plan.lanes) == ("sequential", 1)
    assert apart.plan.predicted_s == pytest.approx(len(calls) * 1e-3)


def chain() -> KernelGraph:
    """Three calls of large vectors, each reading the one before."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(5)}
    calls = tuple(Call(adder(40, 1), (id,), (id + 1,)) for id in range(4))
    return KernelGraph(buffers, calls, (0,), (4,))


def refused(plan: Plan, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        plan.verify(chain())


def split_plan() -> Plan:
    plan = plan_of(chain(), lanes=2)
    assert [len([task for task in plan.runs if task.call == call]) for call in range(4)] == [2, 2, 2, 2]
    return plan


def test_a_dropped_wait_is_found() -> None:
    plan = split_plan()
    waiting = [(at, task) for at, task in enumerate(plan.runs) if task.waits]
    assert len(waiting) == 6  # each of two lanes for the other, in all calls but the first
    for at, task in waiting:
        tasks = (*plan.runs[:at], replace(task, waits=()), *plan.runs[at + 1 :])
        refused(replace(plan, tasks=tasks), "wait|reuses")


def test_a_wait_for_too_few_tasks_is_found() -> None:
    plan = split_plan()
    at, task = next((at, task) for at, task in reversed([*enumerate(plan.runs)]) if task.waits)
    early = replace(task, waits=(Wait(task.waits[0].lane, task.waits[0].count - 1),))
    refused(replace(plan, tasks=(*plan.runs[:at], early, *plan.runs[at + 1 :])), "nothing makes call")


def test_a_missing_tile_range_is_found() -> None:
    plan = split_plan()
    refused(replace(plan, tasks=plan.runs[:-1]), "tiles")
    short = replace(plan.runs[0], last=plan.runs[0].last - 1)
    refused(replace(plan, tasks=(short, *plan.runs[1:])), "expected to begin")


def test_a_tile_that_runs_twice_is_found() -> None:
    plan = split_plan()
    again = replace(plan.runs[0], last=plan.runs[0].last + 1)
    refused(replace(plan, tasks=(again, *plan.runs[1:])), "expected to begin")


def test_calls_in_the_wrong_order_are_found() -> None:
    plan = plan_of(chain(), lanes=1)
    one, two = plan.runs[1], plan.runs[2]
    refused(replace(plan, tasks=(plan.runs[0], two, one, plan.runs[3])), "call")


def test_storages_that_overlap_while_both_live_are_found() -> None:
    plan = split_plan()
    arena = [storage for storage, place in plan.places.items() if place.space == "arena"]
    moved = {**plan.places, arena[1]: replace(plan.places[arena[1]], at=plan.places[arena[0]].at + 64)}
    refused(replace(plan, places=moved), "overlap")


def test_a_storage_past_the_end_of_the_arena_is_found() -> None:
    plan = split_plan()
    refused(replace(plan, arena_bytes=plan.arena_bytes - 64), "ends at byte")


def test_a_kernel_is_split_where_that_pays() -> None:
    menu = Menu("", (variant(tiles=4, seconds=1e-3),))
    assert choose_lanes(menu, 2, HANDOVER)[1] == 2
    assert choose_lanes(menu, 2, HANDOVER)[2] == pytest.approx(0.5e-3 + HANDOVER)
    assert choose_lanes(menu, 4, HANDOVER)[1] == 4
    assert choose_lanes(menu, 3, HANDOVER)[1] == 2  # three lanes have a lane with two of the four tiles, as two have
    assert choose_lanes(menu, 2, 1e-3)[1] == 1
    assert choose_lanes(Menu("", (variant(tiles=1, seconds=1.0),)), 4, HANDOVER)[1] == 1


def test_of_two_variants_the_one_that_splits_may_win() -> None:
    fast, wide = variant(tiles=1, seconds=1e-3), variant(tiles=8, seconds=1.2e-3)
    menu = Menu("", (fast, wide))
    assert choose_lanes(menu, 1, HANDOVER)[0] is fast
    assert choose_lanes(menu, 2, HANDOVER)[0] is wide


def test_a_variant_measured_on_many_lanes_keeps_its_lanes_and_is_left_out_where_there_are_fewer() -> None:
    alone, both = variant(tiles=4, seconds=1e-3), variant(tiles=4, seconds=0.4e-3, lanes=2)
    menu = Menu("", (both, alone))
    assert choose_lanes(menu, 2, HANDOVER)[:2] == (both, 2)
    assert choose_lanes(menu, 1, HANDOVER)[:2] == (alone, 1)


def test_what_was_measured_on_as_many_lanes_counts_and_not_what_dividing_promises() -> None:
    alone, both = variant(tiles=4, seconds=0.6e-3), variant(tiles=4, seconds=0.4e-3, lanes=2)
    assert choose_lanes(Menu("", (alone, both)), 2, HANDOVER) == (both, 2, 0.4e-3)


def test_a_model_too_small_for_two_lanes_stays_on_one() -> None:
    kernels = chain()
    plan = schedule(kernels, [Menu("", (variant(seconds=3e-6),))] * 4, 2, LaneCosts(HANDOVER))[0].plan
    assert plan.lanes == 1


def test_calls_without_tiles_are_skipped_and_waits_reach_over_them() -> None:
    choices = [(variant(), 2, 1.0), (variant(tiles=0), 1, 0.0), (variant(), 2, 1.0)]
    tasks = tasks_of(sequential(choices), one_by_one([variant for variant, _, _ in choices]), [4, 0, 4], 2)
    assert [task.call for task in tasks] == [0, 0, 2, 2]
    assert tasks[2] == Task(2, 0, 0, 2, (Wait(1, 1),))


def test_calls_in_turn_begin_when_the_one_before_has_ended() -> None:
    placed = sequential([(variant(), 2, 1.5), (variant(), 1, 2.0)])
    assert [(one.lanes, one.begin, one.end) for one in placed] == [((0, 1), 0.0, 1.5), ((0,), 1.5, 3.5)]


def test_memory_that_is_taken_before_its_last_reader_is_found_on_one_lane_too() -> None:
    """Lane order puts every two tasks in order; that of storage s2 lies between the two of s1."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(5)}
    reads = {1: (0,), 2: (0,), 3: (1,), 4: (2, 3)}
    calls = tuple(Call(adder(40, len(read)), read, (id,)) for id, read in reads.items())
    kernels = KernelGraph(buffers, calls, (0,), (4,))
    plan = plan_of(kernels, lanes=1)
    over = replace(plan, places={**plan.places, 2: plan.places[1]})
    with pytest.raises(VerifyError, match="storages s1 and s2 overlap"):
        over.verify(kernels)


def test_a_call_writes_over_what_another_of_its_operands_reads_elsewhere_only_where_it_says_so() -> None:
    """Both operands lie in one storage: over the one alone it may not write."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(4)}
    buffers[2] = replace(Buffer.whole(2, TensorType(DType.F32, (40,))), storage=1)
    for pairs, shares in ((((0, 0),), False), (((0, 0), (0, 1)), True)):
        calls = (
            Call(adder(40, 1), (0,), (1,)),
            Call(adder(40, 2), (1, 2), (3,), pairs),
            Call(adder(40, 1), (3,), (4,)),
        )
        kernels = KernelGraph({**buffers, 4: Buffer.whole(4, TensorType(DType.F32, (40,)))}, calls, (0,), (4,))
        plan = plan_of(kernels, lanes=2)
        assert (plan.places[3] == plan.places[1]) == shares
        over = replace(plan, places={**plan.places, 3: plan.places[1]})
        if shares:
            over.verify(kernels)
            beside = replace(plan.places[1], at=plan.places[1].at + ALIGNMENT)  # 64 of its 160 bytes further on
            shifted = replace(plan, places={**plan.places, 3: beside}, arena_bytes=plan.arena_bytes + ALIGNMENT)
            with pytest.raises(VerifyError, match="storages s1 and s3 overlap"):
                shifted.verify(kernels)
        else:
            with pytest.raises(VerifyError, match="storages s1 and s3 overlap"):
                over.verify(kernels)


def test_on_several_lanes_memory_rests_for_a_while_where_there_is_room() -> None:
    """A chain on one lane alternates between two stretches; beside a larger value it may take more of them."""
    sizes = {0: 40, 1: 40, 2: 40, 3: 40, 4: 40, 5: 40, 6: 40}
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (size,))) for id, size in sizes.items()}
    calls = tuple(Call(adder(40, 1), (id,), (id + 1,)) for id in range(6))
    kernels = KernelGraph(buffers, calls, (0,), (6,))
    tight, _ = place_buffers(kernels)
    assert tight[3] == tight[1]
    rested, arena = place_buffers(kernels, None, [((1 << call) - 1) >> 1 for call in range(6)])
    assert rested[3] != rested[1]
    assert arena == 3 * 192
    assert plan_of(kernels, 2).arena_bytes == 2 * 192  # half as much again is too much
