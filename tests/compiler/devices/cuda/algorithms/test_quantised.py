"""Products by weights of few bits on a GPU, on the double, beside float64 of the same codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.gemv import cuda_gemv_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.encodings.encoding import DENSE
from compiler.encodings.quantised import READ_BY, Quantised
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.compiler.encodings.test_quantised import quantised
from tests.cuda_double.double import Device, compile_kernels
from tests.ptx.device import PtxDevice

H200 = resolve("cuda:sm_90")
BY_ROW = """
kernel MatMul(in x: f32[{m}, {k}], in w: f32[{k}, {n}]; out y: f32[{m}, {n}])
  for i:{m}, j:{n}
    y[i, j] = sum<f32> l:{k} . mul(x[i, l], w[l, j])
"""
BY_COLUMN = """
kernel Gemm(in x: f32[{m}, {k}], in w: f32[{n}, {k}], in b: f32[{n}]; temp t: f32[]; out y: f32[{m}, {n}])
  for i:{m}, j:{n}
    t[] = sum<f32> l:{k} . mul(x[i, l], w[j, l])
    y[i, j] = max(add(t[], b[j]), -9.0:f32)
"""


def product(
    rows: int, depth: int, columns: int, bits: int, block: int, *, centred: bool, element: DType | None = None,
    by_row: bool = False,
) -> tuple[Case, Workload]:  # fmt: skip
    """A product by weights in blocks along k, and its workload with what is known of them."""
    case = case_of((BY_ROW if by_row else BY_COLUMN).format(m=rows, k=depth, n=columns), (1,) if by_row else (1, 2))
    encoding = Quantised.of(bits, 0 if by_row else 1, block, centred=centred)
    random = np.random.default_rng(depth + columns + bits)
    weights = quantised(random, case.inputs[1].shape, encoding) * np.float32(8)
    case = replace(case, inputs=(case.inputs[0], weights, *case.inputs[2:]))
    if element is not None:
        case = replace(case, buffers=tuple(replace(one, element=element) for one in case.buffers), tolerance=4e-3)
    known = tuple((DENSE, encoding) if at == 1 else (DENSE,) for at in range(len(case.inputs)))
    return case, replace(workload_of(case), encodings=known)


def wanted(case: Case, rows: np.ndarray) -> np.ndarray:
    """In float64, of weights that no 16-bit float has rounded."""
    _, weights, *bias = case.inputs
    if not bias:
        return np.asarray(rows.astype(np.float64) @ weights.astype(np.float64))
    return np.asarray(np.maximum(rows.astype(np.float64) @ weights.T.astype(np.float64) + bias[0], -9.0))


FEW = [
    product(1, 256, 72, 4, 32, centred=True),
    product(1, 512, 40, 4, 32, centred=False),
    product(2, 320, 33, 4, 32, centred=False, by_row=True),
    product(4, 192, 24, 4, 64, centred=True, element=DType.F16),
    product(1, 96, 60, 4, 16, centred=False, element=DType.BF16),
    product(1, 1024, 10, 4, 1024, centred=True),
    product(3, 100, 20, 4, 100, centred=False),
    product(1, 320, 48, 8, 32, centred=True, by_row=True),
    product(2, 256, 30, 8, 256, centred=False),
    product(1, 80, 17, 8, 16, centred=False, element=DType.F16),
    product(1, 256, 44, 2, 16, centred=False),
    product(4, 512, 20, 2, 32, centred=True),
    product(1, 384, 25, 2, 128, centred=False, by_row=True),
]
"""Bits, sizes of blocks, zero points, layouts, tails of both axes, rows, 16-bit floats in memory."""


def few(number: int, most: int = 3) -> list[Subject]:
    """A product of few rows under the tile that the model likes best, the last one, and some between."""
    case, workload = FEW[number]
    tiles = [one.tile for one in cuda_gemv_tiles(workload, H200, "fp32") if one.tile.algorithm == READ_BY]
    assert tiles, workload
    chosen = dict.fromkeys(tiles[round(at * (len(tiles) - 1) / (most - 1))] for at in range(most))
    return [
        Subject(replace(case, tile=tile), lower_cuda(f"k{number}_{at}", workload, tile, H200))
        for at, tile in enumerate(chosen)
    ]


def check(subjects: list[Subject], tolerance: float = 2e-6) -> None:
    """Each in two modes of the double; a result lies within the tolerance of the largest, or of what 16 bits hold."""
    module = compile_kernels(PREAMBLE + "\n".join(one.lowered.text for one in subjects))
    for mode in ADVERSARIAL:
        with Device(module, mode) as device:
            for one in subjects:
                element = one.case.buffers[0].element
                rows = one.case.inputs[0] if element is None else one.case.inputs[0].astype(element.numpy)
                want = wanted(one.case, rows.astype(np.float32))
                granted = tolerance if element is None else on_double.ROUNDING[element]
                (got,) = on_double.run(device, one)
                assert np.abs(got - want).max() <= granted * np.abs(want).max(), one


@needs_double
def test_products_of_few_rows_are_those_of_the_codes() -> None:
    subjects = [one for number in range(len(FEW)) for one in few(number)]
    check(subjects)
    assert {one.case.tile.extent("grid", "k", 1) > 1 for one in subjects} == {False, True}
    assert len({one.case.tile.extent("warp", "lanes") for one in subjects}) >= 4


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_best_tiles_compile_without_spills(architecture: str) -> None:
    subjects = [few(number)[0] for number in range(len(FEW))]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(one.lowered.text for one in subjects), architecture)
    assert "warning" not in compiled.log, compiled.log
    assert len(compiled.kernels) == len(subjects)
    assert not [name for name, found in compiled.kernels.items() if found.spills or found.stack_bytes]


@needs_nvrtc
@pytest.mark.parametrize("number", [1, 7, 10])
def test_a_row_of_one_element_gives_the_bits_of_the_weights_also_by_what_nvrtc_emits(number: int) -> None:
    """On the interpreter of PTX, for 4, 8 and 2 bits: a weight is a float that is rounded once."""
    case, _ = FEW[number]
    rows = np.zeros_like(case.inputs[0])
    rows[:, 41] = 1.0
    case = replace(case, inputs=(rows, *case.inputs[1:]))
    one = replace(few(number)[0], case=case)
    with PtxDevice(PREAMBLE + one.lowered.text, "sm_80", races=True) as device:
        (got,) = on_double.run(device.as_device, one)
    weights = case.inputs[1] if len(case.inputs) == 2 else case.inputs[1].T
    want = np.broadcast_to(weights[41], got.shape)
    np.testing.assert_array_equal(got, want if len(case.inputs) == 2 else np.maximum(want + case.inputs[2], -9))
