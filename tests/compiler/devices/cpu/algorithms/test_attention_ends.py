"""Attention of blocks of queries whose keys end by their places: keys beyond are neither packed nor read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.attention import attention_tiles
from compiler.devices.cpu.attention.cuts import PLACED_KEYS
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP
from tests.compiler.devices.cpu.algorithms.test_few_queries import case_of, check, filled
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.devices.cpu.wide import in_float64
from tests.compiler.fuse.few_queries import PLACED, Form, forms


@st.composite
def tiles(draw: st.DrawFn, algorithm: str, target: CpuTarget) -> Tile:
    """Small blocks, so that there are many of queries and of keys, of which the last ones are shorter."""
    panel = draw(st.integers(1, 2)) * target.vector_floats
    return Tile(
        algorithm,
        (
            Level("lane", (("m", draw(st.integers(3, 40))),)),
            Level("block", (("m", draw(st.integers(2, 9))), ("n", panel * draw(st.integers(1, 3))))),
            Level("register", (("m", draw(st.integers(1, 5))), ("n", panel))),
            Level("vector", (("m", draw(st.integers(1, 5))), ("n", draw(st.integers(1, 2)) * target.vector_floats))),
        ),
    )


def ended(form: Form) -> bool:
    """Whether it is one kernel: rows of a softmax that are made 0 are so for few rows alone."""
    return form.mask in PLACED and not form.dropped


@st.composite
def cases(draw: st.DrawFn, algorithm: str, target: CpuTarget) -> Case:
    form = draw(forms(most=60, new=(4, 5, 8, 20)).filter(ended))
    case = case_of(form, draw(st.integers(0, 2**16)))
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    return replace(case, cuts=cuts, tile=draw(tiles(algorithm, target)))


def test_attention_by_places_under_any_tile_split_anywhere_means_what_it_says() -> None:
    drawn = draws(cases("attention", this_machine()), 60)
    library = Library.of(drawn, this_machine(), "-O1")
    assert all("is_packed" in one.text for one in library.lowered), "a case does not end its keys"
    check(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_it_is_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(cases("attention", target), 15), target)


def test_products_of_pairs_of_bf16_end_so_too() -> None:
    if not this_machine().multiplies_bf16 or this_machine().has_tiles:
        pytest.skip("this machine has no dot products of bf16 in vectors")
    drawn = [with_small_scales(case) for case in draws(cases("bf16_attention", this_machine()), 40)]
    library = Library.of(drawn, this_machine(), "-O1")
    for number, case in enumerate(drawn):
        assert "is_packed" in library.lowered[number].text
        (got,), (want,) = library.run(number, case), in_float64(case.kernel, case.inputs)
        slack = 8 * BF16_STEP * np.abs(want[np.isfinite(want)]).max(initial=0)
        np.testing.assert_allclose(got, want, rtol=0, atol=slack, err_msg=str(case))


def with_small_scales(case: Case) -> Case:
    """Bytes of caches stand for numbers of about 1: of scores of hundreds nothing is left where a product rounds."""
    before = (None, *case.inputs)
    inputs = tuple(
        array / np.float32(64) if one is not None and one.dtype == np.int8 else array
        for one, array in zip(before, case.inputs, strict=False)
    )
    return replace(case, inputs=inputs)


def small(case: Case) -> Case:
    """Under a tile of many blocks."""
    floats = this_machine().vector_floats
    levels = (
        Level("lane", (("m", 8),)),
        Level("block", (("m", 4), ("n", floats))),
        Level("register", (("m", 4), ("n", floats))),
        Level("vector", (("m", 4), ("n", floats))),
    )
    return replace(case, tile=Tile("attention", levels))


@pytest.mark.parametrize(("mask", "first"), [("past", 0), ("reversed", 0), ("window", 18), ("infinite", 0)])
def test_keys_that_a_mask_leaves_out_for_all_rows_are_not_read(mask: str, first: int) -> None:
    """What is not a number there would show in the results: keys are skipped by whole panels."""
    floats = this_machine().vector_floats
    seen = slice(first // floats * floats, -(-23 // floats) * floats)
    form = Form(new=8, mask=mask, columns=20)
    plain = filled(case_of(form, 5), slice(first, 23), 0.0)
    inputs = tuple(
        spoiled_beyond(array, seen) if slot.type.dims[-2:] in ((16, 40), (40, 20)) else array
        for slot, array in zip(plain.kernel.inputs, plain.inputs, strict=True)
    )
    drawn = [small(plain), small(replace(plain, inputs=inputs))]
    library = Library.of(drawn, this_machine(), "-O1")
    (want,), (got,) = (library.run(at, one) for at, one in enumerate(drawn))
    assert np.isfinite(want).all()
    assert any(np.isnan(array).any() for array in inputs if array.dtype == np.float32)
    np.testing.assert_array_equal(got, want)


def spoiled_beyond(array: np.ndarray, seen: slice) -> np.ndarray:
    """With keys that are not numbers but in panels that are seen."""
    keys = np.full(40, True)
    keys[seen] = False
    changed = array.copy()
    changed[(..., keys) if array.shape[-1] == 40 else (..., keys, slice(None))] = np.nan
    return changed


@pytest.mark.parametrize("number", [-np.inf, np.nan, -3e38])
def test_all_keys_are_read_where_scores_that_are_seen_are_as_low_as_those_that_are_not(number: float) -> None:
    drawn = []
    for mask in ("past", "window"):
        case = case_of(Form(new=8, mask=mask, columns=20, biased=True), 5)
        inputs = tuple(
            np.full_like(array, 22)
            if array.dtype == np.int64
            else np.full_like(array, number)
            if slot.type.dims[-2:] == (8, 40)
            else array
            for slot, array in zip(case.kernel.inputs, case.inputs, strict=True)
        )
        drawn.append(small(replace(case, inputs=inputs)))
    check(drawn, this_machine())


def test_rows_without_any_key_mean_all_of_them_alike() -> None:
    case = case_of(Form(new=8, columns=20), 5)
    inputs = tuple(np.full_like(array, -4) if array.dtype == np.int64 else array for array in case.inputs)
    case = small(replace(case, inputs=inputs))
    check([case], this_machine())
    (values,) = [array for array in inputs if array.shape[-2:] == (40, 20)]
    (got,) = Library.of([case], this_machine(), "-O1").run(0, case)
    mean = np.broadcast_to(values.astype(np.float64).mean(axis=-2).reshape(1, 1, 2, 1, 20), got.shape)
    np.testing.assert_allclose(got, mean, rtol=1e-5, atol=1e-6)


def test_blocks_of_keys_are_small_where_keys_end() -> None:
    target = resolve("cpu:x86-64-v4")
    for mask, most in (("past", PLACED_KEYS + 4 * target.vector_floats), ("given", 1024)):
        case = case_of(Form(new=64, keys=1024, mask=mask), 5)
        tile = attention_tiles(case.workload, target, 1)[0].tile
        assert tile.extent("block", "n") <= most
        assert mask == "past" or tile.extent("block", "n") == 1024
