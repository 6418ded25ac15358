"""Products of bytes by warpgroups and weights that are zero at two of each four places: bit by bit, on the double."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.sparse.warpgroup_tiles import cuda_sparse_wgmma_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.persistent import can_be_resident
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms import test_integer as dense
from tests.compiler.devices.cuda.algorithms.test_contraction import TARGET, sass
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import A100, H200
from tests.compiler.devices.cuda.algorithms.test_sparse import check, lowered, sparse
from tests.compiler.devices.cuda.algorithms.test_sparse_integer import ASKED, BATCHES, convolution, of_text, product
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, workload_of
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Fault


def tile(m: int, n: int, part: tuple[int, int], stages: int = 4, parts: int = 1, by: str = "grid") -> Tile:
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", 128), ("stages", stages)))
    return Tile("sparse_wgmma_integer", (*grid, block, Level("warpgroup", (("m", part[0]), ("n", part[1])))))


def products() -> list[tuple[Case, int, Tile]]:
    """Tails of m, n and k, several warpgroups, k in parts and in clusters, both signs, zero points of all kinds.

    The last have batches of matrices, and A transposed: both are gathered byte by byte.
    """
    rows = np.random.default_rng(4).integers(0, 256, (3, 20)).astype(np.uint8)
    return [
        (product(40, 192, 72), 0, tile(32, 64, (32, 64))),
        (product(130, 336, 140, np.int8), 0, tile(128, 128, (64, 64), 3)),
        (product(130, 640, 140, zero=3), 0, tile(64, 128, (64, 128), 6, 3)),
        (product(20, 528, 200, np.int8, -7), 0, tile(16, 128, (16, 64), 4, 4, "cluster")),
        (product(33, 720, 60, zero=np.arange(33) * 7), 0, tile(32, 64, (16, 64), 3, 4)),
        (of_text(BATCHES, rows), 1, tile(32, 64, (32, 64), 3)),
        (of_text(ASKED, np.array(-77, np.int8)), 0, tile(32, 64, (16, 64), 3)),
    ]


def windows() -> list[tuple[Case, int, Tile]]:
    """Padded, of which rows are copied, or filled with a zero point through registers."""
    return [
        (convolution(32, 72, 0), 1, tile(64, 64, (64, 64))),
        (convolution(64, 40, -128, np.int8), 1, tile(64, 64, (32, 64), 3, 2)),
        (convolution(24, 20, 7), 1, tile(32, 64, (16, 64), 3, 2, "cluster")),
    ]


@needs_double
def test_products_of_every_shape_and_zero_point_mean_what_they_say() -> None:
    found = check([*products(), *windows()])
    assert [one.cluster for one in found] == [1, 1, 1, 4, *[1] * 5, 2]
    assert ["b_sums" in one.text for one in found] == [False, False, *[True] * 5, False, True, True]
    assert ["tw_wgmma_sp_k64_s8(" in one.text for one in found[:4]] == [False, True, False, True]
    assert ["padding" in one.text for one in found[7:]] == [False, True, True]
    assert all(one.is_specific and "tw_wgmma_sp_k64_" in one.text for one in found)


@needs_double
def test_the_extremes_of_bytes_neither_saturate_nor_lose_their_sign() -> None:
    cases = []
    for dtype in (np.uint8, np.int8):
        limits = np.iinfo(dtype)
        for a, b in ((limits.min, -128), (limits.max, -128), (limits.max, 127), (limits.min, 127)):
            arrays = np.full((5, 304), a, dtype), np.full((304, 18), b, np.int8)
            case = dense.product(*arrays, limits.max if b < 0 else 0, 0, dense.SMALL)
            cases.append((case, 0, tile(16, 64, (16, 64), 3, 2)))
    check(cases, modes=ADVERSARIAL[:1])


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    random, found = np.random.default_rng(6), list[tuple[Case, int, Tile]]()
    for at in range(10):
        dtype = (np.uint8, np.int8)[at % 2]
        axis, case = 1, convolution(16 * int(random.integers(1, 5)), int(random.integers(20, 90)), 0, dtype)
        if at % 3:
            rows, depth = int(random.integers(2, 150)), 16 * int(random.integers(4, 40))
            axis, case = 0, product(rows, depth, int(random.integers(20, 150)), dtype, int(random.integers(0, 100)))
        options = cuda_sparse_wgmma_tiles(sparse(case, axis)[1], TARGET, "fp32")
        found.append((case, axis, options[random.integers(len(options))].tile))
    assert len({one for _, _, one in found}) > 6
    check(found, modes=ADVERSARIAL[:1])


@needs_double
def test_copies_that_land_early_or_late_are_waited_for() -> None:
    check([products()[2], products()[3]], modes=[MODES[0], MODES[3], MODES[4], MODES[7]])


@needs_double
@pytest.mark.parametrize("at", [2, 4])
def test_no_accesses_race_or_leave_their_tensors(at: int) -> None:
    check(products()[at : at + 1], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("_s8_u8(acc[i]", "_s8(acc[i]"),
        ("a_descriptor + 4", "a_descriptor + 2"),
        ("b_descriptor + i * 256 + 2", "b_descriptor + i * 256"),
        ("metadata_1[i], 1)", "metadata[i], 1)"),
        ("(group_n / 16 + warp % 4) * 256", "(group_n / 16 + warp % 4) * 128"),
        ("tw_wgmma_wait<0>();", ""),
        ("at[8] = acc[i][j * 4 + 2]", "at[8] = acc[i][j * 4 + 1]"),
        ("a_zero * b_sum[i][half]", "a_zero * b_sum[i][0]"),
        ("own[min(first_step, past_step) * 64]", "own[0]"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, one = lowered("k", product(40, 720, 72, zero=3), 0, tile(32, 64, (32, 64), 3, 3))
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


def test_it_is_offered_where_warpgroups_are_and_rows_are_copied_whole() -> None:
    _, workload = sparse(product(512, 512, 512, zero=3), 0)
    proposals = cuda_sparse_wgmma_tiles(workload, H200, "fp32")
    assert len(proposals) > 10
    assert {one.tile.algorithm for one in proposals} == {"sparse_wgmma_integer"}
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    for proposal in proposals[::4]:
        kernel = lower_cuda("k", workload, proposal.tile, H200)
        assert kernel.shared_bytes <= H200.block_shared_bytes
        assert proposal.share == pytest.approx(min(kernel.grid / H200.multiprocessors, 1.0))
    assert not cuda_sparse_wgmma_tiles(workload, A100, "fp32")
    assert not cuda_sparse_wgmma_tiles(workload_of(product(512, 512, 512)), H200, "fp32")
    assert not cuda_sparse_wgmma_tiles(sparse(product(512, 516, 512), 0)[1], H200, "fp32")
    assert not can_be_resident(proposals[0].tile)


def test_large_products_should_gain_beside_dense_warpgroups() -> None:
    _, workload = sparse(product(4096, 1024, 1024, zero=3), 0)
    tried = legal_tiles(workload, H200, 1, "fp32")
    names = ("wgmma_integer", "sparse_integer", "sparse_wgmma_integer")
    by_warpgroups, by_warps, best = (min(one.seconds for one in tried if one.tile.algorithm == name) for name in names)
    assert 0.5 < best / by_warpgroups < 0.95
    assert best < by_warps


@needs_nvrtc
def test_warpgroups_multiply_sparse_bytes_and_nothing_spills() -> None:
    wide = [
        (product(256, 512, 256, zero=3), 0, tile(128, 256, (128, 128), 3)),
        (product(256, 512, 256, np.int8, 3), 0, tile(256, 128, (256, 64), 3)),
        (product(256, 512, 256, zero=np.arange(256)), 0, tile(128, 128, (128, 128), 3)),
        *products()[3:6],
        *windows(),
    ]
    text = "\n".join(lowered(f"k{number}", *one)[1].text for number, one in enumerate(wide))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, "sm_90a")
    assert "warning" not in compiled.log
    assert compiled.losses == ()  # products stay asynchronous
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("IGMMA.SP.64x128x64.S8.U8", "IGMMA.SP.64x256x64.S8.S8", "UBLKCP"):
            assert instruction in code


@needs_nvrtc
def test_there_is_no_such_kernel_for_other_architectures() -> None:
    compiled = nvrtc.compile_cuda(PREAMBLE + lowered("only_here", *products()[0])[1].text, "sm_80")
    assert b"only_here" not in compiled.image
