"""A model with open dimensions against the same model bound to numbers: the sizes decide what is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import parser

from compiler.contract import CompileOptions
from compiler.frontend.load import Loaded, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

Ranges = Mapping[str, tuple[int, int]]
Sizes = Mapping[str, int]


def model_of(text: str) -> bytes:
    """A model in ONNX's text form, opset 21, from its graph."""
    opsets = '"" : 21, "com.microsoft" : 1'
    return bytes(parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> {text}").SerializeToString())


def opened(model: Path | bytes, ranges: Ranges) -> Loaded:
    """The model with these dimensions in ranges."""
    dims: Any = {name: {"min": low, "max": high} for name, (low, high) in ranges.items()}
    return load(model, CompileOptions(dims=dims).bindings[-1], OPERATORS)


def drawn(graph_inputs: Sequence[Any], seed: int, highest: int) -> list[np.ndarray]:
    """Seeded values for types; integers are below `highest`."""
    chance = np.random.default_rng(seed)
    found = []
    for kind in graph_inputs:
        if kind.dtype.is_float:
            found.append(chance.normal(size=kind.dims).astype(kind.dtype.numpy))
        else:
            found.append(chance.integers(0, highest, kind.dims).astype(kind.dtype.numpy))
    return found


def agree_at(
    loaded: Loaded, model: Path | bytes, sizes: Sizes, seed: int = 0, highest: int = 2, near: float = 1e-9
) -> list[np.ndarray]:
    """What the open model gives at sizes, in float64, which is what the model bound to them gives; and zero beyond."""
    static = load(model, CompileOptions(dims=dict(sizes)), OPERATORS).graph
    shapes, graph = loaded.open_shapes, loaded.graph
    assert shapes is not None
    values = drawn([static.type(id) for id in static.inputs], seed, highest)
    inputs: dict[int, np.ndarray] = {}
    for id, value in zip(graph.inputs, values, strict=False):
        whole = np.zeros(graph.type(id).dims, value.dtype)
        whole[tuple(map(slice, value.shape))] = value
        inputs[id] = whole
    for number, dimension in enumerate(shapes.dimensions):
        (size,) = {
            value.shape[axis]
            for value, axes in zip(values, shapes.inputs, strict=True)
            for axis, of in enumerate(axes)
            if of == number
        }
        assert dimension.low <= size <= dimension.high
        inputs[graph.inputs[len(shapes.inputs) + number]] = np.array(size)
    wanted = evaluate_graph(static, dict(zip(static.inputs, values, strict=True)), OPERATORS)
    found = evaluate_graph(graph, inputs, OPERATORS)
    outputs = [found[id] for id in graph.outputs]
    results = []
    for id, output, axes in zip(static.outputs, outputs, shapes.outputs, strict=False):
        shape = [int(outputs[of]) if of is not None else output.shape[axis] for axis, of in enumerate(axes)]
        real = tuple(map(slice, shape))
        np.testing.assert_allclose(output[real], wanted[id], rtol=near, atol=near / 1000)
        beyond = output.copy()
        beyond[real] = 0
        assert not beyond.any()
        results.append(output[real])
    return results
