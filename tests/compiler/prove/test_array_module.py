from __future__ import annotations

import functools
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.devices.cuda.arrays import cupy_arrays
from compiler.errors import InputsError
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import MODEL_OPERATORS, OPERATORS
from compiler.ops.operator import Arrays, Unsupported
from compiler.prove.array_module import ArrayModule
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.compiler.ops.node_cases import Case, cases
from tests.compiler.ops.single import prepare
from tests.device_arrays.stand_in import TYPES, DeviceArray, uploaded
from tests.parse import parse_graph

REFUSED = {
    "BitShift": "Unsupported dtype object",
    "ScatterElements": "certain in numpy alone",
    "ScatterND": "certain in numpy alone",
}
"""Operators with cases that numpy has to evaluate, and the words of the refusal."""


def stand_in(**fields: Any) -> ArrayModule:
    return ArrayModule("the stand-in", uploaded, DeviceArray.get, **fields)


@functools.cache
def typed_cases() -> tuple[Case, ...]:
    """Those of operators of models whose elements CuPy has, with floats in float64, as the oracle evaluates them."""
    return tuple(case for case in cases() if case.op in MODEL_OPERATORS and _is_typed(case))


def _is_typed(case: Case) -> bool:
    node, arrays, types = prepare(OPERATORS[case.op], case.inputs, case.attrs, len(case.outputs))
    try:
        results = OPERATORS[case.op].infer(node, types)
    except Unsupported:
        return False
    dtypes = [array.dtype for array in arrays if array is not None] + [one.dtype.numpy for one in results]
    return all(dtype.char in TYPES for dtype in dtypes)


def of_case(case: Case) -> tuple[Any, Arrays]:
    node, arrays, _ = prepare(OPERATORS[case.op], case.inputs, case.attrs, len(case.outputs))
    wide = (array.astype(np.float64) if array is not None and array.dtype.kind == "f" else array for array in arrays)
    return node, tuple(wide)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    return bool(np.allclose(one, other, rtol=1e-12, atol=1e-13, equal_nan=True))


def there(array: np.ndarray | None) -> Any:
    return None if array is None else uploaded(array)


def on_host(array: Any) -> np.ndarray:
    found: np.ndarray = array.get() if isinstance(array, DeviceArray) else array
    return found


def test_references_give_in_the_module_what_they_give_in_numpy() -> None:
    """But for what CuPy has not, which is refused in these words and no others."""
    refused: dict[str, set[str]] = defaultdict(set)
    done: set[str] = set()
    for case in typed_cases():
        reference, (node, arrays) = OPERATORS[case.op].reference, of_case(case)
        with np.errstate(all="ignore"):
            wanted = reference(node, arrays)
            try:
                found = reference(node, tuple(map(there, arrays)))
            except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
                refused[case.op].add(str(error))
                continue
        assert all(map(same, map(on_host, found), wanted)), case.name
        done.add(case.op)
    assert refused.keys() == REFUSED.keys()
    for name, words in REFUSED.items():
        assert all(words in one or "cupy_multiply.at` is not supported" in one for one in refused[name]), refused[name]
    assert len(done) > 140


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_transformer"])
def test_a_network_is_evaluated_in_the_module_node_for_node(name: str) -> None:
    graph = load(build(name).SerializeToString(), CompileOptions(), OPERATORS).graph
    inputs, module = sample_inputs(graph, 0), stand_in()
    wanted, found = (evaluate_graph(graph, inputs, OPERATORS, module=one) for one in (None, module))
    assert all(type(array) is np.ndarray and array.dtype == wanted[value].dtype for value, array in found.items())
    assert all(same(found[value], wanted[value]) for value in wanted)
    assert (module.there.total(), module.here.total()) == (len(graph.nodes), 0)


MIXED = """graph(%0: f32[3, 4], %1: i64[2], %2: f32[2, 4]) -> (%5, %6, %8)
  %3: f32[3, 4] = Exp(%0) from "first"
  %7: i64[2, 1] = Unsqueeze(%1) axes=(1,) from "rows"
  %4: f32[3, 4] = ScatterND(%3, %7, %2) reduction="none" from "writes"
  %5: f32[3, 4] = Tanh(%4) from "last"
  %6: f32[2, 4] = Gather(%0, %1) axis=0 from "reads"
  %8: f8e4m3fn[3, 4] = Cast(%5) to=17 saturate=1 from "small"
"""


def mixed() -> Graph:
    return parse_graph(MIXED)


def mixed_inputs(*rows: int) -> dict[int, np.ndarray]:
    random = np.random.default_rng(5)
    x, updates = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (2, 4)))
    return {0: x, 1: np.array(rows), 2: updates}


@pytest.mark.parametrize("way", [{}, {"wide": False}, {"mantissa": 11}, {"nudge": 1e-3}])
def test_what_the_module_refuses_is_evaluated_by_numpy_and_counted(way: dict[str, Any]) -> None:
    module = stand_in()
    # Two updates of one row: in numpy the last one stays.
    wanted, found = (
        evaluate_graph(mixed(), mixed_inputs(1, 1), OPERATORS, module=one, **way) for one in (None, module)
    )
    for value, array in wanted.items():
        assert found[value].dtype == array.dtype
        assert same(found[value].astype(np.float64), array.astype(np.float64))
    assert module.there == {"Exp": 1, "Unsqueeze": 1, "Tanh": 1, "Gather": 1}
    assert module.here == {"ScatterND": 1, "Cast": 1}
    reported = str(module)
    assert reported.startswith("4 nodes by the stand-in, 2 by numpy: 1 Cast (")
    assert "1 ScatterND (NotImplementedError: which of several writes" in reported


def test_an_index_that_lies_outside_is_found_although_the_module_wraps_it() -> None:
    with pytest.raises(InputsError, match="position that is not there"):
        evaluate_graph(mixed(), mixed_inputs(1, 3), OPERATORS, module=stand_in())
    assert evaluate_graph(mixed(), mixed_inputs(1, -3), OPERATORS, module=stand_in())


def test_what_is_too_large_for_the_module_is_evaluated_by_numpy() -> None:
    def full(array: np.ndarray) -> DeviceArray:
        if array.shape == (3, 4):
            raise MemoryError("out of memory allocating 96 bytes")
        return uploaded(array)

    module = ArrayModule("a small one", full, DeviceArray.get)
    wanted, found = (evaluate_graph(mixed(), mixed_inputs(0, 2), OPERATORS, module=one) for one in (None, module))
    assert all(same(found[value].astype(np.float64), wanted[value].astype(np.float64)) for value in wanted)
    assert module.there == {"Unsqueeze": 1}
    assert module.reasons["Exp"] == "MemoryError: out of memory allocating 96 bytes"


def test_a_constant_is_copied_to_the_module_once() -> None:
    copies: list[tuple[int, ...]] = []

    def upload(array: np.ndarray) -> DeviceArray:
        copies.append(array.shape)
        return uploaded(array)

    graph = parse_graph(
        """graph(%0: f32[2, 3]) -> (%3)
      %1: f32[2, 3] = Exp(%0)
      %2: f32[2, 3] = Add(%0, %1)
      %3: f32[2, 3] = Mul(%0, %2)"""
    )
    evaluate_graph(graph, {0: np.ones((2, 3), np.float32)}, OPERATORS, module=ArrayModule("m", upload, DeviceArray.get))
    assert copies == [(2, 3)]


def test_cupys_arrays_are_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert cupy_arrays() is None
    freed: list[bool] = []
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append(True))
    named = {"__version__": "14.2.0", "asarray": uploaded, "asnumpy": DeviceArray.get}
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(**named, get_default_memory_pool=lambda: pool))
    module = cupy_arrays()
    assert module is not None
    found = evaluate_graph(mixed(), mixed_inputs(0, 2), OPERATORS, module=module)
    assert found.keys() == {5, 6, 8}
    assert str(module).startswith("4 nodes by CuPy 14.2.0")
    module.free()
    assert freed == [True]


def test_the_stand_in_is_no_more_than_cupy_is() -> None:
    x = uploaded(np.arange(6.0).reshape(2, 3))
    for refused in (
        lambda: np.add(x, np.ones(3)),
        lambda: np.asarray(x),
        lambda: np.concatenate([x, np.ones((2, 3))]),
        lambda: np.max(x, initial=0.0),
        lambda: np.full((2,), 1.0, like=x),
        lambda: np.frompyfunc(float, 1, 1)(x),
        lambda: np.multiply.at(x, 0, 1.0),
        lambda: np.bitwise_and(x, x),
        lambda: x[np.array([0])],
        lambda: range(uploaded(np.array(3))),
        lambda: uploaded(np.array(["text"])),
    ):
        with pytest.raises((TypeError, ValueError, NotImplementedError)):
            refused()
    assert x[uploaded(np.array([2, -3]))].get().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(np.sum(x), DeviceArray)
    x[uploaded(np.array([0, 0])), 0] = uploaded(np.array([7.0, 8.0]))
    assert x.get()[0, 0] == 7
    floats = uploaded(np.array([np.nan, np.inf, -1e30, -1.5]))
    assert floats.astype(np.int32).get().tolist() == [0, 2**31 - 1, -(2**31), -1]
    assert floats.astype(np.uint8).get().tolist() == [0, 255, 0, 0]
