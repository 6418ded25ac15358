"""Plans for two devices: what is computed on the one reaches the other by copies alone."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Kernel
from compiler.ir.plans.accesses import Accesses
from compiler.ir.plans.plan import Copy, Memory, Place, Plan, Task, Wait
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Tile
from tests.parse import parse_kernel

SIZE, BYTES = 8, 32


def adder(inputs: int) -> Kernel:
    """The sum of some vectors."""
    value = "x0[i]"
    for slot in range(1, inputs):
        value = f"add({value}, x{slot}[i])"
    slots = ", ".join(f"in x{slot}: f32[{SIZE}]" for slot in range(inputs))
    return parse_kernel(f"kernel Add({slots}; out y: f32[{SIZE}]) for i:{SIZE} y[i] = {value}")


def graph(*reads: tuple[int, ...], inputs: int = 1, constants: int = 0) -> KernelGraph:
    """Call k adds up buffers and writes buffer inputs + constants + k; the last one is the output."""
    first = inputs + constants
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (SIZE,))) for id in range(first + len(reads))}
    calls = tuple(Call(adder(len(read)), read, (first + at,)) for at, read in enumerate(reads))
    held = {id: np.ones(SIZE, np.float32) for id in range(inputs, first)}
    return KernelGraph(buffers, calls, tuple(range(inputs)), (first + len(reads) - 1,), held)


CHAIN = graph((0,), (2, 1), (3,), constants=1)
"""Input 0, constant 1; calls 0, 1 and 2 write buffers 2, 3 and 4."""


def chain_plan() -> Plan:
    """Call 1 on device 1, which has lane 1 and memory 1; the rest on device 0."""
    return Plan(
        lanes=2,
        tasks=(
            Task(0, 0, 0, 1),
            Copy(2, 0, 1, 0, BYTES, 1, (Wait(0, 1),), device=1),
            Task(1, 1, 0, 1, device=1),
            Copy(3, 1, 0, 0, BYTES, 1, device=1),
            Task(2, 0, 0, 1, (Wait(1, 3),)),
        ),
        tiles=((Tile("loops"), 1),) * 3,
        places={
            0: Place("input", 0, BYTES),
            1: Place("constant", 0, BYTES),
            2: Place("arena", 0, BYTES),
            3: Place("arena", BYTES, BYTES),
            4: Place("output", 0, BYTES),
        },
        arena_bytes=2 * BYTES,
        scheduler="by hand",
        devices=("cpu", "cuda:sm_90"),
        more_memories=(Memory(1, 2 * BYTES),),
        replicas=(
            (1, Place("constant", 0, BYTES, 1)),
            (2, Place("arena", 0, BYTES, 1)),
            (3, Place("arena", BYTES, BYTES, 1)),
        ),
    )


def refused(plan: Plan, says: str, kernels: KernelGraph = CHAIN) -> None:
    with pytest.raises(VerifyError, match=re.escape(says)):
        plan.verify(kernels)


def with_task(plan: Plan, at: int, *tasks: Task | Copy) -> Plan:
    """The plan with others in the place of one task."""
    return replace(plan, tasks=(*plan.tasks[:at], *tasks, *plan.tasks[at + 1 :]))


def with_replica(plan: Plan, at: int, *places: tuple[int, Place]) -> Plan:
    return replace(plan, replicas=(*plan.replicas[:at], *places, *plan.replicas[at + 1 :]))


def test_what_another_device_computes_is_read_after_a_copy() -> None:
    chain_plan().verify(CHAIN)


def test_a_missing_copy_is_found() -> None:
    plan = chain_plan()
    without = with_task(plan, 1)
    refused(
        replace(without, tasks=(*without.tasks[:-1], Task(2, 0, 0, 1, (Wait(1, 2),)))),
        f"call 1 `{CHAIN.calls[1]}` reads bytes 0..32 of storage s2 in memory 1, which lie in memory 0, "
        "and no copy brings them",
    )
    refused(
        with_task(with_task(plan, 4, Task(2, 0, 0, 1, (Wait(1, 2),))), 3),
        "reads bytes 0..32 of storage s3 in memory 0, which lie in memory 1, and no copy brings them",
    )


def test_a_copy_that_nobody_waits_for_is_found() -> None:
    refused(
        with_task(chain_plan(), 4, Task(2, 0, 0, 1, (Wait(1, 2),))),
        "in memory 0, which lie in memory 1, and no copy that has ended by then brings all of them",
    )


def test_a_copy_of_what_is_not_written_yet_is_found() -> None:
    plan = chain_plan()
    early = replace(plan.tasks[1], waits=())
    refused(with_task(plan, 1, early), "nothing makes it wait for call 0")
    late = (plan.tasks[0], plan.tasks[3], *plan.tasks[1:3], plan.tasks[4])
    refused(replace(plan, tasks=late), "the copy of storage s3 from memory 1 to 0 reads bytes 0..32")


def test_a_copy_from_a_place_that_nothing_writes_is_found() -> None:
    plan = chain_plan()
    three = replace(plan, more_memories=(*plan.more_memories, Memory(2, BYTES)), devices=(*plan.devices, "npu"))
    elsewhere = with_replica(three, 0, plan.replicas[0], (2, Place("arena", 0, BYTES, 2)))
    copy = Copy(2, 2, 1, 0, BYTES, 1, (Wait(0, 1),), device=1)
    refused(with_task(elsewhere, 1, copy), "in memory 2, which lie in memory 0, and no copy brings them")
    places = {**plan.places, 9: Place("arena", 0, BYTES)}
    nothing = with_replica(replace(plan, places=places), 0, plan.replicas[0], (9, Place("arena", 0, 4, 1)))
    stray = Copy(9, 0, 1, 0, 4, 1, device=1)
    refused(with_task(nothing, 3, plan.tasks[3], stray), "reads bytes 0..4, which nothing ever writes")


def test_a_part_that_is_not_copied_is_found() -> None:
    plan, copy = chain_plan(), chain_plan().tasks[1]
    assert isinstance(copy, Copy)
    refused(with_task(plan, 1, replace(copy, end=BYTES - 4)), "brings all of them")
    halves = (replace(copy, end=12), replace(copy, begin=12, waits=()))
    both = with_task(plan, 1, *halves)
    with_task(both, 5, Task(2, 0, 0, 1, (Wait(1, 4),))).verify(CHAIN)


def test_an_output_computed_elsewhere_is_brought_home() -> None:
    kernels = graph((0,), (1,))
    plan = Plan(
        2,
        (
            Task(0, 0, 0, 1),
            Copy(1, 0, 1, 0, BYTES, 0),
            Task(1, 1, 0, 1, (Wait(0, 2),), device=1),
            Copy(2, 1, 0, 0, BYTES, 1, device=1),
        ),
        ((Tile("loops"), 1),) * 2,
        {0: Place("input", 0, BYTES), 1: Place("arena", 0, BYTES), 2: Place("output", 0, BYTES)},
        BYTES,
        "by hand",
        devices=("", "npu"),
        more_memories=(Memory(1, 2 * BYTES),),
        replicas=((1, Place("arena", 0, BYTES, 1)), (2, Place("arena", BYTES, BYTES, 1))),
    )
    plan.verify(kernels)
    refused(replace(plan, tasks=plan.tasks[:-1]), "the caller reads bytes 0..32 of storage s2 in memory 0", kernels)


def test_an_input_is_copied_and_a_constant_placed_on_the_device_that_reads_it() -> None:
    plan = chain_plan()
    refused(with_replica(plan, 0), "call 1 runs on device 1 and touches storage s1, which has no place in its memories")
    uploaded = with_replica(plan, 0, (1, Place("arena", 0, BYTES, 1)))
    refused(uploaded, "storage s1 in memory 1, which lie in memory 0, and no copy brings them")
    refused(
        with_replica(plan, 0, plan.replicas[0], (0, Place("input", 0, BYTES, 1))),
        "storage s0 is the caller's, which has it in memory 0",
    )
    refused(with_task(plan, 1, plan.tasks[1], Copy(1, 0, 1, 0, BYTES, 1, device=1)), "copy writes over storage s1")


def test_the_arena_of_each_memory_is_checked() -> None:
    plan = chain_plan()
    refused(with_replica(plan, 2, (3, Place("arena", 48, BYTES, 1))), "storage s3 ends at byte 80 of an arena of 64")
    over = with_replica(plan, 0, (1, Place("arena", 0, BYTES, 1)))
    lanes = replace(over, lanes=3, tasks=(plan.tasks[0], Copy(1, 0, 1, 0, BYTES, 2, device=1), plan.tasks[1]))
    beside = (Task(1, 1, 0, 1, (Wait(2, 1),), device=1), plan.tasks[3], plan.tasks[4])
    refused(replace(lanes, tasks=(*lanes.tasks, *beside)), "overlap in the arena")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"devices": ("cpu",)}, "memory 1 belongs to device 1 of 1"),
        ({"more_memories": ()}, "lies in memory 1 of 1"),
        ({"more_memories": (Memory(0, 64),)}, "storage s1 has two places on device 0"),
    ],
)
def test_devices_and_memories_that_there_are_not_are_found(change: dict[str, object], says: str) -> None:
    refused(replace(chain_plan(), **change), says)  # type: ignore[arg-type]


def test_lanes_calls_and_copies_belong_to_a_device_that_can_run_them() -> None:
    plan, copy = chain_plan(), chain_plan().tasks[1]
    assert isinstance(copy, Copy)
    refused(with_task(plan, 4, Task(2, 0, 0, 1, (Wait(1, 3),), device=1)), "lane 0 has tasks on devices 0 and 1")
    refused(with_task(plan, 4, Task(2, 0, 0, 1, (Wait(1, 3),), device=2)), "is on device 2 of 2")
    split = replace(plan, tiles=(*plan.tiles[:2], (Tile("loops"), 2)))
    halves = (Task(2, 0, 0, 1, (Wait(1, 3),)), Task(2, 1, 1, 2, device=1))
    refused(with_task(split, 4, *halves), "call 2 has tasks on devices 0 and 1")
    refused(with_task(plan, 1, replace(copy, target=0)), "stays in memory 0")
    refused(with_task(plan, 1, replace(copy, storage=4)), "names memory 1, where it has no place")
    refused(with_task(plan, 1, replace(copy, end=BYTES + 4)), "a copy of bytes 0..36 of storage s2, which has 32")
    third = replace(plan, lanes=3, devices=("", "a", "b"))
    third = with_task(third, 4, Task(2, 0, 0, 1, (Wait(1, 2),)))
    refused(with_task(third, 1, replace(copy, device=2, lane=2)), "device 2 copies storage s2 from memory 0 to 1")


def test_a_copy_over_what_another_task_still_reads_is_found() -> None:
    plan = chain_plan()
    again = Copy(2, 0, 1, 0, BYTES, 2, (Wait(0, 1),), device=1)
    refused(replace(with_task(plan, 1, plan.tasks[1], again), lanes=3), "neither waits for the other")
    after = replace(again, waits=(Wait(1, 3),))
    replace(plan, lanes=3, tasks=(*plan.tasks, after)).verify(CHAIN)


def test_plans_for_several_devices_are_not_carried_out() -> None:
    plan = chain_plan()
    with pytest.raises(VerifyError, match="the plan is for 2 devices with 2 memories, where one of each is supported"):
        plan.tasks_of_one_device()
    alone = replace(plan, devices=("",), more_memories=(), replicas=())
    with pytest.raises(VerifyError, match="the plan copies between memories"):
        alone.tasks_of_one_device()
    with pytest.raises(VerifyError, match="on a device that is not the only one"):
        replace(alone, tasks=alone.runs).tasks_of_one_device()
    with pytest.raises(VerifyError, match="2 memories"):
        replace(alone, tasks=(), more_memories=(Memory(0, 64),)).tasks_of_one_device()
    assert replace(alone, tasks=alone.runs[:1]).tasks_of_one_device() == alone.runs[:1]


def random_case(pick: random.Random) -> tuple[KernelGraph, Plan]:
    """A graph on two devices with two lanes each.

    Every result is copied to the other device where it is read or given out.
    """
    reads: list[tuple[int, ...]] = []
    for at in range(pick.randrange(2, 7)):
        reads.append(tuple(sorted(pick.sample(range(1 + at), pick.randrange(1, min(3, 1 + at) + 1)))))
    kernels = graph(*reads)
    on = [pick.randrange(2) for _ in reads]
    tasks: list[Task | Copy] = []
    counts, ready = [0] * 4, {(0, 0): Wait(0, 0)}

    def add(task: Task | Copy, gives: tuple[int, int]) -> None:
        tasks.append(replace(task, waits=tuple(wait for wait in task.waits if wait.count)))
        counts[task.lane] += 1
        ready[gives] = Wait(task.lane, counts[task.lane])

    def bring(storage: int, memory: int) -> None:
        if (storage, memory) not in ready:
            lane = 2 * memory + pick.randrange(2)
            add(
                Copy(storage, 1 - memory, memory, 0, BYTES, lane, (ready[storage, 1 - memory],), memory),
                (storage, memory),
            )

    for call, read in enumerate(reads):
        for storage in read:
            bring(storage, on[call])
        waits = tuple(ready[storage, on[call]] for storage in read)
        add(Task(call, 2 * on[call] + pick.randrange(2), 0, 1, waits, device=on[call]), (1 + call, on[call]))
    bring(len(reads), 0)
    every = range(1, len(reads) + 1)
    places = {0: Place("input", 0, BYTES), **{s: Place("arena", s * BYTES, BYTES) for s in every[:-1]}}
    places[len(reads)] = Place("output", 0, BYTES)
    return kernels, Plan(
        4,
        tuple(tasks),
        ((Tile("loops"), 1),) * len(reads),
        places,
        (len(reads) + 1) * BYTES,
        "random",
        devices=("", "other"),
        more_memories=(Memory(1, (len(reads) + 1) * BYTES),),
        replicas=tuple((s, Place("arena", s * BYTES, BYTES, 1)) for s in (0, *every)),
    )


def goes_wrong(kernels: KernelGraph, plan: Plan, pick: random.Random) -> bool:
    """Whether a random execution, in which a task writes at some time until it ends, reads what is not there."""
    accesses, streams = Accesses(kernels, every=True), [plan.lane(lane) for lane in range(plan.lanes)]
    there, writing = {(0, 0)}, set[tuple[int, int]]()
    begun, ended = [0] * plan.lanes, [0] * plan.lanes

    def touched(task: Task | Copy) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        if isinstance(task, Copy):
            return {(task.storage, task.source)}, {(task.storage, task.target)}
        of_call = accesses.of(task.call, Tile("loops"), task.first, task.last)
        sides = [{(one.storage, task.device) for one in of_call if one.writes == side} for side in (False, True)]
        return sides[0], sides[1]

    while True:
        moves = []
        for lane, stream in enumerate(streams):
            if begun[lane] > ended[lane]:
                moves.append((lane, False))
            elif begun[lane] < len(stream) and all(ended[w.lane] >= w.count for w in stream[begun[lane]].waits):
                moves.append((lane, True))
        if not moves:
            break
        lane, begins = pick.choice(moves)
        read, written = touched(streams[lane][begun[lane] if begins else ended[lane]])
        if not read <= there - writing:  # looked at when it begins and when it ends
            return True
        if begins:
            writing |= written
            begun[lane] += 1
        else:
            writing -= written
            there |= written
            ended[lane] += 1
    return (max(kernels.buffers), 0) not in there


def changed(plan: Plan, pick: random.Random) -> Plan:
    """A task without one of its waits, or waiting for too little, or no copy where there was one."""
    waiting = [at for at, task in enumerate(plan.tasks) if task.waits]
    copies = [at for at, task in enumerate(plan.tasks) if isinstance(task, Copy)]
    if copies and pick.random() < 0.4:
        at = pick.choice(copies)
        lane, number = plan.tasks[at].lane, sum(task.lane == plan.tasks[at].lane for task in plan.tasks[: at + 1])
        return replace(plan, tasks=tuple(_earlier(task, lane, number) for task in _without(plan.tasks, at)))
    at = pick.choice(waiting or [0])
    waits = plan.tasks[at].waits[1:]
    return with_task(plan, at, replace(plan.tasks[at], waits=waits))


def _without(tasks: Sequence[Task | Copy], at: int) -> tuple[Task | Copy, ...]:
    return (*tasks[:at], *tasks[at + 1 :])


def _earlier(task: Task | Copy, lane: int, number: int) -> Task | Copy:
    """Waits for a lane from which the task of that number was taken."""
    counted = (Wait(w.lane, w.count - (w.lane == lane and w.count >= number)) for w in task.waits)
    return replace(task, waits=tuple(wait for wait in counted if wait.count))


def test_every_plan_that_some_execution_shows_to_be_wrong_is_refused() -> None:
    wrong = sound = 0
    for seed in range(400):
        pick = random.Random(seed)
        kernels, plan = random_case(pick)
        plan.verify(kernels)
        assert not any(goes_wrong(kernels, plan, pick) for _ in range(5)), f"seed {seed}"
        broken = changed(plan, pick)
        shown = any(goes_wrong(kernels, broken, pick) for _ in range(30))
        try:
            broken.verify(kernels)
            sound += 1
            assert not shown, f"seed {seed} is accepted\n{broken}"
        except VerifyError:
            wrong += shown
    assert wrong > 100
    assert sound > 20
