"""Chains of reshapes and transposes against numpy."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.rewrite.program import Program
from compiler.rewrite.rearrangement import Rearrangement, of_node, transposed
from tests.compiler.rewrite.sketch import Sketch


def random_shape(rng: np.random.Generator, elements: int) -> tuple[int, ...]:
    """Extents whose product is `elements`, with some of 1."""
    dims: list[int] = []
    while elements > 1 and len(dims) < 4:
        extent = int(rng.choice([n for n in range(1, elements + 1) if elements % n == 0]))
        dims.append(extent)
        elements //= extent
    return (*dims, elements) if elements > 1 or not dims else tuple(dims)


def random_chain(seed: int, length: int) -> tuple[np.ndarray, np.ndarray, list[Rearrangement]]:
    """An array, what numpy makes of it by a chain, and the chain's links."""
    s = Sketch(seed)
    dims = random_shape(s.rng, int(s.rng.choice([6, 12, 24, 30])))
    array = np.arange(prod(dims)).reshape(dims)
    result, value, links = array, s.x(*dims), []
    for _ in range(length):
        if s.rng.integers(2):
            perm = tuple(int(axis) for axis in s.rng.permutation(result.ndim))
            result, value = result.transpose(perm), s("Transpose", value, perm=perm)
        else:
            shape = random_shape(s.rng, result.size)
            result, value = result.reshape(shape), s("Reshape", value, None, shape=shape)
        link = of_node(Program(s.graph()), s.nodes[-1])
        assert link is not None
        links.append(link)
    return array, result, links


def joined(links: list[Rearrangement]) -> Rearrangement | None:
    whole: Rearrangement | None = links[0]
    for link in links[1:]:
        whole = whole.then(link) if whole is not None else None
    return whole


def by_nodes(array: np.ndarray, one: Rearrangement) -> np.ndarray:
    for op, dims in one.writes():
        array = array.transpose(dims) if op == "Transpose" else array.reshape(dims)
    return array


CHAINS = {"seed": st.integers(0, 2**32 - 1), "length": st.integers(1, 4)}


@settings(max_examples=400)
@given(**CHAINS)
def test_a_chain_is_one_rearrangement_of_at_most_three_nodes(seed: int, length: int) -> None:
    array, result, links = random_chain(seed, length)
    whole = joined(links)
    if whole is None:
        assert length > 1
        return
    np.testing.assert_array_equal(whole.of_array(array), result)
    np.testing.assert_array_equal(by_nodes(array, whole), result)
    assert len(whole.writes()) <= min(3, length)
    assert whole.nothing is (array.shape == result.shape and bool((array == result).all()))


@settings(max_examples=200)
@given(**CHAINS)
def test_the_inverse_undoes_it(seed: int, length: int) -> None:
    array, result, links = random_chain(seed, length)
    if (whole := joined(links)) is not None:
        np.testing.assert_array_equal(whole.inverse().of_array(result), array)
        both = whole.then(whole.inverse())
        assert both is not None
        assert both.nothing


@settings(max_examples=300)
@given(**CHAINS)
def test_what_broadcasts_before_broadcasts_after_in_the_same_way(seed: int, length: int) -> None:
    array, _, links = random_chain(seed, length)
    if (whole := joined(links)) is None:
        return
    rng = np.random.default_rng(seed)
    dims = tuple(extent if rng.integers(2) else 1 for extent in array.shape)[int(rng.integers(array.ndim + 1)) :]
    part = rng.normal(size=dims)
    wanted = whole.of_array(np.broadcast_to(part, array.shape))
    found = whole.of_broadcast(part)
    np.testing.assert_array_equal(np.broadcast_to(found, whole.result), wanted)
    assert found.size <= wanted.size


@settings(max_examples=300)
@given(**CHAINS)
def test_where_the_last_axes_stay_they_may_have_other_extents(seed: int, length: int) -> None:
    array, _, links = random_chain(seed, length)
    whole = joined(links)
    if whole is None:
        return
    for count in range(1, min(len(whole.source), len(whole.result)) + 1):
        moved = whole.on_leading(count, (5,))
        # an element's place along the last axes is what it was
        place = np.arange(prod(array.shape[-count:])).reshape(array.shape[-count:])
        stays = whole.source[-count:] == whole.result[-count:] and bool(
            (whole.of_array(np.broadcast_to(place, array.shape)) == place).all()
        )
        assert stays or moved is None
        if moved is not None:
            rows = np.arange(prod(array.shape[:-count]) * 5).reshape(*array.shape[:-count], 5)
            found = moved.of_array(rows)
            assert (found % 5 == np.arange(5)).all()
            index = np.arange(array.size).reshape(array.shape) // prod(array.shape[-count:])
            np.testing.assert_array_equal(
                found[..., 0] // 5, whole.of_array(index).reshape(*found.shape[:-1], -1)[..., 0]
            )


def test_a_transpose_that_only_moves_unit_axes_moves_nothing() -> None:
    assert not transposed((1, 3, 1, 4), (1, 0, 3, 2)).moves
    assert transposed((1, 3, 4), (2, 0, 1)).perm == (2, 0, 1)
