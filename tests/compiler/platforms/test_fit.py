"""Constants fitted to times: those that made the times are found again, and what no constant explains is told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.contract.platform import Platform, parse_platform
from compiler.errors import OptionsError
from compiler.ir.graph import Graph
from compiler.platforms.costs import costs_of
from compiler.platforms.fit import Measured, fit, parts_of
from compiler.platforms.predict import load_graph
from tests.compiler.networks import Network
from tests.compiler.platforms.test_place import HERE


def network(channels: int, size: int, blocks: int, taps: int = 3) -> Graph:
    """Blocks of a depthwise convolution, a pointwise one, a ReLU that ends it and a pool that does not."""
    net = Network()
    x = net.input(1, channels, size, size)
    shape = (1, channels, size, size)
    for _ in range(blocks):
        x = net.node("Conv", [x, net.weight(channels, 1, taps, taps)], shape, pads=[taps // 2] * 4, group=channels)
        x = net.node("Relu", [net.node("Conv", [x, net.weight(channels, channels, 1, 1)], shape)], shape)
        x = net.node("MaxPool", [x], shape, kernel_shape=[3, 3], pads=[1] * 4)
    return load_graph(net.model([x]).SerializeToString(), CompileOptions())


def board(**formula: float) -> Platform:
    return parse_platform({"about": "a", "sources": ["b"], "devices": {"arm": {"formula": formula}}})


def test_the_constants_of_a_platform_are_found_in_the_times_that_it_predicts() -> None:
    random = np.random.default_rng(3)
    constants = {"macs": 4e9, "depthwise": 5e8, "elements": 1e8, "operator": 2e-5}
    rows = []
    for name in "abcdefgh":
        channels, size, blocks, half = (int(random.integers(*ends)) for ends in ((2, 24), (4, 20), (1, 4), (0, 3)))
        graph = network(channels, size, blocks, 2 * half + 1)
        seconds = sum(costs_of(graph, board(**constants), HERE).problem.seconds[0])
        rows.append(Measured(name, parts_of(graph), seconds + 1e-3, known=1e-3))
    found = fit(rows, (*constants,))
    assert found.constants == pytest.approx(constants, rel=1e-6)
    assert {*found.errors} == {*"abcdefgh"}
    assert max(map(abs, (*found.errors.values(), *found.left_out.values()))) < 1e-6


def test_no_constant_is_negative_and_one_row_off_is_told_by_the_others() -> None:
    parts = [{"macs": 1e9 * n, "operator": 0.0, "elements": 1e6 * (5 - n)} for n in (1, 2, 3, 4)]
    rows = [Measured(str(at), one, one["macs"] / 1e9) for at, one in enumerate(parts)]
    rows.append(Measured("slow", {"macs": 1e9, "operator": 0.0, "elements": 0.0}, 2.0))
    found = fit(rows, ("macs", "elements"))
    assert all(value > 0 for value in found.constants.values())
    assert found.left_out["slow"] == pytest.approx(-0.5)
    assert found.errors["slow"] > found.left_out["slow"]
    rising = [Measured(str(n), {"macs": 1e9, "elements": 1e6 * n}, 10.0 - n) for n in range(4)]
    assert fit(rising, ("macs", "elements")).constants["elements"] == math.inf


def test_too_few_times_are_refused() -> None:
    rows = [Measured("a", {"macs": 1.0}, 1.0)]
    with pytest.raises(OptionsError, match="1 times cannot tell 1 constants apart"):
        fit(rows, ("macs",))


def test_weights_beyond_the_memory_are_streamed() -> None:
    parts = parts_of(network(8, 4, 1), memory=100)
    assert parts["streamed"] == 8 * 9 + 64 - 100
    assert parts["operator"] == 3, "the ReLU ends a convolution"
    assert (parts["macs"], parts["depthwise"], parts["elements"]) == (64 * 16, 8 * 16 * 9, 8 * 16)
