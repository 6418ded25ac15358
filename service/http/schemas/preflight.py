"""The answer of `POST /preflight`, as OpenAPI shows it."""

from __future__ import annotations

import uuid
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compiler.contract.preflight import ModelAnswer, unread
from service.http.schemas.models import DIGEST_EXAMPLE
from service.jobs.inspection.inspector import FAILED
from service.jobs.inspection.preflight import Foretold
from service.jobs.scheduling.capabilities import nobody

PREFLIGHT_EXAMPLE: dict[str, Any] = {
    "ok": False,
    "problem": {
        "code": "unbound_dimension",
        "fault": "caller",
        "message": "the model has dimensions without a value",
        "fix": 'bind them in the options, for example {"dims": {"height": 224}}',
        "refusals": [],
        "details": {},
    },
    "nodes": 2,
    "operators": [
        {
            "operator": "Conv",
            "domain": "ai.onnx",
            "count": 2,
            "verdict": "supported",
            "reasons": [],
            "fixes": [],
            "nodes": ["conv1", "conv2"],
            "unchecked": 0,
        }
    ],
    "refusals": [],
    "inputs": [
        {
            "name": "image",
            "dtype": "f32",
            "shape": ["batch", 3, "height", 224],
            "taken": [1, 3, 224, 224],
            "bound": False,
            "range": None,
            "why": "",
        }
    ],
    "samples": [],
    "outputs": [{"name": "scores", "dtype": "f32", "shape": [1, 16, 224, 224]}],
    "carried": [],
    "suggested_states": [],
    "parameters": 880,
    "weight_bytes": 3520,
    "sparse": [],
    "low_rank": [],
    "shared": [],
    "quantised": [],
    "activation_bytes": 6422528,
    "gflop": {"value": 0.088, "counts": "billions of operations, 2 for each multiply-accumulate"},
    "proof": {"seconds": 0.144, "bytes": 99876543},
    "memory_bytes": {"compile": 572544000, "run": 14814656},
    "notices": ["the batch dimension ('batch') of input 'image' was not bound and is set to 1"],
    "corrected": {"target": "cpu", "dims": {"height": 224}},
    "target": {"name": "cpu:x86-64-v4", "reason": None},
    "cached": None,
    "queue": {"name": "cpu", "position": 0, "workers": 1, "notice": None},
    "estimate": {"median_s": 11.2, "p90_s": 19.0, "jobs": 7},
    "request": {
        "model": DIGEST_EXAMPLE,
        "options": {"target": "cpu", "dims": {"height": 224}},
        "compiler": None,
    },
}


class QueueOut(BaseModel):
    """Where the job would wait."""

    name: str
    position: int = Field(description="How many jobs would go first.")
    workers: int = Field(description="How many workers that are alive serve it.")
    notice: str | None = Field(description="What to start where none does.")


class EstimateOut(BaseModel):
    """Compile seconds of your past jobs of this queue whose models had between half and twice the nodes.

    Without any (`jobs` is 0), for a CPU, by the number of nodes, what proving takes and the tuning budget.
    """

    median_s: float
    p90_s: float
    jobs: int = Field(description="How many jobs this rests on; 0: none.")


class CompileRequest(BaseModel):
    """A body for `POST /compile`."""

    model: str
    options: dict[str, Any]
    compiler: str | None = Field(None, description="As it was asked for.")


class PreflightOut(ModelAnswer):
    """What would become of a compilation."""

    model_config = ConfigDict(json_schema_extra={"example": PREFLIGHT_EXAMPLE})

    cached: uuid.UUID | None = Field(description="The artifact with which `request` would be answered at once.")
    queue: QueueOut
    estimate: EstimateOut | None = Field(
        description="Null where the model would be refused, and for other devices without a past job like it."
    )
    request: CompileRequest = Field(description="The request again, corrected.")

    @classmethod
    def of(cls, found: Foretold) -> Self:
        """From the command's result.

        An answer that is none (the process that gave it may be hostile) becomes a problem.
        """
        try:
            answer = ModelAnswer.model_validate(found.answer)
        except ValidationError:
            answer = _unanswered(found)
        estimate = found.estimate
        return cls(
            **answer.model_dump(),
            cached=found.cached,
            queue=_queue(found),
            estimate=EstimateOut(**vars(estimate)) if estimate else None,
            request=CompileRequest.model_validate(found.request),
        )


def _queue(found: Foretold) -> QueueOut:
    notice = None if found.workers else nobody(found.queue)
    if notice and found.compiler:
        notice = f"no live worker with compiler {found.compiler} serves {found.queue}: {nobody(found.queue)}"
    return QueueOut(name=found.queue, position=found.ahead, workers=found.workers, notice=notice)


def _unanswered(found: Foretold) -> ModelAnswer:
    """What is known when no answer came: the problem that the inspector reports, or that there is none."""
    try:
        return unread(found.answer["problem"])
    except (KeyError, ValidationError):
        return unread(
            {
                "code": FAILED,
                "fault": "ours",
                "message": "the process that reads the model answered with something else",
                "fix": "check that the model loads elsewhere; if it does, report it: no input may do that",
            }
        )
