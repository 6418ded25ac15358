"""States that go from frame to frame through parts: waits, what they cost, and what keeps them on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.lanes import NOTHING, LaneCosts
from compiler.ir.plans.parts import After, Parts, State
from compiler.ir.plans.transfers import Transfers
from compiler.ir.tensor import DType, TensorType
from compiler.schedule.parts.dividing import (
    division_of,
    on_two_queues,
    one_device,
    overlapped,
    parts_of,
    pipeline,
    replicas,
    shared,
    tradeoff,
)
from compiler.schedule.parts.units import units_of
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.recurrence import maximum_cycle_mean
from tests.compiler.schedule.kernel_graphs import ROWS, chain, random_graph
from tests.compiler.schedule.parts.test_dividing import (
    COPIES,
    NAMES,
    one_by_one,
    random_stages,
    streamed,
    without_waits,
)
from tests.parse import parse_routine
from tests.seeds import each

TYPE = TensorType(DType.F32, (ROWS, 4))


def recurrent(*calls: tuple[int, ...], outputs: Sequence[int]) -> KernelGraph:
    """Calls that read so many buffers each, 0 and 1 being the inputs; call i makes buffer 2 + i."""
    made = []
    for at, reads in enumerate(calls):
        slots = ", ".join(f"in x{number}: {TYPE}" for number in range(len(reads)))
        made.append(Call(parse_routine(f"routine sum sum({slots}; out y: {TYPE})"), reads, (2 + at,)))
    buffers = {id: Buffer.whole(id, TYPE) for id in range(2 + len(calls))}
    return KernelGraph(buffers, tuple(made), (0, 1), tuple(outputs))


LAYERS = recurrent((0,), (1, 2), (3,), (4,), (5,), outputs=(6, 4))
"""Of five calls the second reads the state, input 1, and the third makes it, output 1."""


def with_states(random: Random, transfers: Sequence[Transfers | None] = ()) -> tuple[KernelGraph, Division, Parts]:
    """A random graph in random stages, of which one or two outputs are inputs of the next frame."""
    while True:
        kernels = random_graph(random, most=8)
        pairs = [
            (out, into)
            for out, into in product(range(len(kernels.outputs)), range(len(kernels.inputs)))
            if kernels.buffers[kernels.outputs[out]].type == kernels.buffers[kernels.inputs[into]].type
        ]
        if pairs:
            break
    carried = [*{into: (out, into) for out, into in random.sample(pairs, len(pairs))}.values()]
    seconds = [[random.uniform(1.0, 3.0) for _ in kernels.calls] for _ in NAMES]
    division = division_of(kernels, seconds, LaneCosts(0.1, 1e-3), transfers, carried=carried)
    if random.random() < 0.3:
        return kernels, division, random.choice((pipeline, replicas, shared))(kernels, NAMES, division)
    units = units_of(division)
    stages = units.expanded([*random_stages(random, units.division)])
    return kernels, division, parts_of(kernels, NAMES, division, stages, "random")


@each(range(25))
def test_frames_in_flight_carry_states_as_one_by_one(seed: int) -> None:
    random = Random(seed)
    kernels, _, parts = with_states(random, random.choice([(), (None, COPIES)]))
    assert parts.states
    assert streamed(kernels, parts, random) == one_by_one(kernels, parts)


@each(range(6))
def test_a_state_goes_through_two_queues_of_a_device_too(seed: int) -> None:
    random = Random(seed)
    kernels, division, plain = with_states(random, (None, COPIES))
    parts = on_two_queues(kernels, NAMES, division, plain)
    assert streamed(kernels, parts, random) == one_by_one(kernels, parts)


def test_the_verifier_misses_no_wait_without_which_a_state_is_spoilt() -> None:
    found = []
    for seed in range(7):
        random = Random(seed)
        kernels, _, parts = with_states(random)
        found.append(without_waits(kernels, parts, random, seed))
    refused, spoilt = map(sum, zip(*found, strict=True))
    assert refused >= 15
    assert spoilt >= 8


def test_who_reads_a_state_waits_for_who_keeps_it_and_who_keeps_it_for_who_reads_its_slot() -> None:
    division = division_of(LAYERS, [[1.0] * 5] * 2, NOTHING, carried=[(1, 1)])
    parts = parts_of(LAYERS, NAMES, division, [(0, 0b00011), (1, 0b11100)], "by hand")
    assert parts.states == (State(1, 1, 2),)
    assert parts.kept_by(LAYERS) == [[], [State(1, 1, 2)]]
    assert After(1, 1) in parts.parts[0].after
    assert "output 1 is input 1 of the next frame: 2 slots" in str(parts)
    first = replace(parts.parts[0], after=tuple(one for one in parts.parts[0].after if one != After(1, 1)))
    with pytest.raises(VerifyError, match=r"reads a state, but nothing makes part 0 wait for part 1, which keeps it"):
        replace(parts, parts=(first, parts.parts[1])).verify(LAYERS)
    with pytest.raises(VerifyError, match="one input is two states"):
        replace(parts, states=(*parts.states, State(0, 1))).verify(LAYERS)
    late = recurrent((0,), (2,), (3,), (4, 1), outputs=(5, 2))
    division = division_of(late, [[1.0] * 4] * 2, NOTHING, carried=[(1, 1)])
    parts = parts_of(late, NAMES, division, [(0, 0b0011), (1, 0b1100)], "by hand")
    with pytest.raises(VerifyError, match=r"overlap in the arena"):
        replace(parts, states=(State(1, 1, 1),)).verify(late)


def test_one_that_is_kept_early_and_read_late_has_a_slot_for_each_stage_between() -> None:
    kernels = recurrent((0,), (2,), (3,), (1, 4), outputs=(5, 2))
    division = division_of(kernels, [[1.0] * 4] * 4, NOTHING, carried=[(1, 1)])
    stages = [(at, 1 << at) for at in range(4)]
    parts = parts_of(kernels, ("a", "b", "c", "d"), division, stages, "by hand")
    assert parts.states == (State(1, 1, 5),)
    assert (parts.carried_s, parts.period_s) == (0.0, 1.0), "it comes back to no reader of itself"


def test_a_state_that_crosses_devices_bounds_the_period_and_one_that_stays_does_not() -> None:
    costs = LaneCosts(0.5)
    division = division_of(LAYERS, [[1.0] * 5] * 2, costs, carried=[(1, 1)])
    crossing = parts_of(LAYERS, NAMES, division, [(0, 0b00011), (1, 0b11100)], "by hand")
    assert crossing.carried_s == crossing.period_s == 2.0 + 0.25 + 3.0 + 0.25
    staying = parts_of(LAYERS, NAMES, division, [(0, 0b00111), (1, 0b11000)], "by hand")
    assert (staying.carried_s, staying.period_s) == (3.0, 3.0)
    assert pipeline(LAYERS, NAMES, division).period_s == 3.0
    assert one_device(LAYERS, NAMES, division).period_s == 5.0
    assert replicas(LAYERS, NAMES, division).period_s == 5.0 + 0.25, "a frame on one waits for the other's"


def test_a_state_waits_for_what_the_pair_of_cores_costs_that_it_crosses() -> None:
    pairs = {(0, 1): LaneCosts(0.5), (0, 2): LaneCosts(8.0), (1, 2): LaneCosts(0.5)}
    division = division_of(LAYERS, [[1.0] * 5] * 3, NOTHING, carried=[(1, 1)], pairs=pairs)
    for device, wait_s in ((1, 0.25), (2, 4.0)):
        stages = [(0, 0b00011), (device, 0b11100)]
        assert parts_of(LAYERS, ("a", "b", "c"), division, stages, "by hand").carried_s == 5.0 + 2 * wait_s


def test_a_pipeline_is_also_planned_with_the_way_of_a_state_whole() -> None:
    """Cut where loads are equal it would cross: 1 | 3, 3 | 1 within the second and third call."""
    seconds = [1.0, 3.0, 3.0, 0.5, 0.5]
    division = division_of(LAYERS, [seconds] * 2, NOTHING, carried=[(1, 1)])
    found = pipeline(LAYERS, NAMES, division)
    assert found.period_s == 6.0 + 1.0
    free = division_of(LAYERS, [seconds] * 2, NOTHING)
    assert pipeline(LAYERS, NAMES, free).period_s == 4.0
    assert units_of(division).calls == [1 << call for call in range(5)]
    whole = units_of(division, whole_states=True)
    assert whole.calls == [0b00001, 0b00110, 0b01000, 0b10000]
    assert [(one.readers, one.writers) for one in whole.division.states] == [(0b0010, 0b0010)]


def test_stages_beside_the_way_of_a_state_may_be_shared_and_a_curve_counts_it() -> None:
    seconds = [9.0, 1.0, 1.0, 0.5, 0.5]
    division = division_of(LAYERS, [seconds] * 3, NOTHING, carried=[(1, 1)])
    names = ("one", "other", "third")
    found = shared(LAYERS, names, division)
    assert found.period_s == 4.5
    assert [part.turns.every for part in found.parts] == [2, 2, 1]
    curve = tradeoff(LAYERS, names, division)
    assert all(one.states and one.period_s >= one.carried_s for one in curve)
    assert min(one.period_s for one in curve) < sum(seconds)


def test_two_queues_gain_nothing_where_all_of_a_device_is_on_the_way_of_a_state() -> None:
    kernels = recurrent((0, 1), outputs=(2, 2))
    division = division_of(kernels, [[1e3], [3.0]], NOTHING, (None, Transfers(0.5, 0.0, 0.0, 0.0)), carried=[(1, 1)])
    single = one_device(kernels, NAMES, division)
    assert single.period_s == 3.5
    assert overlapped(kernels, NAMES, division).period_s >= single.period_s


def test_what_no_part_makes_or_is_of_another_type_is_no_state() -> None:
    kernels = chain("sum", "sum")
    parts = parts_of(kernels, NAMES, division_of(kernels, [[1.0] * 2] * 2, NOTHING), [(0, 0b11)], "by hand")
    through = replace(kernels, outputs=(0,))
    with pytest.raises(VerifyError, match="no part makes output 0"):
        replace(parts, states=(State(0, 0),)).verify(through)
    wide = replace(kernels, inputs=(3,), buffers={**kernels.buffers, 3: Buffer.whole(3, TensorType(DType.F32, (2,)))})
    with pytest.raises(VerifyError, match=r"output 0 is .*, and input 0 is"):
        replace(parts, states=(State(0, 0),)).verify(wide)


def test_the_mean_of_a_cycle_is_over_the_frames_that_it_takes() -> None:
    assert maximum_cycle_mean([]) == 0.0
    assert maximum_cycle_mean([[None, 1.0], [None, None]]) == 0.0
    assert maximum_cycle_mean([[None, 1.0], [4.0, None]]) == 2.5
    assert maximum_cycle_mean([[3.0, 1.0], [4.0, None]]) == 3.0
