"""The options of a compilation as OpenAPI shows them: the schema by which they are checked, among the components."""

from __future__ import annotations

from typing import Any

from compiler.contract import CompileOptions, schema

COMPONENT = "#/components/schemas/{model}"
OPTIONS_EXAMPLE = {"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20}
OPTIONS_SCHEMA: dict[str, Any] = {"$ref": COMPONENT.format(model=CompileOptions.__name__)}
"""What the bodies of requests refer to."""


def components() -> dict[str, Any]:
    """By name the schemas that OPTIONS_SCHEMA refers to."""
    options = schema(CompileOptions, COMPONENT)
    return {**options.pop("$defs"), CompileOptions.__name__: {**options, "example": OPTIONS_EXAMPLE}}
