from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.frontend.open.extent import (
    Extent,
    Number,
    Size,
    Undecided,
    divided,
    extent_of,
    greatest,
    high,
    in_steps,
    is_equal,
    is_less,
    least,
    low,
    product,
    size,
    value_at,
)

N, M = size("n", 1, 9), size("m", 0, 5)


@st.composite
def numbers(draw: st.DrawFn) -> Number:
    """Sums, products, quotients and extremes of two sizes and small numbers."""
    found: Number = draw(st.sampled_from((N, M)))
    for _ in range(draw(st.integers(0, 5))):
        other: Number = draw(st.one_of(st.sampled_from((N, M)), st.integers(-6, 6)))
        kind = draw(st.sampled_from(("add", "sub", "mul", "div", "min", "max")))
        if kind == "add":
            found = found + other
        elif kind == "sub":
            found = other - found if draw(st.booleans()) else found - other
        elif kind == "mul":
            found = found * other
        elif kind == "div":
            found = found // draw(st.integers(1, 5))
        else:
            found = (least if kind == "min" else greatest)(found, other)
    return found


SIZES = [{"n": n, "m": m} for n in range(1, 10) for m in range(6)]


@given(numbers())
@settings(max_examples=300)
def test_bounds_hold_for_all_sizes(number: Number) -> None:
    found = [value_at(number, sizes) for sizes in SIZES]
    assert low(number) <= min(found)
    assert max(found) <= high(number)


@given(numbers(), numbers(), st.integers(1, 5))
@settings(max_examples=300)
def test_arithmetic_is_that_of_the_values(one: Number, other: Number, divisor: int) -> None:
    for sizes in SIZES[::7]:
        mine, yours = value_at(one, sizes), value_at(other, sizes)
        assert value_at(one + other, sizes) == mine + yours
        assert value_at(one - other, sizes) == mine - yours
        assert value_at(one * other, sizes) == mine * yours
        assert value_at(one // divisor, sizes) == mine // divisor
        assert value_at(least(one, other), sizes) == min(mine, yours)
        assert value_at(greatest(one, other), sizes) == max(mine, yours)


@given(numbers(), numbers())
@settings(max_examples=300)
def test_what_is_decided_is_true_for_all_sizes(one: Number, other: Number) -> None:
    pairs = [(value_at(one, sizes), value_at(other, sizes)) for sizes in SIZES]
    with contextlib.suppress(Undecided):
        assert {mine == yours for mine, yours in pairs} == {is_equal(one, other)}
    with contextlib.suppress(Undecided):
        assert {mine < yours for mine, yours in pairs} == {is_less(one, other)}


def test_equal_sizes_are_equal_objects() -> None:
    assert (N + M) * (N + M) == N * N + 2 * N * M + M * M
    assert (4 * N + 8) // 4 == N + 2
    assert N - N == 0
    assert isinstance(N * 0, int)
    assert product((N, 3, M)) == 3 * M * N


@pytest.mark.parametrize(
    ("whole", "divisor", "quotient"),
    [(6 * N, 3, 2 * N), (6 * N * M, 2 * M, 3 * N), (N * N - 1, N + 1, N - 1), (N * M + N, M + 1, N), (N, N, 1)],
)
def test_exact_quotients_are_found(whole: Number, divisor: Number, quotient: Number) -> None:
    assert divided(whole, divisor) == quotient


def test_a_quotient_that_is_not_exact_is_undecided() -> None:
    for whole, divisor in ((N, 2), (N, M), (7, N), (N + 1, M)):
        with pytest.raises(Undecided):
            divided(whole, divisor)


def test_quotients_of_neighbours_are_compared_as_fractions() -> None:
    samples = size("samples", 2048, 4096)
    assert least(samples // 256 + 1, (samples + 255) // 256 + 4) == samples // 256 + 1
    assert is_less(samples // 256, (samples + 1) // 256 + 1)


def test_what_differs_for_some_sizes_may_be_equal_for_multiples() -> None:
    assert isinstance(N, Extent)
    (n,) = N.sizes
    up = (N - 1) // 2 + 1
    with pytest.raises(Undecided):
        is_equal(2 * up, N)
    assert is_equal(in_steps(2 * up, n, 2), in_steps(N, n, 2))
    assert in_steps(N, n, 2) == 2 * extent_of([((Size("n", 1, 4, 2),), 1)])


def test_a_range_of_one_size_is_a_number() -> None:
    assert size("k", 3, 3) == 3
