"""What a layer takes at each share of zeros: its kernels' times by the tile search, in a model of the layer alone.

A convolution's model has channels last on both sides, as a layer finds them inside of a network of ours. Nothing is
emitted: times are those of the search's best tiles, measured, from records, or by the cost model where the budget is
spent. Layers of equal shape and equal zeros share a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.compress.layers import Layer
from compiler.contract import CompileOptions
from compiler.ir.encoding import sparse_encodings_of
from compiler.pipeline import front_of
from compiler.session import Session
from compiler.steps.tiling import roundings, tile_kernels
from compiler.trace import StopRequest, Trace, never_stops


@dataclass(frozen=True)
class Taken:
    """Seconds, and from where: `measured` where all kernels' were, else `model`."""

    seconds: float
    source: str


class Times:
    """Times of layers and models on one target."""

    def __init__(
        self,
        options: CompileOptions,
        folder: Path,
        records: Iterable[Mapping[str, Any]] = (),
        *,
        measure: bool = True,
        on_record: Callable[[Mapping[str, Any]], None] = lambda record: None,
        stop_requested: StopRequest = never_stops,
    ) -> None:
        self.options, self.folder, self.measure = options, folder, measure
        self.on_record, self.stop_requested = on_record, stop_requested
        self.records: list[Mapping[str, Any]] = [*records]
        self._known: dict[tuple[object, ...], Taken] = {}

    def of_layer(self, layer: Layer, x: tuple[int, ...], weights: np.ndarray) -> Taken:
        """Of a layer with these weights on an input of this shape."""
        words = tuple(str(one) for one in sparse_encodings_of(weights))
        attributes = tuple(sorted(one.SerializeToString() for one in layer.node.attribute))
        key = (layer.node.op_type, attributes, len(layer.node.input), x, weights.shape, words)
        if key not in self._known:
            file = self.folder / "layer.onnx"
            file.write_bytes(_model(layer.node, x, weights))
            self._known[key] = self.of_model(file, self.options)
        return self._known[key]

    def of_model(
        self, file: Path, options: CompileOptions | None = None, data: Mapping[str, Path] | None = None
    ) -> Taken:
        """The sum over the kernels of a model."""
        trace = Trace(self._observed)
        session = Session.of(
            options or self.options, self.records, trace, self.stop_requested, self.measure, self.folder
        )
        front = front_of(session, file, data)
        rounding, _ = roundings(session)
        kernels = session.backend.stored(front.fused.kernels, rounding.precision)
        tiles = tile_kernels(session, kernels, front.evaluated.kernels, rounding.tolerance, rounding.precision)
        costs = [menu.best.cost for menu in tiles.settled.menus if menu.variants]
        source = "model" if any(cost.is_modelled for cost in costs) else "measured"
        return Taken(sum(cost.seconds for cost in costs), source)

    def _observed(self, event: Any) -> None:
        if event.kind == "record":
            self.records.append(event.data)
            self.on_record(event.data)


def _model(node: NodeProto, x: tuple[int, ...], weights: np.ndarray) -> bytes:
    """A model of one layer alone, with a bias where it has one."""
    own = NodeProto()
    own.CopyFrom(node)
    result = own.output[0]
    own.output[0] = "made"
    own.input[0], own.input[1] = "read", "w"
    constants = [numpy_helper.from_array(weights, "w")]
    if len(own.input) > 2 and own.input[2]:
        own.input[2] = "b"
        count = weights.shape[0] if node.op_type == "Conv" else _results(node, weights)
        constants.append(numpy_helper.from_array(np.linspace(-0.1, 0.1, count, dtype=np.float32), "b"))
    assert result, "a layer has a result"
    given, nodes, made = [*x], [own], "made"
    own.input[0] = "x"
    if node.op_type == "Conv":
        rank = len(x)
        given = [x[0], *x[2:], x[1]]
        own.input[0] = "inner"
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["inner"], perm=[0, rank - 1, *range(1, rank - 1)]))
        nodes.append(helper.make_node("Transpose", ["made"], ["y"], perm=[0, *range(2, rank), 1]))
        made = "y"
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info(made, TensorProto.FLOAT, None)],
        constants,
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())


def _results(node: NodeProto, weights: np.ndarray) -> int:
    transposed = any(one.name == "transB" and one.i for one in node.attribute)
    return int(weights.shape[0 if transposed else 1])
