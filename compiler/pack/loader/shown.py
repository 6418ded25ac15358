"""How a model is called without names, and what it says of itself."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from compiler.pack.loader.errors import InputError
from compiler.pack.loader.specs import TensorSpec


class _Shown(Protocol):
    """As much of a model as is told of it."""

    path: Path
    lanes: int
    manifest: dict[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def _by_name(inputs: Any, specs: Sequence[TensorSpec]) -> Mapping[str, Any]:
    """Inputs by name; one without a name is that of a model with one. Raises InputError for any other."""
    if isinstance(inputs, Mapping):
        return inputs
    if len(specs) != 1:
        raise InputError(f"inputs are given by name, not as a {type(inputs).__name__}. Fix: give {_wanted(specs)}")
    return {specs[0].name: inputs}


def _in_order(inputs: Sequence[Any], named: Mapping[str, Any], specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Inputs in their order, or in one mapping, and by name, all by name. Raises InputError."""
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        (given,) = inputs
    elif len(inputs) > len(specs):
        raise InputError(f"{len(inputs)} inputs are given. Fix: give {_wanted(specs)}")
    else:
        given = dict(zip([spec.name for spec in specs], inputs, strict=False))
    if twice := sorted({*given} & {*named}):
        raise InputError(f"input {twice[0]!r} is given twice. Fix: give it once")
    return {**given, **named}


def _wanted(specs: Sequence[TensorSpec]) -> str:
    return "{" + ", ".join(f"{spec.name!r}: {spec}" for spec in specs) + "}"


def _facts(model: _Shown) -> dict[str, str]:
    """What a model is, in words."""

    def listed(specs: Sequence[TensorSpec]) -> str:
        each = ["".join(c if c.isprintable() else "?" for c in f"{spec.name}: {spec}") for spec in specs]
        return ", ".join(each)

    predicted = model.manifest.get("predicted_s")
    unit, scale = ("ms", 1e3) if predicted and predicted >= 1e-3 else ("us", 1e6)
    return {
        "artifact": model.path.name,
        "inputs": listed(model.inputs),
        "outputs": listed(model.outputs),
        "target": str(model.manifest["target"]),
        "lanes": f"{model.lanes} lane{'s' if model.lanes > 1 else ''}",
        **({"latency": f"{scale * predicted:.3g} {unit} predicted"} if predicted else {}),
    }


def _in_a_line(facts: dict[str, str]) -> str:
    rows = dict(facts)
    return f"<Model {rows.pop('artifact')}: {rows.pop('inputs')} -> {rows.pop('outputs')}; {', '.join(rows.values())}>"


def _as_table(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in facts.items())
    return f"<table>{rows}</table>"
