"""Tiles of products by warpgroups.

Only where target and operands allow them, within what the device has, best where products are large.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda.algorithms.contraction.tiles import cuda_contraction_tiles
from compiler.devices.cuda.algorithms.contraction.wgmma_tiles import cuda_wgmma_tiles
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.products.warpgroups import MOST_PROPOSALS, WARPGROUP_TILES
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.tuning.proposal import Proposal
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import H200, product
from tests.parse import parse_kernel


def tiles(workload: Workload, target: CudaTarget = H200, precision: str = "fp16") -> list[Proposal]:
    return cuda_wgmma_tiles(workload, target, precision)


@pytest.mark.parametrize(("m", "n", "k"), [(200, 96, 400), (128, 768, 3072), (3136, 64, 64), (4096, 1024, 1024)])
@pytest.mark.parametrize("element", [DType.F16, DType.BF16])
def test_every_proposal_fits_the_device(m: int, n: int, k: int, element: DType) -> None:
    workload = product(m, n, k, element)
    proposals = tiles(workload)
    assert 8 < len(proposals) <= MOST_PROPOSALS
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    for proposal in proposals:
        lowered = lower_cuda("k", workload, proposal.tile, H200)
        assert lowered.shared_bytes <= H200.block_shared_bytes
        assert lowered.block in (128, 256, 384)


def test_only_the_architecture_that_has_warpgroup_products_gets_them() -> None:
    workload = product(512, 768, 768)
    assert [target.name for target in PROFILES if tiles(workload, target)] == ["cuda:sm_90"]
    assert not tiles(workload, replace(H200, architecture="sm_90"))


def test_operands_are_of_16_bits_and_lie_in_whole_pieces_and_in_constants() -> None:
    assert tiles(product(512, 768, 768), precision="fp32"), "operands in fp16 are exact"
    assert not tiles(product(512, 768, 768, None))
    assert not tiles(product(512, 768, 772)), "rows of A are not aligned to 16 bytes"
    assert not tiles(replace(product(512, 768, 768), constant=(False, False)))
    assert not tiles(product(512, 768, 768, monoid="max"))


def test_a_constant_that_the_maps_read_as_well_is_not_packed() -> None:
    text = """
kernel "MatMul+Add"(in x: f32[512, 512], in w: f32[512, 512]; temp t: f32[]; out y: f32[512, 512])
  for i:512, j:512
    t[] = sum<f32> k:512 . mul(x[i, k], w[k, j])
    y[i, j] = add(t[], {other})
"""
    for other, there in (("x[i, j]", True), ("w[i, j]", False)):
        kernel = parse_kernel(text.format(other=other))
        buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
        x, w, y = (replace(buffer, element=DType.F16) for buffer in buffers)
        assert bool(tiles(Workload(kernel, (x, w), (y,), (False, True)))) is there


def test_block_tiles_are_shared_out_among_warpgroups() -> None:
    for m, n, part_m, part_n in WARPGROUP_TILES:
        assert (m % part_m, n % part_n, part_m % 64) == (0, 0, 0)
        assert part_m // 64 * part_n // 2 <= 128, "sums of a thread"


@pytest.mark.parametrize(
    ("m", "n", "k", "pays"),
    [
        *((4096, 3072, 768, True), (384, 3072, 768, True), (384, 768, 3072, True), (50176, 256, 576, True)),
        *((49, 2048, 512, False), (784, 128, 1152, False), (3136, 64, 64, False), (1, 1000, 2048, False)),
    ],
)
def test_the_model_prefers_warpgroups_where_products_are_large(m: int, n: int, k: int, pays: bool) -> None:
    workload = product(m, n, k)
    best, other = tiles(workload)[0], cuda_contraction_tiles(workload, H200, "fp16")[0]
    assert (best.seconds < other.seconds) is pays
