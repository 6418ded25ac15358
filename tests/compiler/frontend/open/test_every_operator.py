"""Every operator with its first input open along each axis: it compiles and computes the same, or a list says why not.

Models and data are those of onnx's conformance suite, two for each operator. An open axis may also be that of other
inputs, of the same rank and size there, or of the same size anywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import TilewrightError, UnsupportedModel
from compiler.frontend.load import Loaded, load
from compiler.frontend.reading.strings import MAKING
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.not_opened import MADE_OF_OTHERS, NEVER_FED, NOT_OPENED, WITHOUT_CASES
from tests.conformance import collected

EACH, MORE = 2, 3
"""Cases of an operator, and how much larger than in a case its axis may be."""
Arrays = dict[str, np.ndarray]
Case = tuple[onnx.ModelProto, Arrays]
Opened = set[tuple[str, int]]


@functools.cache
def single() -> list[Any]:
    """The suite's cases of one node of ai.onnx whose inputs are tensors."""
    models = ((case, case.model) for case in collected() if case.model is not None)
    alone = [case for case, model in models if len(model.graph.node) == 1 and not model.graph.node[0].domain]
    return [case for case in alone if all(one.type.HasField("tensor_type") for one in case.model.graph.input)]


@functools.cache
def cases() -> dict[str, list[list[Case]]]:
    """By operator of ai.onnx: models of one node that are taken, with and without constants.

    Operators that make strings are not among them: they stand before the program.
    """
    found: dict[str, list[list[Case]]] = {}
    for case in single():
        mine = found.setdefault(case.model.graph.node[0].op_type, [])
        given = case.data_sets[0][0] if case.data_sets else []
        if len(mine) == EACH or not given or not all(isinstance(array, np.ndarray) for array in given):
            continue
        arrays = dict(zip((one.name for one in case.model.graph.input), given, strict=False))
        both = [_with_constants(case.model, arrays), (case.model, arrays)]
        if taken := [(model, arrays) for model, arrays in both if arrays and _loaded(model, {}) is not None]:
            mine.append(taken)
    return {name: some for name, some in found.items() if some and name not in MAKING}


def _with_constants(model: onnx.ModelProto, arrays: Arrays) -> Case:
    """A copy in which inputs but the first are constants where they are whole numbers of one axis, or one element."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    left = dict(arrays)
    for one in list(copied.graph.input)[1:]:
        array = arrays[one.name]
        if array.size == 1 or (array.dtype.kind in "iu" and array.ndim <= 1):
            copied.graph.initializer.append(numpy_helper.from_array(left.pop(one.name), one.name))
            copied.graph.input.remove(one)
    return copied, left


def _loaded(model: onnx.ModelProto, dims: Mapping[str, object]) -> Loaded | None:
    try:
        return load(model.SerializeToString(), CompileOptions.from_json({"dims": dims}).bindings[-1], OPERATORS)
    except TilewrightError:
        return None


def _ways(arrays: Arrays, axis: int) -> Iterator[Opened]:
    """Which axes are open together with one of the first input."""
    first, whole = next(iter(arrays.items()))
    size = whole.shape[axis]
    yield {(first, axis)}
    yield {(name, axis) for name, one in arrays.items() if one.ndim == whole.ndim and one.shape[axis] == size}
    yield {(name, at) for name, one in arrays.items() for at, dim in enumerate(one.shape) if dim == size}


def _opened(model: onnx.ModelProto, places: Opened) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for one in copied.graph.input:
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if (one.name, axis) in places:
                dim.dim_param = "n"
    for one in copied.graph.output:
        one.type.tensor_type.ClearField("shape")
    return copied


def _results(loaded: Loaded, arrays: Arrays) -> list[np.ndarray]:
    """The outputs at their sizes, for inputs padded to the capacities; a random state is zeros."""
    graph, shapes = loaded.graph, loaded.open_shapes
    given: dict[int, np.ndarray] = {}
    for number, id in enumerate(graph.inputs):
        value = graph.values[id]
        whole = np.zeros(value.type.dims, value.type.dtype.numpy)
        if value.name in arrays:
            whole[tuple(map(slice, arrays[value.name].shape))] = arrays[value.name]
        elif shapes and number >= len(shapes.inputs):
            at, axis = next(
                (at, axis)
                for at, axes in enumerate(shapes.inputs)
                for axis, of in enumerate(axes)
                if of == number - len(shapes.inputs)
            )
            whole = np.array(arrays[graph.values[graph.inputs[at]].name].shape[axis])
        given[id] = whole
    found = evaluate_graph(graph, given, OPERATORS)
    outputs = [found[id] for id in graph.outputs]
    if shapes is None:
        return outputs
    assert not shapes.broken(graph.outputs, found)
    return [
        output[tuple(slice(int(outputs[of]) if of is not None else None) for of in axes)]
        for output, axes in zip(outputs, shapes.outputs, strict=False)
    ]


def _taken(both: list[Case], axis: int) -> bool:
    """Whether one of the ways compiles, and then computes what the model of these very sizes does."""
    ways = ((model, arrays, places) for model, arrays in both for places in _ways(arrays, axis))
    for model, arrays, places in ways:
        size = next(iter(arrays.values())).shape[axis]
        loaded = _loaded(_opened(model, places), {"n": {"min": 1, "max": size + MORE}})
        if loaded is None:
            continue
        exact = _loaded(model, {})
        # Constants that the exact model folds are rounded to the type that it computes in.
        near = 1e-3 if any(array.dtype == np.float16 for array in arrays.values()) else 1e-6
        assert exact is not None
        assert loaded.open_shapes is not None
        for one, other in zip(_results(loaded, arrays), _results(exact, arrays), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=near, atol=near / 10)
        return True
    return False


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - WITHOUT_CASES | MADE_OF_OTHERS))
def test_an_operator_takes_an_open_axis_or_is_listed_with_the_reason(name: str) -> None:
    refused = set()
    for both in cases()[name]:
        first = next(iter(both[0][1].values()))
        refused |= {axis for axis, size in enumerate(first.shape) if size > 1 and not _taken(both, axis)}
    assert bool(refused) == (name in NOT_OPENED), f"axes that are refused: {sorted(refused)}"


def test_what_is_listed_is_among_the_cases() -> None:
    assert NOT_OPENED.keys() <= cases().keys()
    assert cases().keys() == set(OPERATORS) - WITHOUT_CASES | MADE_OF_OTHERS


def test_which_operators_are_refused_for_an_input_without_a_value_is_listed() -> None:
    refused: dict[str, str] = {}
    for case in single():
        try:
            load(case.model.SerializeToString(), CompileOptions(), OPERATORS)
        except UnsupportedModel as no:
            if no.refusals and (found := re.search("input '(.*)' must be known when compiling", str(no.refusals[0]))):
                refused[case.model.graph.node[0].op_type] = found[1]
        except TilewrightError:
            continue
    assert refused == NEVER_FED
