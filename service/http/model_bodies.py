"""The bodies that carry a model, as OpenAPI shows them: JSON that names an uploaded one, multipart, zip, or its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.contract import SCHEDULERS
from service.http.model_schemas import DIGEST
from service.http.parts import DATA, MODEL, OPTIONS
from service.http.upload import JSON, MULTIPART, RAW_TYPES
from service.http.wishes import MOST_AT_ONCE
from service.jobs.uploads import ZIP

OPTIONS_EXAMPLE = {"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20}

OPTIONS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "example": OPTIONS_EXAMPLE,
    "properties": {
        "target": {
            "type": "string",
            "default": "cpu",
            "description": "`cpu` or `cuda` (of the worker that takes the job), `cpu:<profile>` or `cuda:<profile>`",
        },
        "precision": {
            "type": "string",
            "default": "fp32",
            "description": "`fp32`; `bf16` where the target has it; on CUDA targets `tf32` and `fp16` too",
        },
        "tolerance": {
            "type": ["number", "null"],
            "description": "largest accepted error; null: the precision's default",
        },
        "threads": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "null: every core; of no use to a CUDA target",
        },
        "inputs": {
            "type": "object",
            "description": 'by input name: a shape, or {"shape": [...], "value": scalar}',
            "additionalProperties": {},
        },
        "dims": {
            "type": "object",
            "description": "by symbolic dimension: its value",
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "tuning_budget_s": {"type": "number", "minimum": 0, "default": 15},
        "tuning_trials": {"type": ["integer", "null"], "minimum": 0, "default": None},
        "scheduler": {
            "type": "string",
            "enum": [*SCHEDULERS],
            "default": "auto",
            "description": "`auto`: whichever is measured to be the fastest; CUDA targets have no `aligned` and no `greedy`",
        },
        "seed": {"type": "integer", "default": 0},
        "without": {
            "type": "array",
            "items": {"type": "string"},
            "default": [],
            "description": "rules of rewriting, families of them and steps of fusion to leave out",
        },
    },
}
SEVERAL_SCHEMA: dict[str, Any] = {
    "oneOf": [OPTIONS_SCHEMA, {"type": "array", "items": OPTIONS_SCHEMA, "minItems": 1, "maxItems": MOST_AT_ONCE}],
    "description": "One object makes one job; a list makes one for each, all or none.",
}

BINARY = {"type": "string", "format": "binary", "description": "the bytes of an ONNX model"}
MODEL_BYTES = "<the bytes of model.onnx>"
DATA_SCHEMA = {
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "description": "files of external data; the filename of each is its path relative to the model",
}
ZIP_SCHEMA = {"type": "string", "format": "binary", "description": "one ONNX file and its external data"}


def model_body(
    options: Mapping[str, Any], more: Mapping[str, Any], examples: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A request body with a model and `options` (a schema); `more` are further properties of its JSON form."""
    named = {"type": "string", "pattern": DIGEST, "description": "digest of an uploaded model"}
    return {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["model"],
                    "additionalProperties": False,
                    "properties": {"model": named, "options": options, **more},
                },
                "examples": {name: {"value": value} for name, value in examples.items()},
            },
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": [MODEL],
                    "properties": {MODEL: BINARY, DATA: DATA_SCHEMA, OPTIONS: options},
                },
                "encoding": {OPTIONS: {"contentType": JSON}},
                "example": {MODEL: MODEL_BYTES, OPTIONS: OPTIONS_EXAMPLE},
            },
            ZIP: {"schema": ZIP_SCHEMA},
            RAW_TYPES[0]: {"schema": BINARY},
        },
    }
