"""Models of which an output is local along time, made at random, and their pieces by the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.frontend import Limits, Loaded, load
from compiler.frontend.load import read_with_options
from compiler.frontend.portion import Portion, named_tensors
from compiler.ops import OPERATORS
from compiler.pack.loader.chunks import _pieces
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from compiler.steps.chunking import Windows, demand_same, windows_of


@dataclass
class Net:
    """An ONNX graph as it is made; values [1, channels, positions] are names, with what is known of their sizes."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The name of a node's result, of the first of several where `outputs` says how many."""
        count = attrs.pop("outputs", 1)
        names = [f"v{len(self.nodes)}" + f".{at}" * (at > 0) for at in range(count)]
        self.nodes.append(helper.make_node(op, [*inputs], names, f"n{len(self.nodes)}", **attrs))
        return names[0]

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """The name of a constant."""
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), f"w{len(self.weights)}"))
        return str(self.weights[-1].name)

    def normal(self, *shape: int) -> str:
        """The name of a constant of random numbers."""
        return self.constant(self.random.standard_normal(shape) / math.sqrt(max(math.prod(shape[1:]), 1)))

    def model(self, x: tuple[int | str, ...], y: str) -> bytes:
        """The file: input `x` of a shape, output `y`."""
        self.nodes.append(helper.make_node("Identity", [y], ["y"], "last"))
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c"])],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        return bytes(made.SerializeToString())


class Portioned:
    """A portion of a model as the loader sees a program, run by the float64 reference."""

    def __init__(self, loaded: Loaded) -> None:
        self.graph = loaded.graph
        self.inputs = [SimpleNamespace(name=self.graph.values[id].name) for id in self.graph.inputs]
        self.manifest: Mapping[str, Any] = {}

    def run(self, inputs: Any, out: Any = None, state: Any = None, seed: int | None = None) -> dict[str, Any]:
        """Outputs by name, in float64 where they are floats."""
        graph = self.graph
        given = {id: np.asarray(inputs[graph.values[id].name]) for id in graph.inputs}
        for id, array in given.items():
            assert array.shape == graph.type(id).dims, f"a window of {graph.values[id].name} has another shape"
        found = evaluate_graph(graph, given, OPERATORS)
        return {graph.values[id].name: found[id] for id in graph.outputs}


def ways_of(model: bytes, chunks: Mapping[str, int]) -> tuple[Loaded, list[Windows]]:
    """A model, and the ways in which its output comes in pieces."""
    loaded = load(model, CompileOptions(), OPERATORS)
    names = named_tensors(read_with_options(model, CompileOptions(), Limits(), None)[0])
    return loaded, windows_of(loaded.graph, loaded.open_shapes, names, chunks)


def in_pieces(
    model: bytes, loaded: Loaded, windows: Windows, seed: int, margin: int | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output as a whole, and its pieces, by the reference; with another margin than windows have."""
    whole, said = Portioned(loaded), windows.to_json()
    whole.manifest = {"chunks": said if margin is None else {**said, "margin": margin}}

    def portion(one: Portion | None) -> Loaded | None:
        return None if one is None else load(model, CompileOptions(), OPERATORS, portion=one)

    before, behind = portion(windows.before), portion(windows.behind)
    assert behind is not None
    demand_same(windows, loaded.graph, behind)
    inputs = {loaded.graph.values[id].name: array for id, array in sample_inputs(loaded.graph, seed).items()}
    programs = [Portioned(before) if before else None, Portioned(behind)]
    return whole.run(inputs)[windows.output], [*_pieces(whole, programs, inputs, None)]
