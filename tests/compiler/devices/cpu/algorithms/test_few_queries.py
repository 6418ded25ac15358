"""Attention of few queries under every tile, with keys that masks leave out and others that they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.few_queries import few_queries_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.forms.attention import as_any_attention
from compiler.fuse.joins import replaced
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.devices.cpu.wide import in_float64
from tests.compiler.fuse.few_queries import Form, forms, join_of


def case_of(form: Form, seed: int) -> Case:
    """The one kernel of attention, on buffers as the graph has them."""
    kernels, join = join_of(form)
    whole = replaced(kernels, [join]) if join else kernels
    (call,) = [call for call in whole.calls if as_any_attention(call.kernel)]
    assert isinstance(call.kernel, Kernel)
    random = np.random.default_rng(seed)
    inputs = tuple(
        whole.constants[id] if id in whole.constants else form.array(slot.type, random)
        for id, slot in zip(call.inputs, call.kernel.inputs, strict=True)
    )
    return Case(call.kernel, tuple(geometry(whole.buffers[id]) for id in (*call.inputs, *call.outputs)), inputs)


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case:
    """Under a tile that is proposed, or one with small blocks of keys and register tiles of any size."""
    case = case_of(draw(forms()), draw(st.integers(0, 2**16)))
    case = replace(case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    options = [option.tile for option in few_queries_tiles(case.workload, target, draw(st.sampled_from([1, 2])))]
    return replace(case, tile=draw(st.one_of(st.sampled_from(options), odd_tiles(options[0], target))))


@st.composite
def odd_tiles(draw: st.DrawFn, like: Tile, target: CpuTarget) -> Tile:
    rows, lanes = like.extent("lane", "m"), target.vector_floats
    return Tile(
        "few_queries",
        (
            Level("lane", (("m", rows),)),
            Level("block", (("m", rows), ("n", draw(st.integers(1, 3)) * lanes))),
            Level("register", (("m", draw(st.integers(1, rows))),)),
            Level("vector", (("m", draw(st.integers(1, rows))), ("n", draw(st.integers(1, 4)) * lanes))),
        ),
    )


def check(drawn: Sequence[Case], target: CpuTarget) -> None:
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        (got,), (want,) = library.run(number, case), in_float64(case.kernel, case.inputs)
        description = f"{case}\n{library.lowered[number].text}"
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * largest, err_msg=description)


def test_few_queries_under_any_tile_split_anywhere_mean_what_they_say() -> None:
    drawn = draws(cases(this_machine()), 90)
    assert any(len(case.kernel.inputs) > 3 for case in drawn)
    assert {DType.BF16, DType.I8} <= {slot.type.dtype for case in drawn for slot in case.kernel.inputs}
    assert any(case.tile.extent("block", "n") < case.kernel.temps[0].type.dims[-1] for case in drawn), "no second block"
    check(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_few_queries_are_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(cases(target), 20), target)


def filled(case: Case, seen: slice, number: float) -> Case:
    """Keys and values beside those that are seen are one number; the last place, and that before the first, fit."""
    found = []
    ends = iter((seen.stop - 1, seen.start - 1))
    for slot, array in zip(case.kernel.inputs, case.inputs, strict=True):
        changed = array.copy()
        if slot.type.dims[-2:] in ((16, 40), (40, 20)):
            keys = np.full(40, True)
            keys[seen] = False
            changed[(..., keys) if slot.type.dims[-1] == 40 else (..., keys, slice(None))] = number
        found.append(changed if array.dtype == np.float32 else np.full_like(array, next(ends)))
    return replace(case, inputs=tuple(found))


@pytest.mark.parametrize("new", [1, 4])
@pytest.mark.parametrize(("mask", "first"), [("past", 0), ("reversed", 0), ("window", 18), ("infinite", 0)])
def test_keys_that_a_mask_leaves_out_for_all_rows_are_not_read(mask: str, first: int, new: int) -> None:
    """What is not a number there would show in the results."""
    plain = filled(case_of(Form(new=new, mask=mask, columns=20), 5), slice(first, 23), 0.0)
    spoiled = filled(plain, slice(first, 23), np.nan)
    tile = few_queries_tiles(plain.workload, this_machine(), 1)[0].tile
    drawn = [replace(one, tile=tile) for one in (plain, spoiled)]
    library = Library.of(drawn, this_machine(), "-O1")
    (want,), (got,) = (library.run(at, one) for at, one in enumerate(drawn))
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lowest", [-10000.0, -1e9, -np.inf])
@pytest.mark.parametrize("new", [1, 4])
def test_values_are_not_read_of_blocks_in_which_a_given_mask_leaves_no_weight(lowest: float, new: int) -> None:
    case = case_of(Form(new=new, mask="added", keys=64, columns=20), 5)
    found, spoiled = [], []
    for slot, array in zip(case.kernel.inputs, case.inputs, strict=True):
        changed = array.copy()
        if slot.type.dims[-2:] == (new, 64):
            changed[..., 20:] = lowest
        found.append(changed)
        spoiled.append(changed.copy())
        if slot.type.dims[-2:] == (64, 20):
            spoiled[-1][..., 32:, :] = np.nan
    tile, lanes = few_queries_tiles(case.workload, this_machine(), 1)[0].tile, this_machine().vector_floats
    blocks = Level("block", (("m", tile.extent("block", "m")), ("n", lanes)))
    tile = replace(tile, levels=tuple(blocks if one.name == "block" else one for one in tile.levels))
    drawn = [replace(case, tile=tile, inputs=tuple(one)) for one in (found, spoiled)]
    check(drawn[:1], this_machine())
    library = Library.of(drawn, this_machine(), "-O1")
    (want,), (got,) = (library.run(at, one) for at, one in enumerate(drawn))
    np.testing.assert_array_equal(got, want)


def test_a_score_that_is_no_number_counts_however_low_the_rest_of_its_block_is() -> None:
    case = case_of(Form(mask="added", keys=64, columns=20), 5)
    inputs = []
    for slot, array in zip(case.kernel.inputs, case.inputs, strict=True):
        changed = array.copy()
        if slot.type.dims[-2:] == (1, 64):
            changed[..., 20:], changed[..., 50] = -np.inf, np.nan
        inputs.append(changed)
    case = replace(case, tile=few_queries_tiles(case.workload, this_machine(), 1)[0].tile, inputs=tuple(inputs))
    assert np.isnan(Library.of([case], this_machine(), "-O1").run(0, case)[0]).all()


@pytest.mark.parametrize("number", [-np.inf, np.nan, -3e38])
def test_keys_are_read_where_scores_that_are_seen_are_as_low_as_those_that_are_not(number: float) -> None:
    """The weights of masked keys are then no zeros, or no numbers."""
    drawn = []
    for mask in ("past", "window"):
        case = case_of(Form(mask=mask, columns=20, biased=True), 5)
        inputs = tuple(
            np.full_like(array, number if slot.type.dims[-2:] == (1, 40) else 22)
            if array.dtype == np.int64 or slot.type.dims[-2:] == (1, 40)
            else array
            for slot, array in zip(case.kernel.inputs, case.inputs, strict=True)
        )
        case = replace(case, inputs=inputs)
        drawn.append(replace(case, tile=few_queries_tiles(case.workload, this_machine(), 1)[0].tile))
    check(drawn, this_machine())


def test_a_row_without_any_key_means_all_of_them_alike() -> None:
    case = case_of(Form(columns=20), 5)
    inputs = tuple(np.full_like(array, -4) if array.dtype == np.int64 else array for array in case.inputs)
    case = replace(case, inputs=inputs, tile=few_queries_tiles(case.workload, this_machine(), 1)[0].tile)
    check([case], this_machine())
    (values,) = [array for array in inputs if array.shape[-2:] == (40, 20)]
    (got,) = Library.of([case], this_machine(), "-O1").run(0, case)
    mean = np.broadcast_to(values.astype(np.float64).mean(axis=-2).reshape(1, 2, 1, 1, 20), got.shape)
    np.testing.assert_allclose(got, mean, rtol=1e-5, atol=1e-6)


def test_it_is_proposed_for_few_rows_alone_and_the_cheapest_for_one_token() -> None:
    target = resolve("cpu:x86-64-v4")
    token = case_of(Form(heads=8, groups=4, keys=1024, depth=128, columns=128, mask="none"), 5)
    best = min(legal_tiles(token.workload, target, 1, "fp32"), key=lambda one: one.seconds)
    assert best.tile.algorithm == "few_queries"
    assert token.kernel.inputs[0].type.dtype is DType.F32
