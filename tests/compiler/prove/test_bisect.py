from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import Disagreement
from compiler.frontend import load
from compiler.ir.buffers import KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.measure.memory import read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.bisect import bisect, demand_same_meaning, layer_errors
from compiler.prove.inputs import sample_inputs
from tests.compiler.frontend.open.at_sizes import model_of
from tests.parse import parse_graph, parse_kernel_graph

TOLERANCE = 1e-4
GRAPH = """graph(%0: f32[1, 32, 2, 2], %1: f32[1, 16, 2, 2]) -> (%6)
  %2: f32[1, 32, 2, 2] = Relu(%0) from "act"
  %3: f32[1, 16, 2, 2] = Sigmoid(%1) from "gate"
  %4: f32[1, 48, 2, 2] "joined" = Concat(%2, %3) axis=1 from "join"
  %5: f32[1, 48, 2, 2] = Exp(%4) from "grow"
  %6: f32[1, 48, 2, 2] = Neg(%5) from "flip"
"""
# The Concat is a view, in NCHW16c: its operands are written straight into slices of b4. Exp and Neg are one kernel, and
# %5 is gone; b20 is the compiler's own.
KERNELS = """kernels(b0, b1) -> (b6)
  b0: f32[1, 32, 2, 2] plain
  b1: f32[1, 16, 2, 2] plain
  b2: f32[1, 32, 2, 2] <0 1 2 3 1%16> in s4 + 0 strides (192, 64, 32, 16, 1)
  b3: f32[1, 16, 2, 2] <0 1 2 3 1%16> in s4 + 128 strides (192, 64, 32, 16, 1)
  b4: f32[1, 48, 2, 2] <0 1 2 3 1%16>
  b20: f32[1, 48, 2, 2] plain
  b6: f32[1, 48, 2, 2] plain
  k0: kernel Relu(in x0: f32[1, 32, 2, 2]; out y0: f32[1, 32, 2, 2])
    for c:32, h:2, w:2
      y0[0, c, h, w] = max(x0[0, c, h, w], 0.0:f32)
  k1: kernel Sigmoid(in x0: f32[1, 16, 2, 2]; out y0: f32[1, 16, 2, 2])
    for c:16, h:2, w:2
      y0[0, c, h, w] = sigmoid(x0[0, c, h, w])
  k2: kernel Convert(in x0: f32[1, 48, 2, 2]; out y0: f32[1, 48, 2, 2])
    for c:48, h:2, w:2
      y0[0, c, h, w] = x0[0, c, h, w]
  k3: kernel "Exp Neg"(in x0: f32[1, 48, 2, 2]; out y0: f32[1, 48, 2, 2])
    for c:48, h:2, w:2
      y0[0, c, h, w] = neg(exp(x0[0, c, h, w]))
  b2 = k0(b0) from "act"
  b3 = k1(b1) from "gate"
  b20 = k2(b4) from "join"
  b6 = k3(b20) from "grow", "flip"
"""


class FakeStepper:
    """Evaluates kernels in numpy on physical operands; `wrong` adds to the first element that a call writes."""

    def __init__(self, kernels: KernelGraph, wrong: int | None = None, by: float = 0.01) -> None:
        self.kernels, self.wrong, self.by = kernels, wrong, by
        self.ran: list[int] = []

    def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
        call = self.kernels.calls[position]
        buffers = [replace(self.kernels.buffers[id], offset=0) for id in (*call.inputs, *call.outputs)]
        count = len(call.inputs)
        assert isinstance(call.kernel, Kernel)
        assert all(memory.dtype == buffer.type.dtype.numpy for memory, buffer in zip(operands, buffers, strict=True))
        inputs = [read_buffer(memory, buffer) for memory, buffer in zip(operands[:count], buffers[:count], strict=True)]
        results = evaluate(call.kernel, inputs)
        if position == self.wrong:
            results[0].reshape(-1)[0] += self.by
        for memory, buffer, result in zip(operands[count:], buffers[count:], results, strict=True):
            write_buffer(memory, buffer, result)
        self.ran.append(position)


def program() -> tuple[Graph, KernelGraph]:
    graph, kernels = parse_graph(GRAPH), parse_kernel_graph(KERNELS)
    graph.verify()
    kernels.verify()
    return graph, kernels


def disagreement(
    graph: Graph, kernels: KernelGraph, stepper: FakeStepper, tolerance: float = TOLERANCE
) -> Disagreement:
    with pytest.raises(Disagreement) as caught:
        bisect(graph, kernels, stepper, sample_inputs(graph, 7), OPERATORS, tolerance)
    assert json.loads(json.dumps(caught.value.to_json(), allow_nan=False))
    return caught.value


@pytest.mark.parametrize(("call", "node", "operator"), [(0, "act", "Relu"), (1, "gate", "Sigmoid")])
def test_the_first_wrong_call_is_named_and_nothing_after_it_runs(call: int, node: str, operator: str) -> None:
    graph, kernels = program()
    stepper = FakeStepper(kernels, wrong=call)
    found = disagreement(graph, kernels, stepper)
    assert stepper.ran == [*range(call + 1)]
    assert (found.details["node"], found.details["operator"], found.details["call"]) == (node, operator, call)
    assert found.details["kernel"] == operator
    assert found.details["error"] > found.details["tolerance"] == TOLERANCE
    assert f"node '{node}' ({operator}) is the first to leave" in found.message
    assert "our fault" in found.fix


def test_a_fused_kernel_is_named_with_its_sources_and_the_calls_that_could_not_be_checked() -> None:
    graph, kernels = program()
    found = disagreement(graph, kernels, FakeStepper(kernels, wrong=2))
    assert (found.details["node"], found.details["kernel"]) == ("flip", "Exp Neg")
    assert found.details["sources"] == ["grow", "flip"]
    assert found.details["unchecked"] == ["join"]
    assert found.details["input_error"] == 0.0
    assert "after 1 kernels whose results the model does not name" in found.message


def test_a_value_is_called_by_the_name_the_model_gives_it() -> None:
    graph, kernels = program()
    assert disagreement(graph, kernels, FakeStepper(kernels, wrong=0)).details["value"] == "%2"
    named = parse_graph(GRAPH.replace("%2: f32[1, 32, 2, 2] =", '%2: f32[1, 32, 2, 2] "rectified" ='))
    assert disagreement(named, kernels, FakeStepper(kernels, wrong=0)).details["value"] == "rectified"


def test_when_each_call_alone_agrees_the_plan_is_at_fault() -> None:
    graph, kernels = program()
    stepper = FakeStepper(kernels)
    found = disagreement(graph, kernels, stepper)
    assert stepper.ran == [0, 1, 2, 3]
    assert found.details["plan"] is True
    assert "the plan is at fault" in found.message
    assert "threads=1" in found.fix


def test_every_layer_has_its_error_and_what_it_inherits() -> None:
    """The Relu's first element is off by 0.01; Exp of it is what numpy says, and all after it inherit."""
    graph, kernels = program()
    inputs = sample_inputs(graph, 7)
    act, gate, flip = layer_errors(graph, kernels, FakeStepper(kernels, wrong=0), inputs, OPERATORS)
    assert [(one.call, one.nodes, one.kernel) for one in (act, gate, flip)] == [
        (0, ("act",), "Relu"),
        (1, ("gate",), "Sigmoid"),
        (3, ("grow", "flip"), "Exp Neg"),
    ]
    rectified = np.maximum(inputs[0].astype(np.float64), 0)
    first = rectified.reshape(-1)[0]
    largest = max(np.exp(rectified).max(), np.exp(1 / (1 + np.exp(-inputs[1].astype(np.float64)))).max())
    assert act.max_absolute == pytest.approx(0.01, rel=1e-4)
    assert act.max_relative == pytest.approx(0.01 / rectified.max(), rel=1e-4)
    assert flip.max_relative == pytest.approx((np.exp(first + 0.01) - np.exp(first)) / largest, rel=1e-3)
    assert gate.max_relative is not None
    assert gate.max_relative < 1e-6
    assert (act.inherited, gate.inherited) == (0.0, 0.0)
    assert act.float32 == 0.0
    assert flip.float32 == pytest.approx(3e-8, rel=1)
    off = layer_errors(graph, kernels, FakeStepper(kernels, wrong=1, by=np.inf), inputs, OPERATORS)
    assert [one.max_relative is None for one in off] == [False, True, True]


def test_an_input_that_is_already_off_is_told_apart_from_a_wrong_kernel() -> None:
    graph = parse_graph(
        """graph(%0: f32[4]) -> (%2)
      %1: f32[4] = Neg(%0) from "one"
      %2: f32[4] = Neg(%1) from "two" """
    )
    kernels = parse_kernel_graph(
        """kernels(b0) -> (b2)
      b0: f32[4] plain
      b1: f32[4] plain
      b2: f32[4] plain
      k0: kernel Neg(in x0: f32[4]; out y0: f32[4]) for i:4 y0[i] = neg(x0[i])
      b1 = k0(b0) from "one"
      b2 = k0(b1) from "two" """
    )

    class Drifting(FakeStepper):
        def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
            super().run(position, operands)
            operands[-1][:] *= 1 + 6e-5

    found = disagreement(graph, kernels, Drifting(kernels))
    assert found.details["node"] == "two"
    assert found.details["input_error"] == pytest.approx(6e-5, rel=0.01)
    assert "ill-conditioned" in found.fix


def test_a_result_that_is_not_finite_is_told_without_an_infinity_in_the_details() -> None:
    graph, kernels = program()
    found = disagreement(graph, kernels, FakeStepper(kernels, wrong=1, by=float("nan")))
    assert found.details["error"] is None
    assert found.details["node"] == "gate"


def test_memory_that_a_call_leaves_unwritten_is_noticed() -> None:
    graph, kernels = program()

    class Lazy(FakeStepper):
        def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
            if position != 1:
                super().run(position, operands)

    assert disagreement(graph, kernels, Lazy(kernels)).details["node"] == "gate"


def test_constants_are_laid_out_as_their_buffers_say() -> None:
    graph = parse_graph(
        """graph(%0: f32[2, 3]) -> (%2)
      %1: f32[2, 3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
      %2: f32[2, 3] = Add(%0, %1) from "sum" """
    )
    kernels = parse_kernel_graph(
        """kernels(b0) -> (b2)
      b0: f32[2, 3] plain
      b1: f32[2, 3] <1 0>
      b2: f32[2, 3] plain
      b1 = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
      k0: kernel Add(in x0: f32[2, 3], in x1: f32[2, 3]; out y0: f32[2, 3])
        for i:2, j:3
          y0[i, j] = add(x0[i, j], x1[i, j])
      b2 = k0(b0, b1) from "sum" """
    )
    assert disagreement(graph, kernels, FakeStepper(kernels)).details["plan"] is True


@pytest.mark.parametrize("scale", [1, 2])
def test_a_meaning_is_compared_at_the_sizes_that_data_decide(scale: int) -> None:
    """The program's graph and the model's both give sizes behind their outputs."""
    model = model_of("m (float[5] x) => (float[n] y) { k = NonZero(x) i = Transpose(k) y = GatherND(x, i) }")
    loaded = load(model, CompileOptions(), OPERATORS)
    shapes, graph = loaded.open_shapes, loaded.graph
    assert shapes is not None
    given = {graph.inputs[0]: np.array([0, 1, 0, 2, 0], np.float32)}
    other = {graph.inputs[0]: scale * given[graph.inputs[0]]}
    if scale == 1:
        demand_same_meaning(graph, shapes, other, (graph, shapes), given, 1e-4, "")
    else:
        with pytest.raises(Disagreement, match="dimensions were opened wrongly"):
            demand_same_meaning(graph, shapes, other, (graph, shapes), given, 1e-4, "")


def test_of_slices_of_a_batch_the_first_is_compared_and_so_is_what_all_share() -> None:
    graph = parse_graph(
        """graph(%0: f32[4, 3], %1: f32[3]) -> (%2, %3, %4)
      %2: f32[4, 3] = Neg(%0) from "slice"
      %3: f32[3] = Neg(%1) from "shared"
      %4: f32[4, 3] = Neg(%0) from "other" """
    )
    kernels = parse_kernel_graph(
        """kernels(b0, b1) -> (b2, b3, b4)
      b0: f32[2, 3] plain
      b1: f32[3] plain
      b2: f32[2, 3] plain
      b3: f32[3] plain
      b4: f32[2, 3] plain
      k0: kernel Neg(in x0: f32[2, 3]; out y0: f32[2, 3]) for i:2, j:3 y0[i, j] = neg(x0[i, j])
      k1: kernel Neg(in x0: f32[3]; out y0: f32[3]) for i:3 y0[i] = neg(x0[i])
      b2 = k0(b0) from "slice"
      b3 = k1(b1) from "shared"
      b4 = k0(b0) from "other" """
    )
    inputs = sample_inputs(graph, 3)
    rows = layer_errors(graph, kernels, FakeStepper(kernels, wrong=2), inputs, OPERATORS, slices=2)
    assert [one.nodes for one in rows] == [("slice",), ("shared",), ("other",)]
    assert [one.max_absolute for one in rows] == [0.0, 0.0, pytest.approx(0.01, rel=1e-4)]
    of_three = layer_errors(graph, kernels, FakeStepper(kernels), inputs, OPERATORS, slices=3)
    assert [one.nodes for one in of_three] == [("shared",)]
