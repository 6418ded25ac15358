"""Products on the double of CUDA.

Every convolution and matrix product, multiplied in every way, under tiles of the tile stage and odd ones.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.contraction.tiles import cuda_contraction_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_contraction import convolutions, products, transposed
from tests.compiler.devices.cpu.library import Case, bound, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double, stored_as
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
TARGET = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
TOLERANCE = {("fp16", "mma"): 2e-3, ("bf16", "mma"): 1.6e-2, "mma_tf32": 2e-3}
ELEMENTS = {"fp32": None, "tf32": None, "fp16": F16, "bf16": BF16}


def workload_of(case: Case) -> Workload:
    """The case's kernel on its buffers, as far from alignment as they are."""
    plain = case.workload
    buffers = [replace(buffer, id=0, storage=0, name="") for buffer in case.buffers]
    count = len(plain.inputs)
    return replace(plain, inputs=tuple(buffers[:count]), outputs=tuple(buffers[count:]))


def tile_of(
    algorithm: str, m: int, n: int, k: int, part: tuple[int, int], stages: int = 3, parts: int = 1, by: str = "grid"
) -> Tile:
    inner = Level("thread" if algorithm == "ffma" else "warp", (("m", part[0]), ("n", part[1])))
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    return Tile(algorithm, (*grid, Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages))), inner))


def lowered(name: str, case: Case, tile: Tile) -> CudaLowered:
    return lower_cuda(name, workload_of(case), tile, TARGET)


def check(
    subjects: Sequence[tuple[Case, Tile]], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL
) -> list[CudaLowered]:
    """Compares each case under its tile with what its kernel means."""
    found = [Subject(case, lowered(f"k{number}", case, tile)) for number, (case, tile) in enumerate(subjects)]
    on_double.check(found, flavour, modes)
    return [subject.lowered for subject in found]


@st.composite
def tiled(draw: st.DrawFn, kernels: st.SearchStrategy[Kernel]) -> tuple[Case, Tile] | None:
    """A product in a precision under one of the tiles for it; None for what is no product."""
    precision = draw(st.sampled_from(["fp32", "tf32", "fp16", "fp16", "fp16", "bf16"]))
    case = replace(draw(bound(draw(kernels))), constant=draw(st.sampled_from([(), (1,), (1,), (0, 1)])))
    elements = [draw(st.sampled_from([ELEMENTS[precision], ELEMENTS[precision], None])) for _ in case.buffers]
    buffers = tuple(map(stored_as, case.buffers, elements))
    dense = [Buffer.whole(b.id, b.type, b.layout) if at in case.constant else b for at, b in enumerate(buffers)]
    kept = [replace(one, element=b.element) for one, b in zip(dense, buffers, strict=True)]
    case = replace(case, buffers=tuple(kept))
    options = cuda_contraction_tiles(workload_of(case), TARGET, precision)
    if not options:
        return None
    tile = draw(st.sampled_from(options)).tile
    tolerance = TOLERANCE.get((precision, tile.algorithm), TOLERANCE.get(tile.algorithm, 5e-5))
    return replace(case, tolerance=tolerance), tile


def drawn(kernels: st.SearchStrategy[Kernel], count: int) -> list[tuple[Case, Tile]]:
    found = [one for one in draws(tiled(kernels), count) if one is not None]
    assert len(found) > count // 2
    return found


@needs_double
def test_convolutions_in_every_precision_mean_what_they_say() -> None:
    check(drawn(convolutions(), 40))


@needs_double
def test_matrix_products_in_every_precision_mean_what_they_say() -> None:
    check(drawn(products(), 50))


@needs_double
def test_transposed_convolutions_mean_what_they_say() -> None:
    check(drawn(transposed(), 20), modes=ADVERSARIAL[:1])


PRODUCT = """
kernel "MatMul+Add+Relu"(in x: f32[{m}, {k}], in w: f32[{k}, {n}], in b: f32[{n}], in r: f32[{m}, {n}]; \
temp t: f32[], temp u: f32[]; out y: f32[{m}, {n}])
  for i:{m}, j:{n}
    t[] = sum<f32> k:{k} . mul(x[i, k], w[k, j])
    u[] = add(add(t[], b[j]), r[i, j])
    y[i, j] = max(u[], 0.0:f32)
"""
CONVOLUTION = """
kernel "Conv+Add+Relu"(in x: f32[{b}, {c}, {h}, {w}], in f: f32[{k}, {c}, {r}, {s}], in z: f32[{b}, {k}, {oh}, {ow}]; \
temp t: f32[]; out y: f32[{b}, {k}, {oh}, {ow}])
  for n:{b}, k:{k}, oy:{oh}, ox:{ow}
    t[] = sum<f32> c:{c}, r:{r}, s:{s} . mul(where(and(and(ge(#({iy}):i64, 0:i64), lt(#({iy}):i64, {h}:i64)), \
and(ge(#({ix}):i64, 0:i64), lt(#({ix}):i64, {w}:i64))), {data}, 0.0:f32), f[k, c, r, s])
    y[n, k, oy, ox] = max(add(t[], z[n, k, oy, ox]), 0.0:f32)
"""
LAST = {4: Layout.channels_last(4), 2: Layout.plain(2), 1: Layout.plain(1)}


def matrix(m: int, k: int, n: int, element: DType | None, constant: tuple[int, ...] = (1, 2)) -> Case:
    return case_of(PRODUCT.format(m=m, k=k, n=n), constant, element=element)


def convolution(
    c: int,
    k: int,
    size: tuple[int, int],
    window: tuple[int, int],
    element: DType | None = F16,
    stride: int = 1,
    dilation: int = 1,
    batch: int = 1,
    data: str = "x[n, c, {iy}, {ix}]",
    first: bool = False,
) -> Case:
    """Padded so that outputs are as many as inputs, divided by the stride; NHWC.

    The `first` layer's input is fp32 in NCHW.
    """
    pads = [(extent - 1) * dilation // 2 for extent in window]
    outs = [
        (extent + 2 * pad - (tap - 1) * dilation - 1) // stride + 1
        for extent, pad, tap in zip(size, pads, window, strict=True)
    ]
    iy, ix = (
        f"{stride}*{o} + {dilation}*{t} - {pad}" for o, t, pad in zip(("oy", "ox"), ("r", "s"), pads, strict=True)
    )
    text = CONVOLUTION.format(
        b=batch, c=c, k=k, h=size[0], w=size[1], r=window[0], s=window[1], oh=outs[0], ow=outs[1],
        iy=iy, ix=ix, data=data.format(iy=iy, ix=ix),
    )  # fmt: skip
    case = case_of(text, (1,))
    buffers = [stored_as(Buffer.whole(b.id, b.type, LAST[b.type.rank]), element) for b in case.buffers]
    if first:
        buffers[0] = case.buffers[0]
    return replace(case, buffers=tuple(buffers))


def within(case: Case, tolerance: float) -> Case:
    return replace(case, tolerance=tolerance)


def every_way() -> list[tuple[Case, Tile]]:
    """Products at odd sizes and even ones under tiles of every strategy, some with k in parts."""
    return [
        (within(matrix(40, 96, 48, F16), 2e-3), tile_of("mma", 32, 32, 32, (16, 16))),
        (within(matrix(1, 200, 72, F16), 2e-3), tile_of("mma", 16, 32, 64, (16, 8), 4, 3)),
        (within(matrix(33, 80, 130, F16), 2e-3), tile_of("mma", 64, 64, 32, (32, 32), 2)),
        (within(matrix(70, 48, 136, F16, ()), 2e-3), tile_of("mma", 64, 128, 32, (32, 64))),
        (within(matrix(37, 77, 41, BF16), 2e-2), tile_of("mma", 32, 64, 32, (16, 32), 3, 2)),
        (within(matrix(40, 96, 48, BF16), 2e-2), tile_of("mma", 64, 32, 32, (32, 16))),
        (within(matrix(24, 52, 40, None), 2e-3), tile_of("mma_tf32", 32, 32, 16, (16, 16), 4)),
        (within(matrix(24, 51, 39, None, ()), 2e-3), tile_of("mma_tf32", 16, 32, 32, (16, 8), 2, 2)),
        (within(matrix(24, 300, 40, None), 2e-6), tile_of("mma_3xtf32", 32, 32, 16, (16, 16), 3, 4)),
        (within(matrix(24, 99, 40, None, ()), 2e-6), tile_of("mma_3xtf32", 16, 64, 16, (16, 16))),
        (within(matrix(50, 72, 70, None), 2e-6), tile_of("ffma", 32, 64, 16, (4, 4))),
        (within(matrix(17, 300, 33, None, ()), 2e-6), tile_of("ffma", 16, 32, 16, (2, 2), 2, 3)),
        (within(matrix(5, 40, 9, F16, ()), 2e-3), tile_of("mma_3xtf32", 16, 32, 16, (16, 8))),
    ]


def in_clusters() -> list[tuple[Case, Tile]]:
    """k in the parts of a cluster, also more of them than there are steps."""
    return [
        (within(matrix(40, 300, 48, F16), 2e-3), tile_of("mma", 32, 32, 32, (16, 16), 3, 4, "cluster")),
        (within(matrix(33, 90, 41, F16), 2e-3), tile_of("mma", 32, 64, 32, (16, 32), 2, 8, "cluster")),
        (within(matrix(24, 99, 40, None), 2e-6), tile_of("ffma", 32, 32, 16, (4, 2), 3, 2, "cluster")),
        (within(convolution(48, 32, (7, 7), (3, 3)), 2e-3), tile_of("mma", 64, 32, 64, (32, 16), 4, 4, "cluster")),
    ]


def convolution_cases() -> list[tuple[Case, Tile]]:
    """Padded, strided, dilated windows on channels-last operands; first layers; a fused prologue."""
    small, wide = tile_of("mma", 32, 32, 32, (16, 16)), tile_of("mma", 64, 64, 64, (32, 32), 4)
    cases = [
        (convolution(16, 24, (9, 9), (1, 1)), small),
        (convolution(24, 40, (11, 10), (3, 3)), wide),
        (convolution(8, 16, (13, 13), (3, 3), stride=2, batch=2), small),
        (convolution(16, 16, (10, 10), (3, 3), dilation=2), small),
        (convolution(48, 32, (7, 9), (1, 7)), tile_of("mma", 32, 32, 64, (16, 16), 6, 2)),
        (convolution(48, 32, (9, 7), (7, 1), BF16), small),
        (convolution(4, 16, (9, 9), (3, 3)), small),
        (convolution(6, 16, (9, 9), (3, 3)), small),
        (convolution(3, 16, (17, 17), (7, 7), stride=2, first=True), wide),
        (convolution(3, 17, (11, 11), (3, 3), stride=2), small),
        (convolution(8, 16, (9, 9), (3, 3), None, first=True), tile_of("mma_tf32", 64, 32, 16, (32, 16))),
        (convolution(16, 24, (9, 9), (3, 3), data="max(add(x[n, c, {iy}, {ix}], 0.5:f32), 0.25:f32)"), small),
        (convolution(8, 24, (9, 9), (3, 3), None), tile_of("ffma", 64, 32, 16, (4, 4))),
    ]
    return [(within(case, 2e-2 if case.buffers[-1].dtype is BF16 else 3e-3), tile) for case, tile in cases]


@needs_double
def test_every_strategy_multiplies_operands_that_are_constants_and_that_are_not() -> None:
    check(every_way())


@needs_double
@pytest.mark.parametrize("sign", [True, False])
def test_three_tf32_products_are_as_exact_as_fp32_however_long_the_sum_is(sign: bool) -> None:
    """Tensor cores cut off what they add, so that a long sum in them would drift: at k = 4608 by 4e-5."""
    tile = tile_of("mma_3xtf32", 16, 32, 16, (16, 16))
    found = []
    for k in (64, 576, 2304, 4608):
        case = matrix(16, k, 32, None)
        random = np.random.default_rng(k)
        spread = (random.uniform(-1 if sign else 0, 1, array.shape).astype(np.float32) for array in case.inputs[:2])
        case = replace(case, inputs=(*spread, *(np.zeros_like(array) for array in case.inputs[2:])))
        one = lowered("k", case, tile)
        with Device(compile_kernels(PREAMBLE + one.text), MODES[0]) as device:
            (result,) = on_double.run(device, Subject(case, one))
        x, w = (array.astype(np.float64) for array in case.inputs[:2])
        want = np.maximum(x @ w, 0)
        found.append(float(np.linalg.norm(result - want) / np.linalg.norm(want)))
    assert max(found) < 1e-6, found


@needs_double
def test_the_blocks_of_a_cluster_share_out_k_and_then_the_sums() -> None:
    found = check(in_clusters())
    assert [one.cluster for one in found] == [4, 8, 2, 4]
    assert not any(one.scratch_bytes or one.counters for one in found)
    check(in_clusters(), "checked", MODES[4:6])


@needs_double
def test_windows_of_every_kind_on_channels_last_operands() -> None:
    found = check(convolution_cases())
    texts = "\n".join(one.text for one in found)
    for kind in ("tw_cp_async_16(", "tw_cp_async_8(", "tw_cp_async_4(", "a_there", "A: element by element"):
        assert kind in texts


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    check([*every_way()[:-1], *convolution_cases()[1:5], *convolution_cases()[7:12]], "checked", MODES[4:6])


@needs_double
def test_a_result_is_written_into_a_slice_and_read_from_one() -> None:
    """A Concat's operands: rows are longer than what is written; only some offsets allow 16 bytes."""
    subjects = []
    for offset, vector in ((32, 8), (4, 4), (3, 1)):
        case = within(matrix(20, 40, 48, F16), 2e-3)
        *inputs, output = case.buffers
        x = replace(inputs[0], strides=(64, 1), offset=offset)
        output = replace(output, strides=(96, 1), offset=offset)
        case = replace(case, buffers=(x, *inputs[1:], output))
        tile = tile_of("mma", 32, 32, 32, (16, 16))
        expected = f"tw_vector<float, {vector}> sum" if vector > 1 else "const float sum"
        assert expected in lowered("k", case, tile).text
        subjects.append((case, tile))
    check(subjects)


@needs_double
def test_results_do_not_depend_on_the_order_in_which_blocks_arrive() -> None:
    case, tile = every_way()[8]
    one = lowered("k", case, tile)
    assert (one.counters, one.scratch_bytes) == (2, 2 * 4 * 32 * 32 * 4)
    module = compile_kernels(PREAMBLE + one.text, "plain")
    results = []
    for mode in MODES[:4]:
        with Device(module, mode) as device:
            results.append(on_double.run(device, Subject(case, one))[0])
    assert all((result == results[0]).all() for result in results)


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("tw_cp_async_wait<1>();\n", "\n"),
        ("        __syncthreads();\n        const bool more", "        const bool more"),
        ("a_lane = (warp_m + lane % 16)", "a_lane = (warp_m + lane % 8)"),
        ("first_step + stage, shared + stage", "first_step + stage, shared + 0 * stage"),
        ("inside ? 16 : 0", "16"),
    ],
)
def test_a_mistake_in_the_pipeline_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, tile = within(convolution(16, 24, (9, 9), (3, 3)), 2e-3), tile_of("mma", 32, 32, 32, (16, 16))
    one = lowered("k", case, tile)
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_double
@pytest.mark.parametrize("which", [0, 1])
def test_a_cluster_whose_blocks_do_not_wait_for_one_another_is_found(which: int) -> None:
    case, tile = in_clusters()[0]
    one = lowered("k", case, tile)
    arrive, wait = "    tw_cluster_arrive();", "    tw_cluster_wait();\n"
    assert (one.text.count(arrive), one.text.count(wait)) == (2, 2)
    at = one.text.index(arrive) if which == 0 else one.text.rindex(arrive)
    text = one.text[:at] + one.text[at:].replace(arrive, "", 1)
    at = text.index(wait) if which == 0 else text.rindex(wait)
    text = text[:at] + text[at:].replace(wait, "", 1)
    for mode in MODES:
        with pytest.raises(Fault):
            on_double.check([Subject(case, replace(one, text=text))], "checked", [mode])


def sass(image: bytes) -> str:
    path = disassembler()
    assert path is not None, "the wheel of the CUDA compiler brings nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(image)
        return subprocess.run([path, "-c", file.name], capture_output=True, text=True, check=True).stdout


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_every_architecture_without_spills(architecture: str) -> None:
    subjects = [*every_way()[::2], *convolution_cases()[::3], *wide_tiles(), *in_clusters()]
    text = "\n".join(lowered(f"k{number}", *subject).text for number, subject in enumerate(subjects))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, architecture)
    assert "warning" not in compiled.log
    assert len(compiled.kernels) == len(subjects) - (0 if architecture == "sm_90a" else len(in_clusters()))
    for name, kernel in compiled.kernels.items():
        assert not kernel.spills, (name, kernel)
        assert not kernel.stack_bytes, (name, kernel)


def wide_tiles() -> list[tuple[Case, Tile]]:
    """The largest tiles of every strategy."""
    return [
        (convolution(64, 128, (56, 56), (3, 3)), tile_of("mma", 128, 128, 32, (64, 64), 4)),
        (convolution(64, 128, (56, 56), (3, 3)), tile_of("mma", 64, 128, 64, (32, 64))),
        (convolution(3, 64, (112, 112), (7, 7), stride=2, first=True), tile_of("mma", 128, 64, 32, (32, 32), 2)),
        (matrix(256, 256, 256, None), tile_of("mma_tf32", 128, 128, 32, (64, 32))),
        (matrix(256, 256, 256, None), tile_of("mma_3xtf32", 128, 64, 32, (32, 32))),
        (matrix(256, 256, 256, None), tile_of("ffma", 128, 128, 16, (8, 8))),
    ]


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed (nvidia-cuda-nvdisasm)")
def test_tensor_cores_and_asynchronous_copies_are_what_runs() -> None:
    case, tile = wide_tiles()[1]
    code = sass(nvrtc.compile_cuda(PREAMBLE + lowered("k", case, tile).text, "sm_80").image)
    for instruction in ("HMMA.16816.F32", "LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "STG.E.128"):
        assert instruction in code
    case, tile = wide_tiles()[3]
    assert re.search(
        r"HMMA\.1688\.F32\.TF32", sass(nvrtc.compile_cuda(PREAMBLE + lowered("k", case, tile).text, "sm_80").image)
    )
