"""TOSA files written with flatbuffers and numpy alone, by the numbers of the specification's `tosa.fbs` 1.0."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from compiler.accelerate.tflite.flatbuffer import put_offsets, put_table
from compiler.accelerate.tosa.execute import DTYPES, OPERATORS, VERSION, Graph, Operator, Tensor

_ALIGNED = 8
"""Bytes that the schema aligns constants to."""


class TosaWriter:
    """Collects tensors and operators of one block; names are made unique, and equal constants are one tensor."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._operators: list[Operator] = []
        self._constants: dict[Any, str] = {}

    def tensor(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """Declares a tensor; its name in the file."""
        return self._declared(name, tuple(map(int, shape)), dtype, None)

    def constant(self, array: np.ndarray) -> str:
        """Declares a tensor with fixed elements, int64 for a shape; its name in the file."""
        array = np.ascontiguousarray(array)
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in self._constants:
            is_shape = array.dtype == np.int64
            name = self._declared("shape" if is_shape else "constant", array.shape, array.dtype.name, array)
            self._operators.append(Operator("CONST_SHAPE" if is_shape else "CONST", (), (name,), {}))
            self._constants[key] = name
        return self._constants[key]

    def operator(
        self, kind: str, inputs: Sequence[str], name: str, shape: Sequence[int], dtype: str, **attributes: Any
    ) -> str:
        """Appends an operator with all fields of its attribute; the name in the file of what it makes."""
        if (fields := {field for field, _ in OPERATORS[kind][1]}) != {*attributes}:
            raise TypeError(f"{kind} has the fields {sorted(fields)}, and {sorted(attributes)} are given")
        made = self.tensor(name, shape, dtype)
        self._operators.append(Operator(kind, tuple(inputs), (made,), attributes))
        return made

    def graph(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """What was collected, of which these tensors are given and taken."""
        return Graph(self.tensors, tuple(self._operators), tuple(inputs), tuple(outputs))

    def _declared(self, name: str, shape: tuple[int, ...], dtype: str, data: np.ndarray | None) -> str:
        unique, at = name, 1
        while unique in self.tensors:
            unique, at = f"{name}.{at}", at + 1
        self.tensors[unique] = Tensor(unique, shape, dtype, data)
        return unique


def to_bytes(graph: Graph) -> bytes:
    """The file."""
    tensors = graph.tensors.values()
    sizes = sum(one.data.nbytes for one in tensors if one.data is not None)
    b = import_module("flatbuffers").Builder(1024 + sizes)
    operators = [_operator(b, one) for one in graph.operators]
    made = [_tensor(b, one) for one in tensors if one.dtype != "int64"]
    shapes = [_shape(b, one) for one in tensors if one.dtype == "int64"]
    ends = [_texts(b, names) for names in (graph.inputs, graph.outputs)]
    parts = [b.CreateString("main"), put_offsets(b, operators), put_offsets(b, made), *ends, put_offsets(b, shapes)]
    block = put_table(b, [(slot, "Offset", part) for slot, part in enumerate(parts)], 6)
    named = [(0, "Offset", b.CreateString("main")), (1, "Offset", put_offsets(b, [block]))]
    regions = put_offsets(b, [put_table(b, named, 2)])
    b.StartObject(4)
    for slot, number in enumerate(VERSION):
        b.PrependInt32Slot(slot, number, -1)
    b.PrependBoolSlot(3, False, True)
    version = b.EndObject()
    b.Finish(put_table(b, [(0, "Offset", version), (1, "Offset", regions)], 2), file_identifier=b"TOSA")
    return bytes(b.Output())


def _texts(b: Any, names: Sequence[str]) -> Any:
    return put_offsets(b, [b.CreateString(name) for name in names])


def _bytes(b: Any, data: bytes) -> Any:
    b.StartVector(1, len(data), _ALIGNED)
    b.head -= len(data)
    b.Bytes[b.head : b.head + len(data)] = data
    return b.EndVector()


def _ints(b: Any, values: Sequence[int]) -> Any:
    return b.CreateNumpyVector(np.asarray(values, "<i4"))


def _tensor(b: Any, one: Tensor) -> Any:
    fields = [(0, "Offset", b.CreateString(one.name)), (1, "Offset", _ints(b, one.shape))]
    if one.data is not None:
        fields.append((3, "Offset", _bytes(b, one.data.tobytes())))
    return put_table(b, [*fields, (2, "Uint32", DTYPES[one.dtype])], 7)


def _shape(b: Any, one: Tensor) -> Any:
    assert one.data is not None
    fields = [(0, "Offset", b.CreateString(one.name)), (2, "Offset", _bytes(b, one.data.tobytes()))]
    return put_table(b, [*fields, (1, "Uint32", len(one.data))], 3)


_KINDS = {"ints": "Offset", "bytes": "Offset", "bool": "Bool", "uint": "Uint32", "int": "Int32"}


def _operator(b: Any, one: Operator) -> Any:
    number, described = OPERATORS[one.kind]
    values = [(slot, type, one.attributes[name]) for slot, (name, type) in enumerate(described)]
    made = [
        (slot, _KINDS[type], {"ints": _ints, "bytes": _bytes}[type](b, value) if type in ("ints", "bytes") else value)
        for slot, type, value in values
    ]
    attribute = put_table(b, made, len(described))
    fields = [
        (2, "Offset", attribute),
        (3, "Offset", _texts(b, one.inputs)),
        (4, "Offset", _texts(b, one.outputs)),
        (0, "Uint32", number),
        (1, "Uint8", number),
    ]
    return put_table(b, fields, 6)
