"""Compilations beside each other: in what their options differ, what came of each, and how fast each was found."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import job_kinds, kinds
from compiler.contract.devices import compiled_for
from service.db import batches, jobs
from service.db.engine import Database
from service.db.models import Benchmark, Job
from service.errors import NotFound, WrongKind
from service.jobs.lifecycle.find import no_such_job

MOST_BENCHMARKS = 32
"""The newest so many that ran one of the artifacts are told of."""
FIGURES = (
    *("latency_s", "artifact_bytes", "weight_bytes", "arena_bytes", "kernels", "tolerance"),
    *("records_measured", "records_reused"),
)
"""Of a report (`CompileReport`)."""


@dataclass(frozen=True)
class Timed:
    """What a benchmark that was kept found for an artifact, in seconds; `ended_at` in seconds since 1970."""

    benchmark: uuid.UUID
    ended_at: float
    median_s: float


@dataclass(frozen=True)
class Entry:
    """One compilation.

    differs  its values of the options in which the compilations differ
    figures  what its report says, and `largest_error`, relative to the largest value of the output; of a success
    timed    benchmarks of its artifact, newest first
    """

    job: Job
    differs: Mapping[str, Any]
    figures: Mapping[str, float | int]
    timed: Sequence[Timed]


@dataclass(frozen=True)
class Comparison:
    """Compilations in the order in which they were asked for; `fastest` by the latency that each measured of itself."""

    entries: Sequence[Entry]
    fastest: uuid.UUID | None


def compare(db: Database, owner: uuid.UUID, job_ids: Sequence[uuid.UUID]) -> Comparison:
    """The owner's compilations with these ids. Raises `NotFound`, and `WrongKind` for what compiles nothing."""
    with db.read() as session:
        found = []
        for id in dict.fromkeys(job_ids):
            if (job := jobs.of_owner(session, owner, id)) is None:
                raise no_such_job(id)
            found.append(job)
        return _compared(session, owner, found)


def compare_batch(db: Database, owner: uuid.UUID, batch_id: uuid.UUID) -> Comparison:
    """The compilations of a batch. Raises `NotFound`."""
    with db.read() as session:
        rows = batches.jobs_of(session, owner, batch_id)
        if not rows:
            raise NotFound(f"there is no batch {batch_id}", fix="list them with GET /batches")
        return _compared(session, owner, rows)


def _compared(session: Session, owner: uuid.UUID, rows: Sequence[Job]) -> Comparison:
    for row in rows:
        if row.kind != job_kinds.COMPILE.name:
            raise WrongKind(
                f"job {row.id} is of kind {row.kind}, which compiles nothing",
                fix="compare compilations; GET /benchmarks/{id} compares what a benchmark ran",
            )
    made = [row.artifact_id for row in rows if row.report is not None and row.artifact_id is not None]
    timed = _timed(batches.benchmarks_of(session, owner, made, MOST_BENCHMARKS))
    differing = _differing([row.options for row in rows])
    entries = [
        Entry(
            row,
            {name: row.options[name] for name in differing if name in row.options},
            _figures(row.report or {}),
            timed.get(str(row.artifact_id), []),
        )
        for row in rows
    ]
    measured = [one for one in entries if not _is_estimated(one.job)]
    ranked = [(entry.figures["latency_s"], entry.job.id) for entry in measured if "latency_s" in entry.figures]
    return Comparison(entries, min(ranked)[1] if len(ranked) > 1 else None)


def _is_estimated(job: Job) -> bool:
    """Whether the latency of what the job made is an estimate of another compiler."""
    kind = kinds.find(compiled_for(str(job.options.get("target")), job.options.get("devices", ())))
    return kind is not None and kind.whole


def _differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    names = sorted({name for one in options for name in one})
    return [name for name in names if any(one.get(name) != options[0].get(name) for one in options)]


def _figures(report: Mapping[str, Any]) -> dict[str, float | int]:
    figures = {name: report[name] for name in FIGURES if isinstance(report.get(name), int | float)}
    errors = [one["max_relative"] for one in report.get("errors") or ()]
    return {**figures, **({"largest_error": max(errors)} if errors else {})}


def _timed(found: Iterable[Benchmark]) -> dict[str, list[Timed]]:
    """By artifact."""
    by_artifact: dict[str, list[Timed]] = {}
    for row in found:
        for one in row.report.get("artifacts") or ():
            timed = Timed(row.job_id, row.created_at, one["median_s"])
            by_artifact.setdefault(one["artifact"], []).append(timed)
    return by_artifact
