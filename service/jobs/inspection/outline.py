"""The graph of an uploaded model, whether it can be compiled or not: read by a sealed process each time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compiler.errors import InternalError, MalformedModel, ModelTooLarge
from service.blobs.store import Blobs
from service.db.artifacts import onnx_bytes
from service.db.engine import Database
from service.db.models import Model
from service.db.plain import storable
from service.errors import Busy, WrongKind
from service.jobs.inspection.inspector import BUSY, MEMORY_BYTES, TIME_LIMIT, Inspector
from service.jobs.inspection.preflight import COPIES, CPU_S
from service.jobs.lifecycle import find
from service.jobs.storage import models


def of_model(db: Database, blobs: Blobs, inspector: Inspector, owner: uuid.UUID, digest: str) -> dict[str, Any]:
    """The graph in the form of an artifact's graph.json, with the step `uploaded` alone; unchecked, as the inspector's.

    Blocking. Raises `NotFound`; `MalformedModel` and `ModelTooLarge` where no graph can be read; `Busy` while too many
    others ask; `InternalError` when the process died; `StorageUnavailable` and `DatabaseUnavailable`.
    """
    model = models.row(db, owner, digest)
    answer = inspector.ask(_laid_out(blobs, model), CPU_S, MEMORY_BYTES + COPIES * model.bytes)
    graph = answer.get("graph")
    if not isinstance(graph, dict):
        raise _refusal(answer)
    return graph


def of_job(db: Database, blobs: Blobs, inspector: Inspector, owner: uuid.UUID, job_id: uuid.UUID) -> dict[str, Any]:
    """The graph of a job's model. Raises as `of_model` does, and `WrongKind` for a job that has no model."""
    job = find.job(db, owner, job_id).job
    if job.model_digest is None:
        raise WrongKind(f"job {job_id} is of kind {job.kind.lower()}, which has no model", fix="ask for a compilation")
    return of_model(db, blobs, inspector, owner, job.model_digest)


@contextmanager
def _laid_out(blobs: Blobs, model: Model) -> Iterator[Mapping[str, Any]]:
    """The order, with a copy of the model's ONNX file, which is gone afterwards. Raises as `Blobs.copy` does."""
    with blobs.copy(model.blob_key, onnx_bytes(model)) as path:
        yield {"order": "graph", "model": str(path.absolute())}


def _refusal(answer: Mapping[str, Any]) -> Exception:
    problem = answer.get("problem")
    given = problem if isinstance(problem, dict) else {}
    code, message, fix = (str(storable(given.get(name) or "")) for name in ("code", "message", "fix"))
    if code == BUSY:
        return Busy("too many models are being looked at", fix="ask again in a moment")
    if code in (ModelTooLarge.code, TIME_LIMIT):
        return ModelTooLarge(message, fix=fix)
    if code == MalformedModel.code:
        return MalformedModel(message, fix=fix)
    return InternalError(f"the model's graph was not read: {message or 'the answer is not one'}", fix="report it")
