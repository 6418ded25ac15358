"""What `POST /benchmarks` takes: JSON, or a form with the same JSON and a sample."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from service.errors import BadRequest
from service.http.admission.auth import Submitter
from service.http.multipart.parts import BENCHMARK, MAX_OPTIONS_BYTES, SAMPLES
from service.http.requests.model_bodies import SAMPLES_SCHEMA
from service.http.requests.upload import JSON, MULTIPART, media_type, receive, small_body
from service.http.schemas.options import COMPONENT
from service.http.schemas.runs import BENCHMARK_EXAMPLE, BenchmarkIn
from service.http.state import Here
from service.jobs.storage.samples import SampleFile

SCHEMA = {"$ref": COMPONENT.format(model=BenchmarkIn.__name__)}
BODY: dict[str, Any] = {
    "required": True,
    "content": {
        JSON: {"schema": SCHEMA, "example": BENCHMARK_EXAMPLE},
        MULTIPART: {
            "schema": {
                "type": "object",
                "required": [BENCHMARK],
                "additionalProperties": False,
                "properties": {
                    BENCHMARK: SCHEMA,
                    SAMPLES: {
                        **SAMPLES_SCHEMA,
                        "maxItems": 1,
                        "description": "an .npz archive of inputs, by the model's names, on which all artifacts are "
                        "timed; its filename is what it is called",
                    },
                },
            },
            "encoding": {BENCHMARK: {"contentType": JSON}},
            "example": {BENCHMARK: BENCHMARK_EXAMPLE, SAMPLES: ["<the bytes of inputs.npz>"]},
        },
    },
}
"""As OpenAPI shows it."""


async def asked(request: Request, here: Here, caller: Submitter) -> tuple[BenchmarkIn, tuple[SampleFile, ...]]:
    """What to time, and the sample on which.

    Raises `BadRequest`, `OptionsError`, `RequestValidationError` with every field that is wrong, and what
    `service.http.requests.upload.receive` raises.
    """
    kind = media_type(request)
    if kind == MULTIPART:
        upload = await receive(request, here, caller, parts=(BENCHMARK, SAMPLES))
        if len(upload.samples) > 1:
            raise BadRequest(
                f"{len(upload.samples)} samples were sent, and a benchmark is timed on one",
                fix="send one part 'samples'; send a benchmark for each of several",
            )
        return _read(upload.benchmark or b"", f"the part {BENCHMARK!r}"), upload.samples
    if kind != JSON:
        raise BadRequest(f"a body of type {kind!r:.100} is not understood", fix=f"send {JSON} or {MULTIPART}")
    return _read(await small_body(request, MAX_OPTIONS_BYTES), "the body"), ()


def _read(text: bytes, what: str) -> BenchmarkIn:
    try:
        return BenchmarkIn.model_validate(json.loads(text))
    except ValidationError as error:
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{what} is not JSON: {error}", fix='send an object such as {"artifacts": [...]}') from None


Timed = Annotated[tuple[BenchmarkIn, tuple[SampleFile, ...]], Depends(asked)]
