"""The bodies that carry a model, as OpenAPI shows them.

JSON that names an uploaded one, multipart, zip, or its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.contract import MOST_SAMPLES
from service.http.multipart.parts import DATA, DIGEST, MODEL, OPTIONS, SAMPLES
from service.http.requests.request_options import MOST_AT_ONCE
from service.http.requests.upload import JSON, MULTIPART
from service.http.schemas.models import DIGEST as DIGEST_PATTERN
from service.http.schemas.options import OPTIONS_EXAMPLE, OPTIONS_SCHEMA
from service.jobs.storage.uploads import RAW_TYPES, ZIP

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
SAMPLES_SCHEMA = {
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "maxItems": MOST_SAMPLES,
    "description": ".npz archives of inputs, by the model's names; the filename of each is what it is called",
}
ZIP_SCHEMA = {"type": "string", "format": "binary", "description": "one ONNX file and its external data"}


def model_body(
    options: Mapping[str, Any],
    more: Mapping[str, Any],
    examples: Mapping[str, Mapping[str, Any]],
    *,
    with_samples: bool = False,
    example: Mapping[str, Any] = OPTIONS_EXAMPLE,
) -> dict[str, Any]:
    """A request body with a model and `options` (a schema); `more` are further properties of its JSON form.

    With samples, its multipart form takes those, and the digest of a model that was uploaded. `example` are its
    options.
    """
    named = {"type": "string", "pattern": DIGEST_PATTERN, "description": "digest of an uploaded model"}
    only_model = {"required": [MODEL]}
    further = {DIGEST: named, SAMPLES: SAMPLES_SCHEMA} if with_samples else {}
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
                    "additionalProperties": False,
                    **({"oneOf": [{"required": [MODEL]}, {"required": [DIGEST]}]} if with_samples else only_model),
                    "properties": {MODEL: BINARY, DATA: DATA_SCHEMA, OPTIONS: options, **further},
                },
                "encoding": {OPTIONS: {"contentType": JSON}},
                "example": {MODEL: MODEL_BYTES, OPTIONS: dict(example)},
            },
            ZIP: {"schema": ZIP_SCHEMA},
            RAW_TYPES[0]: {"schema": BINARY},
        },
    }
