"""Products of normalised rows on the double of CUDA: every way to multiply, ragged extents, rows of every size."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.normalised.geometry import rows_of
from compiler.devices.cuda.algorithms.normalised.tiles import cuda_normalised_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.forms.normalised import as_normalised
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.compiler.fuse.normalisations import extreme, join_of, normalisation
from tests.compiler.fuse.separables import joined_case
from tests.cuda_double.double import MODES, Fault, Mode

TARGET = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
ELEMENTS = {"fp32": None, "tf32": None, "fp16": DType.F16, "bf16": DType.BF16}
TOLERANCE = {"fp32": 5e-5, "tf32": 3e-3, "fp16": 5e-3, "bf16": 4e-2}


def case_of(graph: Graph, precision: str, vectors: bool = True) -> Case:
    """The join of a graph, with its buffers; vectors such as scales lie in memory in fp32, as the compiler has them."""
    case = joined_case(*join_of(graph))
    buffers = tuple(
        buffer if vectors and len(buffer.type.dims) == 1 else stored_as(buffer, ELEMENTS[precision])
        for buffer in case.buffers
    )
    return replace(case, buffers=buffers, tolerance=TOLERANCE[precision])


def tile_of(algorithm: str, m: int, n: int, k: int, part: tuple[int, int], stages: int = 3) -> Tile:
    inner = Level("thread" if algorithm == "normalised_ffma" else "warp", (("m", part[0]), ("n", part[1])))
    return Tile(algorithm, (Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages))), inner))


def lowered(name: str, case: Case) -> CudaLowered:
    return lower_cuda(name, workload_of(case), case.tile, TARGET)


def check(cases: Sequence[Case], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL) -> None:
    """Compares each case under its tile with what its kernel means."""
    on_double.check([Subject(case, lowered(f"k{number}", case)) for number, case in enumerate(cases)], flavour, modes)


def every_way() -> list[Case]:
    """Each product; rows that are kept, beyond the last tile, of more steps than stages, not in vectors."""
    kept = normalisation((2, 21), 104, 72, kept=True, after="Relu")
    return [
        replace(case_of(graph, precision), tile=tile)
        for graph, precision, tile in (
            (kept, "fp16", tile_of("normalised", 32, 32, 32, (16, 16))),
            (kept, "bf16", tile_of("normalised", 16, 64, 64, (16, 16), 2)),
            (kept, "tf32", tile_of("normalised_tf32", 32, 32, 16, (16, 16))),
            (kept, "fp32", tile_of("normalised_3xtf32", 16, 32, 16, (16, 8), 4)),
            (kept, "fp32", tile_of("normalised_ffma", 16, 32, 32, (2, 2))),
            (normalisation((50,), 45, 24), "fp16", tile_of("normalised", 64, 32, 32, (32, 16))),
            (normalisation((1, 7), 768, 40), "fp16", tile_of("normalised", 16, 64, 64, (16, 8), 6)),
            (normalisation((3, 5), 64, 24, norm="RMSNormalization"), "fp16", tile_of("normalised", 16, 8, 32, (16, 8))),
        )
    ]


def extremes() -> list[Case]:
    """The same of rows of very different sizes, and the tile that the model likes best."""
    found = []
    for number, case in enumerate(every_way()):
        inputs = (extreme(case.inputs[0].shape, np.random.default_rng(number)), *case.inputs[1:])
        found.append(replace(case, inputs=inputs))
    wide = case_of(normalisation((1, 24), 96, 136, kept=True), "fp16")
    return [*found, replace(wide, tile=cuda_normalised_tiles(workload_of(wide), TARGET, "fp16")[0].tile)]


@needs_double
def test_rows_of_every_size_mean_what_they_say_under_every_way() -> None:
    check(extremes(), modes=ADVERSARIAL[1:])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("", ""),
        ("first_m + own_row < 42", "true"),
        ("first_n == own_row % 3 * 32", "first_n == own_row % 4 * 32"),
        ("tw_of_lane", "0 * tw_of_lane"),
        ("tw_cp_async_wait<1>();\n        __syncthreads();", "tw_cp_async_wait<1>();"),
    ],
    ids=["sound", "rows beyond", "not kept", "a lane's sum", "no barrier"],
)
def test_a_mistake_is_found_and_a_kernel_without_one_has_no_races(line: str, without: str) -> None:
    """So that the test above says something."""
    case = every_way()[0]
    one = lowered("k", case)
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without)) if line else one
    with pytest.raises((Fault, AssertionError)) if line else nullcontext():
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", [ARCHITECTURES[0], ARCHITECTURES[-1]])
def test_kernels_compile_for_the_first_and_last_architecture_without_spills(architecture: str) -> None:
    target = next(profile for profile in PROFILES if profile.architecture == architecture)
    wide = case_of(normalisation((197,), 192, 768, after="Sigmoid"), "fp16")
    long = case_of(normalisation((1, 24), 1024, 512, kept=True), "fp16")
    favourites = [
        replace(case, tile=cuda_normalised_tiles(workload_of(case), target, "fp16")[0].tile) for case in (wide, long)
    ]
    cases = [every_way()[2], *favourites]
    text = "\n".join(lowered(f"k{number}", case).text for number, case in enumerate(cases))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, architecture)
    assert "warning" not in compiled.log, compiled.log
    assert len(compiled.kernels) == len(cases)
    for name, kernel in compiled.kernels.items():
        assert not kernel.spills, (name, kernel)
        assert not kernel.stack_bytes, (name, kernel)


def test_rows_that_no_warp_holds_or_that_are_kept_in_another_dtype_are_left() -> None:
    long = case_of(normalisation((8,), 1040, 16), "fp16")
    kept = case_of(normalisation((1, 8), 64, 16, kept=True), "fp16")
    other = replace(kept, buffers=(*kept.buffers[:-1], replace(kept.buffers[-1], element=None)))
    assert cuda_normalised_tiles(workload_of(kept), TARGET, "fp16")
    assert not cuda_normalised_tiles(workload_of(other), TARGET, "fp16")
    assert not cuda_normalised_tiles(workload_of(long), TARGET, "fp16")


TIED = """kernel tied(in x: f32[8, 32], in w: f32[32, 16]; temp s: f32[8], temp r: f32[8, 32]; out y: f32[8, 16])
  for m:8
    s[m] = sum<f32> i:32 . mul(x[m, i], x[m, i])
    for i:32: r[m, i] = mul(mul(x[m, i], rsqrt(s[m])), w[i, 0])
    for n:16: y[m, n] = sum<f32> k:32 . mul(r[m, k], w[k, n])
"""


def test_weights_that_make_the_rows_too_are_not_packed_for_the_product() -> None:
    apart = TIED.replace("in w: f32[32, 16];", "in w: f32[32, 16], in v: f32[32, 16];").replace("w[i, 0]", "v[i, 0]")
    tied, untied = (
        workload_of(on_double.case_of(text, constant)) for text, constant in ((TIED, (1,)), (apart, (1, 2)))
    )
    assert as_normalised(tied.kernel) is not None
    assert rows_of(tied) is None
    assert as_normalised(untied.kernel) is not None
