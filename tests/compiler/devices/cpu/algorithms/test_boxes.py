"""Boxes chosen one after another, in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import this_machine
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from compiler.ops.boxes import SELECT, _edges, _overlaps
from tests.compiler.devices.cpu.library import Case, Library, draws, loaded
from tests.compiler.ops.single import prepare
from tests.compiler.ops.test_boxes import lattices, selection

RECORD = OPERATORS[SELECT]


def select(given: dict[str, np.ndarray], centred: int, most: int, bounded: bool, size: int) -> tuple[Node, Case]:
    arrays, attrs = selection(given, centred, most, bounded)
    arrays[2] = np.array(size)
    node, _, types = prepare(RECORD, arrays, attrs, 2)
    routine = RECORD.define(node, types, RECORD.infer(node, types))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*routine.inputs, *routine.outputs)))
    return node, Case(cast(Kernel, routine), buffers, tuple(arrays), Tile("routine"), cuts=(0.5,))


def drawn(count: int, boxes: int = 7) -> Iterator[tuple[Node, list[Case]]]:
    """Each form, with many inputs for one kernel."""
    inputs = draws(lattices(count=boxes), count)
    for centred, bounded, most in ((0, True, 4), (1, True, boxes), (0, False, boxes), (1, False, 1)):
        found = [select(given, centred, most, bounded, boxes - at % 3) for at, given in enumerate(inputs)]
        yield found[0][0], [case for _, case in found]


def crowded(seed: int, count: int) -> dict[str, Any]:
    """Many boxes of like size, of which each overlaps some."""
    chance = np.random.default_rng(seed)
    centres, sides = chance.uniform(0, 8, (1, count, 2)), chance.uniform(1, 2, (1, count, 2))
    return {
        "boxes": np.concatenate([centres, centres + sides], axis=2).astype(np.float32),
        "scores": np.round(chance.uniform(0, 1, (1, 2, count)), 2).astype(np.float32),
        "limit": np.array([count]),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.3], np.float32),
    }


def test_boxes_are_chosen_as_the_reference_chooses_them() -> None:
    forms = [*drawn(40), *((node, [case]) for node, case in [select(crowded(1, 300), 0, 50, True, 290)])]
    lowered = [
        lower(f"k{at}_boxes", cases[0].workload, cases[0].tile, this_machine()) for at, (_, cases) in enumerate(forms)
    ]
    built = build_library(kernel_sources(lowered), this_machine(), find_toolchain())
    library = Library(lowered, loaded(built))
    numbers = set()
    for number, (node, cases) in enumerate(forms):
        for case in cases:
            expected = RECORD.reference(node, case.inputs)
            numbers |= set(expected[1].reshape(-1).tolist())
            for got, want in zip(library.run(number, case), expected, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=str(case))
    assert {0, 1, 2, 3, 50} <= numbers


def touching(seed: int, centred: int) -> tuple[dict[str, Any], float]:
    """Two boxes that overlap, and a limit that is their intersection over union in float32."""
    chance = np.random.default_rng(seed)
    boxes = chance.uniform(0.5, 1, (1, 2, 4)).astype(np.float32)
    boxes[:, :, :2] /= 1 if centred else 4
    edges = _edges(boxes, bool(centred))[0]
    overlap = _overlaps(edges[:, :1], edges[:, 1:])
    given = {"boxes": boxes, "scores": np.array([[[0.9, 0.8]]], np.float32), "limit": np.array([2])}
    return {**given, "overlap": overlap, "least": np.zeros(1, np.float32)}, float(overlap[0])


@pytest.mark.parametrize("centred", [0, 1])
def test_at_equality_both_boxes_are_kept_however_products_could_be_contracted(centred: int) -> None:
    found = [touching(seed, centred) for seed in range(300)]
    assert sum(overlap > 0 for _, overlap in found) > 200
    cases = [select(given, centred, 2, True, 2)[1] for given, _ in found]
    library = Library.of(cases[:1], this_machine())
    for case in cases:
        _, (count,) = library.run(0, case)
        assert count.tolist() == [2], str(case.inputs)
