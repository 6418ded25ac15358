from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.gemv import gemv_tiles
from compiler.devices.cpu.emit.lower import _tasks, count_tiles, lower, task_grid
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles
from compiler.devices.cpu.target import this_machine
from compiler.forms.contraction import as_contraction
from compiler.forms.normal_form import Slots, rename_axes
from compiler.forms.operand import operand
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from tests.compiler.devices.cpu.emit.test_regions import FAMILIES, HERE
from tests.compiler.devices.cpu.library import LOOPS, Case, array_of, check
from tests.parse import parse_kernel

PRODUCT = """
kernel MatMul(in {x}: f32[{m}, 19], in {w}: f32[19, 21], in {bias}: f32[21]; temp {t}: f32[{m}, 21]; \
out {y}: f32[{m}, 21])
  for int:{m}, panel:21
    {t}[int, panel] = sum<f32> count:19 . mul({x}[int, count], {w}[count, panel])
    {y}[int, panel] = add({t}[int, panel], {bias}[panel])
"""
NAMES = (
    ("a", "b", "c", "rows", "panels"),
    ("next", "acc", "double", "scratch", "p"),
    ("tile", "held", "x_at", "v_1", "y0"),
)
"""Of the slots x, w, bias, t and y: names that generated code, or C, has a use for."""

GATHERED = """
kernel Conv(in x: f32[7, 9, 5], in w: f32[5, 18]; out y: f32[7, 9, 18])
  for row:7, col:9, n:18
    y[row, col, n] = sum<f32> k:5 . mul(where(ge(#(row + col + k):i64, 4:i64), x[row, col, k], 0.0:f32), w[k, n])
"""


def case_of(kernel: Kernel, constant: tuple[int, ...] = ()) -> Case:
    random = np.random.default_rng(0)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return Case(kernel, buffers, tuple(array_of(slot.type, random) for slot in kernel.inputs), constant=constant)


def test_what_tile_tasks_work_on_is_known_before_any_text_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every algorithm but routines, as text that is written later says."""
    asked = [case for _, drawn in FAMILIES for case in drawn()[::10]]
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "line", lambda writer, text="": pytest.fail(f"wrote {text}"))
        _tasks.cache_clear()
        counted = [
            (count_tiles(case.workload, case.tile, HERE), task_grid(case.workload, case.tile, HERE)) for case in asked
        ]
    assert len({case.tile.algorithm for case in asked}) >= 8
    for case, (tiles, grid) in zip(asked, counted, strict=True):
        lowered = lower("k0", case.workload.nameless, case.tile, HERE)
        assert (lowered.tiles, lowered.grid) == (tiles, grid), case


def test_slots_and_axes_may_have_the_names_of_c_variables() -> None:
    cases = []
    for names in NAMES:
        slots = dict(zip(("x", "w", "bias", "t", "y"), names, strict=True))
        several, few = (case_of(parse_kernel(PRODUCT.format(m=m, **slots)), (1,)) for m in (9, 2))
        tiles = [option.tile for option in contraction_tiles(several.workload, this_machine(), 1)]
        cases += [replace(several, tile=tile) for tile in (tiles[0], LOOPS)]
        cases += [replace(several, tile=tiles[0], constant=())]
        cases += [replace(few, tile=option.tile) for option in gemv_tiles(few.workload, this_machine(), 1)]
    check(cases, optimise="-O1")


def test_gathered_rows_may_have_an_axis_called_row() -> None:
    case = case_of(parse_kernel(GATHERED), (1,))
    view = as_contraction(case.workload)
    assert view is not None
    assert operand(view, Slots(case.workload), {}) is None
    tiles = [option.tile for option in contraction_tiles(case.workload, this_machine(), 1)]
    check([replace(case, tile=tile) for tile in tiles[:3]], optimise="-O1")


@pytest.mark.parametrize("names", [("x", "X", "x_2"), ("x_2", "x", "X"), ("X", "x_2", "x")])
def test_axes_stay_apart_when_their_names_become_equal(names: tuple[str, ...]) -> None:
    one, two, three = names
    kernel = parse_kernel(
        f"kernel Copy(in t0: f32[2, 2, 2]; out y0: f32[2, 2, 2])\n"
        f"  for {one}:2, {two}:2, {three}:2\n"
        f"    y0[{one}, {two}, {three}] = t0[{three}, {one}, {two}]\n"
    )
    renamed = rename_axes(kernel, str.capitalize)
    renamed.verify()
    assert len({axis.name for axis in renamed.shared}) == 3
