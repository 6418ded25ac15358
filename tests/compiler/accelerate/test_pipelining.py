"""Units of a model given to a CPU and an accelerator: nothing else ends more frames, or one earlier."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import pytest
from onnx import helper

from compiler.accelerate.dividing import Divisible
from compiler.accelerate.parts import HANDOVER_S
from compiler.accelerate.pipelining import (
    MOST_UNITS,
    Divided,
    Loads,
    Unit,
    blocks_of,
    curve,
    divisions,
    merged,
    promising,
    whole,
)
from compiler.quantize.network import open_network
from tests.compiler.accelerate.models import saved


def _drawn(random: Random, count: int) -> list[Unit]:
    scale = 10 * HANDOVER_S
    return [
        Unit((str(at),), scale * random.random() ** 2, scale * random.random() ** 2, fixed=random.random() < 0.25)
        for at in range(count)
    ]


def _loads(units: list[Unit], on_cpu: frozenset[int]) -> Loads:
    """Of the units as they were given, each run of neighbours on the accelerator a call."""
    there = [at not in on_cpu for at in range(len(units))]
    calls = sum(here and not before for before, here in zip([False, *there], there, strict=False))
    own = [sum(unit.cpu_s for at, unit in enumerate(units) if at in on_cpu)]
    own += [sum(unit.accelerator_s for at, unit in enumerate(units) if at not in on_cpu)]
    return Loads(own[0], own[1], calls)


def _rounded(loads: Loads) -> tuple[float, float]:
    """Period and latency, whose sums were added in other orders."""
    return round(loads.period_s, 12), round(loads.latency_s, 12)


@pytest.mark.parametrize("seed", range(20))
def test_the_divisions_are_those_that_none_of_all_is_better_than(seed: int) -> None:
    random = Random(seed)
    units = _drawn(random, random.randint(1, 8))
    fixed = {at for at, unit in enumerate(units) if unit.fixed}
    every = []
    for given in product((False, True), repeat=len(units)):
        on_cpu = frozenset(at for at, is_cpu in enumerate(given) if is_cpu)
        if fixed <= on_cpu:
            every.append(_rounded(_loads(units, on_cpu)))
    best = {
        one for one in every if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in every)
    }
    found = curve(divisions(units))
    assert {_rounded(one.loads) for one in found} == best
    for one in found:
        again = _loads(units, one.on_cpu)
        assert (again.cpu_s, again.accelerator_s) == pytest.approx((one.loads.cpu_s, one.loads.accelerator_s))
        assert again.calls == one.loads.calls
    periods = [one.loads.period_s for one in found]
    assert periods == sorted(periods)


def test_what_is_tried_has_the_ends_of_the_curve_and_few_calls_too() -> None:
    def divided(cpu_s: float, accelerator_s: float, calls: int) -> Divided:
        return Divided(Loads(cpu_s, accelerator_s, calls), frozenset({calls}))

    best, between, earliest = divided(1.0, 1.0, 4), divided(1.2, 0.6, 3), divided(0.0, 1.5, 1)
    worse, once = divided(1.3, 1.3, 2), divided(1.4, 1.4, 2)
    every = [once, earliest, worse, between, best]
    assert curve(every) == [best, between, earliest]
    assert promising(every, 2) == [best, earliest, earliest, worse]
    assert promising(every, 3) == [best, between, earliest, earliest, worse]


def test_a_call_of_the_accelerator_keeps_both_devices() -> None:
    loads = Loads(3e-3, 2e-3, calls=2)
    assert loads.period_s == 3e-3 + 2 * HANDOVER_S
    assert loads.latency_s == 5e-3 + 2 * HANDOVER_S


def test_a_segment_is_cut_where_one_tensor_is_live(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "left"),
        helper.make_node("Abs", ["a"], ["c"], "right"),
        helper.make_node("Add", ["b", "c"], ["d"], "join"),
        helper.make_node("Abs", ["d"], ["y"], "last"),
    ]
    divisible = Divisible(open_network(saved(tmp_path / "m.onnx", nodes, {}, (1, 2, 4, 4)))[1])
    found = blocks_of(divisible.whole(), divisible)
    assert [[node.name for node in one] for one in found] == [["first"], ["left", "right", "join"], ["last"]]


def test_what_one_of_the_devices_fuses_is_not_cut() -> None:
    """A convolution whose cycles are told of its activation, and that activation, which the CPU's kernel has in it."""
    costs = [(2.0, 0.0), (0.0, 3.0), (1.0, 1.0), (0.0, 0.0), (4.0, 2.0), (1.0, 0.0)]
    units = [Unit((str(at),), *each) for at, each in enumerate(costs)]
    found = whole([*units, Unit(("cpu",), 1.0, 0.0, fixed=True), Unit(("last",), 0.0, 1.0)])
    names = [("0", "1"), ("2", "3"), ("4",), ("5",), ("cpu",), ("last",)]
    assert [one.nodes for one in found] == names
    assert [(one.cpu_s, one.accelerator_s) for one in found[:3]] == [(2.0, 3.0), (1.0, 1.0), (4.0, 2.0)]


def test_small_neighbours_are_taken_together_until_there_are_few_enough() -> None:
    units = [Unit((str(at),), 1.0 + at, 1.0, fixed=at == 20) for at in range(40)]
    found = merged(units)
    assert len(found) == MOST_UNITS
    assert [name for one in found for name in one.nodes] == [str(at) for at in range(40)]
    assert [one.nodes for one in found if one.fixed] == [("20",)]
    for each in ("cpu_s", "accelerator_s"):
        assert sum(getattr(one, each) for one in found) == pytest.approx(sum(getattr(one, each) for one in units))
