"""The search for tiles of a job as it goes over the wire."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Event, JobState, TuningRecord
from service.http.schemas.common import JOB_EXAMPLE, utc
from service.jobs.lifecycle.find import Tuned
from service.jobs.tuning.forecast import outlook

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
    "expected_s": 0.00163,
    "exhausted": False,
}
FORECAST_EXAMPLE: dict[str, Any] = {"elapsed_s": 10.0, "measured": 18, "best_s": 0.00163}
PLAN_EXAMPLE: dict[str, Any] = {
    "at": "2026-11-21T04:00:14.000Z",
    "elapsed_s": 12.25,
    "scheduler": "list",
    "lanes": 2,
    "measured_s": 0.00094,
    "ratio": 0.58,
    "low": 0.56,
    "high": 0.61,
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
    unmeasured_kernels: int = Field(description="Kernels without measurements so far.")
    promising: int | None = Field(description="Candidates worth measuring next; null before all kernels were begun.")
    expected_gain_s: float | None = Field(
        description="What measuring these is expected to save of `best_s` (expected improvement)."
    )
    expected_s: float | None = Field(
        description="What `best_s` was expected to be at the end of the budget: the last of what `forecast` told then; "
        "null while that was not known."
    )
    exhausted: bool = Field(description="No candidate was worth measuring any more.")


class ForecastPoint(BaseModel):
    """What is expected of the search at a later time."""

    model_config = ConfigDict(json_schema_extra={"example": FORECAST_EXAMPLE})

    elapsed_s: float = Field(description="Since the search began, as in `points`; of the last one, the budget's end.")
    measured: int
    best_s: float


class TunedPlan(BaseModel):
    """A plan for the whole model that was run for the job."""

    model_config = ConfigDict(json_schema_extra={"example": PLAN_EXAMPLE})

    at: datetime
    elapsed_s: float | None = Field(description="Since the search for tiles began; null where none was told of.")
    scheduler: str
    lanes: int
    measured_s: float = Field(description="Median of one inference.")
    ratio: float | None = Field(description="To the sequential plan, in rounds that took turns.")
    low: float | None = Field(description="The ratio lies above this with 95% confidence, as below `high`.")
    high: float | None


class Candidate(BaseModel):
    """One tile of a kernel."""

    candidate: int = Field(description="Its number among those of its kernel.")
    point: int = Field(description="The first of `points` that knows it.")
    predicted_s: float = Field(description="Its forecast before any candidate of this kernel was measured.")
    measured_s: float
    again: bool = Field(description="Measured a second time, in turns with its rivals.")


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
                "forecast": [FORECAST_EXAMPLE],
                "plans": [PLAN_EXAMPLE],
                "kernels": [KERNEL_EXAMPLE],
                "helpers": [HELPER_EXAMPLE],
            }
        }
    )

    job: uuid.UUID
    state: JobState
    legal: int = Field(description="Number of candidates.")
    points: list[TuningPoint]
    forecast: list[ForecastPoint] | None = Field(
        description="From the last of `points` to the end of the budget: each candidate worth measuring now, as long "
        "as time is left, saves what is expected of it (expected improvement). What it will teach about others is not "
        "foreseen. Of a search that has ended: what more time was expected to bring. Null while nothing is known."
    )
    plans: list[TunedPlan] = Field(description="In the order in which they were run; of those only the ones measured.")
    kernels: list[TunedKernel] = Field(description="Those that were measured, in the order in which they were begun.")
    helpers: list[TuningHelper] = Field(
        description="Other workers that measured kernels for the job, by name; empty where its own measured all."
    )

    @classmethod
    def of(cls, tuned: Tuned) -> Self:
        """From what is kept of a job's searches."""
        events = tuned.progress
        points: list[TuningPoint] = []
        kernels: dict[str, TunedKernel] = {}
        latest: dict[str, dict[int, float]] = {}
        before = 0.0
        for number, event in enumerate(events):
            progress = event.data["data"]
            again = bool(points) and progress["elapsed_s"] < before
            before = progress["elapsed_s"]
            line = outlook(progress)
            names = TuningPoint.model_fields.keys() - {"at", "attempt_began_again", "expected_s"}
            facts = {name: progress[name] for name in names}
            facts["expected_s"] = line[-1].best_s if line else None
            points.append(TuningPoint(at=utc(event.created_at), attempt_began_again=again, **facts))
            for one in progress["tried"]:
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
            for worker, count, tiles, seconds in tuned.helpers
        ]
        return cls(
            job=tuned.job.id,
            state=tuned.job.state,
            legal=legal,
            points=points,
            forecast=_forecast(events),
            plans=[_plan(record, points) for record in tuned.plans],
            kernels=list(kernels.values()),
            helpers=helped,
        )


def _forecast(events: Sequence[Event]) -> list[ForecastPoint] | None:
    line = outlook(events[-1].data["data"]) if events else None
    return [ForecastPoint(**asdict(one)) for one in line] if line else None


def _plan(record: TuningRecord, points: Sequence[TuningPoint]) -> TunedPlan:
    at = utc(record.created_at)
    ratios = {name: record.variant.get(name) for name in ("ratio", "low", "high")}
    return TunedPlan(
        at=at,
        elapsed_s=(at - points[0].at).total_seconds() + points[0].elapsed_s if points else None,
        scheduler=str(record.variant.get("scheduler", "")),
        lanes=record.threads,
        measured_s=record.seconds,
        **{name: float(one) if isinstance(one, int | float) else None for name, one in ratios.items()},
    )
