from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.separable import separable_tiles
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.forms.separable import Halves, as_halves, as_separable
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, check, draws
from tests.compiler.fuse.separables import joined_case, pair_of, separables
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case | None:
    """A joined kernel under any tile, its tile tasks split over several calls; None where the pair was not joined or has another form."""
    pair = pair_of(draw(separables()))
    if pair is None:
        return None
    case = joined_case(*pair, draw(st.integers(0, 99)))
    halves = as_halves(case.workload)
    if halves is None:
        return None
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    return replace(case, tile=draw(tiles(case.workload, halves, target)), cuts=cuts)


@st.composite
def tiles(draw: st.DrawFn, workload: Workload, halves: Halves, target: CpuTarget) -> Tile:
    """One of the tile stage, or an odd one."""
    options = separable_tiles(workload, target, draw(st.integers(1, 4)))
    if draw(st.booleans()) and options:
        return draw(st.sampled_from([one.tile for one in options]))
    view = halves.window_view
    rows, columns, vectors = (draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [1, 2, 4, 5], [1, 2]))
    rows, columns = min(rows, view.rows.output.extent), min(columns, view.columns.output.extent)
    m, panel = draw(st.sampled_from([1, 3, 6, 14])), target.vector_floats * draw(st.integers(1, 3))
    depth = (("k", 256),) if draw(st.booleans()) else ()
    channels = (("channels", vectors * target.vector_floats),) if draw(st.booleans()) else ()
    return Tile(
        "separable",
        (
            Level("block", (("rows", rows * draw(st.integers(1, 3))), *channels, *depth)),
            Level(
                "register",
                (
                    *(("rows", rows), ("columns", columns), ("channels", vectors * target.vector_floats)),
                    *(("m", m), ("n", panel)),
                ),
            ),
        ),
    )


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_joined_kernels_under_any_tile_split_anywhere_mean_what_they_say(lanes: int) -> None:
    drawn = draws(cases(TARGETS[lanes]).filter(lambda case: case is not None), 45)
    check([case for case in drawn if case is not None], TARGETS[lanes], "-O1")


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_sums_over_many_channels_are_taken_in_stretches(lanes: int) -> None:
    s = Sketch(3, DType.F32)
    x = s("Conv", s.x(1, 2, 5, 6), s.normal(900, 2, 1, 1))
    y = s("Conv", x, s.normal(900, 1, 3, 3), pads=(1, 1, 1, 1), group=900)
    y = s("Relu", s("Add", s("Conv", y, s.normal(37, 900, 1, 1), s.normal(37)), s("Conv", x, s.normal(37, 900, 1, 1))))
    pair = pair_of(s.graph(s("MaxPool", y, kernel_shape=(2, 2))))
    assert pair is not None
    case = joined_case(*pair)
    options = [one.tile for one in separable_tiles(case.workload, TARGETS[lanes], 2)]
    by_stretch = [tile for tile in options if tile.extent("block", "k")]
    assert by_stretch
    check([replace(case, tile=tile) for tile in (options[0], *by_stretch[:2])], TARGETS[lanes], "-O1")


def test_images_of_one_pixel_are_not_taken_for_channels_of_one_image() -> None:
    """Side by side in memory, their channels look like those of one image to a pool, which has no weights that tell them apart."""
    s = Sketch(0, DType.F32)
    x = s("Relu", s("Conv", s.x(4, 16, 1, 1), s.normal(16, 16, 1, 1)))
    y = s("AveragePool", x, kernel_shape=(2, 2), pads=(0, 0, 1, 1), count_include_pad=1)
    pair = pair_of(s.graph(s("Softmax", s("Conv", y, s.normal(8, 16, 1, 1)), axis=1)))
    assert pair is not None
    workload = joined_case(*pair).workload
    assert as_separable(workload.kernel) is not None
    assert as_halves(workload) is None


def test_a_task_computes_no_pixel_twice() -> None:
    """The tile tasks share the rows of outputs out, whatever the columns."""
    target = TARGETS[max(TARGETS)]
    judged = 0
    for graph in draws(separables(), 12):
        if (found := pair_of(graph)) is None or (halves := as_halves(joined_case(*found).workload)) is None:
            continue
        workload = joined_case(*found).workload
        for one in separable_tiles(workload, target, 2)[:4]:
            down = halves.window_view.rows.output.extent
            images = halves.view.points // (down * halves.window_view.columns.output.extent)
            assert count_tiles(workload, one.tile, target) == images * -(-down // one.tile.extent("block", "rows"))
            judged += 1
    assert judged > 10
