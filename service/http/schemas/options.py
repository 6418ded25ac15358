"""Options as OpenAPI shows them: the schemas by which they are checked, among the components."""

from __future__ import annotations

from typing import Any

from compiler.contract import CompileOptions, CompressOptions, QuantizeOptions, schema
from service.http.schemas.runs import BenchmarkIn

COMPONENT = "#/components/schemas/{model}"
OPTIONS_EXAMPLE = {"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20}
OPTIONS_SCHEMA: dict[str, Any] = {"$ref": COMPONENT.format(model=CompileOptions.__name__)}
QUANTIZE_EXAMPLE = {"ranges": "mse", "snr_db": 30.0, "equalise": True}
COMPRESS_EXAMPLE = {"largest_error": 0.05, "form": "1x4"}
COMPRESS_SCHEMA: dict[str, Any] = {"$ref": COMPONENT.format(model=CompressOptions.__name__)}
QUANTIZE_SCHEMA: dict[str, Any] = {"$ref": COMPONENT.format(model=QuantizeOptions.__name__)}
"""What the bodies of requests refer to."""


def components() -> dict[str, Any]:
    """By name the schemas that bodies which FastAPI does not read refer to."""
    found: dict[str, Any] = {}
    for model, example in (
        (CompileOptions, OPTIONS_EXAMPLE),
        (QuantizeOptions, QUANTIZE_EXAMPLE),
        (CompressOptions, COMPRESS_EXAMPLE),
    ):
        options = schema(model, COMPONENT)
        found |= {**options.pop("$defs"), model.__name__: {**options, "example": example}}
    benchmark = BenchmarkIn.model_json_schema(ref_template=COMPONENT)
    return {**found, **benchmark.pop("$defs"), BenchmarkIn.__name__: benchmark}
