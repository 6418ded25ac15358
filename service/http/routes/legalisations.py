"""`POST /legalisations`: a model becomes one in the operators of an accelerator that has few."""

from __future__ import annotations

from compiler.contract import job_kinds
from service.http.requests.model_changes import changing

router = changing(
    job_kinds.LEGALISATION,
    "/legalisations",
    name="legalise_model",
    summary="Bring a model to an accelerator",
    description="""Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    What the accelerator of `profile` does not carry out is replaced by operators that it has: by equal ones, or within
    a proved bound by sums of ReLUs. Parts `samples` are .npz archives of real inputs, from which ranges and errors are
    taken; without any, random inputs are drawn, and the report says so. Once the job has SUCCEEDED, what it made is a
    model of the caller like one that was uploaded: `links.legalised` is its file, and the report says of each node
    where it runs and why, with the bound of each approximation, and estimates by the profile's formula. The job fails
    with `budget_missed` where the outputs cannot be held within `tolerance`.
    """,
    example={"profile": "edgetpu"},
)
