"""Bodies of the Open Inference Protocol: what is written is read again, and what is no body is refused by name."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.pack.loader.specs import TensorSpec
from tilewright.errors import UsageError
from tilewright.serving.tensors import DATATYPES, LENGTH, answer, asked, datatype

NUMBERS = sorted(set(DATATYPES) - {"string", "bfloat16"})
X = TensorSpec("x", "float32", (2, 3))


def values(dtype: str) -> np.ndarray:
    """Edge values in an array of two rows and three columns."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        edges = [0.0, -0.0, 1.5, np.finfo(kind).max, np.finfo(kind).min, np.finfo(kind).smallest_subnormal]
    elif kind.kind == "b":
        edges = [True, False, True, True, False, False]
    else:
        edges = [0, 1, 2, 3, np.iinfo(kind).max, np.iinfo(kind).min]
    return np.array(edges, kind).reshape(2, 3)


def body(inputs: Any, behind: bytes = b"", **more: Any) -> tuple[bytes, int]:
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + behind, len(head)


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_come_back_bit_for_bit(dtype: str, is_binary: bool) -> None:
    spec, array = TensorSpec("x", dtype, (2, 3)), values(dtype)
    one: dict[str, Any] = {"name": "x", "datatype": datatype(spec), "shape": [2, 3]}
    more = {"parameters": {"binary_data_size": array.nbytes}} if is_binary else {"data": array.tolist()}
    sent, header = body(
        [one | more], array.tobytes() if is_binary else b"", parameters={"binary_data_output": is_binary}
    )
    found = asked(sent, header if is_binary else None, [spec], [spec])
    np.testing.assert_array_equal(found.inputs["x"].view(np.uint8), array.view(np.uint8))
    content, length = answer("m", found, [spec], {"x": array})
    assert (length is not None) == is_binary
    back = json.loads(content[:length])["outputs"][0]
    data = content[length:] if is_binary else np.array(back["data"], spec.numpy).tobytes()
    assert (data, back["shape"], back["datatype"]) == (array.tobytes(), [2, 3], datatype(spec))


@pytest.mark.parametrize("is_binary", [False, True])
def test_strings_of_any_characters_come_back(is_binary: bool) -> None:
    spec, words = TensorSpec("x", "string", (3,)), ["", "ä€", 'a"b']
    data = b"".join(LENGTH.pack(len(word.encode())) + word.encode() for word in words)
    more = {"parameters": {"binary_data_size": len(data)}} if is_binary else {"data": words}
    sent, header = body([{"name": "x", "datatype": "BYTES", "shape": [3], **more}], data if is_binary else b"")
    found = asked(sent, header, [spec], [spec])
    assert found.inputs["x"].tolist() == words
    outputs = {"x": is_binary}
    content, length = answer("m", type(found)("", found.inputs, outputs, False), [spec], {"x": found.inputs["x"]})
    assert content[length:] == data if length else json.loads(content)["outputs"][0]["data"] == words


def test_bfloat16_is_rounded_to_the_nearest_and_told_as_numbers() -> None:
    spec, numbers = TensorSpec("x", "bfloat16", (4,)), [1.0, 1.00390625, 3.0e38, -0.1]
    sent, _ = body([{"name": "x", "datatype": "BF16", "shape": [4], "data": numbers}])
    found = asked(sent, None, [spec], [spec])
    wanted = np.array(numbers, np.float32).astype(ml_dtypes.bfloat16)
    assert found.inputs["x"].tolist() == wanted.view(np.uint16).tolist()
    content, _ = answer("m", found, [spec], {"x": found.inputs["x"]})
    assert json.loads(content)["outputs"][0]["data"] == wanted.astype(np.float32).tolist()


def test_outputs_are_those_that_are_asked_for_in_that_order_each_in_its_form() -> None:
    specs = [TensorSpec(name, "float32", (2, 3)) for name in "abc"]
    arrays = {name: np.full((2, 3), at, np.float32) for at, name in enumerate("abc")}
    given = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [0.0] * 6}
    outputs = [{"name": "c", "parameters": {"binary_data": True}}, {"name": "a"}]
    found = asked(*body([given], outputs=outputs, id="7"), [X], specs)
    content, length = answer("m", found, specs, arrays)
    plain = json.loads(content[:length])
    assert [one["name"] for one in plain["outputs"]] == ["c", "a"]
    assert (plain["id"], plain["model_name"]) == ("7", "m")
    assert content[length:] == arrays["c"].tobytes()


GOOD = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [0.0] * 6}
BAD = {
    "is not JSON": b"{",
    "no list `inputs`": b"[1]",
    "'y' is no input": body([{**GOOD, "name": "y"}])[0],
    "None is no input": body([3])[0],
    "input 'x' is missing": body([])[0],
    "has no shape": body([{**GOOD, "shape": [2, -3]}])[0],
    "is FP64 and has to be FP32": body([{**GOOD, "datatype": "FP64"}])[0],
    "cannot be read: cannot reshape": body([{**GOOD, "data": [0.0] * 5}])[0],
    "cannot be read: could not convert": body([{**GOOD, "data": ["a"] * 6}])[0],
    "cannot be read: setting an array": body([{**GOOD, "data": [[1.0], [1.0, 2.0]]}])[0],
    "binary_data_size is 24, and 0": body([{**GOOD, "parameters": {"binary_data_size": 24}}])[0],
    "'z' is no output": body([GOOD], outputs=[{"name": "z"}])[0],
}


@pytest.mark.parametrize("reason", BAD)
def test_what_is_no_request_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(UsageError, match=reason.replace("`", ".")):
        asked(BAD[reason], None, [X], [X])


def test_binary_data_that_belong_to_nothing_or_end_too_early_are_refused() -> None:
    sent, header = body([GOOD], b"1234")
    with pytest.raises(UsageError, match="4 bytes of binary data belong to no input"):
        asked(sent, header, [X], [X])
    with pytest.raises(UsageError, match="is not within the body"):
        asked(sent, 10_000, [X], [X])
    word = TensorSpec("x", "string", (1,))
    sent, header = body(
        [{"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}], LENGTH.pack(9) + b"a"
    )
    with pytest.raises(UsageError, match="ends past its bytes"):
        asked(sent, header, [word], [word])


def test_fractions_are_no_integers() -> None:
    whole = TensorSpec("x", "int64", (1,))
    with pytest.raises(UsageError, match="its data are no INT64"):
        asked(body([{"name": "x", "datatype": "INT64", "shape": [1], "data": [1.5]}])[0], None, [whole], [whole])


def test_integers_that_a_type_has_not_are_refused() -> None:
    byte = TensorSpec("x", "uint8", (1,))
    with pytest.raises(UsageError, match="out of bounds"):
        asked(body([{"name": "x", "datatype": "UINT8", "shape": [1], "data": [256]}])[0], None, [byte], [byte])
