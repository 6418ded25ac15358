"""Which products sparse tensor cores are offered for, under which tiles, and what these should take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.sparse.tiles import cuda_sparse_tiles
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.encodings.encoding import DENSE
from compiler.encodings.two_of_four import TwoOfFour
from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType, Layout
from tests.compiler.devices.cuda.algorithms.test_contraction import convolution, workload_of
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import A100, H200, product
from tests.compiler.devices.cuda.algorithms.test_integer import SMALL
from tests.compiler.devices.cuda.algorithms.test_integer import convolution as byte_convolution
from tests.compiler.devices.cuda.algorithms.test_integer import product as byte_product
from tests.compiler.devices.cuda.on_double import workload_of as dense_workload_of
from tests.parse import parse_kernel

L4 = next(one for one in PROFILES if one.name == "cuda:sm_89")


def along(workload: Workload, axis: int) -> Workload:
    """The second operand is zero at two of each four places along a dimension."""
    others = ((DENSE,),) * (len(workload.inputs) - 2)
    return replace(workload, encodings=((DENSE,), (DENSE, TwoOfFour.of(axis)), *others))


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize(("element", "precision"), [(DType.F16, "fp16"), (DType.BF16, "bf16")])
def test_every_proposal_fits_the_device(target: CudaTarget, element: DType, precision: str) -> None:
    workload = along(product(200, 96, 400, element), 0)
    proposals = cuda_sparse_tiles(workload, target, precision)
    assert len(proposals) > 20
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    for proposal in proposals[::6]:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


def test_only_groups_along_k_of_packed_constants_in_16_bits_are_taken() -> None:
    workload = along(product(64, 64, 256), 0)
    assert cuda_sparse_tiles(workload, A100, "fp16")
    assert not cuda_sparse_tiles(along(product(64, 64, 256), 1), A100, "fp16")
    assert not cuda_sparse_tiles(product(64, 64, 256), A100, "fp16")
    assert not cuda_sparse_tiles(along(product(64, 64, 256, None), 0), A100, "fp32")
    assert not cuda_sparse_tiles(along(product(64, 64, 256, None), 0), A100, "tf32")
    assert cuda_sparse_tiles(workload, A100, "fp32")  # halves in the model itself: nothing is rounded beyond them
    extremes = along(product(64, 64, 256, monoid="max"), 0)
    assert not cuda_sparse_tiles(extremes, A100, "fp16")


def test_groups_of_channels_are_neighbours_along_k_where_channels_are_innermost() -> None:
    last = workload_of(convolution(16, 24, (9, 9), (3, 3)))
    assert cuda_sparse_tiles(along(last, 1), A100, "fp16")
    assert not cuda_sparse_tiles(along(last, 0), A100, "fp16")
    first = tuple(Buffer.whole(at, one.type, Layout.plain(one.type.rank)) for at, one in enumerate(last.inputs))
    plain = replace(last, inputs=tuple(replace(one, element=DType.F16) for one in first))
    assert not cuda_sparse_tiles(along(plain, 1), A100, "fp16")  # k runs along the window's columns


DIAGONALS = """
kernel Product(in x: f32[64, 128], in w: f32[16, 128, 128]; out y: f32[64, 16])
  for i:64, j:16
    y[i, j] = sum<f32> k:128 . mul(x[i, k], w[j, {index}])
"""


@pytest.mark.parametrize(("index", "groups"), [("7, k", True), ("k, 7", False), ("k, k", False)])
def test_neighbours_along_k_are_those_of_one_dimension_alone(index: str, groups: bool) -> None:
    kernel = parse_kernel(DIAGONALS.format(index=index))
    slots = (*kernel.inputs, *kernel.outputs)
    x, w, y = (replace(Buffer.whole(at, slot.type), element=DType.F16) for at, slot in enumerate(slots))
    workload = Workload(kernel, (x, w), (y,), (False, True))
    assert bool(cuda_sparse_tiles(along(workload, 2), A100, "fp16")) == groups


TWICE = """
kernel "MatMul+Add"(in x: f32[64, 128], in w: f32[128, 64]; temp t: f32[]; out y: f32[64, 64])
  for i:64, j:64
    t[] = sum<f32> k:128 . mul(x[i, k], w[k, j])
    y[i, j] = add(t[], w[j, i])
"""


def test_weights_that_are_read_elsewhere_stay_dense() -> None:
    kernel = parse_kernel(TWICE)
    x, w, y = (
        replace(Buffer.whole(at, slot.type), element=DType.F16)
        for at, slot in enumerate((*kernel.inputs, *kernel.outputs))
    )
    assert not cuda_sparse_tiles(along(Workload(kernel, (x, w), (y,), (False, True)), 0), A100, "fp16")


@pytest.mark.parametrize("target", [A100, H200], ids=lambda target: target.name)
def test_large_products_should_gain_and_single_rows_not(target: CudaTarget) -> None:
    def ratio(rows: int, columns: int, depth: int) -> float:
        dense = product(rows, columns, depth)
        tried = legal_tiles(along(dense, 0), target, 1, "fp16")
        best = min(one.seconds for one in tried if one.tile.algorithm == "sparse")
        return best / min(one.seconds for one in legal_tiles(dense, target, 1, "fp16"))

    assert 0.5 < ratio(2048, 768, 3072) < 0.95
    assert ratio(1, 768, 768) > 1


def of_bytes(rows: int, depth: int, columns: int, a_zero: int = 0, b_zero: int = 0, dtype: type = np.int8) -> Workload:
    """A product of unsigned bytes by constant weights that are zero at two of each four places along k."""
    weights: np.ndarray = np.zeros((depth, columns), dtype)
    return along(dense_workload_of(byte_product(np.zeros((rows, depth), np.uint8), weights, a_zero, b_zero, SMALL)), 0)


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize("zero", [0, 3])
def test_every_proposal_for_bytes_fits_the_device(target: CudaTarget, zero: int) -> None:
    workload = of_bytes(200, 400, 96, zero)
    proposals = cuda_sparse_tiles(workload, target, "fp32")
    assert len(proposals) > 20
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert {one.tile.algorithm for one in proposals} == {"sparse_integer"}
    for proposal in proposals[::6]:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


def test_only_signed_weights_with_a_zero_point_of_0_are_taken_among_bytes() -> None:
    assert cuda_sparse_tiles(of_bytes(64, 256, 64), A100, "fp32")
    assert not cuda_sparse_tiles(of_bytes(64, 256, 64, b_zero=1), A100, "fp32")
    assert not cuda_sparse_tiles(of_bytes(64, 256, 64, dtype=np.uint8), A100, "fp32")
    assert not cuda_sparse_tiles(of_bytes(64, 254, 64), A100, "fp32")  # no whole groups along k
    dense = replace(of_bytes(64, 256, 64), encodings=())
    assert not cuda_sparse_tiles(dense, A100, "fp32")
    assert not cuda_sparse_tiles(along(dense, 1), A100, "fp32")
    assert {one.tile.algorithm for one in legal_tiles(of_bytes(64, 256, 64), A100, 1, "fp32")} >= {
        "integer",
        "sparse_integer",
    }


def test_bytes_that_are_padded_with_a_zero_point_are_not_copied_ahead() -> None:
    for zero, most in ((0, 6), (7, 2)):
        case = byte_convolution(64, 64, zero, SMALL)
        at = max(case.constant, key=lambda one: case.inputs[one].size)
        encodings = tuple((DENSE, *[TwoOfFour.of(1)] * (one == at)) for one in range(len(case.inputs)))
        proposals = cuda_sparse_tiles(replace(dense_workload_of(case), encodings=encodings), A100, "fp32")
        assert max(one.tile.extent("block", "stages") for one in proposals) == most


@pytest.mark.parametrize("target", [A100, H200], ids=lambda target: target.name)
def test_large_products_of_bytes_should_gain(target: CudaTarget) -> None:
    tried = legal_tiles(of_bytes(4096, 4096, 1024), target, 1, "fp32")
    sparse, dense = (
        min(one.seconds for one in tried if one.tile.algorithm == name) for name in ("sparse_integer", "integer")
    )
    assert 0.5 < sparse / dense < 0.95


def test_sums_of_weights_take_time() -> None:
    without, summed = (
        {one.tile: one.seconds for one in cuda_sparse_tiles(of_bytes(4096, 4096, 1024, zero), L4, "fp32")}
        for zero in (0, 3)
    )
    both = without.keys() & summed.keys()
    assert all(without[tile] <= summed[tile] for tile in both)
    assert any(without[tile] < summed[tile] for tile in both)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_workload_whose_weights_have_no_such_groups_is_none(axis: int) -> None:
    workload = along(product(64, 30, 256), axis)
    text = str(workload)
    assert parse_workload(text) == workload
    if axis == 0:
        workload.verify()
        return
    with pytest.raises(VerifyError, match=f"is encoded as two_of_four_{axis}"):
        workload.verify()
