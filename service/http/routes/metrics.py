"""`/metrics`, for Prometheus."""

from __future__ import annotations

from fastapi import Response

from service.errors import NotFound
from service.http import metrics
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.state import Here

EXAMPLE = (
    "# TYPE tilewright_jobs_ended_total counter\n"
    'tilewright_jobs_ended_total{kind="compile",queue="cpu",state="SUCCEEDED"} 12.0\n'
)

router = Gated(tags=["operation"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        **problem_responses(404, 503),
        200: {
            "description": "Prometheus text.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": EXAMPLE}},
        },
    },
)
async def get_metrics(here: Here) -> Response:
    """Queues, jobs, workers and HTTP. No key is asked for and nothing of one owner is shown; can be switched off."""
    if not here.settings.metrics:
        raise NotFound("metrics are switched off here", fix="set TILEWRIGHT_METRICS=true")
    return Response(metrics.exposition(here.metrics, await here.numbers.get()), media_type=metrics.TYPE)
