"""Products by weights that neighbouring columns keep together, on the double of CUDA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.vector_sparse.tiles import cuda_vector_sparse_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.encodings.blocks import Blocks
from compiler.encodings.encoding import DENSE, Use
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_contraction import (
    ELEMENTS,
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
TOLERANCES = {"fp32": 5e-5, "tf32": 2e-3, "fp16": 3e-3, "bf16": 2e-2}
TRANSPOSED = """
kernel MatMul(in x: f32[96, 44], in w: f32[96, 40]; out y: f32[44, 40])
  for i:44, j:40
    y[i, j] = sum<f32> k:96 . mul(x[k, i], w[k, j])
"""


def weights_at(case: Case) -> int:
    """Which input is the constant with the most elements."""
    return max(case.constant, key=lambda one: case.inputs[one].size)


def with_weights(case: Case, weights: np.ndarray) -> tuple[Case, Workload]:
    """A case with other weights, and its workload with what is known of them."""
    at = weights_at(case)
    case = replace(case, inputs=(*case.inputs[:at], weights, *case.inputs[at + 1 :]))
    known = Blocks.find(weights, Use.TENSOR_CORES)
    encodings = tuple((DENSE, *known) if one == at else (DENSE,) for one in range(len(case.inputs)))
    return case, replace(workload_of(case), encodings=encodings)


def mask_of(shape: tuple[int, ...], lines: int, group: int, share: float, seed: int = 0) -> np.ndarray:
    """bool[shape] of filters, or of a matrix [k, n], that keep so many lines and neighbours of k together."""
    columns, k = (0, 1) if len(shape) == 4 else (1, 0)
    blocks = (-(-shape[columns] // lines), -(-shape[k] // group), *shape[2:])
    kept = np.random.default_rng(seed).random(blocks) < share
    whole = kept.repeat(lines, 0).repeat(group, 1)[: shape[columns], : shape[k]]
    return np.asarray(whole if columns == 0 else whole.T)


def sparse(case: Case, lines: int, group: int, share: float = 0.2, seed: int = 0) -> tuple[Case, Workload]:
    """A case whose weights keep blocks of so many columns and neighbours of k, a share of all."""
    weights = case.inputs[weights_at(case)]
    return with_weights(
        case, np.where(mask_of(weights.shape, lines, group, share, seed), weights, weights.dtype.type(0))
    )


def tile(
    algorithm: str, m: int, n: int, part: tuple[int, int], group: int, k: int = 32, stages: int = 3, parts: int = 1,
    by: str = "grid",
) -> Tile:  # fmt: skip
    """As `tile_of`, of a product that keeps groups of so many neighbours of k."""
    block = ("block", (("m", m), ("n", n), ("k", k), ("stages", stages), ("group", group)))
    inner = ("thread" if algorithm == "sparse_ffma" else "warp", (("m", part[0]), ("n", part[1])))
    grid = ((by, (("k", parts),)),) if parts > 1 else ()
    return Tile(algorithm, tuple(Level(*one) for one in (*grid, block, inner)))


Chosen = tuple[tuple[Case, Workload], Tile]


def check(cases: Sequence[Chosen], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL) -> list[CudaLowered]:
    found = [
        Subject(case, lower_cuda(f"k{number}", workload, one, TARGET))
        for number, ((case, workload), one) in enumerate(cases)
    ]
    on_double.check(found, flavour, modes)
    return [subject.lowered for subject in found]


def products() -> list[Chosen]:
    """Each way to multiply; tails of m, n and k, groups of each size, k in parts and in clusters."""
    return [
        (sparse(within(matrix(40, 96, 72, F16), 3e-3), 16, 8), tile("sparse_mma", 32, 16, (16, 8), 8)),
        (sparse(within(matrix(70, 200, 44, BF16), 2e-2), 8, 4), tile("sparse_mma", 64, 8, (16, 8), 4, 64)),
        (sparse(within(matrix(33, 140, 50, F16), 3e-3), 32, 2), tile("sparse_mma", 32, 32, (16, 16), 2, 32, 2)),
        (sparse(within(matrix(17, 101, 36, F16), 3e-3), 16, 1), tile("sparse_mma", 64, 16, (16, 16), 1, 32, 2)),
        (sparse(within(matrix(1, 640, 64, F16), 3e-3), 32, 8), tile("sparse_mma", 16, 32, (16, 8), 8, 32, 4, 3)),
        (
            sparse(within(matrix(24, 320, 56, F16), 3e-3), 8, 8),
            tile("sparse_mma", 64, 8, (16, 8), 8, 32, 3, 4, "cluster"),
        ),
        (sparse(within(matrix(50, 136, 40, None), 2e-3), 16, 1), tile("sparse_mma_tf32", 32, 16, (16, 8), 1, 16)),
        (sparse(matrix(37, 160, 72, None), 32, 4), tile("sparse_mma_3xtf32", 32, 32, (16, 16), 4)),
        (sparse(matrix(65, 99, 70, None), 32, 1), tile("sparse_ffma", 32, 32, (4, 2), 1)),
        (sparse(matrix(65, 112, 33, None), 8, 8), tile("sparse_ffma", 64, 8, (4, 1), 8, 16, 3, 2)),
        (sparse(case_of(TRANSPOSED, (1,)), 8, 1), tile("sparse_mma_3xtf32", 64, 8, (16, 8), 1, 16, 2)),
    ]


def convolutions() -> list[Chosen]:
    """Pointwise and windowed, strided, of several images, under a prologue."""
    prologue = "max(add(x[n, c, {iy}, {ix}], 0.5:f32), 0.25:f32)"
    cases = [
        (convolution(64, 72, (9, 9), (1, 1)), 16, 8, tile("sparse_mma", 64, 16, (16, 16), 8)),
        (convolution(16, 40, (8, 7), (3, 3)), 32, 8, tile("sparse_mma", 64, 32, (32, 16), 8, 64, 4)),
        (convolution(8, 24, (9, 9), (3, 3), BF16, stride=2, batch=2), 8, 4, tile("sparse_mma", 64, 8, (16, 8), 4)),
        (convolution(12, 20, (9, 9), (3, 3), data=prologue), 16, 4, tile("sparse_mma", 32, 16, (16, 8), 4, 32, 2)),
        (convolution(12, 34, (7, 7), (3, 3), None), 32, 1, tile("sparse_ffma", 32, 32, (4, 2), 1, 16)),
    ]
    tolerances = {F16: 3e-3, BF16: 2e-2, None: 5e-5}
    return [
        (sparse(within(case, tolerances[case.buffers[-1].element]), lines, group), one)
        for case, lines, group, one in cases
    ]


@needs_double
def test_products_of_every_shape_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1]
    copies = [
        max((int(size) for size in re.findall(r"tw_cp_async_(\d+)\(into \+ \(a_row", one.text)), default=0)
        for one in found
    ]
    assert copies == [16, 8, 4, 0, 16, 16, 4, 16, 0, 16, 0]


@needs_double
def test_convolutions_name_channels_and_places_of_a_window() -> None:
    check(convolutions())


def drawn(precision: str, count: int) -> list[Chosen]:
    """Products and convolutions of random sizes and shares of zeros, under random tiles of those proposed."""
    random, found = np.random.default_rng(len(precision)), list[Chosen]()
    while len(found) < count:
        lines, group, share = int(random.choice([8, 16, 32])), int(random.choice([1, 4, 8])), random.uniform(0.02, 0.4)
        n, k = int(random.integers(17, 100)), 8 * int(random.integers(1, 30))
        case = matrix(int(random.integers(1, 80)), k, n, ELEMENTS[precision])
        if random.integers(2):
            window = [(1, 1), (3, 3), (1, 5)][random.integers(3)]
            size = (int(random.integers(3, 9)), int(random.integers(3, 9)))
            stride = int(random.integers(1, 3))
            case = convolution(8 * int(random.integers(2, 7)), n, size, window, ELEMENTS[precision], stride=stride)
        both = sparse(within(case, TOLERANCES[precision]), lines, group, share, len(found))
        if options := cuda_vector_sparse_tiles(both[1], TARGET, precision):
            found.append((both, options[random.integers(len(options))].tile))
    return found


@needs_double
@pytest.mark.parametrize("precision", TOLERANCES)
def test_random_sizes_under_proposed_tiles_mean_what_they_say(precision: str) -> None:
    check(drawn(precision, 8), modes=ADVERSARIAL[:1])


@needs_double
@pytest.mark.parametrize("at", [1, 4, 8])
def test_memory_and_barriers_are_used_as_they_may_be(at: int) -> None:
    check([products()[at]], "checked", MODES[4:6])


@needs_double
def test_panels_keep_nothing_everything_or_some_and_sums_are_those_of_float64() -> None:
    """Of five panels one keeps nothing, one every group, one a single group; k in parts that may have no step."""
    case = matrix(48, 264, 5 * 16, F16)
    weights = case.inputs[1].copy()
    weights[:, :16] = 0
    weights[8:, 32:48] = 0
    weights[:, 48:] *= mask_of((264, 32), 16, 8, 0.15)
    case = replace(case, buffers=(*case.buffers[:4], replace(case.buffers[4], element=None)))
    case, workload = with_weights(case, weights)
    subjects = [
        Subject(case, lower_cuda("whole", workload, tile("sparse_mma", 32, 16, (16, 8), 8), TARGET)),
        Subject(case, lower_cuda("parts", workload, tile("sparse_mma", 32, 16, (16, 8), 8, 64, 2, 6), TARGET)),
        Subject(case, lower_cuda("dense", workload, tile_of("mma", 32, 32, 64, (16, 16)), TARGET)),
    ]
    source = PREAMBLE + "\n".join(one.lowered.text for one in subjects)
    with Device(compile_kernels(source, "plain"), MODES[2]) as device:
        found = [on_double.run(device, subject)[0] for subject in subjects]
    x, w, b, r = (array.astype(np.float16).astype(np.float64) for array in case.inputs)
    want = np.maximum(x @ w + b + r, 0)
    for one in found:
        assert np.linalg.norm(one - want) / np.linalg.norm(want) < 2e-6
    np.testing.assert_array_equal(found[0][:, :16], found[2][:, :16])  # no product at all: bias and residual
    assert found[0][:, 16:32].any()


@needs_double
def test_an_infinity_reaches_what_its_panel_keeps_and_nothing_else() -> None:
    case, workload = sparse(within(matrix(9, 64, 32, F16), 3e-3), 16, 8, 0.3, 2)
    kept = case.inputs[1].any(1)
    left_out = int(np.flatnonzero(~kept)[0])
    inputs = list(case.inputs)
    inputs[0] = inputs[0].copy()
    inputs[0][3, left_out] = np.inf
    case = replace(case, inputs=tuple(inputs))
    one = lower_cuda("k", workload, tile("sparse_mma", 32, 16, (16, 8), 8), TARGET)
    with Device(compile_kernels(PREAMBLE + one.text, "plain"), MODES[1]) as device:
        (found,) = on_double.run(device, Subject(case, one))
    assert np.isfinite(found).all()
    (want,) = on_double.wanted(case)
    assert not np.isfinite(want[3]).any()
    others = [row for row in range(9) if row != 3]
    np.testing.assert_allclose(found[others], want[others], rtol=4e-3, atol=4e-3)


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("(step - first_step) * 4", "step * 0"),
        ("panel[0], panel_steps", "0, panel_steps"),
        (" && k < 320", ""),
        ("kept_groups)[i] = numbers[i]", "kept_groups)[i] = numbers[0]"),
        ("min(part * part_steps, panel_steps)", "0"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, workload = sparse(within(matrix(24, 320, 56, F16), 3e-3), 8, 8)
    one = lower_cuda("k", workload, tile("sparse_mma", 64, 8, (16, 8), 8, 32, 3, 2), TARGET)
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_90a"])
def test_kernels_compile_without_spills_and_gather_by_asynchronous_copies(architecture: str) -> None:
    wide = [
        (sparse(matrix(256, 256, 256, F16), 32, 8), tile("sparse_mma", 128, 32, (32, 32), 8, 64, 4)),
        (sparse(convolution(64, 128, (56, 56), (3, 3), BF16), 32, 2), tile("sparse_mma", 64, 32, (32, 16), 2, 64)),
        (sparse(matrix(256, 256, 256, None), 16, 1), tile("sparse_mma_tf32", 128, 16, (32, 16), 1, 16)),
        (sparse(matrix(256, 256, 256, None), 32, 4), tile("sparse_ffma", 64, 32, (4, 4), 4)),
        *products()[7:8],
    ]
    texts = [lower_cuda(f"k{number}", both[1], one, TARGET).text for number, (both, one) in enumerate(wide)]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(texts), architecture)
    assert "warning" not in compiled.log
    assert len(compiled.kernels) == len(wide)
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("HMMA.16816.F32", "HMMA.1688.F32.TF32", "LDGSTS.E.BYPASS.128", "LDGSTS.E"):
            assert instruction in code
