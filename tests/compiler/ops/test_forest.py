"""Packed trees mean what the model's tables mean."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.graph import Node
from compiler.ir.kernel import Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ops import MODEL_OPERATORS, OPERATORS
from compiler.ops.forest import FOREST, NARROW, WIDE
from compiler.ops.operator import Unsupported
from tests.compiler.ops.forests import MODES, arguments, grown, samples
from tests.compiler.ops.single import check
from tests.seeds import each

RECORD = OPERATORS[FOREST]


def test_no_model_may_contain_it() -> None:
    assert FOREST not in MODEL_OPERATORS


@each(range(60))
def test_a_sample_reaches_the_leaf_that_the_tables_lead_to(seed: int) -> None:
    random = np.random.default_rng(seed)
    modes = [MODES, MODES[:1], MODES[1:2], MODES[2:]][seed % 4]
    targets, one = int(random.integers(1, 4)), bool(seed & 4)
    trees = grown(seed, int(random.integers(1, 20)), int(random.integers(0, 6)), 4, targets, modes, seed % 3 == 0, one)
    x = samples(seed, 23)
    aggregate = "SUM" if one and targets > 1 else ("SUM", "MIN", "MAX")[seed % 3]
    found = trees.packed(aggregate == "SUM")
    assert found is not None
    assert found.weights.shape[1] == (1 if one or targets == 1 else targets)
    (got,) = check(RECORD, *arguments(found, x, aggregate, targets))
    np.testing.assert_allclose(got, trees.says(x, aggregate), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("features", "dtype"), [(40_000, np.float32), (5, np.float64)])
def test_what_has_no_room_in_a_word_of_32_bits_takes_one_of_64(features: int, dtype: type) -> None:
    trees = grown(3, 9, 5, features, dtype=dtype)
    x = samples(3, 11, features, dtype=dtype)
    found = trees.packed()
    assert found is not None
    assert found.layout is WIDE
    (got,) = check(RECORD, *arguments(found, x, "SUM", 1))
    np.testing.assert_allclose(got, trees.says(x, "SUM"), rtol=1e-12)


def test_samples_from_the_size_on_are_zero() -> None:
    trees, x = grown(1, 3, 3), samples(1, 6)
    found = trees.packed()
    assert found is not None
    inputs, attrs = arguments(found, x, "SUM", 1)
    (whole,) = check(RECORD, inputs, attrs)
    (cut,) = check(RECORD, [*inputs, np.array(4)], attrs)
    np.testing.assert_array_equal(cut, np.concatenate([whole[:4], np.zeros((2, 1))]))


def test_a_node_that_asks_for_equality_is_not_packed() -> None:
    assert grown(1, 2, 2, modes=("BRANCH_EQ",)).packed() is None


def test_a_node_to_which_many_branches_lead_is_not_written_out_for_each() -> None:
    trees = grown(1, 1, 1)
    count = 40
    trees.modes = np.array(["BRANCH_LEQ"] * count + ["LEAF"])
    trees.features, trees.missing = np.zeros(count + 1, int), np.zeros(count + 1, bool)
    trees.splits, trees.roots = np.zeros(count + 1, np.float32), np.zeros(1, int)
    trees.yes = trees.no = np.array([*range(1, count + 1), count])
    trees.weights = np.ones((count + 1, 1), np.float32)
    trees.has = trees.weights > 0
    assert trees.packed() is None


def test_parts_of_a_node_come_out_as_they_went_in() -> None:
    for layout in (NARROW, WIDE):
        most = 1 << (layout.step_bits - 1)
        steps, features = np.array([1, most - 1]), np.array([(1 << layout.feature_bits) - 1, 0])
        nodes = layout.pack(np.array([0.5, -1.0]), features, steps, np.array([True, False]), np.array([-1, -1]))
        assert layout.steps(nodes[:, 1]).tolist() == steps.tolist()
        assert layout.features(nodes[:, 1]).tolist() == features.tolist()
        assert (nodes[:, 1] < 0).tolist() == [True, False]
        assert np.ascontiguousarray(nodes[:, 0]).view(layout.numbers).tolist() == [0.5, -1.0]
        assert layout.fits(steps, features, 1)
        assert not layout.fits(steps + 1, features, 1)
        assert not layout.fits(steps, features + 1, 1)


def test_it_is_a_routine_and_tables_that_do_not_fit_are_refused() -> None:
    found = grown(1, 3, 3).packed()
    assert found is not None
    inputs, attrs = arguments(found, samples(1, 2), "SUM", 1)
    types = tuple(TensorType(DType.of(array.dtype), array.shape) for array in inputs)
    node = Node(FOREST, (0, 1, 2, 3, 4), (5,), attrs)
    routine = RECORD.define(node, types, RECORD.infer(node, types))
    assert isinstance(routine, Routine)
    assert routine.name == "forest"
    wrong = (*types[:1], TensorType(DType.I64, types[1].dims), *types[2:])
    with pytest.raises(Unsupported, match="are no trees"):
        RECORD.infer(node, wrong)
