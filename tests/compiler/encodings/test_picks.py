from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.encodings import find
from compiler.encodings.encoding import Use
from compiler.encodings.picks import WINDOWS, Picks, in_panels, order_of, pick_encodings_of, steps_of
from compiler.encodings.sparse import Sparse
from compiler.encodings.zeros import CLASSES
from tests.compiler.encodings.test_combined import packable


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.integers(1, 3),
    st.sampled_from([1, 4, 16]),
    st.integers(16, 90),
    st.sampled_from([(4, 16), (2, 8), (1, 8), (1, 16)]),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    st.integers(0, 2**16),
)
def test_each_weight_is_in_one_step_within_its_window(
    panels: int, lines: int, inputs: int, form: tuple[int, int], share: float, seed: int
) -> None:
    group, window = form
    mask = np.random.default_rng(seed).random((panels, lines, inputs)) < share
    steps = steps_of(mask, group, window)
    found = np.zeros(mask.shape, np.int64)
    for panel in range(panels):
        for step in range(steps.counts[panel]):
            base, places = steps.bases[panel, step], steps.places[panel, step]
            assert 0 <= base <= inputs - window
            assert places.max() < window
            line, _ = np.nonzero(places >= 0)
            found[panel, line, base + places[places >= 0]] += 1
    np.testing.assert_array_equal(found, mask)
    assert (steps.counts >= -(-mask.sum(2).max(1) // group)).all()


def test_lines_that_are_about_as_full_take_hardly_more_steps_than_the_fullest() -> None:
    mask = np.random.default_rng(0).random((1, 16, 2304)) < 0.2
    (count,) = steps_of(mask, 4, 64).counts
    assert count <= 1.1 * mask.sum(2).max() / 4


def test_lines_fill_panels_up() -> None:
    lines = np.arange(10).reshape(5, 2)
    panels = in_panels(lines, 4)
    assert panels.shape == (2, 4, 2)
    np.testing.assert_array_equal(panels.reshape(8, 2)[:5], lines)
    assert not panels[1, 1:].any()


def test_zeros_anywhere_are_told_of_by_both_axes_and_all_windows() -> None:
    weights = (np.random.default_rng(1).random((64, 128)) < 0.1).astype(np.int8)
    found = [one for one in pick_encodings_of(weights, 4) if isinstance(one, Picks)]
    assert {(one.lines, one.along, one.window) for one in found} == {(0, 1, 64), (0, 1, 16), (1, 0, 64), (1, 0, 16)}
    (wide,) = (one for one in found if (one.lines, one.window) == (0, 64))
    places = steps_of(in_panels(weights != 0, 16), 4, 64).counts.sum()
    assert wide.fill(16) == -(-int(places) * CLASSES // (4 * 32))
    assert wide.fill(4) is None
    assert wide.fits((64, 128))
    assert not wide.fits((64, 32))


def test_nothing_is_told_of_what_would_take_about_as_many_steps() -> None:
    half = (np.random.default_rng(2).random((64, 128)) < 0.49).astype(np.int8)
    assert {one.window for one in pick_encodings_of(half, 4) if isinstance(one, Picks)} == {16}, "by four lines alone"
    one_full_line = np.zeros((64, 128), np.int8)
    one_full_line[::16] = 1
    found = {(one.lines, one.window) for one in pick_encodings_of(one_full_line, 4) if isinstance(one, Picks)}
    assert found == {(1, 64), (1, 16), (0, 16)}, "of 64 lines 16 step together with a full one, four need not"
    assert pick_encodings_of(np.zeros((16, 32), np.int8), 4) == ()


def test_only_types_that_are_multiplied_in_groups_tell_of_them() -> None:
    zeros = np.zeros((64, 128), np.float32)
    kinds = {type(one) for one in find(zeros, Use.PRODUCT)}
    assert kinds == {Sparse}
    groups = {one.group for one in find(zeros, Use.BF16_PRODUCT) if isinstance(one, Picks)}
    assert groups == {2}
    assert {one.group for one in find(zeros.astype(np.int8), Use.PRODUCT)} == {4}  # type: ignore[attr-defined]
    assert find(zeros.astype(np.uint8), Use.BF16_PRODUCT) == ()


def test_matrices_of_recurrent_layers_are_told_of_each_by_its_own_steps() -> None:
    """Of which one is zero and one is not, in panels that do not reach from one to the other."""
    weights = np.zeros((2, 40, 64), np.float32)
    weights[1] = np.random.default_rng(3).random((40, 64)) < 0.1
    found = Picks.find(weights, Use.RECURRENCE)
    assert {(one.lines, one.along, one.group, one.window) for one in found} == {(1, 2, 1, at) for at in (8, 16, 32)}
    (of_16,) = (one for one in found if one.window == 16)
    counts = steps_of(in_panels(weights[1] != 0, 16), 1, 16).counts
    assert of_16.fill(16) == -(-int(counts.sum()) * CLASSES // (2 * 3 * 64))
    assert Picks.find(weights.astype(np.float16), Use.RECURRENCE) == ()
    assert Picks.find(np.ones((2, 40, 64), np.float32), Use.RECURRENCE) == ()
    assert Picks.find(weights[:, :, :7].repeat(16, 1), Use.RECURRENCE) == (), "inputs fewer than any window"


@pytest.mark.parametrize("transposed", [False, True])
def test_combined_columns_are_brought_together_so_that_a_step_takes_a_packed_one(transposed: bool) -> None:
    mask = packable(160, 256, 64)
    weights = np.asarray(mask.T if transposed else mask, np.float32)
    found = [one for one in pick_encodings_of(weights, 1) if isinstance(one, Picks)]
    assert {(one.lines, one.ordered) for one in found} == {(int(transposed), True), (int(not transposed), False)}
    (one,) = (each for each in found if each.ordered and each.window == 16)
    assert one.fill(16) == CLASSES // 4
    assert steps_of(in_panels(mask, 16), 1, 16).counts.sum() > 1.15 * 64 * 10, "in the order as it is there are more"
    order = order_of(mask)
    assert order is not None
    assert np.array_equal(np.sort(order), np.arange(256))


def test_zeros_anywhere_and_inputs_in_groups_and_of_gates_are_told_in_the_order_as_it_is() -> None:
    mask = packable(160, 256, 64)
    weights = np.asarray(mask, np.float32)
    anywhere = np.asarray(np.random.default_rng(2).random((160, 256)) < 0.1, np.float32)
    for found in (pick_encodings_of(anywhere, 1), pick_encodings_of(weights, 2), Picks.find(weights, Use.RECURRENCE)):
        assert {isinstance(one, Picks) and one.ordered for one in found} == {False}


@pytest.mark.parametrize(
    "word",
    [
        "picks_1_0_4_64_1_1_ordered",
        "picks_1_0_1_8_1_2_3_sorted",
        "picks_ordered",
        "picks",
        "picks_0_1_4_64_1",
        "picks_0_0_4_64_1_1",
        "picks_0_1_4_32_1_1",
        "picks_0_1_2_8_0_1",
        "picks_0_1_2",
    ],
)
def test_no_other_word_is_an_encoding_of_picks(word: str) -> None:
    with pytest.raises(ValueError, match="no encoding of picks"):
        Picks.read(word)
    for (group, window), widths in WINDOWS.items():
        one = Picks.of(1, 0, group, window, tuple(range(1, 1 + len(widths))))
        assert Picks.read(one.word) == one
    one = Picks.of(1, 0, 1, 8, (1, 2, 3), ordered=True)
    assert Picks.read(one.word) == one
    assert not Picks.of(1, 0, 1, 8, (1, 2, 3)).ordered
