"""Products of bytes by warpgroups: bit by bit what they mean, on the double; what the assembler makes of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.integer import cuda_integer_tiles
from compiler.devices.cuda.algorithms.integer_wgmma import cuda_integer_wgmma_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.persistent import can_be_resident
from compiler.devices.cuda.products.warpgroups import MOST_PROPOSALS
from compiler.devices.cuda.target import PROFILES
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms import test_integer as by_warps
from tests.compiler.devices.cuda.algorithms.test_contraction import TARGET, sass
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import H200
from tests.compiler.devices.cuda.algorithms.test_sparse_integer import ASKED, BATCHES, convolution, of_text, product
from tests.compiler.devices.cuda.artifact_on_double import on_double as artifact_on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, workload_of
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.compiling import compile_file
from tests.cuda_double.double import MODES, Fault, Mode


def tile(
    m: int, n: int, part: tuple[int, int], k: int = 128, stages: int = 4, parts: int = 1, by: str = "grid"
) -> Tile:
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages)))
    return Tile("wgmma_integer", (*grid, block, Level("warpgroup", (("m", part[0]), ("n", part[1])))))


def lowered(name: str, case: Case, one: Tile) -> CudaLowered:
    return lower_cuda(name, workload_of(case), one, TARGET)


def check(
    cases: Sequence[tuple[Case, Tile]], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL
) -> list[CudaLowered]:
    found = [Subject(case, lowered(f"k{number}", case, one)) for number, (case, one) in enumerate(cases)]
    on_double.check(found, flavour, modes)
    return [subject.lowered for subject in found]


def products() -> list[tuple[Case, Tile]]:
    """Sizes that tiles do not divide, both signs, zero points of all kinds; k over the grid and over clusters.

    The last have batches of matrices, and A transposed: both are gathered byte by byte.
    """
    rows = np.random.default_rng(4).integers(0, 256, (3, 20)).astype(np.uint8)
    return [
        (product(128, 256, 64), tile(128, 64, (64, 64))),
        (product(70, 208, 40, np.int8), tile(64, 32, (64, 32), 64, 3)),
        (product(9, 336, 72, zero=3), tile(64, 64, (64, 32), stages=5)),
        (product(130, 144, 100, np.int8, -7), tile(128, 96, (128, 96), 64)),
        (product(65, 1040, 24, zero=np.arange(65) * 3), tile(64, 16, (64, 8), 128, 6, 3)),
        (product(130, 1280, 48, zero=255), tile(128, 32, (64, 32), parts=4, by="cluster")),
        (product(40, 528, 48, np.int8, 1), tile(64, 32, (64, 32), 64, 3, 8, "cluster")),
        (of_text(BATCHES, rows), tile(64, 32, (64, 32), 64, 3)),
        (of_text(ASKED, np.array(-77, np.int8)), tile(64, 64, (64, 64), 64, 3)),
    ]


def windows() -> list[tuple[Case, Tile]]:
    """Padded, of which rows are copied, or filled with a zero point through registers."""
    return [
        (convolution(64, 40, 0), tile(64, 64, (64, 64))),
        (convolution(32, 24, 0, np.int8), tile(64, 32, (64, 32), 64, 3, 2)),
        (convolution(32, 24, 7), tile(64, 32, (64, 32), 64, 3)),
        (convolution(64, 72, -128, np.int8), tile(128, 32, (64, 32), 128, 3, 2)),
        (convolution(24, 20, 130), tile(64, 32, (64, 32), 64, 3, 2, "cluster")),
    ]


@needs_double
def test_products_of_every_shape_and_zero_point_mean_what_they_say() -> None:
    found = check(products())
    assert [one.cluster for one in found] == [1, 1, 1, 1, 1, 4, 8, 1, 1]
    assert [one.counters > 0 for one in found] == [*[False] * 4, True, *[False] * 4]
    assert ["tw_wgmma_k32_s8(" in one.text for one in found] == [
        False,
        True,
        False,
        True,
        *[False] * 2,
        True,
        False,
        True,
    ]
    assert ["b_sums" in one.text for one in found] == [False, False, *[True] * 7]
    assert all(one.is_specific and "tw_bulk_load" in one.text for one in found)


@needs_double
def test_convolutions_mean_what_they_say_however_they_are_padded() -> None:
    found = check(windows())
    assert ["padding" in one.text for one in found] == [False, False, True, True, True]


@needs_double
def test_the_extremes_of_bytes_neither_saturate_nor_lose_their_sign() -> None:
    cases = []
    for dtype in (np.uint8, np.int8):
        limits = np.iinfo(dtype)
        for a, b in ((limits.min, -128), (limits.max, -128), (limits.max, 127), (limits.min, 127)):
            arrays = np.full((5, 304), a, dtype), np.full((304, 18), b, np.int8)
            case = by_warps.product(*arrays, limits.max if b < 0 else 0, 0, by_warps.SMALL)
            cases.append((case, tile(64, 32, (64, 32), 64, 3, 2)))
    check(cases, modes=ADVERSARIAL[:1])


def drawn(count: int) -> list[tuple[Case, Tile]]:
    """Products and convolutions of random sizes, under random tiles of those proposed."""
    random, found = np.random.default_rng(41), list[tuple[Case, Tile]]()
    while len(found) < count:
        dtype = (np.uint8, np.int8)[random.integers(2)]
        zero = int(random.choice([0, np.iinfo(dtype).min, np.iinfo(dtype).max, 5]))
        if random.integers(2):
            case = convolution(16 * int(random.integers(1, 5)), int(random.integers(16, 80)), 0, dtype)
        else:
            rows, depth = int(random.integers(1, 140)), 16 * int(random.integers(4, 40))
            case = product(rows, depth, int(random.integers(8, 150)), dtype, zero)
        options = cuda_integer_wgmma_tiles(workload_of(case), TARGET, "fp32")
        found.append((case, options[random.integers(len(options))].tile))
    return found


@needs_double
def test_random_sizes_under_proposed_tiles_mean_what_they_say() -> None:
    cases = drawn(12)
    assert len({one for _, one in cases}) > 8
    check(cases, modes=ADVERSARIAL[:1])


@needs_double
def test_copies_that_land_early_or_late_are_waited_for() -> None:
    check([products()[2], products()[4], windows()[1]], modes=[MODES[0], MODES[3], MODES[4], MODES[7]])


@needs_double
@pytest.mark.parametrize("at", [2, 6])
def test_no_accesses_race_or_leave_their_tensors(at: int) -> None:
    check(products()[at : at + 1], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("tw_wgmma_k32_u8_s8(", "tw_wgmma_k32_s8("),
        ("b_descriptor + k * 2", "b_descriptor + k * 4"),
        ("1, 1024, 1)", "1, 512, 1)"),
        ("tw_wgmma_wait<0>();", ""),
        ("b_sums + min(first_step, past_step)", "b_sums + 0"),
        ("a_zero[i][element / 2]", "a_zero[i][0]"),
        ("b_sum[element % 2]", "b_sum[0]"),
        ("group_n + lane % 4 * 2;", "lane % 4 * 2;"),
        ("warp % 4 * 16 + half * 8", "warp % 4 * 16"),
        ("make_int2(acc[i][j * 4 + 2]", "make_int2(acc[i][j * 4]"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case = product(65, 1040, 60, zero=np.arange(65) * 3)
    one = lowered("k", case, tile(64, 64, (64, 32), 128, 4, 2))
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


def test_the_tiles_fit_the_device_and_no_other_target_gets_them() -> None:
    workload = workload_of(product(4096, 768, 768, zero=3))
    proposals = cuda_integer_wgmma_tiles(workload, H200, "fp32")
    assert 8 < len(proposals) <= MOST_PROPOSALS
    assert proposals == cuda_integer_wgmma_tiles(workload, H200, "fp16")
    assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
    for one in proposals:
        made = lower_cuda("k", workload, one.tile, H200)
        assert made.shared_bytes <= H200.block_shared_bytes
        assert not can_be_resident(one.tile)
    there = [target.name for target in PROFILES if cuda_integer_wgmma_tiles(workload, target, "fp32")]
    assert there == ["cuda:sm_90"]


def test_only_copied_rows_and_packed_signed_weights_without_a_zero_point_are_taken() -> None:
    def proposed(case: Case) -> bool:
        return bool(cuda_integer_wgmma_tiles(workload_of(case), H200, "fp32"))

    assert proposed(product(512, 512, 64, zero=3))
    assert not proposed(product(512, 520, 64, zero=3)), "rows are not aligned to 16 bytes"
    assert not proposed(replace(product(512, 512, 64), constant=()))
    assert proposed(convolution(64, 64, 0))
    assert not proposed(convolution(64, 64, 7)), "what is padded with a zero point goes through registers"
    octets = np.zeros((512, 512), np.uint8), np.zeros((512, 64), np.uint8)
    assert not proposed(by_warps.product(*octets, 3, 0, by_warps.SMALL))
    signed = np.zeros((512, 512), np.uint8), np.zeros((512, 64), np.int8)
    assert not proposed(by_warps.product(*signed, 3, 5, by_warps.SMALL))


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "pays"),
    [(4096, 3072, 768, True), (2048, 768, 3072, True), (49, 2048, 512, False), (784, 128, 1152, False)],
)
def test_the_model_prefers_warpgroups_where_products_are_large(rows: int, columns: int, depth: int, pays: bool) -> None:
    zeros = np.zeros((rows, depth), np.uint8), np.zeros((depth, columns), np.int8)
    workload = workload_of(by_warps.product(*zeros, 3, 0, by_warps.SMALL))
    best, other = (tiles(workload, H200, "fp32")[0] for tiles in (cuda_integer_wgmma_tiles, cuda_integer_tiles))
    assert (best.seconds < other.seconds) is pays


@needs_nvrtc
def test_kernels_compile_without_spills_and_products_stay_asynchronous() -> None:
    wide = [
        (product(256, 512, 256, zero=3), tile(128, 128, (64, 128))),
        (product(256, 512, 256, np.int8, 3), tile(128, 256, (64, 256))),
        (product(256, 512, 256, zero=np.arange(256)), tile(256, 128, (128, 128))),
        (product(256, 512, 256), tile(128, 192, (64, 192), parts=4, by="cluster")),
    ]
    subjects = [*products(), *windows(), *wide]
    text = PREAMBLE + "\n".join(lowered(f"k{number}", *one).text for number, one in enumerate(subjects))
    compiled = nvrtc.compile_cuda(text, "sm_90a")
    assert "warning" not in compiled.log
    assert compiled.losses == ()
    assert len(compiled.kernels) == len(subjects)
    assert not any(kernel.spills or kernel.stack_bytes for kernel in compiled.kernels.values()), compiled.log
    if disassembler() is not None:
        code = sass(compiled.image)
        for instruction in ("IGMMA.64x128x32.U8.S8", "IGMMA.64x256x32.S8.S8", "UBLKCP", "LDGSTS.E.BYPASS.128"):
            assert instruction in code


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "compute_90"])
def test_there_is_no_such_kernel_for_other_architectures(architecture: str) -> None:
    case, one = products()[0]
    compiled = nvrtc.compile_cuda(PREAMBLE + lowered("only_here", case, one).text, architecture)
    assert b"only_here" not in compiled.image


@needs_nvrtc
@needs_double
@pytest.mark.parametrize("algorithm", ["wgmma_integer", "sparse_wgmma_integer"])
def test_a_model_with_a_large_product_of_bytes_takes_it_and_no_bit_differs(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    random, (rows, inner, outer) = np.random.default_rng(5), (512, 768, 768)
    weights = random.integers(-9, 10, (inner, outer)).astype(np.int8)
    weights = TwoOfFour.of(0).pruned(weights) if algorithm.startswith("sparse") else weights
    zeros = {"p0": np.uint8(131), "p1": np.uint8(120), "s0": np.float32(1 / 64), "s1": np.float32(4), "z": np.int8(0)}
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", ["x", "s0", "p0", "w", "s0", "z", "s1", "p1"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, inner])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [rows, outer])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in {"w": weights, **zeros}.items()],
    )
    model, artifact = tmp_path / "m.onnx", tmp_path / "m.tw"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), model)
    options = CompileOptions(target="cuda:sm_90", precision="fp32", tuning_budget_s=0.0)
    compile_file(model, artifact, options, measure=False)
    with zipfile.ZipFile(artifact) as archive:
        calls = json.loads(archive.read("plan.json"))["calls"]
        assert "source/tw_wgmma_bytes.h" in archive.namelist()
    assert [call["blocking"]["algorithm"] for call in calls] == [algorithm]
    given: np.ndarray = random.integers(0, 256, (rows, inner)).astype(np.uint8)
    outcome = artifact_on_double(artifact).run({"x": given}, MODES[6])
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {})
    want = np.clip(np.rint((given.astype(np.float64) - 131) @ weights * 2**-14) + 120, 0, 255)
    assert want.std() > 0.3
    (got,) = outcome.outputs.values()
    np.testing.assert_array_equal(got, want)
