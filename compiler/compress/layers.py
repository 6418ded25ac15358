"""Which weights are changed: of products, convolutions and recurrent layers, constant, large enough, no one else's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd

import numpy as np
from onnx import NodeProto

from compiler.compress.recurrent import POSITIONS, RECURRENT, apart, joined
from compiler.encodings.zeros import LEAST_ELEMENTS
from compiler.errors import OptionsError, Refusal, UnsupportedModel
from compiler.ir.graph import Graph, Node
from compiler.quantize.layers import channel_axis, id_of, ids_of
from compiler.quantize.network import Left, Network, attributes, named

CHANGED = ("Conv", "Gemm", "MatMul", *RECURRENT)
GROUPED = "it is depthwise or grouped: few weights that all matter, and kernels that save nothing by a form"
PATHS = (
    "Identity", "Flatten", "Reshape", "Squeeze", "Transpose", "Relu", "Clip", "Softmax", "LogSoftmax", "Sigmoid",
    "BatchNormalization",
)  # fmt: skip
"""Operators that may stand between a model's ends and its first and last layers."""


@dataclass(frozen=True)
class Layer:
    """One: its node in the file and in the front end's graph, and its weights.

    `id` is that of the weights in the graph, where they are as in the file. As a matrix the weights have a row for each
    result; its columns are in the order of `columns_of`. Those of a recurrent layer are [W R], and `id` that of W.
    """

    node: NodeProto
    inner: Node
    weights: np.ndarray
    id: int
    axis: int

    @property
    def name(self) -> str:
        """What messages and the report call it."""
        return named(self.node)

    @property
    def recurs(self) -> bool:
        """Whether it is a recurrent layer."""
        return self.node.op_type in RECURRENT

    @property
    def result(self) -> str:
        """The first of its results that has a name."""
        return _result(self.node)

    def inputs(self, weights: np.ndarray) -> dict[int, np.ndarray]:
        """Weights as the node reads them, by the positions of its inputs."""
        if not self.recurs:
            return {1: weights}
        return dict(zip(POSITIONS, apart(self.node.op_type, weights), strict=True))

    def rows(self, weights: np.ndarray) -> np.ndarray:
        """Weights as a matrix float64[results, products]: of a convolution window by window, channels innermost.

        Of a recurrent layer direction by direction.
        """
        if self.recurs:
            return weights.reshape(-1, weights.shape[2]).astype(np.float64)
        if self.node.op_type == "Conv":
            return np.moveaxis(weights, 1, -1).reshape(len(weights), -1).astype(np.float64)
        return (weights if self.axis == 0 else weights.T).astype(np.float64)

    def shaped(self, rows: np.ndarray) -> np.ndarray:
        """What `rows` made a matrix of, in its own shape and dtype."""
        if self.recurs:
            made = rows.reshape(self.weights.shape)
        elif self.node.op_type == "Conv":
            count, depth, *window = self.weights.shape
            made = np.moveaxis(rows.reshape(count, *window, depth), -1, 1)
        else:
            made = rows if self.axis == 0 else rows.T
        return np.ascontiguousarray(made.astype(self.weights.dtype))

    @property
    def depth(self) -> int:
        """Neighbouring columns that are channels at one place of the window; N:M forms lie among them.

        Of a recurrent layer as many as divide its features and its hidden units.
        """
        if self.recurs:
            return gcd(*(part.shape[2] for part in self.inputs(self.weights).values()))
        return int(self.weights.shape[1 if self.node.op_type == "Conv" or self.axis == 0 else 0])


def layers_of(network: Network, graph: Graph, keep: Collection[str], *, ends: bool) -> tuple[list[Layer], list[Left]]:
    """The layers that are changed, in the model's order, and those that stay dense.

    `ends` says whether the first and the last ones are changed too. Raises UnsupportedModel where no layer is left, or
    weights are not finite, and OptionsError where `keep` names none.
    """
    ids = ids_of(graph)
    found: list[Layer] = []
    left: list[Left] = []
    broken: list[Refusal] = []
    for node in network.nodes:
        if network.operator(node) not in CHANGED:
            continue
        weights = _weights(network, node)
        if weights is not None and weights.dtype.kind == "f" and not np.isfinite(weights).all():
            broken.append(
                Refusal(
                    "its weights hold NaN or infinity", "export the model again", named(node), network.operator(node)
                )
            )
            continue
        layer = _layer(network, graph, ids, node, weights, ends)
        if named(node) in keep:
            layer = "it is to be kept"
        if isinstance(layer, Layer):
            found.append(layer)
        else:
            left.append(Left(node, layer))
    _demand(network, found, left, broken, keep)
    return found, left


def _demand(
    network: Network, found: list[Layer], left: list[Left], broken: list[Refusal], keep: Collection[str]
) -> None:
    if broken:
        raise UnsupportedModel(
            f"{len(broken)} layers have weights that are not finite, the first is {broken[0].node!r:.100}",
            fix="export the model again: there is no telling which of such weights matter",
            refusals=tuple(broken[:50]),
        )
    names = {*(one.name for one in found), *(one.name for one in left)}
    if unknown := [name for name in keep if name not in names]:
        raise OptionsError(
            f"keep names {unknown[0]!r:.100}, which is no layer of the model",
            fix=f"its layers are {', '.join(sorted(names)[:8]) or 'none'}",
        )
    if not found:
        reasons = tuple(Refusal(one.reason, "", one.name, network.operator(one.node)) for one in left[:50])
        said = (
            "there is no Conv, Gemm, MatMul or recurrent layer"
            if not left
            else f"none of its {len(left)} layers can be"
        )
        raise UnsupportedModel(
            f"the model has no layer to compress: {said}",
            fix="compile it as it is, or give `ends` to take the first and last layers too",
            refusals=reasons,
        )


def _positions(node: NodeProto) -> tuple[int, ...]:
    """Of weights among a node's inputs."""
    return POSITIONS if node.op_type in RECURRENT else (1,)


def _result(node: NodeProto) -> str:
    """The first that has a name; empty where none has."""
    return next((str(name) for name in node.output if name), "")


def _weights(network: Network, node: NodeProto) -> np.ndarray | None:
    """Those of a layer, [W R] of a recurrent one; None where they are not constant."""
    found = [network.constant(node.input[at]) for at in _positions(node)]
    constants = [one for one in found if one is not None]
    if len(constants) < len(found):
        return None
    return joined(*constants) if node.op_type in RECURRENT else constants[0]


def _layer(
    network: Network, graph: Graph, ids: dict[str, int], node: NodeProto, weights: np.ndarray | None, ends: bool
) -> Layer | str:
    """The layer, or why it stays dense."""
    if weights is None:
        return "its weights are not constant, or quantised already"
    if weights.dtype != np.float32:
        return f"its weights are {weights.dtype}"
    if weights.ndim < 2 or (node.op_type in ("Gemm", "MatMul") and weights.ndim != 2):
        return f"its weights have {weights.ndim} axes"
    attrs = attributes(node)
    if "group" in attrs and attrs["group"].i != 1:
        return GROUPED
    if weights.size < LEAST_ELEMENTS:
        return f"it has {weights.size} weights: those of {LEAST_ELEMENTS} at least are worth it"
    names = [node.input[at] for at in _positions(node)]
    seen = {*network.outputs, *network.captured}
    if any(len(network.readers.get(name, ())) != 1 or name in seen for name in names):
        return "its weights are shared"
    source, made = (id_of(network, ids, name) for name in (node.input[0], _result(node)))
    inner = None if made is None else graph.producer.get(made)
    if source is None or source in graph.constants:
        return "its input is constant"
    if inner is None or inner.op != node.op_type or inner.inputs[0] != source:
        return "the front end takes it apart"
    layer = Layer(node, inner, weights, inner.used[1], channel_axis(network, node))
    for at, own in layer.inputs(weights).items():
        constant = graph.constants.get(inner.used[at])
        if constant is None or constant.shape != own.shape or not np.array_equal(constant, own):
            return "the front end takes its weights apart"
    if node.op_type == "Gemm" and inner.attrs.get("transA"):
        return "its input is transposed"
    if not ends and _is_first(network, node.input[0]):
        return "it is the first: what it loses all others lack (`ends` takes it too)"
    if not ends and _is_last(network, layer.result):
        return "it is the last: its results are the outputs (`ends` takes it too)"
    return layer


def _is_first(network: Network, name: str) -> bool:
    """Whether a value is an input of the model but for what changes no more than elements by themselves."""
    while name in network.producer and network.made_by(name) in PATHS:
        name = network.producer[name].input[0]
    return name in network.inputs


def _is_last(network: Network, name: str) -> bool:
    while name not in network.outputs:
        reader = network.only_reader(name)
        if reader is None or network.operator(reader) not in PATHS:
            return False
        name = reader.output[0]
    return True
