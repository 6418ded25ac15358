"""What pairs of cores cost each other, by made-up figures of four cores, and the divisions that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from compiler.contract import CompileOptions
from compiler.devices.cpu.measure.pairs import at_once, rounds_of
from compiler.devices.cpu.target import this_machine
from compiler.ir.machine import Record
from compiler.ir.plans.lanes import Handover, Pair
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.knowledge.making import handover_record
from compiler.knowledge.records import Records
from compiler.schedule.parts.dividing import pipeline
from compiler.steps.costs.lanes import WAKE_SECONDS
from compiler.steps.dividing.costs import costs_of
from compiler.steps.dividing.devices import Devices
from compiler.steps.dividing.pair_costs import alike_pairs, pair_costs, pairs_known, pairs_notice
from tests.compiler.schedule.kernel_graphs import chain

TARGET = replace(this_machine(), lanes=8)
CORES = ("cpu:3", "cpu:0", "cpu:1", "cpu:2")
NEAR, FAR = (50.0, 5e-12, 2e-11), (300.0, 3e-8, 1.7e-10)


def record_of(first: int, second: int, ns: float, byte_s: float = 0.0, upgrade_s: float = 0.0) -> Record:
    return handover_record(Handover.of(ns, byte_s, upgrade_s), TARGET, (first, second))


def devices_of(*names: str) -> Devices:
    asked = CompileOptions.from_json({"devices": [*names], "objective": "throughput"})
    return Devices(asked, asked.named_devices, (CompileOptions(),), (0,) * len(names))


class Lanes:
    """A device whose cores cost each other so much, by pair; nothing is known of others."""

    def __init__(self, pairs: Mapping[tuple[int, int], tuple[float, float, float]]) -> None:
        self.costs = pairs
        self.asked: list[tuple[int, int] | None] = []

    def handover(self, known: Sequence[Record], *, measure: bool, pair: tuple[int, int] | None = None) -> Record | None:
        self.asked.append(pair)
        if pair is None:
            return handover_record(Handover.of(*NEAR), TARGET)
        return record_of(*pair, *self.costs[pair]) if pair in self.costs else None

    def pairs(self, cores: Sequence[int]) -> list[list[Pair]]:
        return rounds_of(cores, {core: str(core) for core in cores})

    def handovers(self, known: Sequence[Record], pairs: Sequence[Pair], *, measure: bool) -> Mapping[Pair, Record]:
        return at_once(pairs, lambda pair: self.handover(known, measure=measure, pair=pair))


def session_of(lanes: Lanes) -> Any:
    records, notices, said = Records(), list[str](), list[tuple[float, str]]()
    return SimpleNamespace(
        backend=SimpleNamespace(lanes=lanes),
        records=records,
        notices=notices,
        said=said,
        trace=SimpleNamespace(notice=notices.append, progress=lambda part, message: said.append((part, message))),
        may_measure=True,
        budget=SimpleNamespace(share=lambda name: SimpleNamespace(spending=nullcontext)),
        add_records=lambda found: [records.add(one) for one in found],
    )


def test_pairs_that_differ_little_cost_their_mean() -> None:
    records = {
        (0, 1): record_of(0, 1, 50.0, 4e-12, 2e-11),
        (0, 2): record_of(0, 2, 70.0, 6e-12, 4e-11),
        (1, 2): record_of(1, 2, 95.0),
        (0, 3): record_of(0, 3, 105.0),
        (1, 3): record_of(1, 3, 300.0),
    }
    assert alike_pairs(records) == [[(0, 1), (0, 2)], [(1, 2)], [(0, 3)], [(1, 3)]]
    costs = pair_costs(records)
    assert costs[0, 1] == costs[0, 2]
    assert costs[0, 1].split_s == pytest.approx(2 * 60e-9 + WAKE_SECONDS)
    assert (costs[0, 1].byte_s, costs[0, 1].upgrade_s) == pytest.approx((5e-12, 3e-11))
    assert costs[1, 3].split_s == pytest.approx(2 * 300e-9 + WAKE_SECONDS)
    assert pair_costs({}) == {}


def test_each_pair_that_a_job_names_is_asked_for_once_and_its_record_kept() -> None:
    lanes = Lanes({(0, 3): NEAR, (1, 3): FAR})
    session = session_of(lanes)
    found = pairs_known(session, devices_of("cpu:3", "cpu:0", "cpu:1"))
    assert sorted(filter(None, lanes.asked)) == [(0, 1), (0, 3), (1, 3)]
    assert {pair: record.variant["pair"] for pair, record in found.items()} == {(0, 1): [0, 3], (0, 2): [1, 3]}
    assert {*map(str, session.records)} == {*map(str, found.values())}
    assert [part for part, _ in session.said] == pytest.approx([1 / 3, 2 / 3, 1])
    assert session.said[-1][1] == "hand-overs between 3 cores: 3 of 3 pairs"
    assert pairs_known(session, devices_of("cpu", "cuda:0")) == {}


def test_a_notice_says_which_cores_are_far_from_each_other() -> None:
    devices = devices_of("cpu:0", "cpu:1", "cpu:2")
    near = {(0, 1): record_of(0, 1, 50.0), (0, 2): record_of(0, 2, 54.0)}
    assert pairs_notice(devices, near) == ""
    far = {**near, (1, 2): record_of(1, 2, 310.0)}
    said = "52 ns between cpu:0 and cpu:1, cpu:0 and cpu:2; 310 ns between cpu:1 and cpu:2"
    assert pairs_notice(devices, far) == f"a hand-over takes {said}"


@pytest.mark.parametrize("far", [(), ((0, 1),), ((1, 2), (0, 3)), ((0, 2), (1, 2), (2, 3))])
def test_a_pipeline_of_four_cores_is_cut_where_they_are_near(far: Sequence[tuple[int, int]]) -> None:
    """By numbers of cores; a byte that is read from a far one takes so long that waiting is not all."""
    lanes = Lanes({pair: FAR if pair in far else NEAR for pair in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))})
    session, kernels = session_of(lanes), chain(*["sum"] * 4)
    tile = Variant(Tile("any", ()), 1, 1, Cost(2e-6, "model"))
    menus = [Menu("w", (tile,)) for _ in kernels.calls]
    tiled = SimpleNamespace(
        handover=None, settled=SimpleNamespace(menus=menus), backend=SimpleNamespace(transfers=None, target=TARGET)
    )
    devices = devices_of(*CORES)
    costs = costs_of(session, devices, kernels, [cast("Any", tiled)], [1], None)
    assert len([record for record in costs.records if "pair" in record.variant]) == 6
    assert bool(session.notices) is bool(far)
    found = pipeline(kernels, CORES, costs.division)
    numbers = [device.core or 0 for device in devices.named]
    order = [numbers[part.device] for part in found.parts]
    crossed = [tuple(sorted(pair)) for pair in pairwise(order)]
    assert not {*crossed} & {*far}
    if len(far) == 3:  # core 2 is far from all: it would wait longer than it helps
        assert 2 not in order
    else:
        assert sorted(order) == [0, 1, 2, 3]
