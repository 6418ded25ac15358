"""Kernels whose result lies over the operand that they update: what they change is written, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cpu.target import this_machine
from compiler.ir.evaluate import evaluate
from compiler.measure.memory import operand, read_buffer, write_buffer
from tests.compiler.devices.cpu.library import Case, Library, case_of, check
from tests.parse import parse_graph

CACHE = """graph(%0: DTYPE[2, 3, 9, 20], %1: DTYPE[2, 3, 2, 20], %2: i64[2]) -> (%3)
  %3: DTYPE[2, 3, 9, 20] = TensorScatter(%0, %1, %2) axis=2 mode="MODE"
"""
ROWS = """graph(%0: f32[6, 20], %1: i64[3, 1], %2: f32[3, 20]) -> (%3)
  %3: f32[6, 20] = ScatterND(%0, %1, %2) reduction="REDUCTION"
"""
CHOICE = """graph(%0: f32[6, 20], %1: bool[MASK], %2: f32[6, 20]) -> (%3)
  %3: f32[6, 20] = Where(%1, FIRST)
"""
random = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def cache(starts: tuple[int, int], dtype: str = "f32", mode: str = "linear") -> Case:
    kind = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "f64": np.float64}[dtype]
    graph = parse_graph(CACHE.replace("DTYPE", dtype).replace("MODE", mode))
    arrays = [(9 * random.standard_normal(shape)).astype(kind) for shape in ((2, 3, 9, 20), (2, 3, 2, 20))]
    return case_of(graph, *arrays, np.array(starts))


def rows(*places: int, reduction: str = "none") -> Case:
    graph = parse_graph(ROWS.replace("REDUCTION", reduction))
    return case_of(graph, floats(6, 20), np.array(places)[:, None], floats(3, 20))


def choice(mask: np.ndarray, first: str) -> Case:
    shape = ", ".join(map(str, mask.shape))
    return case_of(
        parse_graph(CHOICE.replace("MASK", shape).replace("FIRST", first)), floats(6, 20), mask, floats(6, 20)
    )


BY_ROW = np.array([[True], [False], [True], [False], [False], [True]])
CASES = {
    "linear": cache((0, 7)),
    "one row in front": cache((3, 0)),
    "half precision": cache((2, 5), "f16"),
    "double precision": cache((1, 6), "f64"),
    "integers": cache((4, 4), "i64"),
    "circular": cache((8, 3), mode="circular"),
    "rows": rows(4, 0, 4),
    "rows from the end": rows(-1, 2, 0),
    "sums of rows": rows(1, 5, 1, reduction="add"),
    "new where": choice(BY_ROW, "%2, %0"),
    "old where": choice(BY_ROW, "%0, %2"),
    "element by element": choice(random.random((6, 20)) < 0.5, "%2, %0"),
    "column by column": choice(random.random((1, 20)) < 0.5, "%2, %0"),
    "nothing": choice(np.zeros((6, 1), bool), "%2, %0"),
}
SKIPS = [name for name in CASES if name not in ("element by element", "column by column")]


def updated(case: Case) -> int:
    """The operand that the result may lie over."""
    (found,) = (
        at
        for at, (buffer, array) in enumerate(zip(case.buffers, case.inputs, strict=False))
        if buffer.type == case.buffers[-1].type and np.array_equal(array, case.inputs[at]) and _is_old(case, at)
    )
    return found


def _is_old(case: Case, at: int) -> bool:
    """Whether the graph's first input is bound to this slot."""
    return case.buffers[at].id == 0


@pytest.fixture(scope="module")
def library() -> Library:
    return Library.of([*CASES.values()], this_machine())


def test_apart_from_the_operand_all_of_the_result_is_written() -> None:
    check([*CASES.values()])


@pytest.mark.parametrize("name", CASES)
def test_over_the_operand_the_result_is_the_same(name: str, library: Library) -> None:
    case, number = CASES[name], [*CASES].index(name)
    memory = np.zeros(case.buffers[-1].bytes, np.uint8)
    write_buffer(memory, case.buffers[updated(case)], case.inputs[updated(case)])
    operands = [np.ascontiguousarray(array) for array in case.inputs]
    operands[updated(case)] = operand(memory, case.buffers[updated(case)])
    library.call(library.lowered[number], [*operands, operand(memory, case.buffers[-1])], (0.3, 0.7))
    (want,) = evaluate(case.kernel, case.inputs)
    np.testing.assert_allclose(read_buffer(memory, case.buffers[-1]), want, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_what_is_there_already_is_skipped(name: str, library: Library) -> None:
    text = library.lowered[[*CASES].index(name)].text
    assert ("!= (const void *)" in text) is (name in SKIPS), text
