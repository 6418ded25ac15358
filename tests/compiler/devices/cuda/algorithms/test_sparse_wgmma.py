"""Products by warpgroups and weights that are zero at two of each four places, on the double of CUDA."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.sparse.warpgroup_tiles import cuda_sparse_wgmma_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.persistent import can_be_resident
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_contraction import TARGET, convolution, matrix, sass, within
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import A100, H200, product
from tests.compiler.devices.cuda.algorithms.test_sparse import check, lowered, sparse
from tests.compiler.devices.cuda.algorithms.test_sparse_tiles import along
from tests.compiler.devices.cuda.artifact_on_double import on_double as artifact_on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.compiler.networks import Network
from tests.compiler.test_sparse_models_cuda import algorithms
from tests.compiling import compile_file
from tests.cuda_double.double import MODES, Fault

F16, BF16 = DType.F16, DType.BF16


def tile(m: int, n: int, part: tuple[int, int], stages: int = 4, parts: int = 1, by: str = "grid") -> Tile:
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", 64), ("stages", stages)))
    return Tile("sparse_wgmma", (*grid, block, Level("warpgroup", (("m", part[0]), ("n", part[1])))))


def products() -> list[tuple[Case, int, Tile]]:
    """Tails of m, n and k, several warpgroups, several products of one, k in parts and in clusters; a window."""
    return [
        (within(matrix(40, 192, 72, F16), 2e-3), 0, tile(32, 64, (32, 64))),
        (within(matrix(130, 328, 140, BF16), 2e-2), 0, tile(128, 128, (64, 64), 3)),
        (within(matrix(130, 640, 140, F16), 3e-3), 0, tile(64, 128, (64, 128), 6, 3)),
        (within(matrix(20, 520, 200, F16), 3e-3), 0, tile(16, 128, (16, 64), 4, 4, "cluster")),
        (within(convolution(16, 72, (9, 9), (3, 3)), 3e-3), 1, tile(128, 64, (128, 64))),
        (within(convolution(24, 40, (8, 8), (3, 3), BF16, stride=2, batch=2), 2e-2), 1, tile(32, 64, (16, 64), 3)),
    ]


@needs_double
def test_products_of_every_shape_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 4, 1, 1]
    assert found[2].counters
    assert all(one.is_specific and "tw_wgmma_sp_k32_" in one.text for one in found)


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    random, found = np.random.default_rng(3), list[tuple[Case, int, Tile]]()
    for at in range(10):
        element = (F16, BF16)[at % 2]
        n, k = int(random.integers(20, 200)), 8 * int(random.integers(1, 40))
        axis, case = 0, matrix(int(random.integers(2, 150)), k, n, element)
        if at % 3 == 0:
            size = (int(random.integers(3, 10)), int(random.integers(3, 10)))
            axis, case = 1, convolution(8 * int(random.integers(2, 6)), n, size, (3, 3), element)
        options = cuda_sparse_wgmma_tiles(sparse(case, axis)[1], TARGET, "bf16")
        found.append((within(case, 2e-2 if at % 2 else 3e-3), axis, options[random.integers(len(options))].tile))
    check(found, modes=ADVERSARIAL[:1])


@needs_double
def test_copies_that_land_early_or_late_are_waited_for() -> None:
    check([products()[1], products()[3]], modes=[MODES[0], MODES[3], MODES[4], MODES[7]])


@needs_double
@pytest.mark.parametrize("at", [0, 2, 5])
def test_no_accesses_race_or_leave_their_tensors(at: int) -> None:
    check(products()[at : at + 1], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("tw_mbarrier_wait(landed + stage, parity);", ""),
        ("        tw_fence_proxy_async();\n        __syncthreads();", "        __syncthreads();"),
        ("_f16<1>", "_f16<0>"),
        ("a_descriptor + 4", "a_descriptor + 2"),
        ("b_descriptor + i * 256 + 2", "b_descriptor + i * 256"),
        ("group_n / 16 + warp % 4", "group_n / 16"),
        ("tw_wgmma_wait<0>();", ""),
        ("at[8] = acc[i][j * 4 + 2]", "at[8] = acc[i][j * 4 + 1]"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, one = lowered("k", within(matrix(40, 328, 72, F16), 2e-3), 0, tile(32, 64, (32, 64), 3))
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


def test_it_is_offered_where_warpgroups_are_and_rows_are_copied_whole() -> None:
    workload = along(product(512, 512, 512), 0)
    proposals = cuda_sparse_wgmma_tiles(workload, H200, "fp16")
    assert len(proposals) > 10
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    for proposal in proposals[::4]:
        kernel = lower_cuda("k", workload, proposal.tile, H200)
        assert kernel.shared_bytes <= H200.block_shared_bytes
        assert proposal.share == pytest.approx(min(kernel.grid / H200.multiprocessors, 1.0))
    assert not cuda_sparse_wgmma_tiles(workload, A100, "fp16")
    assert not cuda_sparse_wgmma_tiles(product(512, 512, 512), H200, "fp16")
    assert not cuda_sparse_wgmma_tiles(along(product(512, 512, 512, None), 0), H200, "fp32")
    assert not cuda_sparse_wgmma_tiles(along(product(512, 512, 516), 0), H200, "fp16")
    assert not can_be_resident(proposals[0].tile)


def test_large_products_should_gain_beside_dense_warpgroups() -> None:
    tried = legal_tiles(along(product(4096, 4096, 1024), 0), H200, 1, "fp16")
    best = {name: min(one.seconds for one in tried if one.tile.algorithm == name) for name in ("wgmma", "sparse_wgmma")}
    assert 0.5 < best["sparse_wgmma"] / best["wgmma"] < 0.9


@needs_nvrtc
def test_warpgroups_multiply_sparse_operands_and_nothing_spills() -> None:
    wide = [
        (matrix(256, 256, 256, F16), 0, tile(128, 256, (128, 128), 3)),
        (matrix(256, 256, 256, BF16), 0, tile(256, 128, (256, 64), 3)),
        *products()[3:5],
    ]
    text = "\n".join(lowered(f"k{number}", *one)[1].text for number, one in enumerate(wide))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, "sm_90a")
    assert "warning" not in compiled.log
    assert compiled.losses == ()  # products stay asynchronous
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("HGMMA.SP.64x128x32.F32", "HGMMA.SP.64x256x32.F32.BF16", "HGMMA.SP.64x16x32.F32", "UBLKCP"):
            assert instruction in code


@needs_nvrtc
def test_there_is_no_such_kernel_for_other_architectures() -> None:
    compiled = nvrtc.compile_cuda(PREAMBLE + lowered("only_here", *products()[0])[1].text, "sm_80")
    assert b"only_here" not in compiled.image


@needs_nvrtc
@needs_double
def test_a_model_with_a_large_product_takes_it_and_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    net, (rows, inner, outer) = Network(), (4096, 128, 512)
    dense = np.random.default_rng(1).standard_normal((inner, outer)).astype(np.float32) / 16
    first = net.node("MatMul", [net.input(rows, 16), net.weight(16, inner)], (rows, inner))  # its result has 16 bits
    product = net.node("MatMul", [first, net.constant(TwoOfFour.of(0).pruned(dense))], (rows, outer))
    model, artifact = tmp_path / "m.onnx", tmp_path / "m.tw"
    onnx.save(net.model([net.node("Relu", [product], (rows, outer))]), model)
    options = CompileOptions(target="cuda:sm_90", precision="fp16", tuning_budget_s=0.0)
    compile_file(model, artifact, options, measure=False)
    assert "sparse_wgmma" in algorithms(artifact)
    with zipfile.ZipFile(artifact) as archive:
        assert "source/tw_wgmma_sp.h" in archive.namelist()
    given = np.random.default_rng(0).uniform(-1, 1, (rows, 16)).astype(np.float32)
    outcome = artifact_on_double(artifact).run({"x0": given}, MODES[6])
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {})
    (want,) = ReferenceEvaluator(str(model)).run(None, {"x0": given})
    (got,) = outcome.outputs.values()
    assert np.abs(got - want).max() < 5e-3 * np.abs(want).max()
