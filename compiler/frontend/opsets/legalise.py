"""One call brought to normal form.

It is checked against its schema, upgraded to the newest opset, and every default filled in.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.frontend.expansions.site import Site
from compiler.frontend.opsets.schema import Form, check_form, form_of
from compiler.frontend.opsets.table import UPGRADES, Rule
from compiler.frontend.reading.model import NEWEST_OPSET, AttrValue, Body, Call, Expansion, Foreign, Reference, quoted
from compiler.ir.graph import Attr
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported

_RULES: dict[str, tuple[tuple[int, Rule], ...]] = {
    op: tuple((before, rule) for name, before, rule in UPGRADES if name == op) for op, _, _ in UPGRADES
}


FIRST_READ = 6
"""The oldest opset whose forms are understood."""


def not_below_six(call: Call, opset: int) -> tuple[Call, int]:
    """A call of an opset before 6 as one of opset 6, which has nothing that says what it may overwrite.

    Where the form is another one in opset 6, `check` refuses the call.
    """
    if opset >= FIRST_READ:
        return call, opset
    attrs = {name: value for name, value in call.attrs.items() if name != "consumed_inputs"}
    return replace(call, attrs=attrs), FIRST_READ


def check(call: Call, opset: int) -> Form:
    """The call's form at its own opset.

    Raises Unsupported for an unknown operator or a call that does not keep to the form.
    """
    form = form_of(call.op, opset)
    if form is None:
        newest = form_of(call.op, NEWEST_OPSET)
        if newest is None:
            raise Unsupported("ONNX has no such operator", "define it as a model-local function or export without it")
        raise Unsupported(f"opset {opset} has no such operator", f"export the model with opset {newest.since} or newer")
    if form.deprecated:  # its last form still says what is meant
        form = form_of(call.op, form.since - 1) or form
    check_form(call, form)
    return form


def upgrade(
    call: Call, opset: int, types: tuple[TensorType | None, ...], constants: tuple[np.ndarray | None, ...]
) -> Expansion | None:
    """The call in its newest form; None where it has that form already. Raises Unsupported where there is none."""
    site = Site(call, types, constants)
    for before, rule in _RULES.get(call.op, ()):
        if opset < before and (expansion := rule(site)) is not None:
            return expansion
    return None


def may_expand(op: str) -> bool:
    """Whether an operator of ai.onnx has an upgrade, or in its newest form a body in ONNX's tables."""
    form = form_of(op, NEWEST_OPSET)
    return op in _RULES or (form is not None and form.has_body)


def normal_attrs(call: Call, form: Form) -> dict[str, Attr]:
    """The attributes of a node: those given and every default of the newest form, tensors as numbers and tuples."""
    attrs: dict[str, Attr] = {}
    for name, value in {**form.defaults, **call.attrs}.items():
        if name not in form.kinds:
            raise Unsupported(
                f"attribute {quoted(name)} has no counterpart in the newest form", "raise the model's opset"
            )
        attrs[name] = plain_attr(name, value)
    return attrs


def plain_attr(name: str, value: AttrValue) -> Attr:
    """A tensor as nested tuples, everything else as it is; Unsupported for subgraphs and foreign kinds."""
    if isinstance(value, np.ndarray):
        return plain(value)
    if isinstance(value, Body | Reference | Foreign):
        raise Unsupported(f"attribute {quoted(name)} holds a value that cannot be compiled", "export without it")
    return value


def plain(array: np.ndarray) -> Attr:
    """A scalar for rank 0, otherwise nested tuples, of Python numbers."""
    if array.dtype.kind not in "biuf":
        array = array.astype(np.float32)

    def nested(item: object) -> Attr:
        return tuple(nested(inner) for inner in item) if isinstance(item, list) else item  # type: ignore[return-value]

    return nested(array.tolist())
