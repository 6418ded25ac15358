"""The search for tiles of a job as it goes over the wire."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Event, Job, JobState
from service.http.schemas import JOB_EXAMPLE, utc

POINT_EXAMPLE: dict[str, Any] = {
    "at": "2026-11-21T04:00:03.000Z",
    "attempt_began_again": False,
    "elapsed_s": 1.25,
    "spent": 0.125,
    "measured": 8,
    "best_s": 0.00172,
    "unmeasured_kernels": 0,
    "promising": 12,
    "expected_gain_s": 0.00011,
    "exhausted": False,
}
CANDIDATE_EXAMPLE: dict[str, Any] = {
    "candidate": 3,
    "point": 0,
    "predicted_s": 0.00021,
    "measured_s": 0.000213,
    "again": False,
}
HELPER_EXAMPLE: dict[str, Any] = {"worker": "cpu@b:71", "kernels": 12, "measured": 140, "seconds": 5.4}
KERNEL_EXAMPLE: dict[str, Any] = {
    "workload": "1f0c9a52be7d4e83a6b1c0d2",
    "operator": "Conv+Relu",
    "uses": 4,
    "best_s": 0.000213,
    "candidates": [CANDIDATE_EXAMPLE],
}


class TuningPoint(BaseModel):
    """How far the search was at one time."""

    model_config = ConfigDict(json_schema_extra={"example": POINT_EXAMPLE})

    at: datetime
    attempt_began_again: bool = Field(description="A search began anew with this point: another attempt, or binding.")
    elapsed_s: float = Field(description="Since the search began.")
    spent: float = Field(description="The part of the search's budget that was gone, 0 to 1.")
    measured: int = Field(description="Candidates measured so far.")
    best_s: float = Field(
        description="All kernels of an inference, one after the other on one lane, each by its best tile known so far; "
        "those not measured yet by the cost model. A plan on several lanes is another figure."
    )
    unmeasured_kernels: int = Field(description="Kernels of which nothing was measured yet.")
    promising: int | None = Field(description="Candidates worth measuring next; null before all kernels were begun.")
    expected_gain_s: float | None = Field(
        description="What measuring these is expected to save of `best_s` (expected improvement)."
    )
    exhausted: bool = Field(description="No candidate was worth measuring any more.")


class Candidate(BaseModel):
    """One tile of a kernel."""

    candidate: int = Field(description="Its number among those of its kernel.")
    point: int = Field(description="The first of `points` that knows it.")
    predicted_s: float = Field(description="What was expected of it before anything of this kernel was measured.")
    measured_s: float
    again: bool = Field(description="Measured a second time, beside its rivals.")


class TunedKernel(BaseModel):
    """One kernel and its candidates in the order in which they were measured."""

    workload: str = Field(description="As in its tuning records.")
    operator: str
    uses: int = Field(description="How often an inference calls it.")
    best_s: float = Field(description="The least of its candidates; of one measured again the last counts.")
    candidates: list[Candidate]


class TuningHelper(BaseModel):
    """Another worker of the same device that measured kernels for the job."""

    worker: str
    kernels: int
    measured: int = Field(description="Tiles, those measured again included.")
    seconds: float = Field(description="That it took, its child's start included.")


class TuningOut(BaseModel):
    """How the search for tiles of a job went, or goes."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "job": JOB_EXAMPLE["id"],
                "state": "RUNNING",
                "legal": 310,
                "points": [POINT_EXAMPLE],
                "kernels": [KERNEL_EXAMPLE],
                "helpers": [HELPER_EXAMPLE],
            }
        }
    )

    job: uuid.UUID
    state: JobState
    legal: int = Field(description="How many candidates there are.")
    points: list[TuningPoint]
    kernels: list[TunedKernel] = Field(description="Those that were measured, in the order in which they were begun.")
    helpers: list[TuningHelper] = Field(
        description="Other workers that measured kernels for the job, by name; empty where its own measured all."
    )

    @classmethod
    def of(cls, job: Job, events: Sequence[Event], helpers: Sequence[tuple[str, int, int, float]] = ()) -> Self:
        """From a job, what its searches told, and who helped: name, kernels, tiles, seconds."""
        points: list[TuningPoint] = []
        kernels: dict[str, TunedKernel] = {}
        latest: dict[str, dict[int, float]] = {}
        before = 0.0
        for number, event in enumerate(events):
            told = event.data["data"]
            again = bool(points) and told["elapsed_s"] < before
            before = told["elapsed_s"]
            names = TuningPoint.model_fields.keys() - {"at", "attempt_began_again"}
            facts = {name: told[name] for name in names}
            points.append(TuningPoint(at=utc(event.created_at), attempt_began_again=again, **facts))
            for one in told["tried"]:
                latest.setdefault(one["kernel"], {})[one["candidate"]] = one["measured_s"]
                kernel = kernels.setdefault(
                    one["kernel"],
                    TunedKernel(
                        workload=one["kernel"],
                        operator=one["name"],
                        uses=one["uses"],
                        best_s=one["measured_s"],
                        candidates=[],
                    ),
                )
                kernel.best_s = min(latest[one["kernel"]].values())
                facts = {name: one[name] for name in ("candidate", "predicted_s", "measured_s", "again")}
                kernel.candidates.append(Candidate(point=number, **facts))
        legal = max((event.data["data"]["legal"] for event in events), default=0)
        helped = [
            TuningHelper(worker=worker, kernels=count, measured=tiles, seconds=seconds)
            for worker, count, tiles, seconds in helpers
        ]
        return cls(
            job=job.id, state=job.state, legal=legal, points=points, kernels=list(kernels.values()), helpers=helped
        )
