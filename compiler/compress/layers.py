"""Which weights are pruned: those of products and convolutions that are constant, large enough and no one else's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from compiler.errors import OptionsError, Refusal, UnsupportedModel
from compiler.ir.graph import Graph, Node
from compiler.ir.zeros import LEAST_ELEMENTS
from compiler.quantize.layers import channel_axis, id_of, ids_of
from compiler.quantize.network import Left, Network, attributes, named

PRUNED = ("Conv", "Gemm", "MatMul")
GROUPED = "it is depthwise or grouped: few weights that all matter, and kernels that leave nothing out"
PATHS = ("Identity", "Flatten", "Reshape", "Relu", "Clip", "Softmax", "LogSoftmax", "Sigmoid", "BatchNormalization")
"""Operators that may stand between a model's ends and its first and last layers."""


@dataclass(frozen=True)
class Layer:
    """One: its node in the file and in the front end's graph, and its weights.

    `id` is that of the weights in the graph, where they are as in the file. As a matrix the weights have a row for each
    result; its columns are in the order of `columns_of`.
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

    def rows(self, weights: np.ndarray) -> np.ndarray:
        """Weights as a matrix float64[results, products]: of a convolution window by window, channels innermost."""
        if self.node.op_type == "Conv":
            return np.moveaxis(weights, 1, -1).reshape(len(weights), -1).astype(np.float64)
        return (weights if self.axis == 0 else weights.T).astype(np.float64)

    def shaped(self, rows: np.ndarray) -> np.ndarray:
        """What `rows` made a matrix of, in its own shape and dtype."""
        if self.node.op_type == "Conv":
            count, depth, *window = self.weights.shape
            made = np.moveaxis(rows.reshape(count, *window, depth), -1, 1)
        else:
            made = rows if self.axis == 0 else rows.T
        return np.ascontiguousarray(made.astype(self.weights.dtype))

    @property
    def depth(self) -> int:
        """Neighbouring columns that are channels at one place of the window; N:M forms lie among them."""
        return int(self.weights.shape[1 if self.node.op_type == "Conv" or self.axis == 0 else 0])


def layers_of(network: Network, graph: Graph, keep: Collection[str], *, ends: bool) -> tuple[list[Layer], list[Left]]:
    """The layers that are pruned, in the model's order, and those that stay dense.

    `ends` says whether the first and the last ones are pruned too. Raises UnsupportedModel where no layer is left, or
    weights are not finite, and OptionsError where `keep` names none.
    """
    ids = ids_of(graph)
    found: list[Layer] = []
    left: list[Left] = []
    broken: list[Refusal] = []
    for node in network.nodes:
        if network.operator(node) not in PRUNED:
            continue
        weights = network.constant(node.input[1])
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
        said = "there is no Conv, Gemm or MatMul" if not left else f"none of its {len(left)} layers can be"
        raise UnsupportedModel(
            f"the model has no layer to prune: {said}",
            fix="compile it as it is, or give `ends` to prune the first and last layers too",
            refusals=reasons,
        )


def _layer(
    network: Network, graph: Graph, ids: dict[str, int], node: NodeProto, weights: np.ndarray | None, ends: bool
) -> Layer | str:
    """The layer, or why it stays dense."""
    if weights is None:
        return "its weights are not constant, or quantised already"
    if weights.dtype != np.float32:
        return f"its weights are {weights.dtype}"
    if weights.ndim < 2 or (node.op_type != "Conv" and weights.ndim != 2):
        return f"its weights have {weights.ndim} axes"
    attrs = attributes(node)
    if "group" in attrs and attrs["group"].i != 1:
        return GROUPED
    if weights.size < LEAST_ELEMENTS:
        return f"it has {weights.size} weights: kernels leave zeros out from {LEAST_ELEMENTS} on"
    if len(network.readers.get(node.input[1], ())) != 1 or node.input[1] in {*network.outputs, *network.captured}:
        return "its weights are shared"
    source, made = (id_of(network, ids, name) for name in (node.input[0], node.output[0]))
    inner = None if made is None else graph.producer.get(made)
    if source is None or source in graph.constants:
        return "its input is constant"
    if inner is None or inner.op != node.op_type or inner.inputs[0] != source:
        return "the front end takes it apart"
    id = inner.used[1]
    constant = graph.constants.get(id)
    if constant is None or constant.shape != weights.shape or not np.array_equal(constant, weights):
        return "the front end takes its weights apart"
    if node.op_type == "Gemm" and inner.attrs.get("transA"):
        return "its input is transposed"
    if not ends and _is_first(network, node.input[0]):
        return "it is the first: what it loses all others lack (`ends` prunes it too)"
    if not ends and _is_last(network, node.output[0]):
        return "it is the last: its results are the outputs (`ends` prunes it too)"
    return Layer(node, inner, weights, id, channel_axis(network, node))


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
