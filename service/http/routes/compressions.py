"""`POST /compressions`: a model becomes one whose weights have a form that saves time or memory."""

from __future__ import annotations

from compiler.contract import job_kinds
from service.http.requests.model_changes import changing

router = changing(
    job_kinds.COMPRESSION,
    "/compressions",
    name="compress_model",
    summary="Compress a model",
    description="""Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    Parts `samples` are .npz archives of real inputs, each of one sample or of several along a first axis; a quarter is
    held out to judge the result on. Without any, random inputs are drawn, and the report says so. Just one of the
    options `largest_error`, `latency_ms` and `sparsity` says how far to go. Once the job has SUCCEEDED, what it made
    is a model of the caller like one that was uploaded: `links.compressed` is its file, and the report has its digest,
    each layer's choice with error and time, and the curve of error against time. What that does to the accuracy on
    your task only a test on your own data can tell.
    """,
    example={"largest_error": 0.05},
)
