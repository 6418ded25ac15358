"""Products of bytes by weights that neighbouring columns keep together: bit by bit what they mean, on the double."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.vector_sparse.tiles import cuda_vector_sparse_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.ir.tile import Tile
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms import test_integer as dense
from tests.compiler.devices.cuda.algorithms import test_vector_sparse as floats
from tests.compiler.devices.cuda.algorithms.test_contraction import TARGET, sass
from tests.compiler.devices.cuda.algorithms.test_sparse_integer import ASKED, convolution, of_text, product
from tests.compiler.devices.cuda.algorithms.test_vector_sparse import Chosen, check, sparse, with_weights
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, compile_kernels


def tile(
    m: int, n: int, part: tuple[int, int], group: int, k: int = 64, stages: int = 3, parts: int = 1, by: str = "grid"
) -> Tile:
    return floats.tile("sparse_mma_integer", m, n, part, group, k, stages, parts, by)


def products() -> list[Chosen]:
    """Sizes that tiles do not divide, groups of each size, k in parts and in clusters, both signs; all zero points.

    The last has A transposed, so that it is gathered byte by byte.
    """
    return [
        (sparse(product(40, 96, 48), 16, 8), tile(32, 16, (16, 8), 8)),
        (sparse(product(1, 640, 72, np.int8), 32, 4, 0.4), tile(16, 32, (16, 8), 4, 64, 4, 3)),
        (sparse(product(33, 208, 130, zero=3), 8, 8, 0.3), tile(64, 8, (16, 8), 8, 128, 2)),
        (sparse(product(70, 136, 44, np.int8, -7), 32, 2, 0.3), tile(32, 32, (16, 16), 2, 64, 2)),
        (sparse(product(17, 148, 40, zero=np.arange(17) * 15), 16, 4, 0.3), tile(32, 16, (16, 8), 4, 64, 2)),
        (sparse(product(24, 512, 56, zero=255), 8, 8), tile(64, 8, (16, 8), 8, 64, 3, 4, "cluster")),
        (sparse(product(24, 331, 56, np.int8, 1), 16, 1), tile(64, 16, (16, 16), 1, 64, 2, 3)),
        (sparse(of_text(ASKED, np.array(-77, np.int8)), 8, 4), tile(64, 8, (16, 8), 4, 64, 2)),
    ]


def convolutions() -> list[Chosen]:
    """Copied, and filled with a zero point, in pieces of 8 and 4 bytes, and of a single one."""
    return [
        (sparse(convolution(32, 24, 0), 16, 8, 0.3), tile(32, 16, (16, 8), 8)),
        (sparse(convolution(32, 40, 7), 32, 4, 0.3), tile(64, 32, (32, 16), 4, 64, 2, 2)),
        (sparse(convolution(64, 40, -128, np.int8), 8, 8), tile(64, 8, (16, 8), 8, 128, 2)),
        (sparse(convolution(12, 20, 130), 16, 4, 0.3), tile(32, 16, (16, 8), 4, 64, 2)),
        (sparse(convolution(16, 24, 0, np.int8), 8, 1, 0.1), tile(64, 8, (16, 8), 1, 64, 2)),
        (sparse(convolution(24, 16, 7), 8, 2, 0.1), tile(64, 8, (16, 8), 2, 64, 2)),
    ]


@needs_double
def test_products_of_every_shape_and_zero_point_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 1, 1, 4, 1, 1]
    assert [one.counters > 0 for one in found] == [False, True, *[False] * 4, True, False]
    assert ["column_sums" in one.text for one in found] == [False, False, *[True] * 6]
    assert ["A: element by element" in one.text for one in found] == [*[False] * 6, True, True]
    assert [f"tw_cp_async_{size}(into + (a_row" in found[at].text for at, size in ((0, 8), (1, 4))] == [True, True]
    assert "tw_mma_m16n8k32_s8(" in found[1].text
    assert "tw_mma_m16n8k32_u8_s8(" in found[0].text


@needs_double
def test_convolutions_mean_what_they_say_however_they_are_padded() -> None:
    found = check(convolutions())
    assert ["padding" in one.text for one in found] == [False, True, True, True, False, True]
    assert not any("A: element by element" in one.text for one in found)


@needs_double
def test_the_extremes_of_bytes_neither_saturate_nor_lose_their_sign() -> None:
    cases = []
    for dtype in (np.uint8, np.int8):
        limits = np.iinfo(dtype)
        for a, b in ((limits.min, -128), (limits.max, -128), (limits.max, 127), (limits.min, 127)):
            weights = np.full((304, 34), b, np.int8)
            weights[:200] = 0
            arrays = np.full((5, 304), a, dtype), weights
            case = dense.product(*arrays, limits.max if b < 0 else 0, 0, dense.SMALL)
            cases.append((with_weights(case, weights), tile(32, 16, (16, 8), 8, 64, 2, 2)))
    check(cases, modes=ADVERSARIAL[:1])


def drawn(count: int) -> list[Chosen]:
    """Products and convolutions of random sizes and shares of zeros, under random tiles of those proposed."""
    random, found = np.random.default_rng(31), list[Chosen]()
    while len(found) < count:
        dtype = (np.uint8, np.int8)[random.integers(2)]
        zero = int(random.choice([0, 0, np.iinfo(dtype).min, np.iinfo(dtype).max, 5]))
        lines, group, share = int(random.choice([8, 16, 32])), int(random.choice([1, 4, 8])), random.uniform(0.02, 0.4)
        if random.integers(2):
            case = convolution(8 * int(random.integers(2, 7)), int(random.integers(16, 80)), zero, dtype)
        else:
            rows, depth = int(random.integers(1, 80)), 8 * int(random.integers(4, 40))
            case = product(rows, depth, int(random.integers(33, 150)), dtype, zero)
        both = sparse(case, lines, group, share, len(found))
        if options := cuda_vector_sparse_tiles(both[1], TARGET, "fp32"):
            found.append((both, options[random.integers(len(options))].tile))
    return found


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    check(drawn(16), modes=ADVERSARIAL[:1])


@needs_double
@pytest.mark.parametrize("at", [2, 6])
def test_memory_and_barriers_are_used_as_they_may_be(at: int) -> None:
    check(products()[at : at + 1], "checked", MODES[4:6])


@needs_double
def test_a_panel_that_keeps_nothing_has_sums_of_zero() -> None:
    """Whatever the zero point: of no weight there is nothing to take off."""
    case = product(20, 128, 64, zero=9)
    weights = case.inputs[1].copy()
    weights[:, 16:32] = 0
    weights[24:] = 0
    case, workload = with_weights(case, weights)
    one = lower_cuda("k", workload, tile(32, 16, (16, 8), 8), TARGET)
    with Device(compile_kernels(PREAMBLE + one.text, "plain"), MODES[2]) as device:
        (found,) = on_double.run(device, Subject(case, one))
    want = (case.inputs[0].astype(np.int64) - 9) @ weights.astype(np.int64)
    np.testing.assert_array_equal(found, want)
    assert not found[:, 16:32].any()
    assert found[:, :16].any()


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("u8_s8(acc[i][j]", "s8(acc[i][j]"),
        ("(step - first_step) * 16", "(step - first_step) * 8"),
        ("a_zero * (unsigned)column_sums[j][odd]", "a_zero * (unsigned)column_sums[j][0]"),
        ("panel[0], panel_steps", "0, panel_steps"),
        ("piece.element[part] = padding", "piece.element[part] = 0"),
        ("const int first_step = min(part * part_steps, panel_steps)", "const int first_step = 0"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    padded = (sparse(convolution(32, 40, 7), 32, 4, 0.3), tile(64, 32, (32, 16), 4, 64, 2, 2))
    plain = (sparse(product(24, 640, 56, zero=3), 8, 4, 0.4), tile(64, 8, (16, 8), 4, 64, 2, 2))
    chosen = [(case, lower_cuda("k", workload, one, TARGET)) for (case, workload), one in (plain, padded)]
    case, one = next(found for found in chosen if line in found[1].text)
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_90a"])
def test_tensor_cores_of_bytes_are_what_runs_and_nothing_spills(architecture: str) -> None:
    wide = [
        (sparse(product(256, 256, 256), 32, 8), tile(128, 32, (32, 32), 8, 64, 4)),
        (sparse(product(256, 256, 256, np.int8, 3), 16, 4), tile(128, 16, (32, 16), 4, 128, 3)),
        (sparse(convolution(64, 128, 7), 32, 8), tile(64, 32, (32, 16), 8, 64, 2)),
        (sparse(convolution(64, 128, 0), 32, 4), tile(128, 32, (32, 32), 4, 128, 2)),
    ]
    texts = [lower_cuda(f"k{number}", both[1], one, TARGET).text for number, (both, one) in enumerate(wide)]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(texts), architecture)
    assert "warning" not in compiled.log
    assert len(compiled.kernels) == len(wide)
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("IMMA.16832.U8.S8", "IMMA.16832.S8.S8", "LDSM.16.M88.4", "LDGSTS.E"):
            assert instruction in code
