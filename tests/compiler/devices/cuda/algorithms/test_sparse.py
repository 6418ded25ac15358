"""Products by weights that are zero at two of each four places, on the double of CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.sparse.tiles import cuda_sparse_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.encodings.encoding import DENSE, Encodings
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_contraction import (
    TARGET,
    convolution,
    matrix,
    sass,
    tile_of,
    within,
    workload_of,
)
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels

F16, BF16 = DType.F16, DType.BF16
BATCHES = """
kernel MatMul(in x: f32[3, 20, 36], in w: f32[3, 36, 24]; out y: f32[3, 20, 24])
  for b:3, i:20, j:24
    y[b, i, j] = sum<f32> k:36 . mul(x[b, i, k], w[b, k, j])
"""


def sparse(case: Case, axis: int) -> tuple[Case, Workload]:
    """A case whose weights are zero at two places of each four along a dimension, and its workload."""
    at = max(case.constant, key=lambda one: case.inputs[one].size)
    inputs, encodings = list(case.inputs), list[Encodings]([(DENSE,)] * len(case.inputs))
    inputs[at], encodings[at] = TwoOfFour.of(axis).pruned(inputs[at]), (DENSE, TwoOfFour.of(axis))
    return replace(case, inputs=tuple(inputs)), replace(workload_of(case), encodings=tuple(encodings))


def lowered(name: str, case: Case, axis: int, tile: Tile) -> tuple[Case, CudaLowered]:
    case, workload = sparse(case, axis)
    return case, lower_cuda(name, workload, tile, TARGET)


def check(
    cases: Sequence[tuple[Case, int, Tile]], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL
) -> list[CudaLowered]:
    found = [Subject(*lowered(f"k{number}", *one)) for number, one in enumerate(cases)]
    on_double.check(found, flavour, modes)
    return [subject.lowered for subject in found]


def tile(m: int, n: int, part: tuple[int, int], k: int = 64, stages: int = 3, parts: int = 1, by: str = "grid") -> Tile:
    return tile_of("sparse", m, n, k, part, stages, parts, by)


def products() -> list[tuple[Case, int, Tile]]:
    """Sizes that tiles do not divide, few columns and rows, k in parts and in clusters, both halves, a batch."""
    return [
        (within(matrix(40, 96, 48, F16), 2e-3), 0, tile(32, 32, (16, 16))),
        (within(matrix(1, 200, 72, F16), 2e-3), 0, tile(8, 64, (8, 16), 64, 4, 3)),
        (within(matrix(33, 84, 130, BF16), 2e-2), 0, tile(64, 64, (32, 32), 64, 2)),
        (within(matrix(70, 36, 12, F16), 2e-3), 0, tile(64, 32, (32, 16))),
        (within(matrix(17, 140, 40, BF16), 2e-2), 0, tile(16, 32, (16, 16), 128, 2)),
        (within(matrix(24, 300, 56, F16), 2e-3), 0, tile(32, 64, (32, 16), 64, 3, 4, "cluster")),
        (within(case_of(BATCHES, (1,), element=F16), 2e-3), 1, tile(32, 32, (16, 16))),
    ]


def convolutions() -> list[tuple[Case, int, Tile]]:
    """Pointwise, windowed, strided, with a prologue, of channels that pieces of 16 bytes do not divide."""
    cases = [
        (convolution(16, 24, (9, 9), (1, 1)), tile(32, 32, (16, 16))),
        (convolution(24, 40, (11, 10), (3, 3)), tile(64, 64, (32, 32), 64, 4)),
        (convolution(8, 16, (13, 13), (3, 3), BF16, stride=2, batch=2), tile(32, 32, (32, 16))),
        (
            convolution(12, 20, (9, 9), (3, 3), data="max(add(x[n, c, {iy}, {ix}], 0.5:f32), 0.25:f32)"),
            tile(16, 32, (16, 16), 64, 2),
        ),
        (convolution(4, 130, (7, 7), (3, 3)), tile(64, 128, (32, 64), 64, 2, 1)),
    ]
    return [(within(case, 2e-2 if case.buffers[-1].dtype is BF16 else 3e-3), 1, one) for case, one in cases]


@needs_double
def test_products_of_every_shape_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 1, 1, 4, 1]
    assert all("tw_mma_sp_m16n8k32_" in one.text for one in found)


@needs_double
def test_convolutions_mean_what_they_say() -> None:
    check(convolutions())


def drawn(count: int) -> list[tuple[Case, int, Tile]]:
    """Products and convolutions of random sizes, under random tiles of those proposed."""
    random, found = np.random.default_rng(21), list[tuple[Case, int, Tile]]()
    while len(found) < count:
        element = (F16, BF16)[random.integers(2)]
        k, n = 4 * int(random.integers(1, 60)), int(random.integers(2, 150))
        axis = int(random.integers(2))
        if axis:
            window = [(1, 1), (3, 3), (1, 5)][random.integers(3)]
            size = (int(random.integers(3, 10)), int(random.integers(3, 10)))
            case = convolution(
                4 * int(random.integers(1, 9)), n, size, window, element, stride=int(random.integers(1, 3))
            )
        else:
            case = matrix(int(random.integers(1, 80)), k, n, element)
        _, workload = sparse(case, axis)
        options = cuda_sparse_tiles(workload, TARGET, "fp16")
        found.append(
            (within(case, 2e-2 if element is BF16 else 3e-3), axis, options[random.integers(len(options))].tile)
        )
    return found


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    check(drawn(24), modes=ADVERSARIAL[:1])


@needs_double
@pytest.mark.parametrize("at", [0, 1])
def test_memory_and_barriers_are_used_as_they_may_be(at: int) -> None:
    check([products()[0], products()[1]][at : at + 1], "checked", MODES[4:6])


@needs_double
def test_sums_are_those_of_float64_and_of_the_dense_kernel() -> None:
    """fp16 operands, fp32 results: what differs is the order of sums, and what tensor cores cut off."""
    case, workload = sparse(matrix(48, 520, 64, F16), 0)
    buffers = [*case.buffers[:4], replace(case.buffers[4], element=None)]
    case, workload = (
        replace(case, buffers=tuple(buffers)),
        replace(workload, outputs=(replace(workload.outputs[0], element=None),)),
    )
    subjects = [
        Subject(case, lower_cuda("sparse", workload, tile(32, 64, (32, 16)), TARGET)),
        Subject(case, lower_cuda("dense", workload, tile_of("mma", 32, 64, 64, (16, 32)), TARGET)),
    ]
    source = PREAMBLE + "\n".join(one.lowered.text for one in subjects)
    with Device(compile_kernels(source, "plain"), MODES[0]) as device:
        found = [on_double.run(device, subject)[0] for subject in subjects]
    x, w, b, r = (array.astype(np.float16).astype(np.float64) for array in case.inputs)
    want = np.maximum(x @ w + b + r, 0)
    for one in found:
        assert np.linalg.norm(one - want) / np.linalg.norm(want) < 2e-6
    assert 0 < np.abs(found[0] - found[1]).max() < 1e-4


@needs_double
def test_groups_without_any_weight_and_weights_that_are_no_numbers() -> None:
    """A group of zeros still names two places; NaN and infinities are weights as any others."""
    case, workload = sparse(within(matrix(9, 64, 16, F16), 2e-3), 0)
    weights = case.inputs[1].copy()
    weights[:32, 3] = 0
    weights[40:44, 5] = 0, np.inf, 0, 0
    weights[8:12, 6] = 0, 0, 0, np.nan
    case = replace(case, inputs=(np.abs(case.inputs[0]) + 0.5, weights, *case.inputs[2:]))
    one = lower_cuda("k", workload, tile(16, 32, (16, 16)), TARGET)
    with Device(compile_kernels(PREAMBLE + one.text, "plain"), MODES[1]) as device:
        (found,) = on_double.run(device, Subject(case, one))
    (want,) = on_double.wanted(case)
    assert np.isposinf(found[:, 5]).all()
    np.testing.assert_allclose(found, want, rtol=4e-3, atol=4e-3)


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("f16<0>", "f16<1>"),
        ("lane / 8 * 16", "lane / 16 * 16"),
        ("at[8] = acc[i][j][2]", "at[8] = acc[i][j][1]"),
        ("(i * 1 + k) * 128", "(0 * i + k) * 128"),
        ("tw_cp_async_wait<1>();\n", "\n"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, one = lowered("k", within(matrix(40, 200, 64, F16), 2e-3), 0, tile(32, 64, (16, 32)))
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_sparse_tensor_cores_are_what_runs_and_nothing_spills(architecture: str) -> None:
    wide = [
        (matrix(256, 256, 256, F16), 0, tile(128, 128, (32, 64), 64, 4)),
        (convolution(64, 128, (56, 56), (3, 3), BF16), 1, tile(128, 128, (64, 32), 64)),
        (matrix(256, 256, 256, F16), 0, tile(64, 256, (32, 64), 128, 2)),
        *convolutions()[3:4],
    ]
    text = "\n".join(lowered(f"k{number}", *one)[1].text for number, one in enumerate(wide))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, architecture)
    assert "warning" not in compiled.log
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("HMMA.SP.16832.F32", "HMMA.SP.16832.F32.BF16", "LDSM.16.M88.4", "LDGSTS.E.BYPASS.128"):
            assert instruction in code
