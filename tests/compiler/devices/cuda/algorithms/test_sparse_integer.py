"""Products of bytes by weights that are zero at two of each four places: bit by bit what they mean, on the double."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.sparse.tiles import cuda_sparse_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms import test_integer as dense
from tests.compiler.devices.cuda.algorithms.test_contraction import TARGET, sass, tile_of
from tests.compiler.devices.cuda.algorithms.test_sparse import check, lowered, sparse
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Fault

BATCHES = """
kernel MatMulInteger(in x: u8[3, 20, 36], in w: i8[3, 36, 24], in p: u8[3, 20]; out y: i32[3, 20, 24])
  for b:3, i:20, j:24
    y[b, i, j] = sum<i32> k:36 . mul(sub(cast(x[b, i, k]):i32, cast(p[b, i]):i32), cast(w[b, k, j]):i32)
"""
ASKED = """
kernel MatMulInteger(in x: i8[96, 40], in w: i8[96, 48], in p: i8[]; out y: i32[40, 48])
  for i:40, j:48
    y[i, j] = sum<i32> k:96 . mul(sub(cast(x[k, i]):i32, cast(p[]):i32), cast(w[k, j]):i32)
"""


def tile(m: int, n: int, part: tuple[int, int], k: int = 64, stages: int = 3, parts: int = 1, by: str = "grid") -> Tile:
    return tile_of("sparse_integer", m, n, k, part, stages, parts, by)


def product(rows: int, depth: int, columns: int, dtype: type = np.uint8, zero: object = 0) -> Case:
    """A MatMulInteger of random bytes."""
    random, limits = np.random.default_rng(depth), np.iinfo(dtype)
    a: np.ndarray = random.integers(limits.min, limits.max + 1, (rows, depth)).astype(dtype)
    b = random.integers(-128, 128, (depth, columns)).astype(np.int8)
    return dense.product(a, b, zero, 0, dense.SMALL)


def convolution(channels: int, filters: int, zero: int, dtype: type = np.uint8) -> Case:
    """A padded 3x3 QLinearConv of channels-last activations."""
    return dense.convolution(channels, filters, zero, dense.SMALL, dtype)


def of_text(text: str, zeros: np.ndarray) -> Case:
    """Any bytes for the operands of a kernel whose zero points are known only while it runs."""
    case, random = case_of(text, (1,)), np.random.default_rng(3)
    x, w = (
        random.integers(np.iinfo(array.dtype).min, np.iinfo(array.dtype).max + 1, array.shape).astype(array.dtype)
        for array in case.inputs[:2]
    )
    return replace(case, inputs=(x, w, zeros))


def products() -> list[tuple[Case, int, Tile]]:
    """Sizes that tiles do not divide, few rows, k in parts and in clusters, both signs; zero points of all kinds.

    The last has A transposed, so that it is gathered byte by byte.
    """
    rows = np.random.default_rng(4).integers(0, 256, (3, 20)).astype(np.uint8)
    return [
        (product(40, 96, 48), 0, tile(32, 32, (16, 16))),
        (product(1, 200, 72, np.int8), 0, tile(8, 64, (8, 16), 64, 4, 3)),
        (product(33, 84, 130, zero=3), 0, tile(64, 64, (32, 32), 64, 2)),
        (product(70, 36, 12, np.int8, -7), 0, tile(64, 32, (32, 16))),
        (product(17, 140, 40, zero=np.arange(17) * 15), 0, tile(16, 32, (16, 16), 128, 2)),
        (product(24, 300, 56, zero=255), 0, tile(32, 64, (32, 16), 64, 3, 4, "cluster")),
        (product(24, 332, 56, np.int8, 1), 0, tile(16, 32, (16, 16), 64, 2, 3)),
        (of_text(BATCHES, rows), 1, tile(32, 32, (16, 16))),
        (of_text(ASKED, np.array(-77, np.int8)), 0, tile(32, 64, (16, 32), 128, 2)),
    ]


def convolutions() -> list[tuple[Case, int, Tile]]:
    """Copied, and filled with a zero point, in pieces of 4 to 16 bytes."""
    return [
        (convolution(32, 24, 0), 1, tile(32, 32, (16, 16))),
        (convolution(32, 24, 7), 1, tile(32, 32, (32, 16), 64, 2, 2)),
        (convolution(64, 40, -128, np.int8), 1, tile(64, 64, (32, 32), 128, 2)),
        (convolution(12, 20, 130), 1, tile(16, 32, (16, 16), 64, 2)),
        (convolution(4, 16, 0, np.int8), 1, tile(32, 32, (16, 16), 64, 2)),
        (convolution(24, 16, 7), 1, tile(32, 32, (16, 16), 64, 2)),
    ]


@needs_double
def test_products_of_every_shape_and_zero_point_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 1, 1, 4, 1, 1, 1]
    assert [one.counters > 0 for one in found] == [False, True, *[False] * 4, True, False, False]
    signed, unsigned = ([f"tw_mma_sp_m16n8k64_{kind}(" in one.text for one in found] for kind in ("s8", "s8_u8"))
    assert signed == [False, True, False, True, False, False, True, False, True]
    assert unsigned == [not one for one in signed]
    assert ["A: element by element" in one.text for one in found] == [*[False] * 8, True]
    assert ["column_sums" in one.text for one in found] == [False, False, *[True] * 7]


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
            arrays = np.full((5, 152), a, dtype), np.full((152, 18), b, np.int8)
            case = dense.product(*arrays, limits.max if b < 0 else 0, 0, dense.SMALL)
            cases.append((case, 0, tile(8, 32, (8, 16), 64, 2, 2)))
    check(cases, modes=ADVERSARIAL[:1])


def drawn(count: int) -> list[tuple[Case, int, Tile]]:
    """Products and convolutions of random sizes, under random tiles of those proposed."""
    random, found = np.random.default_rng(22), list[tuple[Case, int, Tile]]()
    while len(found) < count:
        dtype = (np.uint8, np.int8)[random.integers(2)]
        zero = int(random.choice([0, 0, np.iinfo(dtype).min, np.iinfo(dtype).max, 5]))
        if axis := int(random.integers(2)):
            case = convolution(4 * int(random.integers(1, 12)), int(random.integers(16, 80)), zero, dtype)
        else:
            rows, depth = int(random.integers(1, 80)), 4 * int(random.integers(1, 60))
            case = product(rows, depth, int(random.integers(8, 150)), dtype, zero)
        options = cuda_sparse_tiles(sparse(case, axis)[1], TARGET, "fp32")
        found.append((case, axis, options[random.integers(len(options))].tile))
    return found


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    check(drawn(24), modes=ADVERSARIAL[:1])


@needs_double
@pytest.mark.parametrize("at", [2, 6])
def test_memory_and_barriers_are_used_as_they_may_be(at: int) -> None:
    check(products()[at : at + 1], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("s8_u8(acc[i][j]", "s8(acc[i][j]"),
        ("+ lane * 4;", "+ (lane ^ 1) * 4;"),
        ("lane / 8 * 16", "lane / 16 * 16"),
        ("at[8] = acc[i][j][2]", "at[8] = acc[i][j][1]"),
        ("a_zero * (unsigned)column_sums[i][2 * half]", "a_zero * (unsigned)column_sums[i][0]"),
        ("+ k * 32 +", "+ k * 0 +"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, one = lowered("k", product(40, 200, 64, zero=3), 0, tile(32, 64, (16, 32), 128))
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_sparse_tensor_cores_of_bytes_are_what_runs_and_nothing_spills(architecture: str) -> None:
    wide = [
        (product(256, 256, 256), 0, tile(128, 128, (32, 64), 64, 4)),
        (product(256, 256, 256, np.int8, 3), 0, tile(64, 256, (32, 64), 128, 2)),
        (convolution(64, 128, 7), 1, tile(128, 128, (64, 32), 64, 2)),
    ]
    text = "\n".join(lowered(f"k{number}", *one)[1].text for number, one in enumerate(wide))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, architecture)
    assert "warning" not in compiled.log
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("IMMA.SP.16864.S8.U8", "IMMA.SP.16864.S8.S8", "LDSM.16.M88.4", "LDGSTS.E.BYPASS.128"):
            assert instruction in code
