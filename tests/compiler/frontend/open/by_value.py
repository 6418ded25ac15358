"""A model that is fed an axis, a shape or a count against the same model with that input fixed to a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.contract import CompileOptions
from compiler.frontend.load import Loaded, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import cut, own_outputs

Feeds = Mapping[str, np.ndarray]


def fed(model: bytes, bounds: Mapping[str, int] | None = None) -> Loaded:
    """The model with every input fed."""
    return load(model, CompileOptions(bounds=bounds or {}), OPERATORS)


def results(loaded: Loaded, feeds: Feeds) -> tuple[str, list[np.ndarray]]:
    """What does not hold of the run, and its outputs at their sizes."""
    graph, shapes = loaded.graph, loaded.open_shapes
    values = evaluate_graph(graph, {id: feeds[graph.values[id].name] for id in graph.inputs}, OPERATORS)
    said = shapes.broken(graph.outputs, values) if shapes else ""
    kinds = [value.type.dtype.numpy for value in own_outputs(graph, shapes)]
    return said, [array.astype(kind) for array, kind in zip(cut(graph, shapes, values), kinds, strict=True)]


def agree_with_fixed(model: bytes, loaded: Loaded, feeds: Feeds, by_value: tuple[str, ...]) -> list[np.ndarray]:
    """The outputs, which are those of the model in which the named inputs are constants."""
    fixed: Any = {"inputs": {name: {"value": feeds[name].tolist()} for name in by_value}}
    static = load(model, CompileOptions.from_json(fixed), OPERATORS)
    assert static.open_shapes is None
    said, found = results(loaded, feeds)
    assert not said
    for one, other in zip(found, results(static, feeds)[1], strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    return found
