from __future__ import annotations

import numpy as np

from compiler.forms.updates import without_copy
from compiler.fuse import fuse
from compiler.ir.evaluate import evaluate
from compiler.ir.kernel import Kernel
from tests.parse import parse_graph

SCATTER = """graph(%0: f32[4, 3], %1: i64[1, 1], %2: f32[1, 3]) -> (%3)
  %3: f32[4, 3] = ScatterND(%0, %1, %2) reduction="REDUCTION"
"""


def kernel_of(reduction: str) -> Kernel:
    (call,) = fuse(parse_graph(SCATTER.replace("REDUCTION", reduction))).kernels.calls
    assert isinstance(call.kernel, Kernel)
    return call.kernel


def test_an_update_over_what_it_reads_needs_no_copy_of_the_rest() -> None:
    for reduction in ("none", "add"):
        kernel = kernel_of(reduction)
        (read,) = (slot for slot in kernel.inputs if slot.type.shape == (4, 3))
        found = without_copy(kernel, read, kernel.outputs[0])
        assert found is not None
        assert len(found.blocks) == len(kernel.blocks) - 1
        assert read.name not in {name for block in found.blocks for name in block.reads}


def test_what_reads_the_old_value_besides_keeps_its_copy() -> None:
    graph = parse_graph("graph(%0: f32[4]) -> (%1)\n  %1: f32[4] = Relu(%0)\n")
    (call,) = fuse(graph).kernels.calls
    assert without_copy(call.kernel, call.kernel.inputs[0], call.kernel.outputs[0]) is None
    other = kernel_of("none")
    small = next(slot for slot in other.inputs if slot.type.shape == (1, 3))
    assert without_copy(other, small, other.outputs[0]) is None
    assert evaluate(other, [np.zeros(slot.type.dims, slot.type.dtype.numpy) for slot in other.inputs])
