"""TOSA files: what is written is what is read, and the accelerators' compiler reads it too."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.accelerate.tosa.execute import PROPAGATE, read
from compiler.accelerate.tosa.write import TosaWriter, to_bytes


def _writer() -> tuple[TosaWriter, str, str]:
    writer = TosaWriter()
    x = writer.tensor("x", (1, 4), "int8")
    shape = writer.constant(np.array([2, 2], np.int64))
    reshaped = writer.operator("RESHAPE", [x, shape], "y", (2, 2), "int8")
    clamped = writer.operator(
        "CLAMP", [reshaped], "y", (2, 2), "int8", min_val=b"\xf0", max_val=b"\x10", nan_mode=PROPAGATE
    )
    return writer, x, clamped


def test_a_graph_is_read_as_it_was_written() -> None:
    writer, x, y = _writer()
    graph = writer.graph([x], [y])
    found = read(to_bytes(graph))
    assert (found.inputs, found.outputs) == (("x",), ("y.1",))
    assert [one.kind for one in found.operators] == ["CONST_SHAPE", "RESHAPE", "CLAMP"]
    assert [*map(repr, found.operators)] == [*map(repr, graph.operators)]
    assert {one.name: (one.shape, one.dtype) for one in found.tensors.values()} == {
        one.name: (one.shape, one.dtype) for one in graph.tensors.values()
    }
    assert found.run([np.array([[-100, -3, 7, 100]], np.int8)])[0].tolist() == [[-16, -3], [7, 16]]


def test_equal_constants_are_one_and_names_are_unique() -> None:
    writer = TosaWriter()
    first, same = writer.constant(np.zeros(1, np.int8)), writer.constant(np.zeros(1, np.int8))
    other, wider = writer.constant(np.ones(1, np.int8)), writer.constant(np.zeros(1, np.int32))
    assert first == same
    assert len({first, other, wider}) == 3
    assert [writer.tensor("a", (1,), "int8") for _ in range(3)] == ["a", "a.1", "a.2"]


def test_an_attribute_is_stated_whole_or_refused() -> None:
    writer, x, _ = _writer()
    with pytest.raises(TypeError, match="'max_val', 'min_val', 'nan_mode'"):
        writer.operator("CLAMP", [x], "z", (1, 4), "int8", min_val=b"\0")
    with pytest.raises(TypeError, match="axis"):
        writer.operator("RESHAPE", [x], "z", (1, 4), "int8", axis=1)
