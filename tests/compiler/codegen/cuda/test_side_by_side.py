"""Independent kernels in one launch: which may share one, what that computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.codegen.cuda import launches
from compiler.codegen.cuda.emit import launched_kernels, lower_cuda_calls
from compiler.codegen.cuda.launches import Launch, merged, scratch_offsets
from compiler.codegen.cuda.lowered import CudaLowered, framed
from compiler.codegen.cuda.side_by_side import fit_together, independent, side_by_side
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.parse import parse_kernel, parse_kernel_graph
from compiler.ir.plan import Plan
from compiler.targets.cuda import resolve
from tests.compiler.codegen.cuda.artifact_on_double import artifact_of, on_double, plan_of
from tests.compiler.codegen.cuda.on_double import needs_double
from tests.compiler.codegen.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.networks import Network, graph_of
from tests.cuda_double.double import MODES

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
) -> CudaLowered:
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*NEG.inputs, *NEG.outputs))]
    workload = Workload(NEG, (buffers[0],), (buffers[1],), (False,))
    return framed(
        name,
        workload,
        [body],
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        scratch_bytes=scratch_bytes,
        counters=counters,
        cluster=cluster,
        waits=waits,
        resident=resident,
    )


def test_blocks_are_dealt_to_the_members_in_order() -> None:
    body = "tw_grid_dependency_wait(); t_y[tile] = -t_x[tile];"
    first = made("k3_neg", 5, shared_bytes=100, scratch_bytes=256, counters=2)
    second, third = made("k30_neg", 4, body=body, waits=True), made("k3_neg", 7, shared_bytes=900)
    both = side_by_side("s0_kernels", [first, second, third])
    assert (both.grid, both.block, both.shared_bytes, both.scratch_bytes, both.counters) == (16, 32, 900, 256, 2)
    assert (
        both.text[both.text.index("/* Side by side") :]
        == """\
/* Side by side: k3_neg, k30_neg, k3_neg. */
extern "C" __global__ void __launch_bounds__(32) s0_kernels(const float *t_x_0, float *t_y_0, unsigned char *scratch_0, \
unsigned *counters_0, const float *t_x_1, float *t_y_1, const float *t_x_2, float *t_y_2) {
    tw_grid_launch_dependents();
    if (blockIdx.x < 5) {
        tw_grid_dependency_wait();
        s0_kernels_0_k3_neg_tile(t_x_0, t_y_0, scratch_0, counters_0, tw_dynamic_shared(), blockIdx.x);
    }
    else if (blockIdx.x < 9) {
        s0_kernels_1_k30_neg_tile(t_x_1, t_y_1, blockIdx.x - 5);
    }
    else {
        tw_grid_dependency_wait();
        s0_kernels_2_k3_neg_tile(t_x_2, t_y_2, tw_dynamic_shared(), blockIdx.x - 9);
    }
}
"""
    )
    for name in ("s0_kernels_0_k3_neg_tile", "s0_kernels_1_k30_neg_tile", "s0_kernels_2_k3_neg_tile"):
        assert both.text.count(f"void {name}(") == 1
    assert both.text.count("__global__") == 1


def test_the_members_that_need_most_registers_decide_how_many_blocks_are_to_fit() -> None:
    members = [made("k0_neg"), made("k1_neg", resident=3), made("k2_neg", resident=2)]
    assert "__launch_bounds__(32, 2) s0_kernels(" in side_by_side("s0_kernels", members).text
    assert "__launch_bounds__(32) s1_kernels(" in side_by_side("s1_kernels", members[:1] * 2).text


def test_what_cannot_share_a_launch() -> None:
    good = made("k0_neg")
    assert fit_together([good, made("k1_neg", 2 * H200.multiprocessors - 2)], H200)
    for other in (
        made("k1_neg", 2 * H200.multiprocessors),
        made("k1_neg", block=64),
        made("k1_neg", cluster=2),
        made("k1_neg", shared_bytes=200 * 1024),
        made("k1_neg", body="t_y[blockIdx.x] = gridDim.x;"),
        replace(good, text=f"#if TW_SM90A\n{good.text}#endif\n"),
        replace(good, text=good.text.replace("tw_grid_launch_dependents();\n", "")),
    ):
        assert not fit_together([good, other], H200)
    assert not fit_together([made(f"k{at}_neg") for at in range(30)], H200)


GRAPH = """
kernels(b0) -> (b4, b5)
  b0: f32[64] plain
  b1: f32[64] plain
  b2: f32[64] plain
  b3: f32[64] plain
  b4: f32[64] plain
  b5: f32[64] plain
  k0: kernel Neg(in x: f32[64]; out y: f32[64])
    for i:64
      y[i] = neg(x[i])
  b1 = k0(b0)
  b2 = k0(b0)
  b3 = k0(b1)
  b4 = k0(b2)
  b5 = k0(b3)
"""


@pytest.fixture
def graph() -> tuple[KernelGraph, Plan]:
    kernels = parse_kernel_graph(GRAPH)
    return kernels, plan_of(kernels, H200)


def test_calls_are_independent_unless_one_reads_what_the_other_writes(graph: tuple[KernelGraph, Plan]) -> None:
    kernels, plan = graph
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5) if independent(kernels, plan, i, j)]
    assert (0, 1) in pairs
    assert (3, 4) in pairs
    assert not {(0, 2), (1, 3), (2, 4)} & {*pairs}


def test_calls_whose_storages_share_memory_are_not_independent(graph: tuple[KernelGraph, Plan]) -> None:
    """The arena was placed for one call after another: the second may write where the first still reads."""
    kernels, plan = graph
    apart = {storage: replace(place, at=1024 * storage) for storage, place in plan.places.items()}
    roomy = replace(plan, places=apart, arena_bytes=10000)
    assert independent(kernels, roomy, 2, 3)
    crowded = replace(roomy, places={**apart, 3: replace(apart[3], at=apart[2].at + 64)})
    assert not independent(kernels, crowded, 2, 3)


def test_neighbours_share_a_launch_and_lanes_do_not_mix(graph: tuple[KernelGraph, Plan]) -> None:
    kernels, plan = graph
    roomy = replace(plan, places={s: replace(p, at=1024 * s) for s, p in plan.places.items()}, arena_bytes=10000)
    lowered = lower_cuda_calls(kernels, roomy, H200)
    single = launches.launches(roomy, lowered)
    assert merged(single, kernels, roomy, lowered, H200) == [
        Launch((0, 1), ()),
        Launch((2, 3), (0,)),
        Launch((4,), (1,)),
    ]
    assert merged(single, kernels, replace(roomy, lanes=2), lowered, H200) == single


def test_equal_groups_share_one_kernel() -> None:
    lowered = [made("k0_neg"), made("k1_neg"), made("k0_neg"), made("k1_neg"), made("k0_neg")]
    nodes = [Launch((0, 1), ()), Launch((2, 3), (0,)), Launch((4,), (1,))]
    one, two, three = launched_kernels(nodes, lowered)
    assert one is two
    assert three == lowered[4]


def test_calls_of_one_launch_have_scratch_of_their_own(graph: tuple[KernelGraph, Plan]) -> None:
    _, plan = graph
    lowered = [made(f"k{at}_neg", scratch_bytes=100 * at) for at in range(5)]
    nodes = [Launch((0, 1), ()), Launch((2, 3), (0,)), Launch((4,), (1,))]
    assert scratch_offsets(plan, lowered, nodes) == ([0, 0, 0, 256, 0], 768)


@needs_double
@needs_nvrtc
def test_a_model_with_shared_launches_computes_what_it_means(tmp_path: Path) -> None:
    """Three branches of an image, joined: their kernels follow one another, and each depends on the image alone."""
    net = Network()
    x = net.input(1, 4, 8, 8)
    parts = [
        net.node("Conv", [x, net.weight(4, 4, 1, 1), net.weight(4)], (1, 4, 8, 8)),
        net.node("MaxPool", [x], (1, 4, 8, 8), kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]),
        net.node("Conv", [x, net.weight(8, 4, 3, 3)], (1, 8, 8, 8), pads=[1] * 4),
    ]
    joined = net.node("Concat", parts, (1, 16, 8, 8), axis=1)
    model = net.model([net.node("Relu", [net.node("GlobalAveragePool", [joined], (1, 16, 1, 1))], (1, 16, 1, 1))])
    kernels = fuse(graph_of(model)).kernels
    plan = plan_of(kernels, H200)
    lowered = lower_cuda_calls(kernels, plan, H200)
    nodes = merged(launches.launches(plan, lowered), kernels, plan, lowered, H200)
    assert any(len(node.calls) > 1 for node in nodes), [one.block for one in lowered]
    image = np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)
    want = next(iter(ReferenceEvaluator(model).run(None, {"x0": image})))
    twin = on_double(artifact_of(kernels, plan, tmp_path / "model.tw"), "checked")
    for mode in (MODES[0], MODES[2], MODES[4]):
        outcome = twin.run(
            {"x0": image}, mode, script="outputs.update(model.run(inputs)); rows = model.profile(inputs, 1)"
        )
        assert not outcome.error, outcome.error
        found: Mapping[str, np.ndarray] = outcome.outputs
        np.testing.assert_allclose(next(iter(found.values())), want, rtol=2e-5, atol=2e-5)
    assert sum("cuGraphAddKernelNode" in call for call in outcome.calls) == len(nodes)
