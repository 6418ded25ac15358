"""What benchmarks and inferences found."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import kept
from service.db.models import Benchmark, Inference


def add_benchmark(session: Session, job_id: uuid.UUID, report: Mapping[str, Any]) -> None:
    """Insert."""
    session.execute(sa.insert(Benchmark).values(job_id=job_id, report=dict(report)))


def benchmark(session: Session, job_id: uuid.UUID) -> Benchmark | None:
    """The result of a benchmark that succeeded."""
    return session.get(Benchmark, job_id)


def add_inference(session: Session, job_id: uuid.UUID, input_key: str, input_bytes: int) -> None:
    """Insert the inputs."""
    session.execute(sa.insert(Inference).values(job_id=job_id, input_key=input_key, input_bytes=input_bytes))
    kept.name(session, {input_key: input_bytes})


def end_inference(
    session: Session, job_id: uuid.UUID, key: str, size: int, sha256: str, report: Mapping[str, Any]
) -> None:
    """Add the outputs."""
    update = sa.update(Inference).where(Inference.job_id == job_id)
    values = {"output_key": key, "output_bytes": size, "output_sha256": sha256, "report": dict(report)}
    session.execute(update.values(values).execution_options(synchronize_session=False))
    kept.name(session, {key: size})


def inference(session: Session, job_id: uuid.UUID) -> Inference | None:
    """Inputs and outputs of an inference."""
    return session.get(Inference, job_id)
