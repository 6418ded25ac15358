"""Graphs of one operator, and profiles that have the operators named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.legalise.profile import Profile, parse
from compiler.legalise.program import Budget, Context, legalised
from compiler.legalise.ranges import Range
from compiler.legalise.rules import APPROXIMATE, EQUAL
from compiler.ops import OPERATORS
from compiler.rewrite import Rewritten

COST = {"macs": 1e9, "elements": 1e9, "call": 1e-4, "sent": 1e9, "received": 1e9, "memory": 1e6, "streamed": 1e9}
RANDOM = np.random.default_rng(5)
VIEWS = "Reshape Transpose Slice Concat Pad Expand Identity"


def drawn(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype(np.float32)


def profile(operators: str, limits: Mapping[str, Any] | None = None, **said: Any) -> Profile:
    """One that has these operators, and views."""
    have: dict[str, Any] = {name: {} for name in f"{operators} {VIEWS}".split()}
    whole = {"about": "a", "sources": ["b"], "dtypes": ["f32"], "cost": COST, "operators": {**have, **(limits or {})}}
    return parse({**whole, **said}, "test")


def single(
    op: str, shape: Sequence[int] = (1, 4, 6, 6), others: Sequence[Any] = (), two: bool = False, **attributes: Any
) -> Graph:
    """One node of x, of x twice with `two`, and of constants; None is an absent input."""
    arrays = {f"c{at}": np.asarray(one, np.float32) for at, one in enumerate(others) if one is not None}
    inputs = ["x", *(["z"] if two else []), *("" if one is None else f"c{at}" for at, one in enumerate(others))]
    return chain([helper.make_node(op, inputs, ["y"], name="n", **attributes)], shape, arrays, two)


def chain(nodes: list[Any], shape: Sequence[int], arrays: Mapping[str, np.ndarray], two: bool = False) -> Graph:
    """The nodes from x (and z) to y."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "z")[: 1 + two]]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", given, result, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    return load(model.SerializeToString(), CompileOptions(), OPERATORS).graph


def brought(
    graph: Graph, to: Profile, between: Range = (-4.0, 4.0), error: float = 0.02, terms: int = 64
) -> tuple[Rewritten, Context, list[str]]:
    """The graph legalised, and the operators that are left."""
    context = Context(to, EQUAL, APPROXIMATE, Budget(error, terms), dict.fromkeys(graph.inputs, between))
    found = legalised(graph, context)
    types = {value: one.type for value, one in found.graph.values.items()}
    left = [node.op for node in found.graph.nodes if to.refusal(node, types, found.graph.constants) is not None]
    return found, context, left
