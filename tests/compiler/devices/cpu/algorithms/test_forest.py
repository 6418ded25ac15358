"""Decision trees, in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from compiler.devices.cpu.algorithms.routine.lowering import routine_tiles
from compiler.devices.cpu.target import this_machine
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from compiler.ops.forest import FOREST
from tests.compiler.devices.cpu.library import Case, Library
from tests.compiler.ops.forests import MODES, Trees, arguments, grown, samples
from tests.compiler.ops.single import prepare

RECORD = OPERATORS[FOREST]


def case_of(trees: Trees, x: np.ndarray, aggregate: str = "SUM", size: int | None = None) -> tuple[Node, Case]:
    found = trees.packed(aggregate == "SUM")
    assert found is not None
    arrays, attrs = arguments(found, x, aggregate, trees.weights.shape[1])
    arrays += [] if size is None else [np.array(size)]
    node, _, types = prepare(RECORD, arrays, attrs, 1)
    routine = RECORD.define(node, types, RECORD.infer(node, types))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*routine.inputs, *routine.outputs)))
    return node, Case(cast(Kernel, routine), buffers, tuple(arrays), Tile("routine"), cuts=(0.3, 0.7))


def forests() -> Iterator[tuple[Trees, np.ndarray, str, int | None]]:
    """Every form of the kernel."""
    yield grown(1, 20, 5), samples(1, 70), "SUM", None
    yield grown(2, 8, 4, modes=MODES), samples(2, 40), "SUM", None
    yield grown(3, 9, 5, modes=MODES[1:2], missing=True), samples(3, 33), "SUM", None
    yield grown(4, 11, 4, targets=3), samples(4, 5), "SUM", None
    yield grown(5, 11, 4, targets=5, one_target=False, missing=True), samples(5, 37), "SUM", None
    yield grown(6, 5, 3, targets=2, one_target=False), samples(6, 9), "MIN", None
    yield grown(7, 17, 6), samples(7, 1), "MAX", None
    yield grown(8, 3, 5, dtype=np.float64, missing=True), samples(8, 21, dtype=np.float64), "SUM", None
    yield grown(9, 3, 0), samples(9, 3), "SUM", None
    for size in (0, 13, 40, 99, -1):
        yield grown(10, 12, 4, targets=2), samples(10, 40), "SUM", size


def test_samples_reach_their_leaves() -> None:
    found = [
        (trees, x, aggregate, size, case_of(trees, x, aggregate, size)[1]) for trees, x, aggregate, size in forests()
    ]
    library = Library.of([case for *_, case in found], this_machine())
    for number, (trees, x, aggregate, size, case) in enumerate(found):
        (got,) = library.run(number, case)
        want = trees.says(x, aggregate)
        want[len(x) if size is None else max(size, 0) :] = 0
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=f"forest {number}")
    assert len(found) == 14


def test_its_cost_rises_with_samples_and_levels() -> None:
    workloads = [
        case_of(grown(1, trees, depth), samples(1, rows))[1].workload
        for trees, depth, rows in ((8, 3, 2), (8, 3, 4), (16, 3, 4), (16, 6, 4))
    ]
    costs = [routine_tiles(workload, this_machine(), 1)[0].seconds for workload in workloads]
    assert costs == sorted(costs)
    assert len(set(costs)) == 4
