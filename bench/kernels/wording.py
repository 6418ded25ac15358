"""Nodes of a model in few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from bench.zoo.flops import Shapes, Uncountable, macs


def describe(nodes: Sequence[onnx.NodeProto], shapes: Shapes) -> str:
    """The node with most arithmetic, with its geometry, and the operators around it.

    `Conv 3x3/2 g32 32->32, 112x112 -> 56x56 + Clip`: window, stride, groups, channels, spatial extents.
    """
    first = max(nodes, key=lambda node: _macs(node, shapes))
    others = Counter(node.op_type for node in nodes if node is not first)
    around = [operator if count == 1 else f"{count} {operator}" for operator, count in others.items()]
    return " + ".join((_one(first, shapes), *around))


def gflop(nodes: Sequence[onnx.NodeProto], shapes: Shapes) -> float:
    """Billions of operations, 2 per multiply-accumulate; nodes that cannot be counted count nothing."""
    return 2e-9 * sum(_macs(node, shapes) for node in nodes)


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    try:
        return macs(node, shapes)
    except Uncountable:
        return 0


def _one(node: onnx.NodeProto, shapes: Shapes) -> str:
    known = [shapes.get(name) for name in (*node.input[:2], node.output[0])]
    if node.op_type == "Conv" and all(known):
        return _conv(node, *(shapes[name] for name in (*node.input[:2], node.output[0])))
    if node.op_type in ("MatMul", "Gemm") and all(known):
        a, b, _ = (_extents(shapes[name]) for name in (*node.input[:2], node.output[0]))
        return f"{node.op_type} {a} by {b}"
    result = shapes.get(node.output[0])
    return f"{node.op_type} {_extents(result)}" if result else node.op_type


def _conv(node: onnx.NodeProto, x: tuple[int, ...], weights: tuple[int, ...], y: tuple[int, ...]) -> str:
    given: Mapping[str, Any] = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    strides, groups = set(given.get("strides", (1,))), given.get("group", 1)
    stride = "" if strides == {1} else "/" + "x".join(map(str, sorted(strides)))
    grouped = "" if groups == 1 else f" g{groups}"
    return f"Conv {_extents(weights[2:])}{stride}{grouped} {x[1]}->{y[1]}, {_extents(x[2:])} -> {_extents(y[2:])}"


def _extents(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
