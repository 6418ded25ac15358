"""Products by weights of few bits on a GPU, on the double, beside float64 of the same codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import READ_CODES, legal_tiles
from compiler.devices.cuda.algorithms.gemv import cuda_gemv_tiles
from compiler.devices.cuda.algorithms.quantised import QUANTISED
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES, CudaTarget, resolve
from compiler.encodings.encoding import DENSE
from compiler.encodings.quantised import READ_BY, Quantised
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.compiler.encodings.test_quantised import quantised
from tests.cuda_double.double import Device, compile_kernels
from tests.parse import parse_kernel
from tests.ptx.device import PtxDevice

ELEMENTS = {"fp16": DType.F16}
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


def few(number: int, most: int = 2, target: CudaTarget = H200) -> list[Subject]:
    """A product of few rows under some tiles, from the one that the model likes best on."""
    case, workload = FEW[number]
    tiles = [one.tile for one in cuda_gemv_tiles(workload, target, "fp32") if one.tile.algorithm == READ_BY]
    assert tiles, workload
    chosen = dict.fromkeys(tiles[round(at * (len(tiles) - 1) / max(most - 1, 1))] for at in range(most))
    return [
        Subject(replace(case, tile=tile), lower_cuda(f"k{number}_{at}", workload, tile, target))
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
                granted = 1e-3 if one.case.tile.algorithm == "quantised_mma_tf32" else granted
                (got,) = on_double.run(device, one)
                assert np.abs(got - want).max() <= granted * np.abs(want).max(), one


@needs_double
def test_products_of_few_rows_are_those_of_the_codes() -> None:
    subjects = [one for number in range(len(FEW)) for one in few(number)]
    check(subjects)
    assert {one.case.tile.extent("grid", "k", 1) > 1 for one in subjects} == {False, True}
    assert len({one.case.tile.extent("warp", "lanes") for one in subjects}) >= 4


MANY = [
    (product(40, 96, 72, 4, 32, centred=True, element=DType.F16), "fp16"),
    (product(33, 160, 50, 4, 32, centred=False, element=DType.BF16, by_row=True), "bf16"),
    (product(70, 100, 40, 4, 100, centred=False), "fp32"),
    (product(24, 128, 36, 8, 16, centred=False, by_row=True), "fp32"),
    (product(65, 192, 30, 8, 64, centred=True, element=DType.F16), "fp16"),
    (product(17, 256, 48, 2, 16, centred=False, element=DType.F16), "fp16"),
    (product(50, 320, 44, 2, 128, centred=True), "fp32"),
    (product(30, 96, 56, 4, 32, centred=False), "tf32"),
]
"""The same of many rows, with precisions of jobs."""


def many(number: int, most: int = 1, target: CudaTarget = H200) -> list[Subject]:
    """A product of many rows, each way to multiply under some tiles, from the one that the model likes best on."""
    (case, workload), precision = MANY[number]
    by_name: dict[str, list[Tile]] = {}
    for one in QUANTISED.tiles(workload, target, precision):
        by_name.setdefault(one.tile.algorithm, []).append(one.tile)
    chosen = [
        tiles[at]
        for tiles in by_name.values()
        for at in dict.fromkeys(round(at * (len(tiles) - 1) / max(most - 1, 1)) for at in range(most))
    ]
    return [
        Subject(replace(case, tile=tile), lower_cuda(f"p{number}_{at}", workload, tile, target))
        for at, tile in enumerate(chosen)
    ]


@needs_double
def test_products_of_many_rows_are_those_of_the_codes() -> None:
    subjects = [one for number in range(len(MANY)) for one in many(number, 2 if number < 3 else 1)]
    assert {one.case.tile.algorithm for one in subjects} == {*QUANTISED.names}
    assert {one.case.tile.extent("cluster", "k", 1) > 1 for one in subjects} == {False, True}
    check(subjects, 4e-6)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_best_tiles_compile_without_spills(architecture: str) -> None:
    target = next(one for one in PROFILES if one.architecture == architecture)
    subjects = [few(number, 1, target)[0] for number in (1, 8, 10)]
    subjects += [one for number in (0, 2) for one in many(number, 1, target)]
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


@needs_nvrtc
@pytest.mark.parametrize(("architecture", "name"), [("sm_80", "mma"), ("sm_90a", "wgmma"), ("sm_80", "ffma")])
def test_products_of_many_rows_are_right_also_by_what_nvrtc_emits(architecture: str, name: str) -> None:
    """On the interpreter of PTX, which sees fences that are missing."""
    (case, workload), precision = MANY[0 if name != "ffma" else 2]
    tiles = [one.tile for one in QUANTISED.tiles(workload, H200, precision) if one.tile.algorithm.endswith(f"_{name}")]
    tile = next(one for one in tiles if not one.extent("cluster", "k"))
    one = Subject(replace(case, tile=tile), lower_cuda("k", workload, tile, H200))
    with PtxDevice(PREAMBLE + one.lowered.text, architecture, races=True) as device:
        (got,) = on_double.run(device.as_device, one)
    element = case.buffers[0].element
    rows = case.inputs[0] if element is None else case.inputs[0].astype(element.numpy)
    want = wanted(case, rows.astype(np.float32))
    assert np.abs(got - want).max() <= (4e-6 if element is None else 2e-3) * np.abs(want).max()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_constant_is_made_dense_only_where_that_is_much_faster(precision: str) -> None:
    for rows in (1, 4, 5, 64):
        _, workload = product(rows, 256, 128, 4, 32, centred=True, element=ELEMENTS.get(precision))
        assert {one.tile.algorithm for one in legal_tiles(workload, H200, 1, precision)} <= {*READ_CODES}
        dense = replace(workload, encodings=((DENSE,),) * 3)
        assert not {one.tile.algorithm for one in legal_tiles(dense, H200, 1, precision)} & {*READ_CODES}


def test_blocks_that_no_lane_has_whole_and_matrices_that_are_read_twice_are_left_to_others() -> None:
    _, workload = product(1, 96, 64, 4, 48, centred=True)
    assert {one.tile.algorithm for one in cuda_gemv_tiles(workload, H200, "fp32")} == {"gemv"}
    _, across = product(8, 96, 64, 4, 32, centred=True)
    along_columns = replace(across, encodings=((DENSE,), (DENSE, Quantised.of(4, 0, 32, centred=True)), (DENSE,)))
    assert not QUANTISED.tiles(along_columns, H200, "fp32")


def test_a_decoders_token_is_predicted_by_the_bytes_that_are_read() -> None:
    """A product of 4096 x 4096 on an H200, in fp32 and from codes: a launch and latencies are in both."""
    kernel = parse_kernel(BY_COLUMN.format(m=1, k=4096, n=4096))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    known = ((DENSE,), (DENSE, Quantised.of(4, 1, 32, centred=True)), (DENSE,))
    workload = Workload(kernel, buffers[:3], buffers[3:], (False, True, True), known)
    least: dict[str, float] = {}
    for one in cuda_gemv_tiles(workload, H200, "fp32"):
        least.setdefault(one.tile.algorithm, one.seconds)
    assert least[READ_BY] < 0.4 * least["gemv"]
    tile = next(one.tile for one in cuda_gemv_tiles(workload, H200, "fp32") if one.tile.algorithm == READ_BY)
    (packing,) = lower_cuda("k", workload, tile, H200).packings.values()
    assert packing.elements == 4096 * 4096 // 2 + 4 * 4096 * 128
