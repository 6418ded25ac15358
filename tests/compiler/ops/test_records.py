from __future__ import annotations

import inspect

import onnx.defs
import pytest

from compiler.ops import FAMILIES, OPERATORS
from compiler.ops.operator import Operator

OTHER_NAMES = {("TopK", "k"): "K"}
"""Parameters whose attribute is not named as the schema's input is, with that input's name."""

EVERY = pytest.mark.parametrize("record", list(OPERATORS.values()), ids=list(OPERATORS))


def schema(record: Operator) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(record.name)


def test_no_operator_has_two_records() -> None:
    names = [record.name for family in FAMILIES for record in family]
    assert sorted(names) == sorted(set(names))
    assert list(OPERATORS) == names


@EVERY
def test_a_record_has_every_part(record: Operator) -> None:
    for part in (record.infer, record.reference, record.define):
        assert callable(part)
    assert list(inspect.signature(record.infer).parameters) == ["node", "types"]
    assert len(inspect.signature(record.reference).parameters) == 2
    assert len(inspect.signature(record.define).parameters) == 3
    oldest, newest = record.opsets
    assert 6 <= oldest <= newest <= onnx.defs.onnx_opset_version()


@EVERY
def test_a_record_is_of_an_operator_of_onnx_that_is_not_deprecated(record: Operator) -> None:
    assert onnx.defs.has(record.name)
    assert not schema(record).deprecated


@EVERY
def test_parameters_are_inputs_of_the_operator_and_hide_no_attribute(record: Operator) -> None:
    inputs = schema(record).inputs
    for position, name in record.parameters:
        assert position < len(inputs), f"{record.name} has no input {position}"
        expected = OTHER_NAMES.get((record.name, name), inputs[position].name)
        assert inputs[position].name == expected, f"input {position} of {record.name} is {inputs[position].name}"
        assert name not in schema(record).attributes, f"{record.name} has an attribute {name}"
    positions = [position for position, _ in record.parameters]
    assert positions == sorted(set(positions))
    assert len({name for _, name in record.parameters}) == len(record.parameters)


@EVERY
def test_the_first_input_is_never_a_parameter(record: Operator) -> None:
    """A node whose every input is a parameter would be constant, which the front end folds."""
    assert len(schema(record).inputs) > len(record.parameters)
