"""What tile tasks work on, beside what is counted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one, row_major_boxes
from compiler.ir.index import Axis
from compiler.ir.interval import Limits
from compiler.ir.kernel import Kernel

Point = tuple[int, ...]


def kernel_of(axes: tuple[Axis, ...]) -> Kernel:
    return Kernel("Map", (), (), (), shared=axes)


def points_in(boxes: Iterable[Limits], axes: tuple[Axis, ...]) -> list[Point]:
    """The points of boxes, one after the other."""
    found: list[Point] = []
    for box in boxes:
        ends = [box.get(axis, axis.range) for axis in axes]
        found += itertools.product(*(range(low, high + 1) for low, high in ends))
    return found


def task_of(point: dict[Axis, int], grid: TaskGrid) -> int:
    """By the definition: places are counted row-major, a task takes some of them, tasks are counted row-major."""
    task = 0
    for level in grid.levels:
        place = 0
        for axis, step in zip(level.axes, level.steps or [1] * len(level.axes), strict=True):
            place = place * -(-axis.extent // step) + point[axis] // step
        places = prod(level.places)
        task = task * -(-places // level.take) + place // level.take
    return task


@st.composite
def grids(draw: st.DrawFn) -> TaskGrid:
    """Of one to four axes, some of them counted together, some cut in steps, some not cut at all."""
    count = draw(st.integers(1, 4))
    axes = tuple(Axis(f"a{at}", draw(st.integers(1, 6))) for at in range(count))
    left = axes
    levels: list[Cut] = []
    while left and draw(st.integers(0, 4)) > 0:
        many = draw(st.integers(1, len(left)))
        steps = tuple(draw(st.integers(1, 4)) for _ in range(many)) if draw(st.booleans()) else ()
        levels.append(Cut(left[:many], draw(st.integers(1, 7)), steps))
        left = left[many:]
    return TaskGrid(kernel_of(axes), tuple(levels))


@given(grids(), st.data())
def test_the_boxes_of_a_stretch_hold_each_point_of_its_tasks_once_and_no_other(
    grid: TaskGrid, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, grid.tasks))
    last = data.draw(st.integers(first, grid.tasks))
    axes = grid.kernel.shared
    everything = itertools.product(*(range(axis.extent) for axis in axes))
    wanted = [p for p in everything if first <= task_of(dict(zip(axes, p, strict=True)), grid) < last]
    assert sorted(points_in(grid.boxes(first, last), axes)) == wanted


@given(grids())
def test_each_task_has_points_of_its_own(grid: TaskGrid) -> None:
    found = [points_in(grid.boxes(task, task + 1), grid.kernel.shared) for task in range(grid.tasks)]
    assert all(found)
    assert sum(map(len, found)) == prod(axis.extent for axis in grid.kernel.shared)


def test_a_stretch_of_whole_rows_is_one_box() -> None:
    rows, columns = Axis("y", 8), Axis("x", 5)
    grid = TaskGrid(kernel_of((rows, columns)), one_by_one((rows, columns)))
    assert [*grid.boxes(10, 30)] == [{rows: (2, 5), columns: (0, 4)}]


def test_a_stretch_that_begins_and_ends_within_rows_has_a_head_and_a_tail() -> None:
    assert [*row_major_boxes((4, 5), 3, 16)] == [((0, 0), (3, 4)), ((1, 2), (0, 4)), ((3, 3), (0, 1))]


def test_the_last_task_of_a_level_takes_what_is_left() -> None:
    axis = Axis("x", 10)
    assert Cut((axis,), 4).boxes(2, 2) == [{axis: (8, 9)}]
    assert Cut((axis,), 1, (4,)).boxes(2, 2) == [{axis: (8, 9)}]


@pytest.mark.parametrize("stretch", [(0, 0), (3, 3)])
def test_a_stretch_without_tasks_has_no_points(stretch: tuple[int, int]) -> None:
    axis = Axis("x", 5)
    assert [*TaskGrid(kernel_of((axis,)), (Cut((axis,)),)).boxes(*stretch)] == []


def test_without_levels_one_task_does_everything() -> None:
    grid = TaskGrid(kernel_of((Axis("x", 5),)), ())
    assert grid.tasks == 1
    assert [*grid.boxes(0, 1)] == [{}]
