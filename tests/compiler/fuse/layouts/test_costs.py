from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.devices.kinds import backend_of
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.tile import Cost
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.steps.costs.kernels import KernelCosts
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.networks import Network, graph_of, networks


@dataclass(frozen=True)
class MadeUp:
    """Costs of one source: what a function of a call and its buffers says."""

    seconds: Callable[[Call, Sequence[Buffer]], float]
    source: str = "model"
    lanes: int = 1

    def of(self, kernels: KernelGraph, calls: Sequence[Call]) -> tuple[Cost, ...]:
        bound = [[kernels.buffers[id] for id in (*call.inputs, *call.outputs)] for call in calls]
        return tuple(Cost(self.seconds(call, buffers), self.source) for call, buffers in zip(calls, bound, strict=True))


def drawn(call: Call, buffers: Sequence[Buffer]) -> float:
    """Between 1 and 1000, by what is computed and the layouts alone."""
    seed = zlib.crc32(f"{call.kernel} {[str(buffer.layout) for buffer in buffers]}".encode())
    return float(10 ** np.random.default_rng(seed).uniform(0, 3))


def pooled(part: float) -> Callable[[Call, Sequence[Buffer]], float]:
    """Every kernel costs 1 second, but a MaxPool with a plain operand and result a part of it."""

    def seconds(call: Call, buffers: Sequence[Buffer]) -> float:
        return part if call.kernel.family == "MaxPool" and all(one.layout.is_plain for one in buffers) else 1.0

    return seconds


def layouts_of(kernels: KernelGraph) -> list[str]:
    return [str(kernels.buffers[id].layout) for call in kernels.calls for id in call.outputs]


def pools(count: int = 2) -> Graph:
    """MaxPools one after another between two convolutions."""
    net = Network()
    x = net.node("Conv", [net.input(1, 3, 6, 6), net.weight(8, 3, 1, 1)], (1, 8, 6, 6))
    for _ in range(count):
        x = net.node("MaxPool", [x], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    return graph_of(net.model([net.node("Conv", [x, net.weight(4, 8, 1, 1)], (1, 4, 6, 6))]))


@pytest.mark.parametrize("part", range(2))
def test_kernels_mean_what_the_network_says_whatever_layouts_costs_lead_to(part: int) -> None:
    changed = 0
    for model in draws(networks(), 90)[part::2]:
        graph = graph_of(model)
        random = np.random.default_rng(3)
        inputs = [random.uniform(-1, 1, graph.type(id).dims).astype(np.float32) for id in graph.inputs]
        feeds = dict(zip(graph.inputs, inputs, strict=True))
        wanted = evaluate_graph(graph, feeds, OPERATORS, keep=list(graph.outputs))
        kernels = fuse(graph, costs=MadeUp(drawn)).kernels
        kernels.verify()
        for id, got in zip(graph.outputs, stepped(kernels, inputs), strict=True):
            np.testing.assert_allclose(got, wanted[id], rtol=1e-4, atol=1e-4, err_msg=f"{graph}\n{kernels}")
        changed += layouts_of(kernels) != layouts_of(fuse(graph).kernels)
    assert changed >= 5


def test_no_network_costs_more_than_under_the_rule() -> None:
    costs = MadeUp(drawn)
    for model in draws(networks(), 60):
        graph = graph_of(model)
        ruled, chosen = fuse(graph).kernels, fuse(graph, costs=costs).kernels
        before, after = (sum(cost.seconds for cost in costs.of(one, one.calls)) for one in (ruled, chosen))
        assert after <= before


def test_values_become_plain_where_their_kernels_are_faster_so() -> None:
    kernels = fuse(pools(), costs=MadeUp(pooled(0.1))).kernels
    assert layouts_of(kernels) == ["plain", "plain", "plain", "plain"]
    assert layouts_of(fuse(pools()).kernels) == ["<0 2 3 1>", "<0 2 3 1>", "<0 2 3 1>", "plain"]


def test_a_value_between_kernels_that_disagree_lies_as_it_suits_both_best() -> None:
    """One pool would have to be plain on both sides.

    One side belongs to a kernel that then takes a hundred times as long.
    """

    def seconds(call: Call, buffers: Sequence[Buffer]) -> float:
        result = buffers[-1].layout.is_plain
        return (
            100.0
            if call.kernel.family == "Conv" and result and buffers[-1].type.dims[1] == 8
            else pooled(0.1)(call, buffers)
        )

    assert layouts_of(fuse(pools(3), costs=MadeUp(seconds)).kernels) == [
        "<0 2 3 1>",
        "plain",
        "plain",
        "plain",
        "plain",
    ]


@pytest.mark.parametrize(("source", "changes"), [("model", False), ("record", True)])
def test_a_gain_that_the_model_could_be_wrong_by_changes_nothing_but_one_that_was_measured_does(
    source: str, changes: bool
) -> None:
    kernels = fuse(pools(), costs=MadeUp(pooled(0.8), source)).kernels
    assert (layouts_of(kernels) != layouts_of(fuse(pools()).kernels)) == changes


def test_a_gain_that_cannot_be_seen_in_the_whole_model_changes_nothing() -> None:
    def seconds(call: Call, buffers: Sequence[Buffer]) -> float:
        return 500.0 if call.kernel.family == "Softmax" else pooled(0.1)(call, buffers)

    net = Network()
    x = net.node("MaxPool", [net.input(1, 8, 6, 6)], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    x = net.node("MaxPool", [x], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    flat = net.node("Reshape", [x, net.constant(np.array([1, -1]))], (1, 288))
    graph = graph_of(net.model([net.node("Softmax", [flat], (1, 288))]))
    assert layouts_of(fuse(graph, costs=MadeUp(seconds)).kernels) == layouts_of(fuse(graph).kernels)
    assert layouts_of(fuse(graph, costs=MadeUp(pooled(0.1))).kernels) != layouts_of(fuse(graph).kernels)


def test_a_transposition_that_would_be_a_view_costs_nothing() -> None:
    """NCHW to NHWC is a view of a value that lies channels-last.

    Plain, the pool would be faster and the copy more than eat that up.
    """

    def seconds(call: Call, buffers: Sequence[Buffer]) -> float:
        return {"MaxPool": 1.0 if buffers[0].layout.is_plain else 3.0, "Transpose": 5.0}.get(call.kernel.family, 0.1)

    net = Network()
    x = net.node("MaxPool", [net.input(1, 8, 6, 6)], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    x = net.node("MaxPool", [x], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    x = net.node("Transpose", [x], (1, 6, 6, 8), perm=[0, 2, 3, 1])
    graph = graph_of(net.model([net.node("MatMul", [x, net.weight(8, 16)], (1, 6, 6, 16))]))
    kernels = fuse(graph, costs=MadeUp(seconds)).kernels
    assert [call.kernel.family for call in kernels.calls] == ["MaxPool", "MaxPool", "MatMul"]


def test_a_network_without_windows_has_nothing_to_choose() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 8, 6, 6)], (1, 8, 6, 6))
    graph = graph_of(net.model([net.node("MatMul", [x, net.weight(6, 6)], (1, 8, 6, 6))]))

    def seconds(call: Call, buffers: Sequence[Buffer]) -> float:
        raise AssertionError(f"nobody needs to know what {call} costs")

    fuse(graph, costs=MadeUp(seconds))


def test_the_model_finds_that_a_convolution_to_three_channels_had_better_read_a_plain_image() -> None:
    """The end of a super-resolution network: with channels innermost, its vectors would be filled by three results."""
    backend = backend_of(CompileOptions(target="cpu:x86-64-v3"), {})
    net = Network()
    x = net.node("Conv", [net.input(1, 3, 64, 64), net.weight(32, 3, 3, 3)], (1, 32, 64, 64), pads=[1] * 4)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    x = net.node(
        "Resize", [x, "", scales], (1, 32, 128, 128), mode="nearest", coordinate_transformation_mode="asymmetric"
    )
    y = net.node("Conv", [x, net.weight(3, 32, 3, 3)], (1, 3, 128, 128), pads=[1] * 4)
    kernels = fuse(graph_of(net.model([y])), costs=KernelCosts(backend, 1, "fp32", {})).kernels
    assert layouts_of(kernels) == ["<0 2 3 1>", "plain", "plain"]
