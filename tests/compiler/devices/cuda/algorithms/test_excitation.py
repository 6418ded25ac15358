"""Squeeze and excitation as one kernel on the double of CUDA.

However channels and positions are shared out, in clusters and through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.excitation.tiles import cuda_excitation_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.fuse import fuse
from compiler.fuse.excitation import excitations as chains
from compiler.fuse.joins import Join
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import (
    ADVERSARIAL,
    Subject,
    at_any_rank,
    needs_double,
    stored_as,
    workload_of,
)
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.compiler.fuse.excitations import excitation, excitations
from tests.compiler.fuse.separables import joined_case
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels

F16, BF16 = DType.F16, DType.BF16
TARGET = next(profile for profile in PROFILES if profile.name == "cuda:sm_90")
TOLERANCE = {None: 5e-5, F16: 3e-3, BF16: 2e-2}


def case_of(graph: Graph, element: DType | None = None) -> Case | None:
    """The chain of a graph as one kernel; its weights and activations as `element`."""
    kernels = fuse(graph).kernels
    found = chains(kernels)
    if not found:
        return None
    case = joined_case(kernels, Join("excitation", *found[0]))
    buffers = tuple(stored_as(buffer, element) for buffer in case.buffers)
    return replace(case, buffers=buffers, tolerance=TOLERANCE[element])


def tile_of(by: str, channels: int, positions: int, threads: int) -> Tile:
    return Tile(
        "excitation",
        (Level(by, (("channels", channels), ("positions", positions))), Level("block", (("threads", threads),))),
    )


def lowered(name: str, case: Case) -> CudaLowered:
    return lower_cuda(name, workload_of(case), case.tile, TARGET)


def check(cases: Sequence[Case], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL) -> None:
    """Compares each case under its tile with what its kernel means."""
    on_double.check([Subject(case, lowered(f"k{at}", case)) for at, case in enumerate(cases)], flavour, modes)


@st.composite
def tiled(draw: st.DrawFn) -> Case | None:
    """An excitation under one of the tiles for it; None for what is not taken."""
    case = case_of(draw(excitations()), draw(st.sampled_from([None, F16, F16, BF16])))
    options = cuda_excitation_tiles(workload_of(case), TARGET, "fp16") if case else []
    return replace(case, tile=draw(st.sampled_from(options)).tile) if case and options else None


@needs_double
def test_excitations_mean_what_they_say_under_every_tile() -> None:
    drawn = [case for case in draws(tiled(), 80) if case is not None]
    assert len(drawn) > 40
    assert {level.name for case in drawn for level in case.tile.levels} == {"cluster", "grid", "block"}
    check(drawn)


def every_way() -> list[Case]:
    """One block and many, in clusters and through memory; parts that are not whole; several images."""
    wide, few = excitation(136, 18, (14, 9)), excitation(72, 24, (7, 7), batch=2, columns=50)
    pairs = [
        (case_of(graph, element), tile)
        for graph, element, tile in (
            (wide, F16, tile_of("grid", 1, 1, 256)),
            (wide, F16, tile_of("grid", 4, 4, 128)),
            (wide, F16, tile_of("cluster", 4, 2, 128)),
            (wide, None, tile_of("cluster", 2, 4, 128)),
            (few, F16, tile_of("cluster", 2, 1, 256)),
            (few, BF16, tile_of("cluster", 1, 4, 128)),
            (few, None, tile_of("grid", 2, 4, 128)),
        )
    ]
    return [replace(case, tile=tile) for case, tile in pairs if case is not None]


@needs_double
def test_every_way_is_without_races() -> None:
    assert len(every_way()) == 7
    check(every_way(), "checked", MODES[4:6])


@needs_double
@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_blocks_that_are_no_cluster_mean_the_same_at_every_rank_of_one(flavour: str) -> None:
    """In a launch beside a kernel with clusters, whose size all of its blocks share."""
    few = case_of(excitation(72, 24, (7, 7), batch=3, columns=50), F16)
    assert few is not None
    cases = [
        replace(few, tile=tile_of(*tile)) for tile in (("cluster", 1, 1, 128), ("grid", 1, 1, 128), ("grid", 2, 2, 128))
    ]
    subjects = [Subject(case, at_any_rank(lowered(f"k{at}", case))) for at, case in enumerate(cases)]
    on_double.check(subjects, flavour, MODES[:5])


@needs_double
@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
def test_results_do_not_depend_on_who_runs_when_and_when_copies_land(mode: Mode) -> None:
    check(every_way()[1:5], modes=[mode])


@needs_double
def test_equal_inputs_give_equal_bits() -> None:
    for case in (every_way()[1], every_way()[2]):
        one = lowered("k", case)
        module = compile_kernels(PREAMBLE + one.text, "plain")
        results = []
        for mode in MODES[:5]:
            with Device(module, mode) as device:
                results.append(on_double.run(device, Subject(case, one))[0])
        assert all((result == results[0]).all() for result in results)


@needs_double
@pytest.mark.parametrize(
    ("which", "line", "without"),
    [
        (2, "tw_cp_async_wait<0>();\n", "\n"),
        (2, "    tw_cluster_arrive();\n    tw_cluster_wait();\n", "__syncthreads();\n"),
        (2, "hidden[at] = result;\n        }\n    }\n    __syncthreads();", "hidden[at] = result;\n        }\n    }\n"),
        (1, "row[at] = result;\n        }\n    }\n    __syncthreads();", "row[at] = result;\n        }\n    }\n"),
        (1, "if (position < 126)", "if (true)"),
    ],
)
def test_a_mistake_is_found(which: int, line: str, without: str) -> None:
    """So that the tests above say something."""
    case = every_way()[which]
    one = lowered("k", case)
    assert line in one.text, one.text
    broken = replace(one, text=one.text.replace(line, without, 1))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([Subject(case, broken)], "checked", MODES[:7])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_every_architecture_without_spills(architecture: str) -> None:
    cases = [*every_way(), *favourites(architecture)]
    compiled = nvrtc.compile_cuda(
        PREAMBLE + "\n".join(lowered(f"k{at}", case).text for at, case in enumerate(cases)), architecture
    )
    assert "warning" not in compiled.log
    clusters = sum(case.tile.extent("cluster", "channels") > 0 for case in cases)
    assert len(compiled.kernels) == len(cases) - (0 if architecture == "sm_90a" else clusters)
    for name, kernel in compiled.kernels.items():
        assert not kernel.spills, (name, kernel)
        assert not kernel.stack_bytes, (name, kernel)


def favourites(architecture: str) -> list[Case]:
    """What the model likes best of layers of EfficientNet B0 and MobileNet V3."""
    target = next(profile for profile in PROFILES if profile.architecture == architecture)
    found = []
    for graph in (excitation(32, 8, (112, 112)), excitation(480, 20, (14, 14)), excitation(960, 240, (7, 7))):
        case = case_of(graph, F16)
        assert case is not None
        found.append(replace(case, tile=cuda_excitation_tiles(workload_of(case), target, "fp16")[0].tile))
    return found
