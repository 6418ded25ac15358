"""Independent kernels in one launch: which may share one, what that computes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from compiler.devices.cuda.codegen.entry import SM90, SM90A
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered, Frame, framed, unit_text
from compiler.devices.cuda.emit.launches import Launch, launches, scratch_offsets
from compiler.devices.cuda.emit.program import launched_kernels
from compiler.devices.cuda.emit.side_by_side import can_share, fit_together, side_by_side, slots_of
from compiler.devices.cuda.target import resolve
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.tile import Tile
from tests.compiler.devices.cuda.on_double import at_any_rank, needs_double
from tests.cuda_double.double import MODES, Device, compile_kernels
from tests.gpu import kernels
from tests.parse import parse_kernel

H200 = resolve("cuda:sm_90")
NEG = parse_kernel("kernel Neg(in t_x: f32[64]; out t_y: f32[64])\n  for i:64\n    t_y[i] = neg(t_x[i])\n")


def made(
    name: str,
    grid: int = 2,
    block: int = 32,
    body: str = "t_y[tile] = -t_x[tile];",
    *,
    shared_bytes: int = 0,
    scratch_bytes: int = 0,
    counters: int = 0,
    cluster: int = 1,
    waits: bool = False,
    resident: int = 0,
    condition: str = "",
    alone: bool = False,
) -> CudaLowered:
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*NEG.inputs, *NEG.outputs))]
    workload = Workload(NEG, (buffers[0],), (buffers[1],), (False,))
    return framed(
        name,
        workload,
        body.strip().splitlines(),
        Frame(
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            scratch_bytes=scratch_bytes,
            counters=counters,
            cluster=cluster,
            waits=waits,
            resident=resident,
            condition=condition,
            alone=alone,
        ),
    )


def test_blocks_are_dealt_to_the_members_in_order() -> None:
    body = "tw_grid_dependency_wait(); t_y[tile] = -t_x[tile];"
    first = made("k3_neg", 5, shared_bytes=100, scratch_bytes=256, counters=2)
    second, third = made("k30_neg", 4, 64, body=body, waits=True), made("k3_neg", 7, shared_bytes=900)
    both = side_by_side("s0_kernels", [first, second, third])
    assert (both.grid, both.block, both.shared_bytes, both.scratch_bytes, both.counters) == (16, 64, 900, 256, 2)
    assert both.cluster == 1
    assert (
        both.entry
        == """\
/* Side by side: k3_neg, k30_neg, k3_neg. */
extern "C" __global__ void __launch_bounds__(64) s0_kernels(const float *t_x_0, float *t_y_0, \
unsigned char *scratch_0, \
unsigned *counters_0, const float *t_x_1, float *t_y_1, const float *t_x_2, float *t_y_2) {
    tw_grid_launch_dependents();
    if (blockIdx.x < 5) {
        if (threadIdx.x >= 32) return;
        tw_grid_dependency_wait();
        k3_neg_tile(t_x_0, t_y_0, scratch_0, counters_0, tw_dynamic_shared(), blockIdx.x);
    }
    else if (blockIdx.x < 9) {
        k30_neg_tile(t_x_1, t_y_1, blockIdx.x - 5);
    }
    else {
        if (threadIdx.x >= 32) return;
        tw_grid_dependency_wait();
        k3_neg_tile(t_x_2, t_y_2, tw_dynamic_shared(), blockIdx.x - 9);
    }
}
"""
    )
    assert both.text.endswith(both.entry)


def test_a_unit_defines_each_tile_function_once() -> None:
    first, second, alone = made("k0_neg"), made("k1_neg"), made("k2_neg", body="t_y[blockIdx.x] = 0;")
    kernels = [
        first,
        side_by_side("s0_kernels", [first, second, first]),
        side_by_side("s1_kernels", [first] * 2),
        alone,
    ]
    text = unit_text(kernels)
    assert all(text.count(f"void {name}_tile(") == 1 for name in ("k0_neg", "k1_neg", "k2_neg"))
    assert all(text.count(f") {kernel.name}(") == 1 for kernel in kernels)
    assert kernels[1].text.count("__global__") == 1


def test_clusters_begin_where_the_gpus_do_and_the_last_is_filled_up() -> None:
    four, alone = made("k0_neg", 8, cluster=4), made("k1_neg", 3)
    both = side_by_side("s0_kernels", [four, alone])
    assert (both.grid, both.cluster) == (12, 4)
    assert "else if (blockIdx.x < 11) {" in both.entry
    assert "else {" not in both.entry
    with pytest.raises(AssertionError):
        side_by_side("s0_kernels", [alone, four])


def test_what_not_every_architecture_has_stays_under_its_condition() -> None:
    some, other = made("k0_neg", condition=SM90), made("k1_neg")
    assert (some.tiles[0].text[:12], some.entry[:12]) == ("#if TW_SM90\n",) * 2
    both = side_by_side("s0_kernels", [other, some])
    assert both.text.count("#if TW_SM90\n") == 2
    assert (other.needs, some.needs, both.needs) == ("", SM90, SM90)
    assert both.waits


def test_the_members_that_need_most_registers_decide_how_many_blocks_are_to_fit() -> None:
    members = [made("k0_neg"), made("k1_neg", resident=3), made("k2_neg", resident=2)]
    assert "__launch_bounds__(32, 2) s0_kernels(" in side_by_side("s0_kernels", members).text
    assert "__launch_bounds__(32) s1_kernels(" in side_by_side("s1_kernels", members[:1] * 2).text


WAVE = H200.multiprocessors * 16
"""Blocks of 32 threads with 128 registers at a time."""


@pytest.mark.parametrize(
    ("one", "other", "fit"),
    [
        ({}, {}, True),
        ({}, {"block": 256}, True),
        ({}, {"block": 48}, False),
        ({}, {"cluster": 2}, True),
        ({"cluster": 4}, {"cluster": 2}, False),
        ({"condition": SM90}, {}, True),
        ({"condition": SM90}, {"condition": SM90A}, False),
        ({"grid": 0}, {}, False),
        ({}, {"body": "t_y[blockIdx.x] = gridDim.x;", "alone": True}, False),
        ({}, {"body": "tw_registers_increase<200>();", "alone": True}, False),
        # registers: 128 for 512 threads, 64 for 1024
        ({"resident": 1}, {"block": 256}, True),
        ({"resident": 1}, {"block": 512}, False),
        ({"block": 512, "resident": 1}, {"block": 512, "resident": 1}, True),
        ({}, {"block": 512}, True),
        ({}, {"block": 1024}, False),
        ({"block": 1024}, {"block": 1024}, True),
        # waves: a small kernel beside one that fills the GPU, two that fill it, one that would leave room for few of
        # the other's blocks
        ({}, {"grid": WAVE - 2}, True),
        ({}, {"grid": WAVE}, True),
        ({"grid": WAVE}, {"grid": WAVE}, True),
        ({"shared_bytes": 200 * 1024}, {"grid": H200.multiprocessors - 2}, True),
        ({"shared_bytes": 200 * 1024}, {"grid": 2 * H200.multiprocessors}, False),
    ],
)
def test_kernels_share_a_launch_where_they_can_and_where_they_gain(
    one: dict[str, Any], other: dict[str, Any], fit: bool
) -> None:
    first, second = made("k0_neg", **one), made("k1_neg", **other)
    assert fit_together([first, second], H200) is fit
    assert fit_together([second, first], H200) is fit


def test_a_launch_is_given_no_more_pointers_than_a_kernel_takes() -> None:
    members = [made("k0_neg", 1)] * 256
    assert fit_together(members, H200)
    assert not can_share([*members, members[0]])


def test_equal_groups_share_one_kernel() -> None:
    lowered = [made("k0_neg"), made("k1_neg"), made("k0_neg"), made("k1_neg"), made("k0_neg")]
    nodes = [Launch((0, 1), ()), Launch((2, 3), (0,)), Launch((4,), (1,))]
    one, two, three = launched_kernels(nodes, lowered)
    assert one is two
    assert three == lowered[4]


def test_calls_of_one_launch_have_scratch_of_their_own() -> None:
    tasks = tuple(Task(call, 0, 0, 2, beside=call in (1, 3)) for call in range(5))
    plan = Plan(1, tasks, ((Tile("loops"), 2),) * 5, {}, 0, "shared launches")
    lowered = [made(f"k{at}_neg", scratch_bytes=100 * at) for at in range(5)]
    assert scratch_offsets(plan, lowered, launches(plan, lowered)) == ([0, 0, 0, 256, 0], 768)


def test_blocks_fill_a_part_of_what_the_device_holds_at_once() -> None:
    assert slots_of([made("k0_neg", WAVE // 2)], H200) == 0.5
    assert slots_of([made("k0_neg", WAVE // 2), made("k1_neg", WAVE // 4)], H200) == 0.75
    assert slots_of([made("k0_neg", 3 * WAVE)], H200) == 1.0
    wide = made("k0_neg", H200.multiprocessors // 2, shared_bytes=200 * 1024)
    assert slots_of([wide], H200) == 0.5


def test_a_kernel_that_asks_for_a_cluster_without_having_one_is_refused() -> None:
    with pytest.raises(AssertionError, match="k0_neg asks for a cluster and has none of its own"):
        made("k0_neg", body="tw_cluster_arrive();")
    assert made("k0_neg", body="tw_cluster_arrive();", cluster=2).tiles


@needs_double
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_kernels_without_clusters_mean_the_same_at_every_rank_of_one(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every algorithm that can share a launch, its cheapest tile beside a kernel with clusters."""
    monkeypatch.setattr(kernels, "NETWORKS", (("tiny_mobile", {}), ("tiny_transformer", {}), ("tiny_lstm", {})))
    monkeypatch.setattr(kernels, "MOST_POINTS", 2**17)
    monkeypatch.setattr(kernels, "TILES", 2)
    kernels._workloads.cache_clear()
    try:
        found: dict[str, kernels.Subject] = {}
        for subject in kernels.subjects(H200, precision):
            is_new = subject.tile.algorithm not in found
            if is_new and subject.lowered.cluster == 1 and can_share([subject.lowered]):
                found[subject.tile.algorithm] = subject
    finally:
        kernels._workloads.cache_clear()
    assert {"loops", "gemv", "window", "ffma" if precision == "fp32" else "mma"} <= found.keys()
    subjects = [replace(one, lower=partial(at_any_rank, one.lowered)) for one in found.values()]
    module = compile_kernels(PREAMBLE + "\n".join(subject.lowered.text for subject in subjects))
    for mode in MODES[2:4]:
        with Device(module, mode) as device:
            for subject in subjects:
                for outcome in kernels.run(device, subject):
                    assert outcome.error <= outcome.tolerance, subject


SWAPPED = """
float *const own = (float *)shared;
own[threadIdx.x] = t_x[32 * tile + threadIdx.x];
tw_cluster_arrive();
tw_cluster_wait();
const float *const other = (const float *)tw_cluster_map(own, 1 - tile % 2);
t_y[32 * tile + threadIdx.x] = -other[threadIdx.x];
tw_cluster_arrive();
tw_cluster_wait();
"""
TURNED = """
float *const values = (float *)shared;
values[threadIdx.x] = t_x[threadIdx.x];
if (__syncthreads_and(1)) t_y[threadIdx.x] = -values[63 - threadIdx.x];
"""


@needs_double
@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_a_launch_holds_clusters_and_blocks_of_unequal_sizes(flavour: str) -> None:
    """A cluster whose blocks swap what they read, a block that reverses it, and two that take an element a thread."""
    members = [
        made("k0_neg", 2, 32, SWAPPED, cluster=2, shared_bytes=128),
        made("k1_neg", 1, 64, TURNED, shared_bytes=256),
        made("k2_neg", 2, 32, "t_y[32 * tile + threadIdx.x] = -t_x[32 * tile + threadIdx.x];"),
    ]
    assert fit_together(members, H200)
    kernel = side_by_side("s0_kernels", members)
    assert (kernel.grid, kernel.block, kernel.cluster) == (6, 64, 2)
    module = compile_kernels(unit_text([kernel]), flavour)
    x = np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32)
    for mode in MODES:
        with Device(module, mode) as device:
            outputs = [device.allocate(256) for _ in range(3)]
            arguments = [given for at in range(3) for given in (device.upload(x[at]), outputs[at])]
            device.launch(kernel.name, [kernel.grid], [kernel.block], arguments, kernel.shared_bytes, [kernel.cluster])
            swapped, turned, plain = (device.download(output, (64,), np.float32) for output in outputs)
            np.testing.assert_array_equal(swapped, -np.roll(x[0], 32))
            np.testing.assert_array_equal(turned, -x[1][::-1])
            np.testing.assert_array_equal(plain, -x[2])
