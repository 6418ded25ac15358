"""Tiles of products on a GPU: legal ones, within what the device has, in the job's precision.

The model prefers what fills it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda.algorithms.contraction.tiles import cuda_contraction_tiles
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.products import costs
from compiler.devices.cuda.products.costs import Block
from compiler.devices.cuda.products.tiles import MOST_PROPOSALS
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.parse import parse_kernel

H200 = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
A100 = next(profile for profile in PROFILES if profile.name == "cuda:sm_80")
PRODUCT = """
kernel MatMul(in x: f32[{m}, {k}], in w: f32[{k}, {n}]; out y: f32[{m}, {n}])
  for i:{m}, j:{n}
    y[i, j] = {monoid}<f32> k:{k} . mul(x[i, k], w[k, j])
"""


def product(m: int, n: int, k: int, element: DType | None = DType.F16, monoid: str = "sum") -> Workload:
    kernel = parse_kernel(PRODUCT.format(m=m, n=n, k=k, monoid=monoid))
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    x, w, y = (replace(buffer, element=element) for buffer in buffers)
    return Workload(kernel, (x, w), (y,), (False, True))


def best(workload: Workload, precision: str, target: CudaTarget = H200) -> Tile:
    return cuda_contraction_tiles(workload, target, precision)[0].tile


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("element", "precision"), [(None, "fp32"), (None, "tf32"), (DType.F16, "fp16"), (DType.BF16, "bf16")]
)
def test_every_proposal_fits_the_device(target: CudaTarget, element: DType | None, precision: str) -> None:
    workload = product(200, 96, 400, element)
    proposals = cuda_contraction_tiles(workload, target, precision)
    assert 20 < len(proposals) <= MOST_PROPOSALS
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    for proposal in proposals:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


def test_the_precision_and_the_dtypes_in_memory_choose_how_to_multiply() -> None:
    def algorithms(element: DType | None, precision: str) -> set[str]:
        return {one.tile.algorithm for one in cuda_contraction_tiles(product(64, 64, 256, element), H200, precision)}

    assert algorithms(None, "fp32") == {"mma_3xtf32", "ffma"}
    assert algorithms(None, "tf32") == {"mma_tf32"}
    assert algorithms(None, "fp16") == {"mma_tf32"}
    for precision in ("fp32", "tf32", "fp16"):
        assert algorithms(DType.F16, precision) == {"mma"}


def test_k_is_split_where_tiles_are_few_and_k_is_long() -> None:
    for target, level in ((H200, "cluster"), (A100, "grid")):
        assert best(product(49, 512, 4608), "fp16", target).extent(level, "k", 1) > 1
    levels = {
        level.name for one in cuda_contraction_tiles(product(49, 512, 4608), A100, "fp16") for level in one.tile.levels
    }
    assert "cluster" not in levels
    many = best(product(12544, 256, 256), "fp16")
    assert many.extent("grid", "k", 1) == many.extent("cluster", "k", 1) == 1
    assert many.extent("block", "m") >= 64


def test_a_batch_1_product_keeps_a_third_of_the_multiprocessors_busy() -> None:
    for m, n, k in ((784, 128, 1152), (196, 256, 2304), (128, 768, 768), (1, 1000, 2048)):
        workload = product(m, n, k)
        assert lower_cuda("k", workload, best(workload, "fp16"), H200).grid >= H200.multiprocessors // 3


def test_what_is_no_sum_of_products_has_no_tiles() -> None:
    assert cuda_contraction_tiles(product(8, 8, 64, monoid="max"), H200, "fp16") == []


def test_the_model_counts_waves_and_steps() -> None:
    def seconds(m: int, k: int) -> float:
        return cuda_contraction_tiles(product(m, 256, k), H200, "fp16")[0].seconds

    assert seconds(3136, 64) < seconds(3136, 512) < seconds(3136, 4608)
    assert seconds(784, 512) < seconds(12544, 512) < seconds(50176, 512)
    assert 2e-6 < seconds(784, 64) < 5e-6


def test_products_that_differ_only_in_what_costs_nothing_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map behind the product is no part of the price.

    Its extents, the way its operands are read and the target are.
    """
    priced: list[Block] = []
    counted = costs.block_ns

    def block_ns(block: Block, target: CudaTarget) -> float:
        priced.append(block)
        return counted(block, target)

    monkeypatch.setattr(costs, "block_ns", block_ns)
    target = replace(H200, launch_ns=H200.launch_ns + 2)
    plain = product(72, 56, 264)
    mapped = parse_kernel(
        """
kernel Other(in x: f32[72, 264], in w: f32[264, 56]; temp t: f32[72, 56]; out y: f32[72, 56])
  for r:72, c:56
    t[r, c] = sum<f32> d:264 . mul(x[r, d], w[d, c])
    y[r, c] = max(t[r, c], 0.0:f32)
"""
    )
    proposals = cuda_contraction_tiles(plain, target, "fp16")
    once = len(priced)
    assert once > len(proposals) > 0
    assert cuda_contraction_tiles(replace(plain, kernel=mapped), target, "fp16") == proposals
    assert len(priced) == once
    for other, device in ((product(72, 56, 256), target), (product(72, 56, 264, None), target), (plain, A100)):
        before = len(priced)
        assert cuda_contraction_tiles(other, device, "fp16") != proposals
        assert len(priced) > before
