"""Options as OpenAPI shows them: the schemas by which they are checked, among the components."""

from __future__ import annotations

from typing import Any

from compiler.contract import CompileOptions, job_kinds, schema
from service.http.schemas.runs import BenchmarkIn

COMPONENT = "#/components/schemas/{model}"


def reference(options: type) -> dict[str, Any]:
    """What the bodies of requests refer to."""
    return {"$ref": COMPONENT.format(model=options.__name__)}


OPTIONS_SCHEMA = reference(CompileOptions)
OPTIONS_EXAMPLE = job_kinds.COMPILE.example


def components() -> dict[str, Any]:
    """By name the schemas that bodies which FastAPI does not read refer to."""
    found: dict[str, Any] = {}
    for kind in job_kinds.KINDS:
        if kind.options is not None:
            options = schema(kind.options, COMPONENT)
            found |= {**options.pop("$defs", {}), kind.options.__name__: {**options, "example": kind.example}}
    benchmark = BenchmarkIn.model_json_schema(ref_template=COMPONENT)
    return {**found, **benchmark.pop("$defs"), BenchmarkIn.__name__: benchmark}
