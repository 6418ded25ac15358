from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from bench.search.compare import compare
from bench.search.run import _table
from bench.search.samples import SAMPLES, legal
from compiler.devices.cpu.target import PROFILES
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Record, Trial, Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal
from tests.parse import parse_kernel

PRODUCT = parse_kernel(
    """kernel MatMul(in x: f32[48, 64], in w: f32[64, 96]; out y: f32[48, 96])
    for m:48, n:96
      y[m, n] = sum<f32> k:64 . mul(x[m, k], w[k, n])"""
)
WORKLOAD = Workload(
    PRODUCT,
    tuple(Buffer.whole(at, slot.type) for at, slot in enumerate(PRODUCT.inputs)),
    (Buffer.whole(2, PRODUCT.outputs[0].type),),
    (False, True),
)
TARGET = replace(next(profile for profile in PROFILES if profile.name == "cpu:x86-64-v4"), hardware="here")


def tile(rows: int) -> Tile:
    return Tile("contraction", (Level("register", (("m", rows),)),))


class Machine:
    """Tile of r rows takes (20 - r) us, but that of 12 rows 30; each is measured as often as asked."""

    hardware = "here"
    lanes = 1

    def __init__(self) -> None:
        self.asked: list[int] = []

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        for trial in trials:
            rows = trial.tile.extent("register", "m")
            self.asked.append(rows)
            seconds = 1e-6 * (30 if rows == 12 else 20 - rows)
            yield Record("kernel", "", "", "", "", "", trial.tile.to_json(), 1, seconds, seconds, seconds, 1)


def test_the_search_is_judged_by_all_tiles_measured_again() -> None:
    machine = Machine()
    tiles = [tile(rows) for rows in range(1, 17)]
    # The model prefers more rows, but for one tile that it takes for the best; 13 to 16 rows are not proposed at all.
    proposals = [Proposal(tile(rows), 1e-6 * (5 if rows == 12 else 21 - rows)) for rows in (12, *range(11, 0, -1))]
    row = compare("product", WORKLOAD, proposals, tiles, machine)
    assert (row.legal, row.tile) == (16, str(tile(11)))
    assert row.best_s == pytest.approx(4e-6)
    assert row.found_s == pytest.approx(9e-6)
    assert row.untuned_s == pytest.approx(30e-6)
    assert 2 <= row.trials <= 12
    assert set(machine.asked[:16]) == set(range(1, 17))
    assert 12 in machine.asked[16:]
    assert row.to_json()["found_to_best"] == pytest.approx(9 / 4)
    assert "| product | 16 |" in _table([row])


def test_all_tiles_of_a_product_are_those_proposed_and_every_rectangle_of_registers() -> None:
    proposals, tiles = legal(WORKLOAD, TARGET)
    assert {proposal.tile for proposal in proposals} <= set(tiles)
    assert len(tiles) == len(set(tiles)) > 5 * len(proposals)
    for one in tiles:
        rows, columns = one.extent("register", "m"), one.extent("register", "n")
        assert rows * columns // 16 + columns // 16 <= 32


def test_samples_have_names_of_their_own() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) == 10
