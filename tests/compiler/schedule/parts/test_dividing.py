"""Random graphs in parts: with many frames in flight, in any order that the waits allow, each frame has its results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.parts import AHEAD_S, MOST_FRAMES, After, Edge, Part, Parts, Turns, verify_copies
from compiler.ir.plans.plan import Place, Plan, Task
from compiler.ir.plans.transfers import Transfers
from compiler.schedule.parts.dividing import (
    division_of,
    on_two_queues,
    one_device,
    overlapped,
    parts_of,
    pipeline,
    placed,
    replicas,
    shared,
    stages_of,
    with_queues,
)
from compiler.schedule.parts.portions import portion
from compiler.schedule.parts.units import units_of
from compiler.schedule.solvers import replicas as solver
from compiler.schedule.solvers.ideals import Crossing, Division, ideals
from compiler.schedule.solvers.tradeoffs import tradeoffs
from tests.compiler.schedule.kernel_graphs import PRIME, SIZE, SPLITS, Memory, chain, random_graph
from tests.seeds import each

FRAMES = 12
NAMES = ("one", "other")


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few frames use every slot again."""
    monkeypatch.setattr(solver, "MOST_TURNS", 3)


COPIES = Transfers(0.1, 0.1, 1e-3, 1e-3)


def test_replicas_of_short_models_have_frames_for_some_slices_of_the_scheduler() -> None:
    in_turn = [Part(at, (0, 1), turns=Turns(2, (at,))) for at in range(2)]
    stages = [Part(0, (0,)), Part(1, (1,), (After(0, 0),))]

    def in_flight(parts: Sequence[Part], period_s: float) -> int:
        return Parts(NAMES, tuple(parts), (), "by hand", period_s=period_s).frames

    periods = [1e-6, 2e-4, 3e-4, 1e-3, 2e-3, 3e-3, 1.0]
    found = [in_flight(in_turn, period_s) for period_s in periods]
    assert found == sorted(found, reverse=True)
    assert found[0] == MOST_FRAMES
    assert all(
        many in (5, MOST_FRAMES) or AHEAD_S - period_s < many * period_s <= AHEAD_S
        for many, period_s in zip(found, periods, strict=True)
    )
    assert found[-2:] == [5, 5], "two rounds of turns, and one frame to prepare"
    assert in_flight(in_turn, 0.0) == 5, "nothing was predicted"
    assert {in_flight(stages, period_s) for period_s in periods} == {5}, "they wait for each other"


def divided(random: Random, transfers: Sequence[Transfers | None] = ()) -> tuple[KernelGraph, Parts]:
    """A graph in two to four random stages on two devices, some of them replicated, or in those of least load."""
    kernels = random_graph(random, most=8)
    seconds = [[random.uniform(1.0, 3.0) for _ in kernels.calls] for _ in NAMES]
    division = division_of(kernels, seconds, LaneCosts(0.1, 1e-3), transfers)
    if random.random() < 0.3:
        return kernels, random.choice((pipeline, placed, replicas))(kernels, NAMES, division)
    units = units_of(division)
    stages = units.expanded([*random_stages(random, units.division)])
    return kernels, parts_of(kernels, NAMES, division, stages, "random")


def random_stages(random: Random, division: Division) -> Iterator[tuple[int, int]]:
    sets = ideals(division.before, 1000)
    done = 0
    for _ in range(random.randint(1, 3)):
        larger = random.choice([one for one in sets if one & done == done])
        if larger & ~done:
            for device in random.choice(((0,), (1,), (0, 1))):
                yield device, larger & ~done
            done = larger
    if division.whole & ~done:
        yield random.randrange(2), division.whole & ~done


class Frame(Memory):
    """What one frame sees: edges in its slots, its own inputs and outputs, the parts' own memory."""

    def __init__(self, kernels: KernelGraph, parts: Parts, seed: int) -> None:
        sizes: dict[int, int] = {}
        for buffer in kernels.buffers.values():
            sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), buffer.span * SIZE)
        tiles = ((SPLITS[0], 1),) * len(kernels.calls)
        places = {storage: Place("output", 0, size) for storage, size in sizes.items()}
        super().__init__(kernels, Plan(1, (), tiles, places, 0, "frames"), seed)
        given = np.random.default_rng(seed)
        for storage in kernels.inputs:
            self.apart[storage] = given.integers(PRIME, size=sizes[storage] // SIZE)


def next_turn(part: Part, frame: int) -> int:
    return frame if part.turns.has(frame) else next_turn(part, frame + 1)


def may_begin(parts: Parts, done: Sequence[int], number: int) -> bool:
    """`done` is the frame that each part does next."""
    for after in parts.parts[number].after:
        awaited = done[number] - after.frames
        if awaited >= 0 and parts.parts[after.part].turns.has(awaited) and done[after.part] <= awaited:
            return False
    return True


def streamed(kernels: KernelGraph, parts: Parts, random: Random) -> list[dict[int, list[int]]]:
    """The results of frames, parts running in a random order that their waits allow, some far ahead of others.

    Where a device has a memory of its own a part begins by copying its inputs there, and ends by copying its outputs.
    States are zeros at first. A part that keeps one ends by copying it to its slot.
    """
    states: list[tuple[int, int, list[np.ndarray | None]]] = [
        (kernels.outputs[state.output], kernels.inputs[state.input], [None] * state.slots) for state in parts.states
    ]
    kept = [[parts.states.index(state) for state in own] for own in parts.kept_by(kernels)]
    copied = [
        tuple([own.buffers[id].storage for id in ids] for ids in (own.inputs, own.outputs))
        for own in (portion(kernels, parts, part).kernels for part in parts.parts)
    ]
    there: dict[int, dict[int, np.ndarray]] = {}
    memory = [Frame(kernels, parts, seed) for seed in range(FRAMES)]
    own = {kernels.buffers[id].storage for id in (*kernels.inputs, *kernels.outputs)}
    garbage = np.random.default_rng(99)
    slots = {
        edge.storage: [garbage.integers(PRIME, size=edge.bytes // SIZE) for _ in range(edge.slots)]
        for edge in parts.edges
    }
    private = [{storage: array.copy() for storage, array in memory[0].apart.items()} for _ in parts.parts]
    done = [next_turn(part, 0) for part in parts.parts]
    inside = [0] * len(parts.parts)
    pending: dict[int, tuple[Frame, list[tuple[int, tuple[int, ...], int]]]] = {}
    ranks = random.sample(range(len(parts.parts)), len(parts.parts))
    while min(done) < FRAMES:
        able = [
            number
            for number, part in enumerate(parts.parts)
            if done[number] < FRAMES and (inside[number] or number in pending or may_begin(parts, done, number))
        ]
        number = min(able, key=ranks.__getitem__) if random.random() < 0.9 else random.choice(able)
        frame, part = memory[done[number]], parts.parts[number]
        for storage in frame.apart:
            if storage not in own:
                edge = slots.get(storage)
                frame.apart[storage] = edge[done[number] % len(edge)] if edge else private[number][storage]
        for _, into, held in states:
            found = held[done[number] % len(held)]
            frame.apart[into] = np.zeros_like(frame.apart[into]) if found is None else found
        here, is_apart = frame.apart, part.device in parts.apart
        if is_apart and not inside[number] and number not in pending:
            fresh = {storage: garbage.integers(PRIME, size=array.size) for storage, array in here.items()}
            there[number] = fresh | {storage: here[storage].copy() for storage in copied[number][0]}
        frame.apart = there[number] if is_apart else here
        if number in pending:
            where, written = pending.pop(number)
            where.store(written)
            inside[number] += 1
            if inside[number] == len(part.calls):
                for storage in copied[number][1] if is_apart else ():
                    here[storage][:] = there[number][storage]
                for out, _, held in (states[at] for at in kept[number]):
                    held[(done[number] + 1) % len(held)] = here[out].copy()
                done[number], inside[number] = next_turn(part, done[number] + 1), 0
        else:
            pending[number] = frame, frame.computed(Task(part.calls[inside[number]], 0, 0, 1))
        frame.apart = here
        if random.random() < 0.05:
            ranks = random.sample(ranks, len(ranks))
    return [frame.results() for frame in memory]


def one_by_one(kernels: KernelGraph, parts: Parts) -> list[dict[int, list[int]]]:
    found = []
    before: Frame | None = None
    for seed in range(FRAMES):
        frame = Frame(kernels, parts, seed)
        for state in parts.states:
            out, into = kernels.outputs[state.output], kernels.inputs[state.input]
            frame.apart[into] = before.apart[out] if before else np.zeros_like(frame.apart[into])
        for call in range(len(kernels.calls)):
            frame.store(frame.computed(Task(call, 0, 0, 1)))
        found.append(frame.results())
        before = frame
    return found


def without_each_wait(parts: Parts) -> Iterator[Parts]:
    for number, part in enumerate(parts.parts):
        for gone in part.after:
            left = replace(part, after=tuple(one for one in part.after if one != gone))
            yield replace(parts, parts=(*parts.parts[:number], left, *parts.parts[number + 1 :]))


def without_waits(kernels: KernelGraph, parts: Parts, random: Random, seed: int) -> tuple[int, int]:
    """How many waits the verifier demands, and of these how many are missed in a few random orders.

    It must demand each that is missed.
    """
    refused = spoilt = 0
    expected = one_by_one(kernels, parts)
    for lacking in without_each_wait(parts):
        wrong = any(streamed(kernels, lacking, random) != expected for _ in range(3))
        try:
            lacking.verify(kernels)
        except VerifyError:
            refused += 1
            spoilt += wrong
        else:
            assert not wrong, f"seed {seed}: the verifier lets pass\n{lacking}"
    return refused, spoilt


@each(range(25))
def test_frames_in_flight_give_what_each_gives_alone(seed: int) -> None:
    random = Random(seed)
    kernels, parts = divided(random)
    assert streamed(kernels, parts, random) == one_by_one(kernels, parts)


@each(range(15))
def test_devices_with_memories_of_their_own_are_brought_what_they_read_and_give_back_what_others_do(seed: int) -> None:
    random = Random(seed)
    kernels, parts = divided(random, random.choice([(None, COPIES), (COPIES, COPIES)]))
    for part in parts.parts:
        verify_copies(kernels, part, portion(kernels, parts, part))
    assert streamed(kernels, parts, random) == one_by_one(kernels, parts)


@each(range(10))
def test_frames_on_two_queues_of_a_device_keep_apart(seed: int) -> None:
    random = Random(seed)
    kernels = random_graph(random, most=8)
    seconds = [[random.uniform(1.0, 3.0) for _ in kernels.calls] for _ in NAMES]
    division = division_of(kernels, seconds, LaneCosts(0.1, 1e-3), (None, COPIES))
    units = units_of(division)
    stages = units.expanded([*random_stages(random, units.division)])
    plain = parts_of(kernels, NAMES, division, stages, "random")
    parts = on_two_queues(kernels, NAMES, division, plain)
    assert (parts.devices, parts.apart) == ((*NAMES, NAMES[1]), (1, 2))
    on = [[part.calls for part in parts.parts if part.device == queue] for queue in (1, 2)]
    assert on[0] == on[1] == [part.calls for part in plain.parts if part.device == 1]
    for part in parts.parts:
        verify_copies(kernels, part, portion(kernels, parts, part))
    assert streamed(kernels, parts, random) == one_by_one(kernels, parts)


@pytest.mark.parametrize(("work_s", "run_s", "period_s"), [(30.0, 1.0, 30.0), (1.0, 1.0, 4.0), (1.0, 30.0, 18.0)])
def test_two_queues_hide_what_is_not_the_longest_of_kernels_and_copies(
    work_s: float, run_s: float, period_s: float
) -> None:
    """4 to copy there and 1 back: kernels, copies there, or half of all that one frame takes bound it."""
    kernels = chain("sum")
    (size,) = {kernels.buffers[id].type.bytes for id in (*kernels.inputs, *kernels.outputs)}
    count = len(kernels.inputs)
    copies = Transfers(run_s, 0.0, 4.0 / size / count, 1.0 / size)
    division = division_of(kernels, [[1e3], [work_s]], LaneCosts(), (None, copies))
    whole = work_s + run_s + 5.0
    assert one_device(kernels, NAMES, division).period_s == pytest.approx(whole)
    found = on_two_queues(kernels, NAMES, division, one_device(kernels, NAMES, division))
    assert (found.period_s, found.predicted_s) == pytest.approx((period_s, whole))
    assert [(part.device, part.turns) for part in found.parts] == [(1, Turns(2, (0,))), (2, Turns(2, (1,)))]
    assert overlapped(kernels, NAMES, division).period_s <= found.period_s
    assert [division.turn_s(1, 1), with_queues(division).turn_s(2, 1)] == pytest.approx([whole, 2 * period_s])


def test_a_copy_that_is_missing_doubled_or_in_vain_is_refused() -> None:
    kernels = chain("sum", "sum", "sum")
    division = division_of(kernels, [[1.0] * 3] * 2, LaneCosts(), (None, COPIES))
    parts = parts_of(kernels, NAMES, division, [(0, 0b001), (1, 0b010), (0, 0b100)], "by hand")
    whole = portion(kernels, parts, parts.parts[1])

    (brought,), (given,) = whole.kernels.inputs, whole.kernels.outputs

    def with_ports(inputs: tuple[int, ...] = (brought,), outputs: tuple[int, ...] = (given,)) -> None:
        inside = replace(whole.kernels, inputs=inputs, outputs=outputs)
        verify_copies(kernels, parts.parts[1], replace(whole, kernels=inside))

    with_ports()
    cases: tuple[tuple[dict[str, tuple[int, ...]], str], ...] = (
        ({"inputs": ()}, f"s{brought} is brought to the part of calls 1 to 1 not at all"),
        ({"inputs": (brought, brought)}, f"s{brought} is brought to the part of calls 1 to 1 2 times"),
        ({"inputs": (brought, given)}, f"s{given} is brought to the part of calls 1 to 1 in vain"),
        ({"outputs": ()}, f"s{given} is given back by the part of calls 1 to 1 not at all"),
        ({"outputs": (given, brought)}, f"s{brought} is given back by the part of calls 1 to 1 in vain"),
    )
    for ports, says in cases:
        with pytest.raises(VerifyError, match=re.escape(says)):
            with_ports(**ports)


def test_a_storage_that_another_part_writes_too_is_not_given_back_whole() -> None:
    """Some random graph has two calls that write one storage; a part may not end between them."""
    refused = 0
    for seed in range(40):
        kernels = random_graph(Random(seed), most=8)
        division = division_of(kernels, [[1.0] * len(kernels.calls)] * 2, LaneCosts(), (None, COPIES))
        units = units_of(division)
        for end in range(1, len(kernels.calls)):
            stages = [(0, (1 << end) - 1), (1, division.whole & ~((1 << end) - 1))]
            may_end = any(sum(units.calls[:count]) == stages[0][1] for count in range(len(units.calls)))
            tensors = [one for one in division.tensors if one.writers & stages[0][1] and one.writers & stages[1][1]]
            if not tensors:
                continue
            assert not may_end
            with pytest.raises(VerifyError, match="both write storage s"):
                parts_of(kernels, NAMES, division, stages, "by hand")
            refused += 1
    assert refused >= 5


def test_the_whole_model_on_one_device_is_taken_where_copies_cost_more_than_they_gain() -> None:
    kernels = chain("sum", "sum", "sum")
    seconds = [[3.0, 3.0, 3.0], [1.0, 1.0, 1.0]]
    dear = replace(COPIES, run_s=100.0)
    for way in (pipeline, placed):
        near = way(kernels, NAMES, division_of(kernels, seconds, LaneCosts(), (None, dear)))
        assert [part.device for part in near.parts] == [0]
        far = way(kernels, NAMES, division_of(kernels, [[30.0] * 3, seconds[1]], LaneCosts(), (None, COPIES)))
        assert [(part.device, part.calls) for part in far.parts] == [(1, (0, 1, 2))]
        storages = [kernels.buffers[id].type.bytes for id in (*kernels.inputs, *kernels.outputs)]
        assert far.predicted_s == pytest.approx(3.0 + 0.1 + 0.1 * len(storages) + 1e-3 * sum(storages))


def test_the_verifier_misses_no_wait_without_which_a_frame_is_spoilt() -> None:
    found = []
    for seed in range(8):
        random = Random(seed)
        kernels, parts = divided(random)
        found.append(without_waits(kernels, parts, random, seed))
    refused, spoilt = map(sum, zip(*found, strict=True))
    assert refused >= 20
    assert spoilt >= refused // 2, "most waits that the verifier demands are needed in one of few random orders"


@each(range(15))
def test_a_portion_has_its_calls_and_reads_from_outside_what_others_write(seed: int) -> None:
    kernels, parts = divided(Random(seed))
    for part in parts.parts:
        found = portion(kernels, parts, part)
        assert len(found.kernels.calls) == len(part.calls)
        assert (len(found.inputs), len(found.outputs)) == (len(found.kernels.inputs), len(found.kernels.outputs))
        inside = {kernels.buffers[id].storage for at in part.calls for id in kernels.calls[at].outputs}
        for operand, id in zip(found.outputs, found.kernels.outputs, strict=True):
            assert operand.space in ("output", "edge")
            assert found.kernels.buffers[id].storage in inside
        for mine, call in zip(found.kernels.calls, (kernels.calls[at] for at in part.calls), strict=True):
            for new, old in zip((*mine.inputs, *mine.outputs), (*call.inputs, *call.outputs), strict=True):
                now, before = found.kernels.buffers[new], kernels.buffers[old]
                assert (now.storage, now.offset, now.strides, now.type) == (
                    before.storage,
                    before.offset,
                    before.strides,
                    before.type,
                )


def of_chain(*stages: int) -> Parts:
    kernels = chain("sum", "sum", "sum")
    division = division_of(kernels, [[1.0] * 3, [2.0] * 3], LaneCosts())
    return parts_of(kernels, NAMES, division, list(enumerate(stages)), "by hand")


def refused(parts: Parts, says: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(says)):
        parts.verify(chain("sum", "sum", "sum"))


def test_a_chain_in_two_parts_waits_for_what_it_reads_and_for_a_free_slot() -> None:
    parts = of_chain(0b001, 0b110)
    assert parts.parts[0].after == (After(1, 2),)
    assert parts.parts[1].after == (After(0, 0),)
    assert [edge.slots for edge in parts.edges] == [2]
    assert (parts.predicted_s, parts.period_s) == (5.0, 4.0)


def test_a_caller_without_a_core_keeps_the_device_with_least_to_do() -> None:
    kernels = chain("sum", "sum", "sum")
    for caller_s, period_s in ((0.5, 4.0), (3.5, 4.5)):
        division = division_of(kernels, [[1.0] * 3, [2.0] * 3], LaneCosts(), caller_s=caller_s)
        parts = parts_of(kernels, NAMES, division, [(0, 0b001), (1, 0b110)], "by hand")
        assert (parts.predicted_s, parts.period_s) == (5.0 + caller_s, period_s), "a frame by itself waits for it"


def changed(parts: Parts, number: int, **fields: object) -> Parts:
    found: Sequence[object] = [
        replace(part, **fields) if at == number else part  # type: ignore[arg-type]
        for at, part in enumerate(parts.parts)
    ]
    return replace(parts, parts=tuple(found))  # type: ignore[arg-type]


def test_what_is_missing_or_doubled_is_refused() -> None:
    parts = of_chain(0b001, 0b110)
    refused(changed(parts, 1, after=()), "nothing makes call 1 on lane 1 wait")
    refused(changed(parts, 0, after=()), "overlap in the arena")
    refused(changed(parts, 0, after=(After(1, 3),)), "overlap in the arena")
    refused(replace(parts, edges=()), "goes from part 0 to part 1, and has no edge")
    refused(replace(parts, edges=(Edge(parts.edges[0].storage, 4),)), "has 4 bytes of")
    refused(changed(parts, 1, calls=(1,)), "call 2")
    refused(changed(parts, 1, calls=(0, 1, 2)), "is in parts 0 and 1")
    refused(changed(parts, 0, after=(After(1, 0),)), "which may never come")
    refused(changed(parts, 1, device=2), "is on device 2 of 2")


def test_one_slot_lets_frames_follow_each_other_one_by_one() -> None:
    parts = of_chain(0b001, 0b110)
    single = replace(parts, edges=tuple(replace(edge, slots=1) for edge in parts.edges))
    refused(single, "overlap in the arena")
    changed(single, 0, after=(After(1, 1),)).verify(chain("sum", "sum", "sum"))


def replicated_chain(*seconds: float) -> Parts:
    """The second of three calls on two devices, which take so long for it, the others on a third one."""
    kernels = chain("sum", "sum", "sum")
    division = division_of(kernels, [[1.0] * 3, *([one] * 3 for one in seconds)], LaneCosts())
    return parts_of(kernels, ("cpu:0", "cpu:1", "cpu:2"), division, [(0, 1), (1, 2), (2, 2), (0, 4)], "by hand")


def test_frames_are_dealt_to_replicas_as_fast_as_they_are_and_come_back_in_order() -> None:
    parts = replicated_chain(2.0, 4.0)
    assert [part.turns for part in parts.parts] == [Turns(), Turns(3, (0, 2)), Turns(3, (1,)), Turns()]
    assert parts.parts[1].after == (After(0, 0), After(2, 4), After(3, 4))
    assert parts.parts[3].after == (After(1, 0), After(2, 0))
    assert [edge.slots for edge in parts.edges] == [4, 4]
    assert parts.round == 3
    assert parts.frames == 2 * (1 + 3 + 1) + 1
    assert parts.period_s == 2.0
    assert parts.predicted_s == 6.0, "a frame may have its turn in the slower one"


def test_turns_that_miss_or_double_a_frame_are_refused() -> None:
    parts = replicated_chain(2.0, 2.0)
    said = "parts 1, 2 have the same calls, and"
    refused(changed(parts, 2, turns=Turns(2, (0,))), f"{said} frame 0 of 2 has its turn 2 times")
    refused(changed(parts, 2, turns=Turns(2, ())), f"{said} frame 1 of 2 has its turn 0 times")
    refused(changed(parts, 2, turns=Turns(4, (1, 3))), f"{said} turns of rounds of unequal length")
    refused(changed(parts, 3, after=(After(1, 0),)), "nothing makes call 2")


def test_whole_inferences_in_turn_leave_out_a_device_that_would_not_help() -> None:
    kernels = chain("sum", "sum")
    division = division_of(kernels, [[1.0] * 2, [1.0] * 2, [30.0] * 2], LaneCosts(5.0, 1.0))
    found = replicas(kernels, ("cpu:0", "cpu:1", "cpu:2"), division)
    assert [part.device for part in found.parts] == [0, 1]
    assert not found.edges
    assert (found.period_s, found.predicted_s) == (1.0, 2.0)


def test_what_devices_do_to_each_other_counts_for_frames_in_flight_and_not_for_one_by_itself() -> None:
    kernels = chain("sum", "sum", "sum", "sum")
    seconds = [[1.0] * 4, [1.0] * 4]
    division = division_of(kernels, seconds, LaneCosts(), slowdown=(1.0, 2.0))
    parts = parts_of(kernels, NAMES, division, [(0, 0b0011), (1, 0b1100)], "by hand")
    assert (parts.predicted_s, parts.period_s) == (4.0, 4.0)
    found = pipeline(kernels, NAMES, division)
    assert (found.predicted_s, found.period_s) == (4.0, 3.0), "three calls where they take no longer"
    in_turn = replicas(kernels, NAMES, division)
    assert [len(part.turns.own) for part in in_turn.parts] == [2, 1]
    assert in_turn.period_s == pytest.approx(8 / 3)
    assert in_turn.predicted_s == 4.0
    stages, by = tradeoffs(division)[0]
    assert (by, sorted(calls.bit_count() for _, calls in stages)) == ("pipeline", [1, 3])
    equal = division_of(kernels, seconds, LaneCosts())
    assert equal.in_flight is equal
    assert pipeline(kernels, NAMES, equal).period_s == 2.0


FOUR = ("cpu:0", "cpu:1", "cpu:2", "cpu:3")
NEAR, FAR = LaneCosts(0.2, 1e-3), LaneCosts(2.0, 1e-2)


def four_cores(kernels: KernelGraph, *far: tuple[int, int], work_s: float = 4.0) -> Division:
    """Cores that differ in nothing but in which pairs are far."""
    pairs = {pair: FAR if pair in far else NEAR for pair in combinations(range(4), 2)}
    return division_of(kernels, [[work_s] * len(kernels.calls)] * 4, NEAR, pairs=pairs)


def neighbours(parts: Parts) -> list[tuple[int, int]]:
    """The devices of stages that follow each other, the lower one first."""
    order = [part.device for part in parts.parts]
    return [(min(pair), max(pair)) for pair in pairwise(order)]


def test_a_pipeline_hands_nothing_over_between_the_cores_that_are_far() -> None:
    kernels = chain(*["sum"] * 4)
    near = pipeline(kernels, FOUR, four_cores(kernels))
    assert neighbours(near) == [(0, 1), (1, 2), (2, 3)]
    found = pipeline(kernels, FOUR, four_cores(kernels, (1, 2)))
    assert sorted(part.device for part in found.parts) == [0, 1, 2, 3]
    assert (1, 2) not in neighbours(found)
    assert found.period_s == near.period_s
    as_near = parts_of(kernels, FOUR, four_cores(kernels, (1, 2)), stages_of(near), "by the machine's figure")
    assert as_near.period_s > found.period_s
    assert as_near.predicted_s > found.predicted_s


def test_a_pipeline_crosses_between_two_pairs_of_cores_once() -> None:
    kernels = chain(*["sum"] * 4)
    division = four_cores(kernels, (0, 2), (0, 3), (1, 2), (1, 3))
    found = pipeline(kernels, FOUR, division)
    assert sum(pair in ((0, 1), (2, 3)) for pair in neighbours(found)) == 2
    assert len(found.parts) == 4


def test_a_frame_waits_for_what_the_very_pair_of_cores_costs() -> None:
    kernels = chain("sum", "sum", "sum")
    division = four_cores(kernels, (1, 2), work_s=1.0)
    (size,) = {one.bytes for one in division.tensors if one.writers and one.readers}
    parts = parts_of(kernels, FOUR, division, [(0, 0b001), (1, 0b010), (2, 0b100)], "by hand")
    near, far = NEAR.handover_s + size * NEAR.crossing_s, FAR.handover_s + size * FAR.crossing_s
    assert parts.predicted_s == pytest.approx(3.0 + near + far)
    assert parts.period_s == pytest.approx(1.0 + size * FAR.crossing_s)


def test_pairs_that_all_cost_the_same_are_one_figure_and_the_others_cost_the_machines() -> None:
    kernels = chain("sum", "sum")
    every = dict.fromkeys(combinations(range(3), 2), FAR)
    division = division_of(kernels, [[1.0] * 2] * 3, NEAR, pairs=every)
    assert (division.pairs, division.handover_s, division.byte_s) == ({}, FAR.handover_s, FAR.crossing_s)
    assert division_of(kernels, [[1.0] * 2] * 3, FAR) == division
    del every[0, 1]
    division = division_of(kernels, [[1.0] * 2] * 3, NEAR, pairs=every)
    assert division.between(1, 0) == Crossing(NEAR.handover_s, NEAR.crossing_s)
    assert division.between(2, 0) == division.between(1, 2) == Crossing(FAR.handover_s, FAR.crossing_s)
    assert division.levelled.handover_s == pytest.approx((NEAR.handover_s + 2 * FAR.handover_s) / 3)
    assert division.levelled.pairs == {}


def test_stages_are_shared_by_the_mean_of_pairs_where_that_is_better() -> None:
    """One call that takes longest is for three of four equal cores, of which two are far from each other."""
    kernels = chain("sum", "sum", "sum")
    pairs = {pair: FAR if pair == (1, 2) else NEAR for pair in combinations(range(4), 2)}
    division = division_of(kernels, [[5.0, 90.0, 5.0]] * 4, NEAR, pairs=pairs)
    found = shared(kernels, FOUR, division)
    assert found.period_s < pipeline(kernels, FOUR, division).period_s / 2


def test_a_device_with_queues_is_slowed_down_by_others_on_each() -> None:
    copies = Transfers(0.0, 0.0, 0.0, 0.0)
    division = division_of(chain("sum"), [[9.0], [2.0]], LaneCosts(), (None, copies), slowdown=(1.0, 1.5))
    assert with_queues(division).turn_s(2, 1) == 2 * 1.5 * 2.0
    assert division.turn_s(1, 1) == 3.0
