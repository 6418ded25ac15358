"""Which products are offered without what their columns leave out together, under which tiles, and what these take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.vector_sparse.tiles import cuda_vector_sparse_tiles
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.encodings.blocks import Blocks
from compiler.encodings.encoding import DENSE
from compiler.encodings.zeros import leaves_out
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType
from tests.compiler.devices.cuda.algorithms.test_contraction import convolution, workload_of
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import A100, H200, product
from tests.compiler.devices.cuda.algorithms.test_integer import SMALL
from tests.compiler.devices.cuda.algorithms.test_integer import product as byte_product
from tests.parse import parse_kernel

F16 = DType.F16


def keeping(workload: Workload, *blocks: Blocks) -> Workload:
    """The second operand is kept so."""
    others = ((DENSE,),) * (len(workload.inputs) - 2)
    return replace(workload, encodings=((DENSE,), (DENSE, *blocks), *others))


def in_columns(workload: Workload, group: int = 8, fills: tuple[int, ...] = (7, 10, 14)) -> Workload:
    """By panels of columns of a matrix [k, n]."""
    return keeping(workload, Blocks.of(1, 0, group, fills))


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("element", "precision", "names"),
    [
        (F16, "fp16", {"sparse_mma"}),
        (DType.BF16, "bf16", {"sparse_mma"}),
        (None, "tf32", {"sparse_mma_tf32"}),
        (None, "fp32", {"sparse_mma_3xtf32", "sparse_ffma"}),
    ],
)
def test_every_proposal_fits_the_device(
    target: CudaTarget, element: DType | None, precision: str, names: set[str]
) -> None:
    workload = keeping(
        product(200, 96, 400, element), Blocks.of(1, 0, 8, (20, 26, 40)), Blocks.of(1, 0, 1, (10, 16, 20))
    )
    proposals = cuda_vector_sparse_tiles(workload, target, precision)
    assert len(proposals) > 20
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    assert {one.tile.algorithm for one in proposals} <= names
    assert all(leaves_out(one.tile.algorithm) for one in proposals)
    for proposal in proposals[::6]:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


def of_bytes(rows: int, columns: int, depth: int, zero: int = 3, fills: tuple[int, ...] = (7, 10, 14)) -> Workload:
    """Unsigned bytes by signed ones that panels of columns keep in groups of 8."""
    zeros = np.zeros((rows, depth), np.uint8), np.zeros((depth, columns), np.int8)
    case = byte_product(*zeros, zero, 0, SMALL)
    others = ((DENSE,),) * (len(case.inputs) - 2)
    return replace(workload_of(case), encodings=((DENSE,), (DENSE, Blocks.of(1, 0, 8, fills)), *others))


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
def test_bytes_are_proposed_in_any_precision_as_the_device_has_room(target: CudaTarget) -> None:
    workload = of_bytes(200, 96, 400)
    proposals = cuda_vector_sparse_tiles(workload, target, "fp32")
    assert len(proposals) > 20
    assert proposals == cuda_vector_sparse_tiles(workload, target, "fp16")
    assert {one.tile.algorithm for one in proposals} == {"sparse_mma_integer"}
    for proposal in proposals[::6]:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


@pytest.mark.parametrize(("target", "most"), [(A100, 0.5), (H200, 0.65)], ids=["A100", "H200"])
def test_what_is_kept_of_bytes_decides_whether_zeros_are_left_out(target: CudaTarget, most: float) -> None:
    """On an H200 warpgroups multiply dense weights faster."""

    def ratio(fill: int) -> float:
        tried = legal_tiles(of_bytes(4096, 1024, 4096, fills=(fill, fill, fill)), target, 1, "fp32")
        best = min(one.seconds for one in tried if leaves_out(one.tile.algorithm))
        return best / min(one.seconds for one in tried if not leaves_out(one.tile.algorithm))

    assert ratio(3) < ratio(6) < ratio(16) < ratio(64)
    assert ratio(3) < most
    assert ratio(64) > 1


def test_sums_of_columns_cost_what_products_do() -> None:
    slow = replace(A100, mma_per_clock=A100.mma_per_clock // 16)
    best = [cuda_vector_sparse_tiles(of_bytes(4096, 1024, 4096, zero), slow, "fp32")[0].seconds for zero in (0, 3)]
    assert best[0] < best[1]


def test_unsigned_weights_and_those_with_a_zero_point_keep_their_zeros() -> None:
    for b_type, b_zero in ((np.uint8, 0), (np.int8, 5)):
        case = byte_product(np.zeros((64, 256), np.uint8), np.zeros((256, 64), b_type), 3, b_zero, SMALL)
        others = ((DENSE,),) * (len(case.inputs) - 2)
        known = (DENSE, Blocks.of(1, 0, 8, (7, 10, 14)))
        workload = replace(workload_of(case), encodings=((DENSE,), known, *others))
        assert not cuda_vector_sparse_tiles(workload, A100, "fp32")


def test_only_groups_along_k_of_packed_constants_are_taken() -> None:
    dense = product(64, 64, 256)
    assert cuda_vector_sparse_tiles(in_columns(dense), A100, "fp16")
    assert not cuda_vector_sparse_tiles(dense, A100, "fp16")
    assert not cuda_vector_sparse_tiles(keeping(dense, Blocks.of(0, 1, 8, (7, 10, 14))), A100, "fp16")
    assert not cuda_vector_sparse_tiles(in_columns(product(64, 64, 256, monoid="max")), A100, "fp16")


def test_groups_of_channels_are_neighbours_along_k_where_channels_are_innermost() -> None:
    last = workload_of(convolution(16, 24, (9, 9), (3, 3)))
    filters = Blocks.of(0, 1, 8, (7, 10, 14))
    assert cuda_vector_sparse_tiles(keeping(last, filters), A100, "fp16")
    assert not cuda_vector_sparse_tiles(keeping(last, Blocks.of(1, 0, 8, (7, 10, 14))), A100, "fp16")
    first = tuple(Buffer.whole(at, one.type) for at, one in enumerate(last.inputs))
    plain = replace(last, inputs=tuple(replace(one, element=F16) for one in first))
    assert not cuda_vector_sparse_tiles(keeping(plain, filters), A100, "fp16")  # k runs along the window's columns


SLICE = """
kernel Product(in x: f32[64, 128], in w: f32[16, 128, 64]; out y: f32[64, 64])
  for i:64, j:64
    y[i, j] = sum<f32> k:128 . mul(x[i, k], w[{at}, k, j])
"""


def test_a_part_of_a_constant_stays_dense_for_nothing_is_known_of_its_zeros() -> None:
    kernel = parse_kernel(SLICE.format(at=7))
    slots = (*kernel.inputs, *kernel.outputs)
    x, w, y = (replace(Buffer.whole(at, slot.type), element=F16) for at, slot in enumerate(slots))
    workload = Workload(kernel, (x, w), (y,), (False, True))
    assert not cuda_vector_sparse_tiles(keeping(workload, Blocks.of(2, 1, 8, (7, 10, 14))), A100, "fp16")


@pytest.mark.parametrize("target", [A100, H200], ids=lambda target: target.name)
@pytest.mark.parametrize(("element", "precision"), [(F16, "fp16"), (None, "tf32"), (None, "fp32")])
def test_what_is_kept_decides_whether_zeros_are_left_out(
    target: CudaTarget, element: DType | None, precision: str
) -> None:
    dense = product(4096, 1024, 4096, element)

    def ratio(fill: int) -> float:
        tried = legal_tiles(in_columns(dense, 8, (fill, fill, fill)), target, 1, precision)
        best = min(one.seconds for one in tried if leaves_out(one.tile.algorithm))
        return best / min(one.seconds for one in tried if not leaves_out(one.tile.algorithm))

    assert ratio(3) < ratio(6) < ratio(16) < ratio(64)
    assert ratio(3) < 0.5
    assert ratio(64) > 1


def test_large_groups_are_preferred_to_small_ones_that_keep_as_much() -> None:
    def best(group: int) -> float:
        return cuda_vector_sparse_tiles(in_columns(product(4096, 1024, 4096), group), A100, "fp16")[0].seconds

    assert best(8) < best(2) < best(1)
    both = keeping(product(4096, 1024, 4096), *(Blocks.of(1, 0, one, (7, 10, 14)) for one in (8, 1)))
    assert cuda_vector_sparse_tiles(both, A100, "fp16")[0].tile.extent("block", "group") == 8


def test_what_is_known_of_columns_is_in_the_text_of_a_workload() -> None:
    workload = in_columns(product(64, 64, 256))
    workload.verify()
    assert "blocks_1_0_8_7_10_14" in str(workload)
    assert parse_workload(str(workload)) == workload
