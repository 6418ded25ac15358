"""Products with a gate on one operand, moved to the other: the same sums, whichever operand is packed."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms.gated import gated_tiles
from compiler.devices.cpu.algorithms.gated_bf16 import gated_bf16_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, resolve, runs_here, this_machine
from compiler.forms.gated import gate_on_other_operand
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, check
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_kernel

MULTIPLY_BF16 = [profile.name for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)]
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


def bf16(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def gated_rows(rows: int, depth: int, columns: int, element: DType | None) -> Case:
    """A product by constant weights whose rows have a gate; in memory all else is of this element."""
    kernel = parse_kernel(
        f"kernel Gated(in x: f32[{rows}, {depth}], in g: f32[{depth}], in w: f32[{depth}, {columns}];"
        f" out y: f32[{rows}, {columns}])\n  for m:{rows}, n:{columns}\n"
        f"    y[m, n] = sum<f32> k:{depth} . mul(mul(x[m, k], g[k]), w[k, n])"
    )
    rng = np.random.default_rng(depth)
    inputs = tuple(bf16(rng.uniform(-1, 1, slot.type.dims).astype(np.float32)) for slot in kernel.inputs)
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    elements = (element, element, None, element)
    short = tuple(replace(one, element=kind) for one, kind in zip(buffers, elements, strict=True))
    return Case(kernel, short, inputs, constant=(2,), cuts=(0.4,), tolerance=2.0**-6)


@pytest.mark.parametrize("name", MULTIPLY_BF16)
def test_gates_on_panels_of_bf16_are_off_by_their_rounding(name: str) -> None:
    target, rng, cases = resolve(name), np.random.default_rng(11), []
    for depth in (8, 9, 24, 33, 130, 2048):
        for element in (None, DType.BF16):
            case = gated_rows(int(rng.integers(5, 70)), depth, int(rng.integers(17, 90)), element)
            moved = gate_on_other_operand(case.kernel)
            assert moved is not None
            case = replace(case, kernel=moved) if depth % 2 else case
            proposals = gated_bf16_tiles(case.workload, target, 2)
            assert proposals, case
            cases.append(replace(case, tile=proposals[int(rng.integers(len(proposals)))].tile))
    texts = [lower("k", case.workload, case.tile, target).text for case in cases]
    depths = [case.inputs[1].size for case, text in zip(cases, texts, strict=True) if "*const rows" not in text]
    assert depths == [8, 24, 130], "rows of bf16 and of whole groups are read where they lie, unless they share sets"
    check(cases, target, optimise="-O1")


def test_a_gate_is_on_panels_of_constant_weights_alone_whichever_operand_had_it() -> None:
    target = resolve("cpu:x86-64-v4-bf16")
    case = gated_rows(32, 24, 40, None)
    assert gated_bf16_tiles(case.workload, target, 1)
    assert not gated_bf16_tiles(case.workload, resolve("cpu:x86-64-v4"), 1)
    assert not gated_bf16_tiles(replace(case, constant=()).workload, target, 1)
    moved = gate_on_other_operand(case.kernel)
    assert moved is not None
    assert gated_bf16_tiles(replace(case, kernel=moved).workload, target, 1)
    assert not gated_bf16_tiles(replace(case, kernel=moved, constant=()).workload, target, 1)


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
