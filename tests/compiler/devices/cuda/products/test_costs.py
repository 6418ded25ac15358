"""The model of a product's blocks, against sums by hand on a device of round figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compiler.devices.cuda.model import seconds
from compiler.devices.cuda.products.costs import Block, Issue, Stage, block_ns, cheapest, fits
from compiler.devices.cuda.products.tiles import Sizes
from compiler.devices.cuda.target import PROFILES
from compiler.ir.tile import Tile

DEVICE = replace(PROFILES[0], multiprocessors=10, clock_ghz=1.0, l2_per_ns=100.0, threads=1024)
"""10 bytes per nanosecond for each multiprocessor; four blocks of 256 threads on one."""
SIZES = Sizes(10, 5, 10, 5, 32, 2)
RESULTS_NS = 10 * 5 * 4 / 10


def block(first: Stage = Stage(), step: Stage = Stage(), steps: int = 1, count: int = 10, **more: Any) -> Block:  # noqa: B008 they are frozen
    return replace(Block(SIZES, count, 256, 32, 1024, first, step, steps), **more)


def ns(of: Block) -> float:
    return block_ns(of, DEVICE)


def test_what_a_step_asks_for_goes_on_side_by_side() -> None:
    busy = Stage(nbytes=200, cycles=15, beside_ns=3, least_ns=19)
    assert ns(block(step=busy, steps=4)) == pytest.approx(4 * 20 + RESULTS_NS)
    assert ns(block(step=replace(busy, cycles=30), steps=4)) == pytest.approx(4 * 33 + RESULTS_NS)
    assert ns(block(step=replace(busy, least_ns=50), steps=4)) == pytest.approx(4 * 50 + RESULTS_NS)
    assert ns(block(step=busy, steps=4, barrier_ns=2.0, start_ns=100.0)) == pytest.approx(100 + 4 * 22 + RESULTS_NS)


def test_what_comes_before_the_first_step_goes_on_in_turn() -> None:
    assert ns(block(first=Stage(200, 15, None, 3, 19))) == pytest.approx(20 + 15 + 3 + 19 + RESULTS_NS)


def test_instructions_go_at_the_rate_of_all_warps_but_not_faster_than_one_warp_can() -> None:
    few, many = (block(step=Stage(issue=Issue(100, warps, 4))) for warps in (4, 32))
    assert ns(few) == pytest.approx(2 * 100 + RESULTS_NS)
    assert ns(many) == pytest.approx(8 * 100 + RESULTS_NS)


def test_blocks_of_a_multiprocessor_share_its_port_and_units_and_those_that_it_cannot_hold_wait() -> None:
    step = Stage(nbytes=200, least_ns=30)
    assert ns(block(step=step)) == pytest.approx(30 + RESULTS_NS)
    assert ns(block(step=step, count=40)) == pytest.approx(4 * 20 + 4 * RESULTS_NS)
    assert ns(block(step=step, count=41)) == pytest.approx(2 * (4 * 20 + 4 * RESULTS_NS))
    assert ns(block(step=step, count=1)) == pytest.approx(30 + 10 * 5 * 4 / 64), "the port of one, not the cache"


def test_parts_of_k_meet_in_memory_or_sooner_in_a_cluster() -> None:
    split = [ns(block(sizes=replace(SIZES, parts=4, cluster=cluster))) for cluster in (False, True)]
    assert split == pytest.approx([1200 + RESULTS_NS * 5, 500 + RESULTS_NS * 2])


def test_what_needs_more_than_the_device_has_does_not_fit() -> None:
    assert fits(block(shared_bytes=DEVICE.block_shared_bytes), DEVICE)
    assert not fits(block(shared_bytes=DEVICE.block_shared_bytes + 1), DEVICE)
    assert fits(block(registers=200), DEVICE)
    assert not fits(block(registers=201), DEVICE)
    assert fits(block(registers=201, most_registers=255), DEVICE)


def test_the_cheapest_that_fit_are_proposed_with_their_seconds_and_share() -> None:
    costs = {"slow": 300.0, "fast": 100.0, "middle": 200.0, "too large": 1.0, "illegal": 0.0}
    blocks = {
        name: block(step=Stage(least_ns=cost), count=5, registers=255 if name == "too large" else 32)
        for name, cost in costs.items()
    }
    asked = [(name, None if name == "illegal" else one) for name, one in blocks.items()]
    fast, middle = cheapest(asked, 2, DEVICE, Tile)
    assert (fast.tile, middle.tile) == (Tile("fast"), Tile("middle"))
    assert fast.seconds == seconds(ns(blocks["fast"]), DEVICE)
    assert fast.share == 0.5
