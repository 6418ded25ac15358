"""Tiles of separable convolutions on a GPU: legal ones in the job's precision.

The model counts what is computed twice, and what is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.devices.cuda.algorithms.separable.tiles import cuda_separable_tiles
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.products import costs
from compiler.devices.cuda.products.costs import Block
from compiler.devices.cuda.products.tiles import MOST_PROPOSALS
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.fuse.storage import with_storage
from compiler.ir.graph import Graph
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal
from tests.compiler.rewrite.sketch import Sketch

H200 = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
ELEMENTS = {"fp32": None, "tf32": None, "fp16": DType.F16, "bf16": DType.BF16}


def separable(channels: int, columns: int, size: int, window: str = "Conv", taps: int = 3) -> Graph:
    s = Sketch(1, DType.F32)
    y = s("Conv", s.x(1, channels, size, size), s.normal(channels, channels, 1, 1))
    shape = {"kernel_shape": (taps, taps), "pads": (taps // 2,) * 4}
    if window == "Conv":
        y = s("Conv", y, s.normal(channels, 1, taps, taps), s.normal(channels), group=channels, **shape)
    else:
        y = s(window, y, **shape)
    y = s("Conv", s("Relu", y), s.normal(columns, channels, 1, 1), s.normal(columns))
    return s.graph(s("Conv", y, s.normal(columns, columns, 1, 1)))


def workloads(graph: Graph, precision: str) -> tuple[Workload, Sequence[Workload]]:
    """A graph's one join, and the calls that it would replace."""
    kernels, element = fuse(graph).kernels, ELEMENTS[precision]
    kernels = with_storage(kernels, element) if element else kernels
    (join,) = joins(kernels)
    return cuda_workload_of(kernels, join.call), [
        cuda_workload_of(kernels, kernels.calls[position]) for position in join.calls
    ]


def tiles(graph: Graph, precision: str = "fp16", target: CudaTarget = H200) -> list[Proposal]:
    return cuda_separable_tiles(workloads(graph, precision)[0], target, precision)


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize("precision", ELEMENTS)
def test_every_proposal_fits_the_device(target: CudaTarget, precision: str) -> None:
    workload, _ = workloads(separable(160, 96, 14), precision)
    proposals = cuda_separable_tiles(workload, target, precision)
    assert 20 < len(proposals) <= MOST_PROPOSALS
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    for proposal in proposals:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.block <= 256


def test_the_precision_and_the_dtype_of_the_weights_choose_how_to_multiply() -> None:
    def algorithms(channels: int, precision: str) -> set[str]:
        return {one.tile.algorithm for one in tiles(separable(channels, 64, 14), precision)}

    assert algorithms(64, "fp32") == {"separable_3xtf32", "separable_ffma"}
    assert algorithms(64, "tf32") == {"separable_tf32"}
    assert algorithms(64, "fp16") == {"separable"}
    assert algorithms(64, "bf16") == {"separable"}
    assert algorithms(8, "fp16") == {"separable_tf32"}, "512 weights stay in fp32"


@pytest.mark.parametrize("channels", [66, 72])
def test_channels_are_copied_by_as_many_bytes_as_their_number_allows(channels: int) -> None:
    workload, _ = workloads(separable(channels, 64, 14), "fp16")
    best = cuda_separable_tiles(workload, H200, "fp16")[:3]
    assert best
    for proposal in best:
        nbytes = {66: 4, 72: 16}[channels]
        assert (
            f"tw_cp_async_{nbytes}(into + piece * {nbytes}, inside ?"
            in lower_cuda("k", workload, proposal.tile, H200).text
        )


def test_what_has_another_form_is_left_to_others() -> None:
    assert tiles(separable(64, 64, 14, "AveragePool"))
    assert not tiles(separable(64, 64, 14, "MaxPool")), (
        "a maximum has another identity than the zeros around an operand"
    )
    assert not tiles(separable(65, 64, 14)), "rows of 65 elements of two bytes cannot be copied"
    assert not cuda_separable_tiles(workloads(separable(64, 64, 14), "fp16")[1][1], H200, "fp16")


@pytest.mark.parametrize(("channels", "columns", "size"), [(384, 64, 14), (960, 320, 7), (144, 24, 56)])
def test_a_layer_of_a_mobile_network_is_cheaper_as_one_kernel(channels: int, columns: int, size: int) -> None:
    joined, apart = workloads(separable(channels, columns, size), "fp16")
    seconds = [propose(workload, H200, 1, precision="fp16")[0].seconds for workload in (joined, *apart)]
    assert seconds[0] < sum(seconds[1:])
    assert seconds[0] > max(seconds[1:])


def test_columns_that_a_block_does_not_have_cost_the_window_again() -> None:
    joined, (_, product) = workloads(separable(256, 256, 28, taps=5), "fp16")
    wide, narrow = (propose(workload, H200, 1, precision="fp16")[0].tile for workload in (joined, product))
    assert wide.extent("block", "n") == 256
    assert narrow.extent("block", "n") < 128


def test_channels_are_split_where_pixels_are_few() -> None:
    def parts(tile: Tile) -> int:
        return tile.extent("grid", "k", 1) * tile.extent("cluster", "k", 1)

    assert parts(tiles(separable(960, 160, 7))[0].tile) > 1
    assert parts(tiles(separable(64, 64, 112))[0].tile) == 1


def test_joins_that_differ_only_in_what_costs_nothing_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strides of the operand are no part of the price; the taps of the window are."""
    priced: list[Block] = []
    counted = costs.block_ns

    def block_ns(block: Block, target: CudaTarget) -> float:
        priced.append(block)
        return counted(block, target)

    monkeypatch.setattr(costs, "block_ns", block_ns)
    target = replace(H200, launch_ns=H200.launch_ns + 1)
    first, _ = workloads(separable(72, 56, 12), "fp16")
    again, _ = workloads(separable(72, 56, 12, taps=5), "fp16")
    proposals = cuda_separable_tiles(first, target, "fp16")
    once = len(priced)
    assert once > len(proposals) > 0

    wider = tuple(
        replace(buffer, strides=tuple(2 * stride if stride > 72 else stride for stride in buffer.strides))
        if not constant and buffer.type.rank == 4
        else buffer
        for buffer, constant in zip(first.inputs, first.constant, strict=True)
    )
    apart = replace(first, inputs=wider)
    assert apart != first
    assert cuda_separable_tiles(apart, target, "fp16") == proposals
    assert len(priced) == once
    assert cuda_separable_tiles(again, target, "fp16") != proposals
    assert len(priced) > once
