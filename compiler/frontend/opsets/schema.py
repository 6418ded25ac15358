"""What ONNX says of an operator's form: arity, attributes and their defaults, types; and whether a call keeps to it.

Only onnx's tables are consulted; none of its code runs over a model here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from compiler.frontend.reading.decode import attribute_value
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import AttrValue, Body, Call, Foreign, quoted
from compiler.frontend.reading.strings import is_text
from compiler.frontend.reading.tensors import Source
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported

ONNX_TYPES: dict[DType, str] = {
    DType.BOOL: "tensor(bool)",
    DType.I8: "tensor(int8)",
    DType.I16: "tensor(int16)",
    DType.I32: "tensor(int32)",
    DType.I64: "tensor(int64)",
    DType.U8: "tensor(uint8)",
    DType.U16: "tensor(uint16)",
    DType.U32: "tensor(uint32)",
    DType.U64: "tensor(uint64)",
    DType.F16: "tensor(float16)",
    DType.BF16: "tensor(bfloat16)",
    DType.F32: "tensor(float)",
    DType.F64: "tensor(double)",
    DType.F8E4M3FN: "tensor(float8e4m3fn)",
    DType.F8E4M3FNUZ: "tensor(float8e4m3fnuz)",
    DType.F8E5M2: "tensor(float8e5m2)",
    DType.F8E5M2FNUZ: "tensor(float8e5m2fnuz)",
    DType.F8E8M0: "tensor(float8e8m0)",
    DType.F6E2M3: "tensor(float6e2m3)",
    DType.F6E3M2: "tensor(float6e3m2)",
    DType.F4E2M1: "tensor(float4e2m1)",
    DType.I4: "tensor(int4)",
    DType.U4: "tensor(uint4)",
    DType.I2: "tensor(int2)",
    DType.U2: "tensor(uint2)",
}


@dataclass(frozen=True)
class Formal:
    """One formal input: its name, the type variable it shares with others, the ONNX types it admits."""

    name: str
    variable: str
    admits: frozenset[str]
    required: bool
    homogeneous: bool


@dataclass(frozen=True)
class Form:
    """An operator at one opset. A variadic last input repeats up to `inputs[1]` times."""

    formals: tuple[Formal, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    kinds: Mapping[str, str]
    """Attribute name to the name of its ONNX kind (INT, FLOATS, ...)."""
    required: tuple[str, ...]
    defaults: Mapping[str, AttrValue]
    since: int
    deprecated: bool
    has_body: bool
    """Whether ONNX's tables define it by other operators."""
    random: bool
    """Whether ONNX says that another run may give another result."""


@cache
def form_of(op: str, opset: int) -> Form | None:
    """The form of an ai.onnx operator as of an opset; None where that opset has no such operator."""
    try:
        schema: Any = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None
    formals = tuple(
        Formal(
            name=formal.name,
            variable=formal.type_str,
            admits=frozenset(formal.types),
            required=formal.option == OpSchema.FormalParameterOption.Single,
            homogeneous=formal.option != OpSchema.FormalParameterOption.Variadic or formal.is_homogeneous,
        )
        for formal in schema.inputs
    )
    nowhere = Source(None, Limits())
    defaults = {
        name: attribute_value(attribute.default_value, nowhere)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }
    return Form(
        formals=formals,
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        kinds={name: attribute.type.name for name, attribute in schema.attributes.items()},
        required=tuple(name for name, attribute in schema.attributes.items() if attribute.required),
        defaults=defaults,
        since=schema.since_version,
        deprecated=schema.deprecated,
        has_body=schema.has_function or schema.has_context_dependent_function,
        random=schema.node_determinism == OpSchema.NodeDeterminism.NonDeterministic,
    )


def check_form(call: Call, form: Form) -> None:
    """Raises Unsupported where arity or attributes are not those of the operator."""
    _check_count("input", len(call.inputs), form.inputs)
    _check_count("output", len(call.outputs), form.outputs)
    for formal, name in zip(form.formals, call.inputs, strict=False):
        if formal.required and not name:
            raise Unsupported(f"input {formal.name!r} is absent but required", "export the model again")
    for name, value in call.attrs.items():
        if name not in form.kinds:
            raise Unsupported(
                f"attribute {quoted(name)} is unknown at this opset", "remove the attribute or raise the opset"
            )
        if isinstance(value, Foreign):
            raise Unsupported(f"attribute {name!r} is {value.what}", "use a type from bool to double")
        if is_text(value) and call.op != "Constant":
            raise Unsupported(f"attribute {name!r} holds strings", "use a type from bool to double")
        if not _is_kind(value, form.kinds[name]):
            raise Unsupported(f"attribute {name!r} is not of kind {form.kinds[name]}", "export the model again")
    for name in form.required:
        if name not in call.attrs:
            raise Unsupported(f"attribute {name!r} is missing", "export the model again")


def _check_count(what: str, count: int, allowed: tuple[int, int]) -> None:
    if not allowed[0] <= count <= allowed[1]:
        span = f"{allowed[0]}" if allowed[0] == allowed[1] else f"{allowed[0]} to {allowed[1]}"
        if allowed[1] >= 2**31 - 1:
            span = f"at least {allowed[0]}"
        raise Unsupported(f"it has {count} {what}s where the operator takes {span}", "export the model again")


def _is_kind(value: AttrValue, kind: str) -> bool:
    if kind == "GRAPH":
        return isinstance(value, Body)
    if kind == "TENSOR":
        return isinstance(value, np.ndarray)
    scalars: dict[str, type] = {"INT": int, "FLOAT": float, "STRING": str}
    if kind in scalars:
        return isinstance(value, scalars[kind])
    element = scalars.get(kind.removesuffix("S"))
    return element is not None and isinstance(value, tuple) and all(isinstance(item, element) for item in value)


def check_types(form: Form, types: Sequence[TensorType | None], moves: bool = False) -> None:
    """Raises Unsupported where an input's element type is not admitted, or differs from one it must equal.

    What only `moves` elements takes small types too, which ONNX lists for some of these operators and not for others.
    """
    bound: dict[str, tuple[str, DType]] = {}
    for position, found in enumerate(types):
        if found is None:
            continue
        formal = form.formals[min(position, len(form.formals) - 1)]
        is_moved = moves and found.dtype.is_small and formal.variable == form.formals[0].variable
        if ONNX_TYPES[found.dtype] not in formal.admits and not is_moved:
            raise Unsupported(
                f"input {formal.name!r} has element type {found.dtype}, which the operator does not take",
                "insert a Cast before it",
            )
        if not formal.homogeneous or "(" in formal.variable:
            continue
        name, first = bound.setdefault(formal.variable, (formal.name, found.dtype))
        if first is not found.dtype:
            raise Unsupported(
                f"inputs {name!r} and {formal.name!r} have element types {first} and {found.dtype}, "
                "which must be equal",
                "insert a Cast before one of them",
            )
