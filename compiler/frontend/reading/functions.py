"""Functions: model-local ones and the bodies that ONNX gives for composed operators, each as an Expansion of one call.

How far a model's functions expand is counted from the definitions, before any is expanded: a chain in which each calls
the next twice is refused in the time it takes to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.reading.decode import expansion_body
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import (
    AttrValue,
    Body,
    Call,
    Expansion,
    Foreign,
    Function,
    FunctionKey,
    Model,
    Reference,
    quoted,
)
from compiler.frontend.reading.tensors import CODES, Source
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported


def key_of(call: Call) -> FunctionKey:
    """Under which a model-local function would be defined."""
    return (call.domain, call.op, call.overload)


def check_expansion(model: Model, limits: Limits) -> int:
    """Calls after expanding every function. Raises ModelTooLarge past `limits`, MalformedModel for recursion."""
    sizes: dict[FunctionKey, int] = {}
    total = _size(model.body.calls, model, limits, sizes, ())
    if total > limits.nodes:
        raise ModelTooLarge(
            f"the model expands to {total if total < 10**9 else 'over 10^9'} nodes, more than {limits.nodes}",
            fix="simplify the model, or split it; functions that call one another twice double at every level",
        )
    return total


def _size(
    calls: Iterable[Call], model: Model, limits: Limits, sizes: dict[FunctionKey, int], path: tuple[FunctionKey, ...]
) -> int:
    total = 0
    for call in calls:
        total += 1 + sum(_size(body.calls, model, limits, sizes, path) for body in call.bodies)
        key = key_of(call)
        function = model.functions.get(key)
        if function is None:
            continue
        if key in path:
            raise MalformedModel(f"function {quoted(key[1])} calls itself", fix="ONNX functions must not be recursive")
        if key not in sizes:
            if len(path) >= limits.function_depth:
                raise ModelTooLarge(
                    f"functions call one another deeper than {limits.function_depth} levels", fix="inline some of them"
                )
            sizes[key] = _size(function.calls, model, limits, sizes, (*path, key))
        total += sizes[key]
    return total


def expand_function(call: Call, function: Function) -> Expansion:
    """A local function's body with the call's attributes put in. Raises Unsupported where the call does not fit it."""
    if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
        raise Unsupported("the call has more inputs or outputs than the function", "export the model again")
    if unknown := sorted(set(call.attrs) - set(function.attributes)):
        raise Unsupported(f"the function has no attribute {quoted(unknown[0])}", "export the model again")
    attrs = {**function.defaults, **call.attrs}
    calls = tuple(_resolved(inner, attrs) for inner in function.calls)
    return Expansion(function.inputs, function.outputs, calls, {}, function.opsets)


def _resolved(call: Call, attrs: Mapping[str, AttrValue]) -> Call:
    """The call with References replaced; one to an attribute that is not given vanishes, as ONNX says."""
    if not any(isinstance(value, Reference | Body) for value in call.attrs.values()):
        return call
    resolved: dict[str, AttrValue] = {}
    for name, value in call.attrs.items():
        if isinstance(value, Reference):
            if value.name in attrs:
                resolved[name] = attrs[value.name]
        elif isinstance(value, Body):
            resolved[name] = replace(value, calls=tuple(_resolved(inner, attrs) for inner in value.calls))
        else:
            resolved[name] = value
    return replace(call, attrs=resolved)


def schema_body(
    call: Call, opset: int, types: tuple[TensorType | None, ...], defaults: Mapping[str, AttrValue]
) -> Expansion | None:
    """The body that ONNX gives for an operator, at the opset or the next one that has a body; None where there is none.

    `defaults` are the schema's: onnx's bodies rely on them being filled in. An absent optional input has the empty
    type, which is what context-dependent bodies ask for.
    """
    schema: Any = defs.get_schema(call.op, opset, "")
    filled = replace(call, attrs={**defaults, **call.attrs})
    if schema.has_function:
        version = _version(schema.function_opset_versions, opset)
        data = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        given = [_type_proto(found).SerializeToString() for found in types]
        node = _node_proto(filled).SerializeToString()
        data = schema.get_context_dependent_function_with_opset_version(version, node, given)
    else:
        return None
    if not data:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(data)
    function = expansion_body(proto, Source(None, Limits()))
    return expand_function(
        filled, replace(function, opsets={"": version, **function.opsets}, attributes=tuple(filled.attrs))
    )


def _version(versions: Iterable[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def _type_proto(found: TensorType | None) -> onnx.TypeProto:
    if found is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(
        CODES[found.dtype], [dim if isinstance(dim, int) else str(dim) for dim in found.shape]
    )


def _node_proto(call: Call) -> onnx.NodeProto:
    inputs = [name and f"x{position}" for position, name in enumerate(call.inputs)]
    outputs = [name and f"y{position}" for position, name in enumerate(call.outputs)]
    node = onnx.NodeProto(op_type=call.op, input=inputs, output=outputs)
    for name, value in call.attrs.items():
        if isinstance(value, Body | Reference | Foreign | np.ndarray):
            raise Unsupported(
                f"attribute {name!r} cannot be passed to the operator's function body", "export without it"
            )
        if value != ():
            node.attribute.append(helper.make_attribute(name, value))
    return node
