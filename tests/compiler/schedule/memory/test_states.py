"""States that a run may write over what it read of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ir.states import Carried
from compiler.ir.tensor import DType, TensorType
from compiler.schedule.memory.states import states_of
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import (
    ROWS,
    SPLITS,
    ExactRegions,
    chain,
    random_graph,
    random_order,
    run,
    tile_tasks,
)
from tests.parse import parse_routine

TYPE = TensorType(DType.F32, (ROWS, 4))


def graph(*calls: tuple[str, tuple[int, ...]], outputs: tuple[int, ...]) -> KernelGraph:
    """Kernels of a kind that read so many buffers, of which 0 and 1 are inputs; call i makes buffer 2 + i.

    Each `sum` may write over any operand.
    """
    made = []
    for at, (kind, reads) in enumerate(calls):
        slots = ", ".join(f"in x{number}: {TYPE}" for number in range(len(reads)))
        over = tuple((0, number) for number in range(len(reads))) if kind == "sum" else ()
        made.append(Call(parse_routine(f"routine {kind} {kind}({slots}; out y: {TYPE})"), reads, (2 + at,), over))
    return KernelGraph({id: Buffer.whole(id, TYPE) for id in range(2 + len(calls))}, tuple(made), (0, 1), outputs)


def planned(kernels: KernelGraph, placed: list[Placed], lanes: int) -> Plan:
    tiles = [(SPLITS[0], tile_tasks(SPLITS[0], kernels.buffers[call.outputs[0]].type.dims)) for call in kernels.calls]
    return plan_of(kernels, placed, tiles, lanes, predecessors(kernels), "test", ExactRegions(kernels))


def in_turn(kernels: KernelGraph) -> Plan:
    return planned(kernels, [Placed(call, (0,), 0.0, 0.0) for call in range(len(kernels.calls))], 1)


def in_place(kernels: KernelGraph, *plans: Plan, pair: tuple[int, int] = (0, 1)) -> bool:
    (found,) = states_of(kernels, plans, [pair])
    assert found == Carried(*pair, found.in_place)
    return found.in_place


@pytest.mark.parametrize(
    ("calls", "outputs", "expected"),
    [
        ([("sum", (0, 1))], (2,), True),  # read where it is written
        ([("flip", (1,))], (2,), False),  # read elsewhere than it is written
        ([("sum", (0, 1)), ("halo", (2,))], (2, 3), True),  # only the new one is read later
        ([("sum", (0, 1)), ("sum", (2, 1))], (2, 3), False),  # the old one is read later
        ([("flip", (1,)), ("sum", (2, 0))], (3, 2), True),  # the last reader has ended when the writer begins
        ([("flip", (1,)), ("sum", (0, 1)), ("halo", (2, 3))], (3, 4), True),
        ([("halo", (0,)), ("all", (2,))], (3,), True),  # nothing reads it
        ([("sum", (0, 1)), ("flip", (1,)), ("sum", (3, 2))], (4, 2), True),  # the output is the last call's
    ],
)
def test_a_state_is_written_over_where_nothing_needs_the_old_one(
    calls: list[tuple[str, tuple[int, ...]]], outputs: tuple[int, ...], *, expected: bool
) -> None:
    kernels = graph(*calls, outputs=outputs)
    assert in_place(kernels, in_turn(kernels)) is expected


def test_a_reader_on_another_lane_must_have_ended() -> None:
    kernels = graph(("flip", (1,)), ("sum", (0, 0)), outputs=(3, 2))
    assert in_place(kernels, in_turn(kernels))
    at_once = planned(kernels, [Placed(0, (0,), 0.0, 1.0), Placed(1, (1,), 0.0, 1.0)], 2)
    assert not in_place(kernels, at_once), "nothing makes the writer wait for the reader"
    assert not in_place(kernels, in_turn(kernels), at_once), "it must hold under every plan"


def test_elements_of_other_widths_or_other_shapes_have_memory_of_their_own() -> None:
    kernels = graph(("sum", (0, 1)), outputs=(2,))
    for changed in (
        replace(kernels.buffers[2], element=DType.BF16),
        replace(kernels.buffers[2], type=TensorType(DType.F32, (4, ROWS)), strides=(ROWS, 1)),
    ):
        other = replace(kernels, buffers={**kernels.buffers, 2: changed})
        assert not in_place(other, in_turn(kernels))


def test_an_output_that_nothing_writes_is_never_the_input() -> None:
    kernels = replace(chain("sum"), outputs=(0,))
    assert not in_place(kernels, in_turn(chain("sum")), pair=(0, 0))


def test_results_are_the_same_in_one_memory_whatever_order_the_plan_allows() -> None:
    """And where two memories are asked for one would often go wrong."""
    seen: dict[bool, list[bool]] = {False: [], True: []}
    for seed in range(60):
        random = Random(seed)
        kernels = random_graph(random, most=7)
        lanes = random.choice([1, 2, 3])
        plan = planned(kernels, random_order(random, kernels, lanes, [ROWS] * len(kernels.calls)), lanes)
        pairs = [
            (out, into)
            for out, into in product(range(len(kernels.outputs)), range(2))
            if kernels.buffers[kernels.outputs[out]].type == kernels.buffers[into].type
        ]
        for state in states_of(kernels, [plan], pairs):
            over = {kernels.outputs[state.output]: kernels.inputs[state.input]}
            equal = (run(kernels, plan, Random(at), over) == run(kernels, plan, Random(at)) for at in range(4))
            seen[state.in_place].append(all(equal))
    assert all(seen[True])
    assert len(seen[True]) > 20
    assert seen[False].count(False) > 10
