"""Separable convolutions as one kernel on the double of CUDA: windows of any kind, multiplied in every way, under tiles of the tile stage and odd ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.separable.tiles import cuda_separable_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.compiler.fuse.separables import joined_case, pair_of, separables
from tests.compiler.rewrite.sketch import Sketch
from tests.cuda_double.double import MODES, Fault, Mode

F16, BF16 = DType.F16, DType.BF16
TARGET = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
ELEMENTS = {"fp32": None, "tf32": None, "fp16": F16, "bf16": BF16}
TOLERANCE = {"fp32": 5e-5, "tf32": 3e-3, "fp16": 5e-3, "bf16": 4e-2}


def separable(
    channels: int,
    columns: int,
    size: tuple[int, int],
    taps: int = 3,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    batch: int = 1,
    before: str = "",
    residual: bool = False,
) -> Graph:
    """As mobile networks have it: an expansion, a depthwise convolution and its activation, a projection; `before` is a map on what the window reads."""
    s = Sketch(channels + columns, DType.F32)
    y = s("Conv", s.x(batch, channels, *size), s.normal(channels, channels, 1, 1))
    y = s(before, y) if before else y
    window = {"kernel_shape": (taps, taps), "strides": (stride, stride), "dilations": (dilation, dilation)}
    y = s("Conv", y, s.normal(channels, 1, taps, taps), s.normal(channels), group=channels, pads=pads, **window)
    y = s("Clip", y, s.c(0.0), s.c(6.0))
    y = s("Conv", y, s.normal(columns, channels, 1, 1), s.normal(columns))
    if residual:
        y = s("Add", y, s("Conv", s.x(batch, 4, *s.dims(y)[2:]), s.normal(columns, 4, 1, 1)))
    y = s("Conv", s("Relu", y), s.normal(8, columns, 1, 1))
    return s.graph(y)


def stored(case: Case, precision: str, short: Sequence[int] = ()) -> Case:
    """A case whose tensors, or those at some positions alone, lie in memory as a precision has them."""
    buffers = [
        stored_as(buffer, ELEMENTS[precision] if at in short or not short else None)
        for at, buffer in enumerate(case.buffers)
    ]
    return replace(case, buffers=tuple(buffers), tolerance=TOLERANCE[precision])


def case_of(graph: Graph, precision: str) -> Case:
    """The first join of a graph, with its buffers."""
    kernels = fuse(graph).kernels
    return stored(joined_case(kernels, joins(kernels)[0]), precision)


def tile_of(
    algorithm: str,
    m: int,
    rows: int,
    n: int,
    k: int,
    part: tuple[int, int],
    strip: tuple[int, int] = (1, 1),
    stages: int = 3,
    parts: int = 1,
    by: str = "grid",
) -> Tile:
    inner = Level("thread" if algorithm == "separable_ffma" else "warp", (("m", part[0]), ("n", part[1])))
    grid = (Level(by, (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages), ("rows", rows)))
    return Tile(algorithm, (*grid, block, inner, Level("register", (("rows", strip[0]), ("columns", strip[1])))))


def lowered(name: str, case: Case) -> CudaLowered:
    return lower_cuda(name, workload_of(case), case.tile, TARGET)


def check(cases: Sequence[Case], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL) -> list[CudaLowered]:
    """Compares each case under its tile with what its kernel means."""
    subjects = [Subject(case, lowered(f"k{number}", case)) for number, case in enumerate(cases)]
    on_double.check(subjects, flavour, modes)
    return [subject.lowered for subject in subjects]


@st.composite
def tiled(draw: st.DrawFn) -> Case | None:
    """A joined kernel in a precision under one of the tiles for it; None for what is not taken."""
    pair = pair_of(draw(separables()))
    precision = draw(st.sampled_from(["fp32", "fp32", "fp32", "tf32", "fp16", "fp16", "bf16"]))
    if pair is None:
        return None
    case = joined_case(*pair)
    tensors = st.sampled_from([at for at in range(len(case.buffers)) if at not in case.constant])
    case = stored(case, precision, draw(st.sampled_from([(), (), [*draw(st.sets(tensors)), *case.constant]])))
    options = cuda_separable_tiles(workload_of(case), TARGET, precision)
    if not options:
        return None
    algorithm = draw(st.sampled_from(sorted({option.tile.algorithm for option in options})))
    tiles = [option.tile for option in options if option.tile.algorithm == algorithm]
    return replace(case, tile=draw(st.sampled_from(tiles)))


@needs_double
def test_separable_convolutions_mean_what_they_say_under_every_tile() -> None:
    drawn = [case for case in draws(tiled(), 160) if case is not None]
    assert len(drawn) > 25
    assert len({case.tile.algorithm for case in drawn}) > 1
    check(drawn)


def every_way() -> list[Case]:
    """Each product, steps of one and of many, split in both ways, ragged channels and pixels, windows that overlap and that do not."""
    wide = separable(72, 40, (9, 11), residual=True)
    strided = separable(48, 24, (13, 13), stride=2, pads=(0, 0, 1, 1))
    return [
        replace(case_of(graph, precision), tile=tile)
        for graph, precision, tile in (
            (wide, "fp16", tile_of("separable", 32, 4, 32, 32, (16, 16), (2, 2))),
            (wide, "fp16", tile_of("separable", 32, 2, 40, 32, (32, 8), (1, 4), stages=4)),
            (wide, "bf16", tile_of("separable", 64, 8, 64, 32, (32, 32), (2, 4))),
            (wide, "tf32", tile_of("separable_tf32", 16, 4, 32, 16, (16, 8))),
            (wide, "fp32", tile_of("separable_3xtf32", 32, 4, 32, 16, (16, 16), (1, 2))),
            (wide, "fp32", tile_of("separable_ffma", 32, 4, 32, 16, (4, 4))),
            (strided, "fp16", tile_of("separable", 16, 4, 16, 64, (16, 8), stages=1)),
            (strided, "fp16", tile_of("separable", 16, 2, 32, 32, (16, 16), (1, 2), parts=2, stages=1)),
            (wide, "fp16", tile_of("separable", 16, 4, 32, 32, (16, 8), parts=2)),
            (wide, "fp32", tile_of("separable_3xtf32", 16, 4, 32, 32, (16, 16), parts=3, stages=1)),
            (
                separable(32, 64, (8, 8), 5, pads=(2,) * 4, batch=2),
                "fp16",
                tile_of("separable", 16, 4, 64, 32, (16, 16)),
            ),
            (
                separable(32, 24, (15, 15), dilation=2, before="Relu"),
                "fp16",
                tile_of("separable", 32, 4, 32, 32, (16, 16)),
            ),
        )
    ]


def in_clusters() -> list[Case]:
    graph = separable(136, 24, (7, 7), residual=True)
    return [
        replace(case_of(graph, "fp16"), tile=tile_of("separable", 16, 4, 32, 32, (16, 16), parts=4, by="cluster")),
        replace(case_of(graph, "fp16"), tile=tile_of("separable", 32, 4, 32, 64, (16, 16), parts=2, by="cluster")),
    ]


@needs_double
def test_every_way_is_without_races() -> None:
    check([*every_way(), *in_clusters()], "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
def test_results_do_not_depend_on_who_runs_when_and_when_copies_land(mode: Mode) -> None:
    check([*every_way()[:2], every_way()[8], *in_clusters()], modes=[mode])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("tw_cp_async_wait<0>();\n", "\n"),
        ("__syncthreads();\n        if (step + 2", "if (step + 2"),
        ("? 16 : 0", "? 16 : 16"),
        ("% 2 * 2560", "% 1 * 2560"),
        ("first_Ox + across) - 1 >= 0", "first_Ox + across) >= 0"),
        ("OyTile * 4 + OyIn < 9", "OyTile * 4 + OyIn < 12"),
        ("if (channel < 72)", "if (true)"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case = every_way()[0]
    one = lowered("k", case)
    assert line in one.text
    broken = replace(one, text=one.text.replace(line, without))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[4:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_every_architecture_without_spills(architecture: str) -> None:
    cases = [*every_way(), *in_clusters(), *favourites(architecture)]
    text = "\n".join(lowered(f"k{number}", case).text for number, case in enumerate(cases))
    compiled = nvrtc.compile_cuda(PREAMBLE + text, architecture)
    assert "warning" not in compiled.log
    clusters = sum(case.tile.extent("cluster", "k") > 0 for case in cases)
    assert len(compiled.kernels) == len(cases) - (0 if architecture == "sm_90a" else clusters)
    for name, kernel in compiled.kernels.items():
        assert not kernel.spills, (name, kernel)
        assert not kernel.stack_bytes, (name, kernel)


def favourites(architecture: str) -> list[Case]:
    """What the model likes best of layers of MobileNet V2, NASNet and Xception."""
    target = next(profile for profile in PROFILES if profile.architecture == architecture)
    found = []
    for graph in (
        separable(96, 24, (112, 112), stride=2, pads=(0, 0, 1, 1)),
        separable(384, 64, (14, 14), residual=True),
        separable(176, 176, (14, 14), 7, pads=(3,) * 4, before="Relu"),
        separable(728, 728, (19, 19), before="Relu"),
    ):
        case = case_of(graph, "fp16")
        found.append(replace(case, tile=cuda_separable_tiles(workload_of(case), target, "fp16")[0].tile))
    return found
