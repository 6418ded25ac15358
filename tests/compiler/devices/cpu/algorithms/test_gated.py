"""Products with a gate on one operand, moved to the other: the same sums, whichever operand is packed."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms.gated import gated_tiles
from compiler.devices.cpu.target import resolve, this_machine
from compiler.forms.gated import gate_on_other_operand
from compiler.fuse import fuse
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, check
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_kernel

MODES = [("rows", 1), ("weights", 1), ("rows", 0), ("weights", 0)]


def gated(s: Sketch, side: int, channels: int, filters: int, on: str, residual: int) -> Graph:
    """A 1x1 convolution of an image, with a gate of the channels on the image or on the weights.

    Perhaps it is added to another image.
    """
    x, gate = s("Abs", s.x(1, channels, side, side)), s("Sigmoid", s.x(1, channels, 1, 1))
    weights = s.normal(filters, channels, 1, 1)
    operands = (s("Mul", x, gate), weights) if on == "rows" else (x, s("Mul", weights, gate))
    y = s("Conv", *operands, s.normal(filters))
    return s.graph(s("Neg", s("Add", y, s.x(1, filters, side, side)) if residual else s("Relu", y)))


def product_of(kernels: KernelGraph) -> Call:
    """The call that multiplies."""
    return next(call for call in kernels.calls if "Conv" in call.kernel.family)


@pytest.mark.parametrize("target", [None, "cpu:x86-64-v3"])
def test_gated_products_are_what_their_definition_says(target: str | None) -> None:
    rng = np.random.default_rng(7)
    cases = []
    for seed, (on, residual) in enumerate(MODES * 3):
        side, channels, filters = (int(n) for n in rng.integers((2, 3, 2), (9, 50, 40)))
        kernels = fuse(gated(Sketch(seed, DType.F32), side, channels, filters, on, residual)).kernels
        call = product_of(kernels)
        assert isinstance(call.kernel, Kernel)
        buffers = tuple(geometry(kernels.buffers[id]) for id in (*call.inputs, *call.outputs))
        inputs = tuple(
            kernels.constants.get(id, rng.normal(size=kernels.buffers[id].type.dims).astype(np.float32))
            for id in call.inputs
        )
        constant = tuple(at for at, id in enumerate(call.inputs) if id in kernels.constants)
        case = Case(call.kernel, buffers, inputs, constant=constant, cuts=(0.4,))
        proposals = gated_tiles(case.workload, resolve(target) if target else this_machine(), 2)
        assert proposals, case
        tile = proposals[int(rng.integers(len(proposals)))].tile
        cases.append(Case(call.kernel, buffers, inputs, tile, constant, (0.4,), tolerance=1e-4))
    check(cases, resolve(target) if target else None, optimise="-O1")


def test_the_gate_moves_from_rows_to_weights_and_back() -> None:
    kernel = product_of(fuse(gated(Sketch(0, DType.F32), 4, 8, 16, "rows", 0)).kernels).kernel
    assert isinstance(kernel, Kernel)
    moved = gate_on_other_operand(kernel)
    assert moved is not None
    assert moved != kernel
    back = gate_on_other_operand(moved)
    assert back is not None
    assert {load.slot for load in back.blocks[0].values[0].loads} == {
        load.slot for load in kernel.blocks[0].values[0].loads
    }


@pytest.mark.parametrize(
    "value",
    [
        "mul(x[m, k], w[k, n])",
        "mul(mul(x[m, k], z[m, k]), w[k, n])",
        "mul(add(x[m, k], g[k]), w[k, n])",
    ],
)
def test_what_has_no_factor_along_the_sum_alone_has_no_gate(value: str) -> None:
    kernel = parse_kernel(
        f"kernel K(in x: f32[8, 4], in z: f32[8, 4], in g: f32[4], in w: f32[4, 6]; out y: f32[8, 6])\n"
        f"  for m:8, n:6\n    y[m, n] = sum<f32> k:4 . {value}\n"
    )
    assert gate_on_other_operand(kernel) is None
