from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.fuse import fuse
from compiler.fuse.storage import LEAST_CONSTANT, with_short_activations, with_storage
from compiler.ir.buffers import KernelGraph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.networks import Network, graph_of, networks


def convolutions(weights: np.ndarray | None = None) -> onnx.ModelProto:
    """Two convolutions with a map of the model's input before and a softmax behind."""
    net = Network()
    x = net.node("Neg", [net.input(1, 16, 6, 6)], (1, 16, 6, 6))
    w = net.weight(16, 16, 3, 3) if weights is None else net.constant(weights)
    for kernel in (w, net.weight(16, 16, 3, 3)):
        x = net.node("Conv", [x, kernel, net.weight(16)], (1, 16, 6, 6), pads=[1] * 4)
        x = net.node("MaxPool", [x], (1, 16, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    return net.model([net.node("Softmax", [x], (1, 16, 6, 6), axis=1)])


def elements(kernels: KernelGraph) -> dict[str, DType]:
    """What lies in memory: by name of a value of the model, or by shape of a constant."""
    named = {
        kernels.buffers[id].name: kernels.buffers[id].dtype for id in kernels.buffers if id not in kernels.constants
    }
    return {**named, **{str(array.shape): kernels.buffers[id].dtype for id, array in kernels.constants.items()}}


@pytest.mark.parametrize("element", [DType.F16, DType.BF16])
def test_activations_and_weights_are_short_and_what_the_model_takes_gives_or_adds_is_not(element: DType) -> None:
    kernels = fuse(graph_of(convolutions())).kernels
    short = with_storage(kernels, element)
    short.verify()
    found = elements(short)
    assert found["x0"] is found["v5"] is found["(16,)"] is DType.F32
    inner = {dtype for name, dtype in found.items() if name not in ("x0", "v5", "(16,)")}
    assert inner == {element}
    assert all(buffer.type == kernels.buffers[id].type for id, buffer in short.buffers.items())
    assert [call.kernel for call in short.calls] == [call.kernel for call in kernels.calls]


def test_activations_alone_are_short_where_all_calls_that_touch_them_take_it() -> None:
    """A call that refuses takes all it touches back to fp32; another that takes no mixture of dtypes then follows."""
    kernels = fuse(graph_of(convolutions())).kernels
    families = [call.kernel.family for call in kernels.calls]
    pools = [at for at, family in enumerate(families) if family == "MaxPool"]
    asked = []

    def takes(graph: KernelGraph, at: int) -> bool:
        call = graph.calls[at]
        asked.append(call.kernel.family)
        mine = {graph.buffers[id].dtype for id in (*call.inputs, *call.outputs) if id not in graph.constants}
        return call.kernel.family != "Softmax" and (call.kernel.family != "MaxPool" or len(mine) == 1)

    every = with_short_activations(kernels, DType.BF16, lambda graph, at: True)
    some = with_short_activations(kernels, DType.BF16, takes)
    some.verify()
    short = [{at for at, call in enumerate(one.calls) if one.buffers[call.outputs[0]].element} for one in (every, some)]
    assert short[0] == {*range(len(families))} - {len(families) - 1}
    assert short[1] == {at for at in short[0] if at < pools[-1] - 1}
    assert not any(some.buffers[id].element for id in (*some.constants, *some.inputs, *some.outputs))
    assert asked.count("Softmax") > 1


def test_what_exact_calls_write_stays_as_it_is_and_they_are_asked_whether_they_read_what_others_shortened() -> None:
    kernels = fuse(graph_of(convolutions())).kernels
    exact = {1}
    mixed = with_short_activations(kernels, DType.BF16, lambda graph, at: True, exact)
    short = {at for at, call in enumerate(mixed.calls) if mixed.buffers[call.outputs[0]].element}
    assert short == {*range(len(kernels.calls) - 1)} - exact
    none = with_short_activations(kernels, DType.BF16, lambda graph, at: at not in exact, exact)
    assert not any(none.buffers[id].element for id in none.calls[1].inputs)
    assert none.buffers[none.calls[2].outputs[0]].element


def test_a_constant_that_the_short_float_cannot_hold_stays_as_it_is() -> None:
    weights = np.ones((16, 16, 3, 3), np.float32)
    weights[3, 2, 1, 0] = 70_000.0
    kernels = fuse(graph_of(convolutions(weights))).kernels
    (large,) = (id for id, array in kernels.constants.items() if array.max() == 70_000.0)
    assert with_storage(kernels, DType.F16).buffers[large].dtype is DType.F32
    assert with_storage(kernels, DType.BF16).buffers[large].dtype is DType.BF16


def test_a_constant_is_shortened_from_a_size_on_that_is_worth_it() -> None:
    for rows, expected in ((LEAST_CONSTANT // 16 - 1, DType.F32), (LEAST_CONSTANT // 16, DType.F16)):
        net = Network()
        y = net.node("MatMul", [net.input(4, rows), net.weight(rows, 16)], (4, 16))
        kernels = with_storage(fuse(graph_of(net.model([y]))).kernels, DType.F16)
        assert elements(kernels)[f"({rows}, 16)"] is expected


def test_what_shares_memory_with_an_output_of_the_model_keeps_its_dtype() -> None:
    """Both parts of a Concat that is an output are written straight into it."""
    net = Network()
    x = net.node("Softmax", [net.input(4, 64)], (4, 64), axis=1)
    parts = [net.node("Softmax", [x], (4, 64), axis=axis) for axis in range(2)]
    joined = net.node("Concat", parts, (8, 64), axis=0)
    kernels = with_storage(fuse(graph_of(net.model([joined]))).kernels, DType.F16)
    shared = [buffer for buffer in kernels.buffers.values() if buffer.storage == kernels.outputs[0]]
    assert len(shared) == 3
    assert {buffer.dtype for buffer in shared} == {DType.F32}
    assert elements(kernels)["v0"] is DType.F16


def test_what_a_routine_touches_keeps_its_dtype() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(4, 64)], (4, 64), axis=1)
    k = net.constant(np.array([3]))
    net.nodes.append(helper.make_node("TopK", [x, k], ["best", "at"], name="top"))
    net.shapes["best"] = (4, 3)
    y = net.node("Softmax", ["best"], (4, 3), axis=1)
    kernels = with_storage(fuse(graph_of(net.model([y]))).kernels, DType.F16)
    (routine,) = (call for call in kernels.calls if not isinstance(call.kernel, Kernel))
    touched = {kernels.buffers[id].dtype for id in (*routine.inputs, *routine.outputs)}
    assert DType.F16 not in touched


def test_a_call_is_in_place_only_where_both_sides_are_as_wide() -> None:
    """The map of the model's input may no longer lie over it, a map between two activations still may."""
    net = Network()
    x = net.node("Softmax", [net.input(4, 64)], (4, 64), axis=1)
    y = net.node("Softmax", [x], (4, 64), axis=1)
    z = net.node("Softmax", [y], (4, 64), axis=1)
    kernels = fuse(graph_of(net.model([z]))).kernels
    pairs = ((0, 0),)
    forced = replace(kernels, calls=tuple(replace(call, in_place=pairs) for call in kernels.calls))
    assert [call.in_place for call in with_storage(forced, DType.F16).calls] == [(), pairs, ()]


def test_random_networks_keep_their_meaning_within_what_rounding_costs() -> None:
    random = np.random.default_rng(4)
    for model in draws(networks(), 12):
        graph = graph_of(model)
        kernels = fuse(graph).kernels
        if not all(isinstance(call.kernel, Kernel) for call in kernels.calls):
            continue
        inputs = [random.uniform(-1, 1, graph.type(id).dims).astype(np.float32) for id in graph.inputs]
        wanted = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS)
        got = stepped(with_storage(kernels, DType.F16), inputs)
        for id, array in zip(graph.outputs, got, strict=True):
            largest = float(np.abs(wanted[id]).max(initial=1.0))
            np.testing.assert_allclose(array, wanted[id], rtol=2e-2, atol=2e-2 * largest, err_msg=str(graph))


@pytest.mark.parametrize(("element", "largest"), [(DType.F16, 65_520.0), (DType.BF16, 3.3961775e38)])
def test_whether_a_constant_is_short_is_what_rounding_each_of_its_elements_says(element: DType, largest: float) -> None:
    """Just below `largest` rounds to the greatest finite number, `largest` to infinity.

    NaN and infinity are never short.
    """
    below = float(np.nextafter(np.float32(largest), np.float32(0)))
    for value, is_short in (
        (below, True),
        (-below, True),
        (largest, False),
        (-largest, False),
        (np.inf, False),
        (np.nan, False),
    ):
        weights = np.random.default_rng(5).standard_normal((16, 16, 3, 3)).astype(np.float32)
        weights[7, 1, 2, 0] = value
        with np.errstate(over="ignore"):
            assert bool(np.isfinite(weights.astype(element.numpy)).all()) == is_short
        graph = graph_of(convolutions(weights))
        kernels = fuse(graph).kernels
        (it,) = (
            id
            for id, array in kernels.constants.items()
            if array.shape == weights.shape and (array[7, 1, 2, 0] == value or array[7, 1, 2, 0] != array[7, 1, 2, 0])
        )
        assert (with_storage(kernels, element).buffers[it].dtype is element) == is_short
