"""ModelProto to `Model`: versions, names, types and attributes checked; nothing of protobuf is left after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from compiler.errors import MalformedModel, ModelTooLarge, Refusal, UnsupportedModel
from compiler.frontend.reading.model import (
    NEWEST_IR,
    NEWEST_OPSET,
    OLDEST_IR,
    OLDEST_OPSET,
    AttrValue,
    Body,
    Call,
    Foreign,
    Function,
    FunctionKey,
    Input,
    Model,
    Reference,
    quoted,
    text,
)
from compiler.frontend.reading.order import order
from compiler.frontend.reading.tensors import Source, array_of, dtype_of, string
from compiler.ir.tensor import DType


def decode(proto: ModelProto, source: Source, digest: str) -> Model:
    """The model's graph and functions. Raises MalformedModel, ModelTooLarge or UnsupportedModel (versions)."""
    if not proto.HasField("graph"):
        raise MalformedModel(
            "the file holds no ONNX graph", fix="send the .onnx file itself, not its data or a wrapper"
        )
    if not OLDEST_IR <= proto.ir_version <= NEWEST_IR:
        raise UnsupportedModel(
            f"the file has ONNX IR version {proto.ir_version}",
            fix=f"save it with an IR version from {OLDEST_IR} to {NEWEST_IR}",
        )
    opsets = _opsets(proto.opset_import, "the model")
    functions: dict[FunctionKey, Function] = {}
    for function in proto.functions:
        key = (_domain(function.domain), text(function.name), text(function.overload))
        if key in functions:
            raise MalformedModel(f"function {quoted(function.name)} is defined twice", fix="remove one of the two")
        functions[key] = _function(function, source, opsets)
    body = _body(proto.graph, source)
    if body.captured:
        raise _undefined(body.calls, body.captured, body.outputs)
    return Model(body, functions, opsets, digest)


def _domain(domain: str | bytes) -> str:
    return "" if domain == "ai.onnx" else text(domain)


def _opsets(imports: Iterable[OperatorSetIdProto], where: str) -> Mapping[str, int]:
    opsets = {_domain(entry.domain): entry.version for entry in imports}
    version = opsets.get("")
    if version is not None and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise UnsupportedModel(
            f"{where} uses opset {version} of ai.onnx",
            fix=f"export with an opset from {OLDEST_OPSET} to {NEWEST_OPSET}, "
            "or convert it with onnx.version_converter",
        )
    return opsets


def _undefined(calls: tuple[Call, ...], missing: frozenset[str], outputs: tuple[str, ...]) -> MalformedModel:
    for call in calls:
        for name in call.reads:
            if name in missing:
                return MalformedModel(
                    f"tensor {quoted(name)} is read but never defined",
                    fix="add it as an input or initializer, or export the model again",
                    refusals=(Refusal(f"reads {quoted(name)}", "", call.source, call.operator),),
                )
    name = next(name for name in outputs if name in missing)
    return MalformedModel(f"graph output {quoted(name)} is never computed", fix="remove it or export the model again")


def _body(graph: GraphProto, source: Source) -> Body:
    constants: dict[str, np.ndarray | Foreign] = {}
    for tensor in graph.initializer:
        if tensor.name in constants:
            raise MalformedModel(f"initializer {quoted(tensor.name)} is defined twice", fix="remove one of the two")
        constants[text(tensor.name)] = array_of(tensor, source)
    for sparse in graph.sparse_initializer:
        if sparse.values.name in constants:
            raise MalformedModel(
                f"initializer {quoted(sparse.values.name)} is defined twice", fix="remove one of the two"
            )
        constants[text(sparse.values.name)] = Foreign("a sparse tensor")
    infos = [_input(info) for info in graph.input]
    names = [info.name for info in infos]
    if len(set(names)) != len(names):
        raise MalformedModel("two graph inputs have one name", fix="give every input a name of its own")
    inputs = tuple(info for info in infos if info.name not in constants)
    outputs = tuple(dict.fromkeys(text(info.name) for info in graph.output))  # one that is listed twice is one
    calls = [_call(node, index, source) for index, node in enumerate(graph.node)]
    ordered = order(calls, {*names, *constants}, outputs)
    declared = {info.name: shape for info in graph.output if (shape := _dims(info.type, info.name)) is not None}
    return Body(inputs, outputs, ordered.calls, constants, ordered.captured, declared)


def _function(function: FunctionProto, source: Source, opsets: Mapping[str, int]) -> Function:
    calls = [_call(node, index, source) for index, node in enumerate(function.node)]
    inputs, outputs = _texts(function.input), _texts(function.output)
    if len(set(inputs)) != len(inputs):
        raise MalformedModel(f"function {quoted(function.name)} has two inputs of one name", fix="rename one of them")
    ordered = order(calls, inputs, outputs)
    if ordered.captured:
        raise _undefined(ordered.calls, ordered.captured, outputs)
    own = _opsets(function.opset_import, f"function {quoted(function.name)}")
    defaults = {text(attribute.name): attribute_value(attribute, source) for attribute in function.attribute_proto}
    return Function(
        inputs, outputs, (*_texts(function.attribute), *defaults), defaults, ordered.calls, {**opsets, **own}
    )


def expansion_body(function: FunctionProto, source: Source) -> Function:
    """A schema's function body, which onnx hands out as a FunctionProto.

    An output that it leaves uncomputed is the empty name.
    """
    outputs = _texts(function.output)
    computed = {*function.input, *(name for node in function.node for name in node.output)}
    del function.output[:]
    function.output.extend(name for name in outputs if name in computed)
    return replace(_function(function, source, {}), outputs=tuple(name if name in computed else "" for name in outputs))


def _call(node: NodeProto, index: int, source: Source) -> Call:
    attrs: dict[str, AttrValue] = {}
    for attribute in node.attribute:
        if attribute.name in attrs:
            raise MalformedModel(
                f"node {quoted(node.name)} has attribute {quoted(attribute.name)} twice", fix="remove one of the two"
            )
        attrs[text(attribute.name)] = attribute_value(attribute, source)
    return Call(
        op=text(node.op_type),
        inputs=_texts(node.input),
        outputs=_texts(node.output),
        attrs=attrs,
        domain=_domain(node.domain),
        overload=text(node.overload),
        source=source_of(node, index),
    )


def source_of(node: NodeProto, index: int) -> str:
    """What a node is called in messages: by its name, else by its place in its graph and its operator."""
    return text(node.name) or f"#{index} {node.op_type}"


def attribute_value(attribute: AttributeProto, source: Source) -> AttrValue:
    """A scalar, a tuple, an array or a Body; Foreign for the kinds that no operator here takes."""
    if attribute.ref_attr_name:
        return Reference(text(attribute.ref_attr_name))
    kind = attribute.type
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.STRING:
        return _text(attribute.s)
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRINGS:
        return tuple(_text(item) for item in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return array_of(attribute.t, source)
    if kind == AttributeProto.GRAPH:
        return _body(attribute.g, source)
    if kind in AttributeProto.AttributeType.values() and kind != AttributeProto.UNDEFINED:
        return Foreign(f"of kind {AttributeProto.AttributeType.Name(kind).lower()}")
    raise MalformedModel(f"attribute {quoted(attribute.name)} has no known type ({kind})", fix="export the model again")


def _texts(names: Iterable[str | bytes]) -> tuple[str, ...]:
    return tuple(text(name) for name in names)


def _text(data: bytes) -> str:
    return string(data)


def _input(info: ValueInfoProto) -> Input:
    if not info.name:
        raise MalformedModel("a graph input has no name", fix="name every input")
    where = f"input {quoted(text(info.name))}"
    kind = info.type.WhichOneof("value")
    if kind is None:
        return Input(info.name, None, None, "a value without a type")
    if kind != "tensor_type":
        return _wrapped(info, f"of kind {kind.removesuffix('_type').replace('_', ' ')}")
    if info.type.tensor_type.elem_type == TensorProto.STRING:
        return Input(info.name, DType.I64, _dims(info.type, info.name), is_text=True)
    dtype = dtype_of(info.type.tensor_type.elem_type, where)
    if isinstance(dtype, Foreign):
        return Input(info.name, None, None, dtype.what)
    return Input(info.name, dtype, _dims(info.type, info.name))


def _wrapped(info: ValueInfoProto, what: str) -> Input:
    """An input that is no tensor; of a sequence, an optional or an optional sequence with what it holds."""
    kind, is_optional = info.type, info.type.HasField("optional_type")
    if is_optional:
        kind = kind.optional_type.elem_type
    if is_sequence := kind.HasField("sequence_type"):
        kind = kind.sequence_type.elem_type
    if not kind.HasField("tensor_type"):
        return Input(info.name, None, None, what)
    holds = _input(ValueInfoProto(name=info.name, type=kind))
    return Input(info.name, None, None, what, holds=holds, is_sequence=is_sequence, is_optional=is_optional)


UNKNOWN = -1
"""How PaddlePaddle's exporter writes a dimension that may vary; ONNX Runtime reads it so too."""
NAMELESS = ("", "?")
"""Names that tie no two dimensions to each other: exporters write "?" for every one that they do not know."""


def _dims(kind: TypeProto, name: str) -> tuple[int | str | None, ...] | None:
    """The shape that a type declares, None where it declares none."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims: list[int | str | None] = []
    for axis, dim in enumerate(kind.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            if dim.dim_value == UNKNOWN:
                dims.append(None)
                continue
            if dim.dim_value < 0:
                raise MalformedModel(
                    f"axis {axis} of {quoted(name)} is {dim.dim_value}",
                    fix='give a dimension that may vary a name instead (dim_param "batch")',
                )
            dims.append(dim.dim_value)
        else:
            name_of = text(dim.dim_param)
            dims.append(None if name_of in NAMELESS else name_of)
    if len(dims) > 32:
        raise ModelTooLarge(f"{quoted(name)} has {len(dims)} axes, more than 32", fix="reshape it to fewer axes")
    return tuple(dims)
