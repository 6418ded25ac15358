"""The options of a compilation as OpenAPI shows them: the schema by which they are checked, among the components."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from compiler.contract import CompileOptions

COMPONENT = "#/components/schemas/{model}"
OPTIONS_EXAMPLE = {"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20}
OPTIONS_SCHEMA: dict[str, Any] = {"$ref": COMPONENT.format(model=CompileOptions.__name__)}
"""What the bodies of requests refer to."""


def components() -> dict[str, Any]:
    """By name the schemas that OPTIONS_SCHEMA refers to."""
    schema = TypeAdapter(CompileOptions).json_schema(ref_template=COMPONENT)
    return {**schema.pop("$defs"), CompileOptions.__name__: {**schema, "example": OPTIONS_EXAMPLE}}
