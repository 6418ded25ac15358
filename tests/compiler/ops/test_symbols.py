"""What type rules make of dimensions that are known at run time only."""

from __future__ import annotations

import pytest

from compiler.errors import VerifyError
from compiler.ir.graph import Node
from compiler.ir.tensor import Dim, DType, Symbol, TensorType
from compiler.ops import MODEL_OPERATORS
from compiler.ops.operator import Operator, Types, Unsupported
from tests.compiler.ops.node_cases import cases
from tests.compiler.ops.single import prepare

CARRY = {
    *("Relu", "Add", "Where", "Cast", "Clip", "PRelu", "Softmax", "LogSoftmax"),
    *("MatMul", "Gemm", "MatMulInteger", "Einsum", "Conv", "ConvTranspose", "MaxPool", "AveragePool"),
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LRN"),
    *("ReduceSum", "ReduceMean", "ArgMax", "CumSum", "TopK", "Trilu", "EyeLike", "ReverseSequence"),
    *("Transpose", "Concat", "Split", "Slice", "Pad", "Expand", "Flatten", "Squeeze", "Unsqueeze"),
    *("Gather", "GatherElements", "GatherND", "OneHot", "ScatterElements", "ScatterND", "GridSample"),
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
}
"""Operators of which some case is typed with a symbol among its dimensions."""


def substituted(type: TensorType | None, of: Symbol, by: Dim) -> TensorType | None:
    if type is None:
        return None
    return TensorType(type.dtype, tuple(by if dim == of else dim for dim in type.shape))


def symbolic(types: Types) -> list[tuple[Symbol, Types]]:
    """The types with a symbol, whose range holds the number that it stands for.

    It takes the place of one dimension, or of all of one number that there are, or that there are at one place of the
    shapes.
    """
    found: list[tuple[Symbol, Types]] = []
    there = [(at, axis, dim) for at, type in enumerate(types) if type for axis, dim in enumerate(type.dims) if dim]
    alone = [{place} for place in there]
    equal = [{place for place in there if place[2] == number} for number in {dim for _, _, dim in there}]
    aligned = [{place for place in there if place[1:] == both} for both in {place[1:] for place in there}]
    for places in (*alone, *equal, *aligned):
        number = next(iter(places))[2]
        symbol = Symbol("s", max(0, number - 1), number + 2)
        found.append((symbol, tuple(_with(symbol, at, type, places) for at, type in enumerate(types))))
    return found


def _with(symbol: Symbol, at: int, type: TensorType | None, places: set[tuple[int, int, int]]) -> TensorType | None:
    if type is None:
        return None
    return TensorType(type.dtype, tuple(symbol if (at, *one) in places else one[1] for one in enumerate(type.dims)))


def typed(operator: Operator, node: Node, types: Types) -> tuple[TensorType, ...] | None:
    """What the rule gives; None where it refuses. A VerifyError must name the symbol."""
    try:
        return operator.infer(node, types)
    except Unsupported:
        return None
    except VerifyError as error:
        if "is the symbol s:" not in str(error):
            raise
        return None


@pytest.mark.parametrize("op", sorted({case.op for case in cases()} & set(MODEL_OPERATORS)))
def test_what_is_typed_with_a_symbol_is_typed_the_same_for_every_value_of_it(op: str) -> None:
    """A rule may refuse a symbol; where it does not, no value of the symbol makes another result, or a refusal."""
    operator, carried, tried = MODEL_OPERATORS[op], False, 0
    for case in (case for case in cases() if case.op == op):
        node, _, types = prepare(operator, case.inputs, case.attrs, len(case.outputs))
        if typed(operator, node, types) is None:
            continue
        for symbol, asked in symbolic(types):
            tried += 1
            general = typed(operator, node, asked)
            if general is None:
                continue
            carried = True
            for value in range(symbol.low, symbol.high + 1):
                special = typed(operator, node, tuple(substituted(type, symbol, value) for type in asked))
                expected = tuple(substituted(type, symbol, value) for type in general)
                assert special == expected, f"{case.name} of {[str(type) for type in asked]} with {symbol} = {value}"
    assert carried or op not in CARRY, f"none of {tried} symbolic variants is typed"
    assert tried or op in ("NonZero", "NonMaxSuppression", "Unique")


def test_the_operators_that_carry_symbols_are_among_those_tried() -> None:
    assert {case.op for case in cases()} >= CARRY
    assert set(MODEL_OPERATORS) >= CARRY


def test_a_rule_that_needs_a_number_names_the_symbol() -> None:
    steps = Symbol("steps", 1, 8)
    node = Node("Reshape", (0, None), (1,), {"shape": (-1,)})
    with pytest.raises(VerifyError, match=r"axis 1 of \[2, steps:1..8\] is the symbol steps:1..8"):
        MODEL_OPERATORS["Reshape"].infer(node, (TensorType(DType.F32, (2, steps)), None))


def test_an_axis_that_is_not_repeated_may_be_a_symbol() -> None:
    batch, node = Symbol("batch", 1, 8), Node("Tile", (0, None), (1,), {"repeats": (1, 2)})
    assert MODEL_OPERATORS["Tile"].infer(node, (TensorType(DType.F32, (batch, 3)), None))[0].shape == (batch, 6)
