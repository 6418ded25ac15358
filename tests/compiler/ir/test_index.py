from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.expr import Load
from compiler.ir.index import Atom, Axis, FloorDiv, Index, Indirect, Mod, flatten, unflatten
from compiler.ir.tensor import DType
from tests.parse import parse_index

A, B, C, D = AXES = (Axis("a", 2), Axis("b", 3), Axis("c", 4), Axis("d", 6))
Point = Mapping[Axis, int]
Meaning = Callable[[Point], int]


def points(axes: tuple[Axis, ...]) -> Iterator[dict[Axis, int]]:
    for values in itertools.product(*(range(axis.extent) for axis in axes)):
        yield dict(zip(axes, values, strict=True))


def value_at(index: Index, point: Point) -> int:
    return index.const + sum(factor * atom_at(atom, point) for atom, factor in index.terms)


def atom_at(atom: Atom, point: Point) -> int:
    if isinstance(atom, Axis):
        return point[atom]
    assert isinstance(atom, FloorDiv | Mod)
    inner = value_at(atom.index, point)
    return inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor


def leaf(axis: Axis) -> tuple[Index, Meaning]:
    return Index.of(axis), lambda point: point[axis]


def constant(value: int) -> tuple[Index, Meaning]:
    return Index.of(value), lambda point: value


def added(one: tuple[Index, Meaning], two: tuple[Index, Meaning], sign: int) -> tuple[Index, Meaning]:
    return one[0] + two[0] * sign, lambda point: one[1](point) + sign * two[1](point)


def scaled(one: tuple[Index, Meaning], factor: int) -> tuple[Index, Meaning]:
    return one[0] * factor, lambda point: one[1](point) * factor


def divided(one: tuple[Index, Meaning], divisor: int) -> tuple[Index, Meaning]:
    return one[0] // divisor, lambda point: one[1](point) // divisor


def reduced(one: tuple[Index, Meaning], divisor: int) -> tuple[Index, Meaning]:
    return one[0] % divisor, lambda point: one[1](point) % divisor


def steps(inner: st.SearchStrategy[tuple[Index, Meaning]]) -> st.SearchStrategy[tuple[Index, Meaning]]:
    divisors = st.sampled_from((1, 2, 3, 4, 5, 6, 8, 12, 24))
    return st.one_of(
        st.builds(added, inner, inner, st.sampled_from((1, -1))),
        st.builds(scaled, inner, st.sampled_from((-4, -1, 0, 2, 3, 4, 6, 12))),
        st.builds(divided, inner, divisors),
        st.builds(reduced, inner, divisors),
    )


LEAVES = st.one_of(st.sampled_from(AXES).map(leaf), st.integers(-13, 13).map(constant))
INDICES = st.recursive(LEAVES, steps, max_leaves=8)


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(INDICES)
def test_arithmetic_means_what_it_means_on_integers_and_stays_in_its_range(built: tuple[Index, Meaning]) -> None:
    index, meaning = built
    low, high = index.range
    for point in points(AXES):
        assert value_at(index, point) == meaning(point)
        assert low <= meaning(point) <= high


def on_the_way(index: Index, point: Point) -> list[int]:
    """All that computing an index term by term yields: products, sums in every order, the same inside of divisions."""
    products = [factor * atom_at(atom, point) for atom, factor in index.terms]
    inner = [
        value for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod) for value in on_the_way(atom.index, point)
    ]
    below, above = (sum(filter(keep, [*products, index.const])) for keep in ((0).__gt__, (0).__lt__))
    return [*products, *inner, below, above, value_at(index, point)]


@settings(derandomize=True, deadline=None, max_examples=500)
@given(INDICES)
def test_no_value_on_the_way_to_an_index_exceeds_its_magnitude(built: tuple[Index, Meaning]) -> None:
    index, _ = built
    assert max(abs(value) for point in points(AXES) for value in on_the_way(index, point)) <= index.magnitude


def test_a_magnitude_counts_what_cancels_out_in_the_end() -> None:
    i = Axis("i", 10)
    reversed = Index.of(900) - Index.of(i) * 100
    assert (reversed.range, reversed.magnitude) == ((0, 900), 1800)
    assert (Index.of(i) * 70 // 101).magnitude == 630


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(INDICES)
def test_the_normal_form_is_a_fixed_point_and_its_text_reads_back(built: tuple[Index, Meaning]) -> None:
    index, _ = built
    assert index.substitute({}) == index
    assert parse_index(str(index), AXES) == index


@settings(derandomize=True, deadline=None, max_examples=300)
@given(INDICES, INDICES)
def test_substituting_an_axis_means_composing_the_maps(
    built: tuple[Index, Meaning], replacement: tuple[Index, Meaning]
) -> None:
    outer, inner = built[0], replacement[0]
    composed = outer.substitute({AXES[3]: inner})
    for point in points(AXES):
        assert value_at(composed, point) == value_at(outer, {**point, AXES[3]: value_at(inner, point)})


View = Callable[[tuple[Index, ...]], tuple[Index, ...]]


def plain(shape: tuple[int, ...]) -> tuple[Index, ...]:
    return tuple(Index.of(Axis(f"i{axis}", extent)) for axis, extent in enumerate(shape))


def reshape(old: tuple[int, ...], new: tuple[int, ...]) -> View:
    """From an index of the new shape to one of the old."""
    return lambda index: unflatten(flatten(index, new), old)


def transpose(order: tuple[int, ...]) -> View:
    """From an index of the transposed tensor to one of the tensor."""
    return lambda index: tuple(index[order.index(axis)] for axis in range(len(order)))


def seen(shape: tuple[int, ...], *views: View) -> list[str]:
    """What an index of the last of these views reads in the first's tensor."""
    index = plain(shape)
    for view in reversed(views):
        index = view(index)
    return [str(position) for position in index]


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(SHAPES)
def test_flattening_and_unflattening_gives_the_plain_axes_back(shape: tuple[int, ...]) -> None:
    index = plain(shape)
    assert unflatten(flatten(index, shape), shape) == index
    total = 1
    for extent in shape:
        total *= extent
    flat = Index.of(Axis("p", total))
    assert flatten(unflatten(flat, shape), shape) == flat


NESTED = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(NESTED, st.data())
def test_split_axes_that_are_permuted_merged_and_taken_back_vanish(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    whole = tuple(outer * inner for outer, inner in pairs)
    split = tuple(extent for pair in pairs for extent in pair)
    order = tuple(data.draw(st.permutations(range(len(split)))))
    back = tuple(order.index(axis) for axis in range(len(order)))
    turned = tuple(split[axis] for axis in order)
    flat = (math.prod(turned),)
    views = (reshape(whole, split), transpose(order), reshape(turned, flat), reshape(flat, turned), transpose(back))
    assert seen(whole, *views, reshape(split, whole)) == [str(position) for position in plain(whole)]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.permutations((2, 2, 3, 5)), st.permutations((2, 2, 3, 5)), st.integers(1, 3), st.integers(1, 3))
def test_reshapes_that_cross_their_axes_vanish_when_undone(
    one: list[int], two: list[int], cut: int, other: int
) -> None:
    old, new = (math.prod(one[:cut]), math.prod(one[cut:])), (math.prod(two[:other]), math.prod(two[other:]))
    assert seen(old, reshape(old, new), reshape(new, old)) == ["i0", "i1"]


@pytest.mark.parametrize(
    ("name", "got", "expected"),
    [
        (
            "attention heads",
            seen((2, 12, 128, 64), reshape((2, 128, 768), (2, 128, 12, 64)), transpose((0, 2, 1, 3))),
            ["i0", "i2", "64*i1 + i3"],
        ),
        (
            "attention heads and back",
            seen(
                (2, 128, 768),
                reshape((2, 128, 768), (2, 128, 12, 64)),
                transpose((0, 2, 1, 3)),
                reshape((2, 12, 128, 64), (24, 128, 64)),
                reshape((24, 128, 64), (2, 12, 128, 64)),
                transpose((0, 2, 1, 3)),
                reshape((2, 128, 12, 64), (2, 128, 768)),
            ),
            ["i0", "i1", "i2"],
        ),
        (
            "query, key and value in one tensor",
            seen((3, 2, 12, 7, 64), reshape((2, 7, 2304), (2, 7, 3, 12, 64)), transpose((2, 0, 3, 1, 4))),
            ["i1", "i3", "768*i0 + 64*i2 + i4"],
        ),
        (
            "pixel shuffle",
            seen(
                (1, 12, 16, 20),
                reshape((1, 48, 8, 10), (1, 12, 2, 2, 8, 10)),
                transpose((0, 1, 4, 2, 5, 3)),
                reshape((1, 12, 8, 2, 10, 2), (1, 12, 16, 20)),
            ),
            ["0", "4*i1 + 2*((i2)%2) + (i3)%2", "(i2)//2", "(i3)//2"],
        ),
        (
            "pixel shuffle and back",
            seen(
                (1, 48, 8, 10),
                reshape((1, 48, 8, 10), (1, 12, 2, 2, 8, 10)),
                transpose((0, 1, 4, 2, 5, 3)),
                reshape((1, 12, 8, 2, 10, 2), (1, 12, 16, 20)),
                reshape((1, 12, 16, 20), (1, 12, 8, 2, 10, 2)),
                transpose((0, 1, 3, 5, 2, 4)),
                reshape((1, 12, 2, 2, 8, 10), (1, 48, 8, 10)),
            ),
            ["0", "i1", "i2", "i3"],
        ),
        (
            "channel shuffle",
            seen(
                (2, 12, 8),
                reshape((2, 12, 8), (2, 3, 4, 8)),
                transpose((0, 2, 1, 3)),
                reshape((2, 4, 3, 8), (2, 12, 8)),
            ),
            ["i0", "4*((i1)%3) + (i1)//3", "i2"],
        ),
        (
            "window partition",
            seen(
                (256, 49, 96),
                reshape((4, 56, 56, 96), (4, 8, 7, 8, 7, 96)),
                transpose((0, 1, 3, 2, 4, 5)),
                reshape((4, 8, 8, 7, 7, 96), (256, 49, 96)),
            ),
            ["(i0)//64", "7*(((i0)//8)%8) + (i1)//7", "7*((i0)%8) + (i1)%7", "i2"],
        ),
        (
            "window partition and back",
            seen(
                (4, 56, 56, 96),
                reshape((4, 56, 56, 96), (4, 8, 7, 8, 7, 96)),
                transpose((0, 1, 3, 2, 4, 5)),
                reshape((4, 8, 8, 7, 7, 96), (256, 49, 96)),
                reshape((256, 49, 96), (4, 8, 8, 7, 7, 96)),
                transpose((0, 1, 3, 2, 4, 5)),
                reshape((4, 8, 7, 8, 7, 96), (4, 56, 56, 96)),
            ),
            ["i0", "i1", "i2", "i3"],
        ),
        (
            "a reshape that crosses its axes, and back",
            seen((6, 10), reshape((6, 10), (4, 15)), reshape((4, 15), (10, 6)), reshape((10, 6), (6, 10))),
            ["i0", "i1"],
        ),
    ],
)
def test_views_vanish_into_indices(name: str, got: list[str], expected: list[str]) -> None:
    assert got == expected, name


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (Index.of(B) * 4 + C, "4*b + c"),
        ((Index.of(B) * 4 + C) // 4, "b"),
        ((Index.of(B) * 4 + C) % 4, "c"),
        ((Index.of(D) // 3) * 3 + Index.of(D) % 3, "d"),
        ((Index.of(D) // 2) // 3, "0"),
        ((Index.of(A) * 6 + D) // 3, "2*a + (d)//3"),
        ((Index.of(A) * 2 + Index.of(D) // 3) // 4, "0"),
        ((Index.of(B) * 2 + Index.of(D) // 3) // 5, "(6*b + d)//15"),
        (Index.of(D) % 4 % 2, "(d)%2"),
        (Index.of(D) - D, "0"),
        (Index.of(Axis("one", 1)) + 3, "3"),
        (Index.of(D) * -1 + 5, "-d + 5"),
        ((Index.of(D) % 4) * -1, "-((d)%4)"),
        (Index.of(np.int64(3)) + C, "c + 3"),
    ],
)
def test_arithmetic_is_simplified(got: Index, expected: str) -> None:
    assert str(got) == expected


def test_a_coefficient_is_told_only_where_the_index_is_linear() -> None:
    index = Index.of(B) * 4 + Index.of(D) // 2
    assert (index.coefficient(B), index.coefficient(C), index.coefficient(D)) == (4, 0, None)
    assert index.axes == {B, D}


def test_substitution_reaches_into_loaded_indices() -> None:
    loaded = Index.of(Indirect(Load("at", (Index.of(B),), DType.I64), 0, 9))
    moved = (loaded * 2 + D).substitute({B: Index.of(C) + 1})
    assert str(moved) == "2*[at[c + 1] in 0..9] + d"
    assert moved.range == (0, 23)
    assert moved.axes == {C, D}
