"""Operators that make strings: which are steps before the program, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.read import read
from compiler.ir.border import Step, Words
from compiler.ops import OPERATORS

STRING = TensorProto.STRING


def text_model(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], outputs: list[str], **constants: np.ndarray
) -> bytes:
    infos = [helper.make_tensor_value_info(name, STRING, shape) for name, shape in inputs.items()]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    data: bytes = model.SerializeToString()
    return data


def test_what_strings_become_before_the_program_are_its_inputs() -> None:
    nodes = [
        helper.make_node("StringConcat", ["x", "tail"], ["long"]),
        helper.make_node("StringSplit", ["long"], ["parts", "counts"], maxsplit=3),
        helper.make_node("RegexFullMatch", ["x"], ["hit"], pattern="a+"),
        helper.make_node("Not", ["hit"], ["miss"]),
    ]
    tail = np.array(["?"], object)
    model = read(text_model(nodes, {"x": [2, "n"]}, ["parts", "counts", "miss"], tail=tail), Limits())
    assert [call.op for call in model.body.calls] == ["Not"]
    found = {one.name: (str(one.dtype), one.shape, one.is_text) for one in model.body.inputs}
    assert found == {
        "parts": ("i64", (2, "n", None), True),
        "counts": ("i64", (2, "n"), False),
        "hit": ("bool", (2, "n"), False),
    }
    assert model.outside.steps[0] == Step("StringConcat", ("x", Words(("?",), (1,))), ("long",), {})
    assert model.outside.steps[1].attrs == {"maxsplit": 3}


def test_strings_that_the_program_reads_too_stay_its_inputs() -> None:
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["low"], case_change_action="LOWER"),
        helper.make_node("Equal", ["x", "x"], ["same"]),
    ]
    model = read(text_model(nodes, {"x": [1, 4]}, ["low", "same"]), Limits())
    assert [(one.name, one.shape) for one in model.body.inputs] == [("x", (1, 4)), ("low", (1, None))]


def refused(node: onnx.NodeProto, *before: onnx.NodeProto, shape: list[Any] | None = None) -> str:
    model = text_model([*before, node], {"x": shape or [3]}, [node.output[0]])
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions.from_json({"inputs": {"x": shape or [3]}}), OPERATORS)
    assert caught.value.refusals[0].fix
    return caught.value.refusals[0].reason


def test_strings_of_what_the_program_computes_are_refused() -> None:
    reversed_ = helper.make_node("Transpose", ["x"], ["xt"])
    assert "before the program" in refused(helper.make_node("StringConcat", ["xt", "x"], ["y"]), reversed_)


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", r"(a)\1", "a++", r"\pL", "(?P=name)", "(", "[", r"\z", r"a\Z", "(?<!a)b", "a{99999999999}"]
)
def test_patterns_that_re2_and_python_do_not_share_are_refused(pattern: str) -> None:
    assert "strings" in refused(helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern))


def test_no_string_has_no_parts() -> None:
    model = read(text_model([helper.make_node("StringSplit", ["x"], ["y"])], {"x": [0]}, ["y"]), Limits())
    assert [one.shape for one in model.body.inputs] == [(0, 0)]


def test_a_normalizer_takes_one_row() -> None:
    assert "strings" in refused(helper.make_node("StringNormalizer", ["x"], ["y"]), shape=[2, 3])
