from __future__ import annotations

import inspect
from collections.abc import Iterator

import onnx.defs
import pytest

from compiler.ops import FAMILIES, MODEL_OPERATORS
from compiler.ops.operator import Operator, Unsupported
from tests.compiler.ops.node_cases import cases
from tests.compiler.ops.single import prepare

OTHER_NAMES = {("TopK", "k"): "K"}
"""Parameters whose attribute is not named as the schema's input is, with that input's name."""

EVERY = pytest.mark.parametrize("record", list(MODEL_OPERATORS.values()), ids=list(MODEL_OPERATORS))


def schema(record: Operator) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(record.name)


def test_no_operator_has_two_records() -> None:
    names = [record.name for family in FAMILIES for record in family]
    assert sorted(names) == sorted(set(names))
    assert list(MODEL_OPERATORS) == names


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


ANY_WORD = {
    ("CastLike", "round_mode"): "of conversions to float8e8m0, of which the suite has none",
}
"""Attributes that may name anything, and why."""


TEXT = onnx.defs.OpSchema.AttrType.STRING
WORDS = [
    (record, name)
    for record in MODEL_OPERATORS.values()
    for name, attribute in schema(record).attributes.items()
    if attribute.type == TEXT and (record.name, name) not in ANY_WORD
]


def refusals(record: Operator, attrs: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Reason and fix of the conformance suite's nodes of an operator that are refused under other attributes."""
    for case in (case for case in cases() if case.op == record.name):
        node, _, types = prepare(record, case.inputs, {**case.attrs, **attrs}, len(case.outputs))
        try:
            record.define(node, types, record.infer(node, types))
        except Unsupported as no:
            yield no.reason, no.fix


@pytest.mark.parametrize(("record", "name"), WORDS, ids=[f"{record.name}.{name}" for record, name in WORDS])
def test_an_attribute_that_names_nothing_is_refused_where_it_counts(record: Operator, name: str) -> None:
    found = [(reason, fix) for reason, fix in refusals(record, {name: "nowhere"}) if "nowhere" in reason]
    assert found
    assert all(fix for _, fix in found)
