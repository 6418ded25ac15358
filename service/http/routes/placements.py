"""`POST /placements`: where a model's parts would run on a described platform, predicted."""

from __future__ import annotations

from compiler.contract import job_kinds
from service.http.requests.model_changes import changing

router = changing(
    job_kinds.PLACEMENT,
    "/placements",
    name="place_model",
    summary="Predict a placement",
    description="""Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    `platform` describes devices, what joins them, and where the times of each come from. Nothing is compiled and
    nothing is run: everything that the report says is a prediction. Once the job has SUCCEEDED `links.report` has the
    placement that is best for `objective`, each device alone, the best of each granularity, frames per second over
    latency, what no placement is below, and a drawing of it all as `svg`.
    """,
    example=job_kinds.PLACEMENT.example,
    with_samples=False,
)
