"""graph.json: what it says of nodes and values, and which nodes each kernel computes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.pack.graphs import LONGEST, SAMPLED, Applied, Step, graph_json, statistics
from tests.parse import parse_graph

COPIES = {"Transpose", "Reshape", "Concat", "Split", "Slice", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand"}
"""Operators that may need no kernel: views, and parts that are written where they are read."""


def graph_of(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("graph.json"))


def test_it_tells_values_nodes_and_the_kernel_of_each(artifact: Path) -> None:
    found = graph_of(artifact)
    assert found["values"]["0"] == {"type": "f32[2, 3]", "name": "x"}
    mean = round((2 + 3 + 5) / 3, 5)
    assert found["values"]["2"]["constant"] == {"elements": 3, "min": 2.0, "max": 5.0, "mean": mean, "zeros": 0.0}
    (step,) = found["steps"]
    assert (step["name"], step["inputs"], step["outputs"], step["applied"]) == ("load", [0, 1], [4, 5], [])
    assert step["nodes"][1] == {
        "op": "Cast",
        "name": "second",
        "reads": [1],
        "writes": [6],
        "attributes": {"to": "f32"},
    }
    assert found["kernels"] == [[0], [1, 2, 3]]


def test_a_step_tells_what_it_did_and_long_attributes_are_cut(parts: Any) -> None:
    graph = parse_graph(f'graph(%0: f32[2]) -> (%1)\n  %1: f32[2] = Relu(%0) long="{"a" * 500}"')
    applied = (Applied("merge (exact)", "first", "x + x = 2 x", "saves 1 node"), Applied("pad", "second", "why"))
    found = graph_json([Step("load", graph), Step("rewrite", graph, applied)], parts.kernels)
    assert found["steps"][1]["applied"] == [
        {"what": "merge (exact)", "where": "first", "why": "x + x = 2 x", "note": "saves 1 node"},
        {"what": "pad", "where": "second", "why": "why"},
    ]
    assert len(found["steps"][0]["nodes"][0]["attributes"]["long"]) == LONGEST + 1


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((0, 3), np.float32), {"elements": 0}),
        (np.array([np.nan, np.inf], np.float32), {"elements": 2, "not_finite": 2}),
        (
            np.array([np.nan, 0.0, 4.0], np.float32),
            {"elements": 3, "min": 0.0, "max": 4.0, "mean": 2.0, "zeros": 0.5, "not_finite": 1},
        ),
        (np.array([True, False]), {"elements": 2, "min": 0.0, "max": 1.0, "mean": 0.5, "zeros": 0.5}),
        (
            np.array(-(1 << 62), np.int64),
            {"elements": 1, "min": -4.61169e18, "max": -4.61169e18, "mean": -4.61169e18, "zeros": 0.0},
        ),
    ],
)
def test_statistics_are_of_what_is_finite(array: np.ndarray, expected: dict[str, Any]) -> None:
    assert statistics(array) == expected


def test_large_constants_are_sampled_over_all_of_them() -> None:
    found = statistics(np.arange(3 * SAMPLED, dtype=np.float32))
    assert found["sampled"] == SAMPLED
    assert (found["min"], found["max"] > 0.99 * 3 * SAMPLED) == (0.0, True)


def test_every_node_of_a_network_is_in_a_kernel_or_needs_none(compiled: Callable[..., Any]) -> None:
    path = compiled("tiny_inception", 2, split=True).artifact
    found = graph_of(path)
    assert [step["name"] for step in found["steps"]] == ["load", "rewrite", "choose"]
    nodes = found["steps"][-1]["nodes"]
    within = {number for members in found["kernels"] for number in members}
    assert within
    assert {nodes[number]["op"] for number in set(range(len(nodes))) - within} <= COPIES
    with zipfile.ZipFile(path) as archive:
        calls = json.loads(archive.read("plan.json"))["calls"]
    assert len(found["kernels"]) == len(calls)
    assert [bool(members) for members in found["kernels"]] == [True] * len(calls)
    known = {int(id) for id in found["values"]}
    assert known >= {id for step in found["steps"] for node in step["nodes"] for id in node["writes"]}
