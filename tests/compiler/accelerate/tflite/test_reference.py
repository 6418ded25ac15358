"""The int8 operators in numpy against LiteRT's reference kernels: random shapes, scales, zero points and edge bytes."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from compiler.accelerate.tflite import convert, operators
from compiler.accelerate.tflite.flatbuffer import OPERATORS as BUILTIN
from compiler.accelerate.tflite.kernels import KERNELS
from compiler.accelerate.tflite.reference import evaluate
from compiler.accelerate.tflite.rounding import double, high_product, quantised, shifted, single
from tests.compiler.accelerate.drawn import CASES, SEEDS, Drawn

SOURCES = inspect.getsource(operators) + inspect.getsource(convert)
"""Of what writes operators."""


def _compared(drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """The result by numpy and by LiteRT."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    program = drawn.writer.program(drawn.numbers, [drawn.out])
    runs = litert.Interpreter(
        model_content=drawn.writer.finish(drawn.numbers, [drawn.out]),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    runs.allocate_tensors()
    for detail, array in zip(runs.get_input_details(), drawn.given, strict=True):
        runs.set_tensor(detail["index"], array)
    runs.invoke()
    found = evaluate(program, dict(zip(drawn.numbers, drawn.given, strict=True)))[drawn.out]
    wanted = runs.get_tensor(runs.get_output_details()[0]["index"])
    assert found.dtype == np.int8
    assert found.shape == wanted.shape
    return found.astype(np.int64), wanted.astype(np.int64)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_that_of_litert_bit_for_bit(name: str) -> None:
    elements = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        CASES[name](drawn)
        found, wanted = _compared(drawn)
        np.testing.assert_array_equal(found, wanted, f"seed {seed}")
        elements += found.size
    assert elements > 0


def test_every_operator_that_is_written_has_a_kernel_and_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == {*KERNELS} - {"TABLE"}
    assert {kind for kind in re.findall(r'"([A-Z][A-Z0-9_]+)"', SOURCES) if kind in BUILTIN} == {*KERNELS} - {"TABLE"}


def test_multipliers_and_products_round_as_they_say() -> None:
    assert [int(one) for one in quantised(0.5)] == [1 << 30, 0]
    assert [int(one) for one in quantised(1 - 2.0**-40)] == [1 << 30, 1]
    assert [int(one) for one in quantised(0)] == [0, 0]
    assert [int(one) for one in quantised(2.0**-40)] == [0, 0]
    assert high_product([3, -3, 1, -1], 1 << 30).tolist() == [2, -1, 1, 0]
    assert shifted(np.array([3, -3, 2, -2, 1, -1]), 1).tolist() == [2, -2, 1, -1, 1, -1]
    exact = np.arange(-3000, 3000)
    for real in (0.37, 0.0021, 1.9):
        for rule in (double, single):
            assert np.abs(rule(exact, real) - exact * real).max() <= 0.75
