"""Tiles of squeeze and excitation on a GPU: legal ones.

The model shares out what there is much of, and counts what a launch less saves.
"""

from __future__ import annotations

import pytest

from compiler.devices.cuda.algorithms.excitation.tiles import cuda_excitation_tiles
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES, CudaTarget
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.fuse.storage import with_storage
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.fuse.excitations import excitation

A100, H200 = (next(profile for profile in PROFILES if profile.name == name) for name in ("cuda:sm_80", "cuda:sm_90"))


def workloads(channels: int, hidden: int, size: int, after: str = "") -> tuple[Workload, ...]:
    """A squeeze and excitation as one call, then its three."""
    graph = excitation(channels, hidden, (size, size), after=after)
    kernels = with_storage(fuse(graph).kernels, DType.F16)
    join = next(one for one in joins(kernels) if one.kind == "excitation")
    return tuple(cuda_workload_of(kernels, call) for call in (join.call, *(kernels.calls[at] for at in join.calls)))


def best(channels: int, hidden: int, size: int, target: CudaTarget = H200) -> Tile:
    return cuda_excitation_tiles(workloads(channels, hidden, size)[0], target, "fp16")[0].tile


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize(("channels", "hidden", "size"), [(32, 8, 112), (144, 6, 28), (960, 240, 7), (66, 5, 9)])
def test_every_proposal_fits_the_device(channels: int, hidden: int, size: int, target: CudaTarget) -> None:
    workload = workloads(channels, hidden, size)[0]
    proposals = cuda_excitation_tiles(workload, target, "fp16")
    assert len(proposals) > 10
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    assert len({one.tile for one in proposals}) == len(proposals)
    for proposal in proposals:
        lowered = lower_cuda("k", workload, proposal.tile, target)
        assert lowered.shared_bytes <= target.block_shared_bytes
        assert lowered.cluster in (1, 2, 4, 8)
        assert lowered.cluster == 1 or target.capability >= (9, 0)


@pytest.mark.parametrize(("channels", "hidden", "size"), [(96, 4, 56), (480, 20, 14), (672, 168, 7), (1152, 48, 7)])
def test_layers_of_mobile_networks_are_cheaper_as_one_kernel(channels: int, hidden: int, size: int) -> None:
    joined, *apart = (propose(one, H200, 1, precision="fp16")[0] for one in workloads(channels, hidden, size))
    assert joined.tile.algorithm == "excitation"
    assert joined.seconds < sum(one.seconds for one in apart)
    assert joined.seconds > max(one.seconds for one in apart)


def test_without_clusters_many_hidden_units_are_too_much_for_the_last_block() -> None:
    for hidden, pays in ((20, True), (240, False)):
        joined, *apart = (propose(one, A100, 1, precision="fp16")[0].seconds for one in workloads(480, hidden, 14))
        assert (joined < sum(apart)) is pays


def test_blocks_share_out_positions_of_large_images_and_channels_of_deep_ones() -> None:
    assert best(32, 8, 112).extent("cluster", "positions") == 8
    assert best(1152, 48, 7).extent("cluster", "channels") == 8


def test_without_clusters_many_blocks_read_a_large_image() -> None:
    large = best(32, 8, 112, A100)
    assert large.extent("grid", "channels") * large.extent("grid", "positions") > 8


def test_positions_are_not_shared_out_where_parts_do_not_add_up() -> None:
    options = cuda_excitation_tiles(workloads(96, 8, 28, "Tanh")[0], H200, "fp16")
    parts = {level.name: dict(level.extents)["positions"] for one in options for level in one.tile.levels[:1]}
    assert set(parts.values()) == {1}


def test_the_kernels_apart_are_left_to_others() -> None:
    apart = workloads(96, 8, 14)[1:]
    assert apart
    for workload in apart:
        assert not cuda_excitation_tiles(workload, H200, "fp16")
