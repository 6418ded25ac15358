from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.graph import Node
from compiler.ir.kernel import Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ops import MODEL_OPERATORS, OPERATORS
from compiler.ops.boxes import SELECT
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import by_onnxruntime, check, prepare, widened

SUPPRESSION = MODEL_OPERATORS["NonMaxSuppression"]
SELECTION = OPERATORS[SELECT]
CORNERS = np.array([0, 0.1, 0.25, 0.3, 0.5, 0.7, 1, 2], np.float32)
"""Few, so that boxes meet, touch, lie in each other and are equal."""
SCORES = np.array([0, 0.2, 0.5, 0.5, 0.9, -1], np.float32)
LIMITS = np.array([0, 1 / 7, 0.25, 1 / 3, 0.5, 0.7, 1], np.float32)


@st.composite
def lattices(draw: st.DrawFn, batches: int = 2, classes: int = 2, count: int = 7) -> dict[str, np.ndarray]:
    """Boxes, scores and limits in which much is equal; some corners and sides give overlaps of exactly a limit."""
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    boxes = chance.choice(CORNERS, (batches, count, 4)).astype(np.float32)
    if draw(st.booleans()):
        boxes[:, 1::2] = boxes[:, : count - 1 : 2]
    scores = chance.choice(SCORES, (batches, classes, count)).astype(np.float32)
    overlap, least = chance.choice(LIMITS), chance.choice(SCORES)
    if draw(st.booleans()):
        scores.flat[chance.integers(scores.size, size=3)] = [np.nan, np.inf, -np.inf]
    limit = draw(st.sampled_from([-1, 0, 1, 3, 7, 100]))
    return {
        "boxes": boxes,
        "scores": scores,
        "limit": np.array([limit]),
        "overlap": overlap.reshape(1),
        "least": least.reshape(1),
    }


def without_nan(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**given, "scores": np.nan_to_num(given["scores"], nan=0.5)}


def chosen(arrays: list[np.ndarray], centred: int) -> np.ndarray:
    """What the reference gives, in float64, as the judge asks it."""
    node, inputs, _ = prepare(SUPPRESSION, arrays, {"center_point_box": centred}, 1)
    (narrow,), (wide,) = (
        SUPPRESSION.reference(node, tuple(each)) for each in (inputs, [widened(array) for array in inputs])
    )
    np.testing.assert_array_equal(narrow, wide)
    return wide


@given(lattices(), st.sampled_from([0, 1]), st.booleans())
@settings(max_examples=150)
def test_the_reference_chooses_what_onnxruntime_does(given: dict[str, Any], centred: int, bounded: bool) -> None:
    arrays = list((given if bounded else without_nan(given)).values())[: 5 if bounded else 4]
    (theirs,) = by_onnxruntime("NonMaxSuppression", arrays, {"center_point_box": centred})
    np.testing.assert_array_equal(chosen(arrays, centred), theirs)


def test_without_a_limit_of_boxes_there_are_none() -> None:
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 1, 3), np.float32)
    assert chosen([boxes, scores], 0).shape == (0, 3)


def test_a_score_that_is_no_number_is_never_chosen() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[np.nan, 0.5]]], np.float32)
    found = chosen([boxes, scores, np.array(2), np.array(0.5, np.float32)], 0)
    assert found.tolist() == [[0, 0, 1]]


def selection(given: dict[str, np.ndarray], centred: int, most: int, bounded: bool = True) -> tuple[Any, ...]:
    """Inputs and attributes of the compiler's own form."""
    size = np.array(given["boxes"].shape[1])
    limits = [given["limit"].reshape(()), given["overlap"].reshape(()), given["least"].reshape(())]
    arrays = [given["boxes"], given["scores"], size, *limits[: 3 if bounded else 2]]
    return arrays, {"center_point_box": centred, "most": most}


@given(lattices(), st.sampled_from([0, 1]), st.integers(1, 7))
@settings(max_examples=60)
def test_the_compilers_own_form_keeps_the_first_ones_and_their_number(
    given: dict[str, Any], centred: int, most: int
) -> None:
    arrays, attrs = selection(given, centred, most)
    found, counts = check(SELECTION, arrays, attrs, 2)
    limit = min(int(given["limit"][0]), most)
    wanted = chosen([*arrays[:2], np.array(limit), *arrays[4:]], centred)
    for place in np.ndindex(*counts.shape):
        mine = wanted[(wanted[:, :2] == place).all(1), 2]
        assert found[place].tolist() == [*mine.tolist(), *[0] * (most - len(mine))]
        assert counts[place] == len(mine)


def test_boxes_beyond_the_size_are_not_there() -> None:
    boxes = np.zeros((1, 4, 4), np.float32)
    scores = np.array([[[0.1, 0.9, 0.95, 0.99]]], np.float32)
    scalars = [np.array(2), np.array(4), np.array(0.5, np.float32)]
    found, counts = check(SELECTION, [boxes, scores, *scalars], {"most": 4}, 2)
    assert (found.tolist(), counts.tolist()) == ([[[1, 0, 0, 0]]], [[2]])


def test_it_is_a_routine_with_its_parameters() -> None:
    given = {"boxes": np.zeros((2, 3, 4), np.float32), "scores": np.zeros((2, 5, 3), np.float32)}
    scalars = {"limit": np.array([1]), "overlap": np.zeros(1, np.float32), "least": np.zeros(1, np.float32)}
    arrays, attrs = selection({**given, **scalars}, 1, 2, bounded=False)
    node, _, types = prepare(SELECTION, arrays, attrs, 2)
    inferred = SELECTION.infer(node, types)
    assert inferred == (TensorType(DType.I64, (2, 5, 2)), TensorType(DType.I64, (2, 5)))
    routine = SELECTION.define(node, types, inferred)
    assert isinstance(routine, Routine)
    assert (routine.name, dict(routine.params)) == ("select_boxes", {"centred": True, "bounded": False})


@pytest.mark.parametrize(
    ("boxes", "scores", "limit"),
    [((1, 3, 5), (1, 1, 3), ()), ((1, 3, 4), (2, 1, 3), ()), ((1, 3, 4), (1, 1, 2), ()), ((1, 3, 4), (1, 1, 3), (1,))],
)
def test_shapes_that_do_not_fit_are_refused(boxes: tuple[int, ...], scores: tuple[int, ...], limit: Any) -> None:
    f32, i64 = DType.F32, DType.I64
    scalars = (TensorType(i64, ()), TensorType(i64, limit), TensorType(f32, ()))
    types = (TensorType(f32, boxes), TensorType(f32, scores), *scalars)
    with pytest.raises(Unsupported, match=r"boxes are|its input 3 is i64\[1\]"):
        SELECTION.infer(Node(SELECT, (0, 1, 2, 3, 4), (5, 6), {"most": 1}), types)
