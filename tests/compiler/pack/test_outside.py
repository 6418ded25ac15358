"""Sequences, optionals and strings between a caller and a program."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

ALPHABET = ["a", "B", "é", "ß", " ", "  ", ",", "monday", "Monday", "İ", "\u0301", "x@y.com", "", "\n", "9"]


def texts(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(int(np.prod(shape)), object)
    array[:] = ["".join(rng.choices(ALPHABET, k=rng.randrange(6))) for _ in range(array.size)]
    return array.reshape(shape)


def by_onnx(op: str, arrays: list[np.ndarray], attrs: dict[str, Any], outputs: int) -> list[np.ndarray]:
    names = [f"x{at}" for at in range(len(arrays))]
    infos = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in names]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    kinds = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in results]
    graph = helper.make_graph([node], "g", infos, kinds)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))]


CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    ("StringConcat", [(2, 3), (3,)], {}, 1),
    ("StringConcat", [(), ()], {}, 1),
    ("StringConcat", [(2, 1), (0,)], {}, 1),
    ("StringSplit", [(4,)], {}, 2),
    ("StringSplit", [(2, 3)], {"maxsplit": 1}, 2),
    ("StringSplit", [(5,)], {"delimiter": ","}, 2),
    ("StringSplit", [(5,)], {"delimiter": "", "maxsplit": 2}, 2),
    ("StringSplit", [(0,)], {}, 2),
    ("StringNormalizer", [(6,)], {"case_change_action": "LOWER"}, 1),
    ("StringNormalizer", [(1, 6)], {"case_change_action": "UPPER", "stopwords": ["Monday"]}, 1),
    ("StringNormalizer", [(6,)], {"is_case_sensitive": 1, "stopwords": ["monday"], "case_change_action": "LOWER"}, 1),
    ("StringNormalizer", [(3,)], {"stopwords": ["monday"], "case_change_action": "NONE"}, 1),
]


@pytest.mark.parametrize(("op", "shapes", "attrs", "outputs"), CASES)
def test_steps_do_what_onnx_does(
    loader: ModuleType, op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], outputs: int
) -> None:
    rng = random.Random(op + str(attrs))
    for _ in range(40):
        arrays = [texts(rng, shape) for shape in shapes]
        found = loader._OPERATORS[op](arrays, attrs)
        wanted = by_onnx(op, arrays, attrs, outputs)
        assert [one.tolist() for one in found] == [one.tolist() for one in wanted]
        assert [one.shape for one in found] == [one.shape for one in wanted]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("a*", ["", "a", "aaa"]),
        (r"\w+", ["a", "aaa", "b9_"]),
        (r"[^@]+@(x|y)\.com", ["a@x.com"]),
        ("(?i)A", ["a"]),
        (r"a\nb|é", ["é", "a\nb"]),
    ],
)
def test_expressions_match_whole_strings_with_classes_of_ascii(
    loader: ModuleType, pattern: str, matched: list[str]
) -> None:
    every = ["", "a", "aaa", "b9_", "a@x.com", "a@x.comm", "é", "a\nb", "a\n", "٣"]
    (found,) = loader._OPERATORS["RegexFullMatch"]([np.array(every, object)], {"pattern": pattern})
    assert found.dtype == np.bool_
    assert [one for one, hit in zip(every, found, strict=True) if hit] == matched


STEPS = [
    {"op": "StringConcat", "inputs": ["x", {"strings": ["!"], "shape": [1]}], "outputs": ["loud"], "attrs": {}},
    {"op": "StringSplit", "inputs": ["loud"], "outputs": ["", "counts"], "attrs": {}},
]


def test_inputs_become_those_of_the_program_and_outputs_those_of_the_caller(loader: ModuleType) -> None:
    described = {"steps": STEPS, "sequences": {"s": 2}, "absent": ["o"], "returned": {"y": 2, "e": 0}, "missing": ["n"]}
    outside = loader._Outside(described, ["s.0", "s.1", "counts", "z"])
    given = {"x": ["a b", b"c"], "s": [1, 2], "o": None, "z": 3}
    taken = outside.taken(given)
    assert {name: np.asarray(one).tolist() for name, one in taken.items()} == {
        "s.0": 1,
        "s.1": 2,
        "z": 3,
        "counts": [2, 1],
    }
    assert given["s"] == [1, 2]
    assert outside.taken(taken) == taken
    found = outside.given({"y.0": 1, "w": 2, "y.1": 3})
    assert found == {"w": 2, "y": [1, 3], "e": [], "n": None}
    assert outside.given(found) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"s": [1]}, "sequence of 2 tensors, not a list of 1"),
        ({"s": np.zeros(2)}, "not a ndarray"),
        ({"o": [1.0]}, "made without"),
        ({}, "input 'x' is missing"),
        ({"x": [1]}, "no array of strings"),
    ],
)
def test_what_does_not_fit_is_named(loader: ModuleType, given: dict[str, Any], said: str) -> None:
    outside = loader._Outside({"steps": STEPS, "sequences": {"s": 2}, "absent": ["o"]}, ["s.0", "s.1", "counts"])
    with pytest.raises(loader.InputError, match=said):
        outside.taken(given)


def test_strings_whose_shapes_do_not_broadcast_are_refused(loader: ModuleType) -> None:
    with pytest.raises(loader.InputError, match="side by side"):
        loader._OPERATORS["StringConcat"]([np.array(["a"] * 2, object), np.array(["b"] * 3, object)], {})
