"""Products by warpgroups with bulk copies, on the double of CUDA; what the assembler makes of them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.contraction.wgmma_tiles import cuda_wgmma_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_contraction import (
    TARGET,
    check,
    convolution,
    lowered,
    matrix,
    sass,
    within,
    workload_of,
)
from tests.compiler.devices.cuda.artifact_on_double import on_double as artifact_on_double
from tests.compiler.devices.cuda.on_double import Subject, needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.compiler.networks import Network
from tests.compiling import compile_file
from tests.cuda_double.double import MODES, Fault

F16, BF16 = DType.F16, DType.BF16


def tile_of(
    m: int, n: int, part: tuple[int, int], k: int = 64, stages: int = 4, parts: int = 1, by: str = "grid"
) -> Tile:
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages)))
    return Tile("wgmma", (*grid, block, Level("warpgroup", (("m", part[0]), ("n", part[1])))))


def products() -> list[tuple[Case, Tile]]:
    """Products whose m, n and k do not fill their tiles, and some that do; rows of 128 and 64 bytes.

    Others divide k over the grid and over a cluster.
    """
    return [
        (within(matrix(128, 256, 64, F16), 2e-3), tile_of(128, 64, (64, 64))),
        (within(matrix(70, 200, 40, F16), 2e-3), tile_of(64, 32, (64, 32), stages=3)),
        (within(matrix(9, 328, 72, F16), 2e-3), tile_of(64, 64, (64, 32), stages=5)),
        (within(matrix(130, 136, 100, BF16), 2e-2), tile_of(128, 96, (128, 96), 32)),
        (within(matrix(65, 520, 24, F16), 2e-3), tile_of(64, 16, (64, 8), stages=6, parts=3)),
        (within(matrix(130, 640, 48, F16), 2e-3), tile_of(128, 32, (64, 32), parts=4, by="cluster")),
        (within(matrix(40, 136, 48, F16), 2e-3), tile_of(64, 32, (64, 32), 32, 3, parts=8, by="cluster")),
        (within(matrix(40, 136, 48, F16, ()), 2e-3), tile_of(64, 32, (64, 32), 32, 3)),
    ]  # fmt: skip


def windows() -> list[tuple[Case, Tile]]:
    """Padded, strided and dilated windows, and operands that go through registers."""
    cases = [
        (convolution(64, 40, (9, 9), (3, 3)), tile_of(64, 64, (64, 64))),
        (convolution(24, 64, (11, 10), (3, 3), stride=2, batch=2), tile_of(64, 64, (64, 32), stages=3)),
        (convolution(32, 24, (10, 10), (3, 3), dilation=2), tile_of(128, 32, (64, 32), 32, parts=2)),
        (convolution(48, 32, (9, 7), (7, 1), BF16), tile_of(64, 32, (64, 32), parts=2, by="cluster")),
        (convolution(12, 32, (9, 7), (3, 3)), tile_of(64, 32, (64, 32))),
        (convolution(3, 32, (11, 11), (3, 3), stride=2, first=True), tile_of(64, 32, (64, 32), 32)),
        (
            convolution(16, 24, (9, 9), (3, 3), data="max(add(x[n, c, {iy}, {ix}], 0.5:f32), 0.25:f32)"),
            tile_of(64, 32, (64, 32)),
        ),
    ]  # fmt: skip
    return [(within(case, 2e-2 if case.buffers[-1].dtype is BF16 else 3e-3), tile) for case, tile in cases]


@needs_double
def test_products_that_do_not_fill_their_tiles_mean_what_they_say() -> None:
    found = check([*products(), *windows()])
    assert [one.cluster for one in found[5:7]] == [4, 8]
    assert found[4].counters
    assert [number for number, one in enumerate(found) if "tw_bulk_load" not in one.text] == [7], "B is no constant"


@needs_double
def test_tiles_of_the_tile_stage_on_random_windows_mean_what_they_say() -> None:
    random = Random(0)
    subjects = []
    for _ in range(16):
        window = random.choice([(1, 1), (3, 3), (1, 7), (5, 1)])
        case = convolution(
            *(random.choice([8, 40, 64, 80]), random.choice([16, 20, 41, 72])),
            size=(random.randint(5, 12), random.randint(5, 12)),
            window=window,
            element=random.choice([F16, F16, BF16]),
            stride=random.choice([1, 1, 2]),
            dilation=random.choice([1, 1, 2]),
            batch=random.choice([1, 2]),
        )
        options = cuda_wgmma_tiles(workload_of(case), TARGET, "bf16")
        tile = random.choice([one.tile for one in options])
        subjects.append((within(case, 2e-2 if case.buffers[-1].dtype is BF16 else 3e-3), tile))
    assert len({tile for _, tile in subjects}) > 10
    check(subjects)


@needs_double
def test_copies_that_land_early_or_late_are_waited_for() -> None:
    check([products()[1], products()[4], *windows()[1:3]], modes=[MODES[0], MODES[3], MODES[4], MODES[7]])


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    check([*products()[2:6], *windows()[:2], windows()[4], windows()[6]], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("        tw_fence_proxy_async();\n        __syncthreads();", "        __syncthreads();"),
        ("        tw_fence_proxy_async();\n        __syncthreads();", "        tw_fence_proxy_async();"),
        ("parity ^= stage == 2;", "parity ^= stage == 1;"),
        ("parity ^= stage == 2;", ""),
        ("unsigned parity = 0;", "unsigned parity = 1;"),
        ("tw_mbarrier_wait(landed + stage, parity);", ""),
        ("tw_cp_async_wait<0>();", ""),
        ("tw_wgmma_wait<1>();", "tw_wgmma_wait<2>();"),
        ("tw_wgmma_wait<0>();", ""),
        ("tw_wgmma_fence();", ""),
        ("(a_row + i * 32) % 8 * 16", "(a_row + i * 32) % 4 * 16"),
        ("1, 1024, 1)", "1, 512, 1)"),
        ("b_descriptor + k * 2", "b_descriptor + k * 4"),
        ("tw_mbarrier_arrive_expect(arrival, 8192)", "tw_mbarrier_arrive_expect(arrival, 4096)"),
        ("shared + 49152", "shared + 49144"),
        ("tw_mbarrier_fence_init();", ""),
        ("group_n * 128", "0"),
        ("warp % 4 * 16", "warp % 2 * 16"),
    ],
)
def test_a_mistake_in_the_pipeline_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, tile = windows()[1]
    one = lowered("k", case, tile)
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_double
def test_a_constant_that_is_packed_without_the_swizzle_is_found() -> None:
    case, tile = windows()[1]
    one = lowered("k", case, tile)
    packing = one.packings[1]
    assert isinstance(packing, BlockPanels)
    with pytest.raises(AssertionError):
        on_double.check([Subject(case, replace(one, packings={1: replace(packing, swizzled=False)}))])


def wide_tiles() -> list[tuple[Case, Tile]]:
    """The tiles that take most registers and most shared memory."""
    return [
        (convolution(64, 128, (56, 56), (3, 3)), tile_of(128, 128, (64, 128))),
        (convolution(256, 256, (56, 56), (3, 3)), tile_of(128, 256, (64, 256))),
        (convolution(256, 256, (56, 56), (3, 3)), tile_of(256, 128, (128, 128))),
        (convolution(256, 256, (14, 14), (3, 3)), tile_of(128, 192, (64, 192), parts=4, by="cluster")),
        (matrix(512, 3072, 768, F16), tile_of(64, 256, (64, 256), parts=4)),
        (matrix(512, 3072, 768, BF16), tile_of(192, 128, (64, 128), stages=3)),
    ]


@needs_nvrtc
def test_kernels_compile_without_spills_and_products_stay_asynchronous() -> None:
    subjects = [*products()[:5], *windows(), *wide_tiles()]
    text = PREAMBLE + "\n".join(lowered(f"k{number}", *subject).text for number, subject in enumerate(subjects))
    compiled = nvrtc.compile_cuda(text, "sm_90a")
    assert "warning" not in compiled.log
    assert compiled.losses == ()
    assert len(compiled.kernels) == len(subjects)
    for name, kernel in compiled.kernels.items():
        assert not kernel.spills, (name, kernel)
        assert not kernel.stack_bytes, (name, kernel)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "compute_90"])
def test_there_is_no_such_kernel_for_other_architectures(architecture: str) -> None:
    compiled = nvrtc.compile_cuda(PREAMBLE + lowered("only_here", *wide_tiles()[0]).text, architecture)
    assert b"only_here" not in compiled.image


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed (nvidia-cuda-nvdisasm)")
def test_a_bulk_copy_of_the_constant_begins_before_the_wait_for_the_predecessor() -> None:
    code = sass(nvrtc.compile_cuda(PREAMBLE + lowered("k", *wide_tiles()[0]).text, "sm_90a").image)
    for instruction in ("HGMMA.64x128x16.F32", "LDGSTS.E.BYPASS.128", "SYNCS.PHASECHK", "STG.E.128"):
        assert instruction in code
    assert code.count("HGMMA") == 4
    assert code.index("UBLKCP") < code.index("ACQBULK") < code.index("LDGSTS")


@needs_nvrtc
@needs_double
def test_a_model_with_a_large_product_takes_it_and_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    net, (rows, inner, outer) = Network(), (384, 512, 768)
    x = net.input(rows, inner)
    y = net.node("Relu", [net.node("MatMul", [x, net.weight(inner, outer)], (rows, outer))], (rows, outer))
    z = net.node("Relu", [net.node("MatMul", [y, net.weight(outer, outer)], (rows, outer))], (rows, outer))
    model, artifact = tmp_path / "m.onnx", tmp_path / "m.tw"
    onnx.save(net.model([net.node("Add", [y, z], (rows, outer))]), model)
    options = CompileOptions(target="cuda:sm_90", precision="fp16", tuning_budget_s=0.0)
    compile_file(model, artifact, options, measure=False)
    with zipfile.ZipFile(artifact) as archive:
        calls = json.loads(archive.read("plan.json"))["calls"]
    assert "wgmma" in {call["blocking"]["algorithm"] for call in calls}
    given = np.random.default_rng(0).uniform(-1, 1, (rows, inner)).astype(np.float32)
    outcome = artifact_on_double(artifact).run({"x0": given}, MODES[6])
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {})
    (want,) = ReferenceEvaluator(str(model)).run(None, {"x0": given})
    (got,) = outcome.outputs.values()
    assert np.abs(got - want).max() < 5e-3 * np.abs(want).max()
