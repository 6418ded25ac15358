"""One error of every kind that a request can be answered with: the examples of the OpenAPI document."""

from __future__ import annotations

from compiler.errors import InternalError, MalformedModel, OptionsError, Refusal, SourceUnavailable, TilewrightError
from service import errors

JOB = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"
ARTIFACT = "019aa1f0-7c2e-7a4b-9d0e-5b2a4c7e9f02"
REQUEST = "019aa1f0-7c2e-7a4b-9d0e-5b2f0a9d3e77"
LIMIT = 2 << 30

SAMPLES: tuple[TilewrightError, ...] = (
    errors.BadRequest(
        "the request is malformed",
        fix="mend the fields named in refusals",
        refusals=(Refusal("query.limit: Input should be greater than or equal to 1", fix="got '0'"),),
    ),
    errors.NotAuthenticated("no API key was sent", fix="send Authorization: Bearer <key>"),
    errors.NotAllowed("the key lacks the scope 'compile'", fix="use a key with the scope compile or admin"),
    errors.OwnerSuspended("owner 'ada' is suspended", fix="ask an operator to let it in again"),
    errors.QuotaExceeded(
        "owner 'ada' stores 1073741824 bytes, and 104857600 more are above its limit of 1073741824",
        fix="delete models with DELETE /models/{digest}, or ask an operator for more: PATCH /owners/ada",
        details={"limit": 1073741824, "used": 1073741824, "asked": 104857600},
    ),
    errors.NotFound("there is no such thing, or it is another owner's", fix="check the id"),
    errors.SourceUnknown(
        "the text of this record's workload was never recorded",
        fix="measure it again: compile a model with that kernel",
    ),
    errors.JobFinished(f"job {JOB} is SUCCEEDED", fix="nothing is left to be done"),
    errors.JobNotFinished(f"job {JOB} is RUNNING", fix=f"wait for it at /jobs/{JOB}/events, then ask again"),
    errors.WrongOffset(
        "the piece begins at 0, but 1048576 bytes have arrived",
        fix="go on at Upload-Offset",
        details={"received": 1048576},
    ),
    errors.OwnerExists("there is an owner 'ada'", fix="choose another name, or make a key for this one"),
    errors.KeyEnded("key 019aa1f0-0000-7000-8000-000000000001 was revoked", fix="make a new one: POST /keys"),
    errors.ModelInUse(
        "2 jobs of this model wait or run", fix="wait for them, or cancel them with cancel=true", details={"jobs": 2}
    ),
    errors.JobInUse("2 benchmarks or inferences of its artifact wait or run", fix="wait for them, or cancel them"),
    errors.ArtifactNeverMade(
        f"job {JOB} is FAILED: operator Foo is not supported", fix=f"see /jobs/{JOB}/report", details={"job": JOB}
    ),
    errors.Removed("the outputs were removed: they are kept for 24 hours", fix="run the inference again"),
    errors.BodyTooLarge(
        f"the upload is larger than {LIMIT} bytes",
        fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
        details={"limit_bytes": LIMIT},
    ),
    errors.EncodingUnsupported(
        "the body is compressed: Content-Encoding is 'gzip'",
        fix="send it as it is, without Content-Encoding; a zip of a model, as application/zip, is unpacked",
    ),
    errors.RangeUnsatisfiable("the file has 104857 bytes", fix="ask for a range within them"),
    OptionsError("threads is 0", fix="use 1 to 256, or leave it out"),
    errors.IdempotencyKeyReused(
        "this Idempotency-Key came with another request", fix="use a new key for a new request", details={"job": JOB}
    ),
    errors.InvalidWebhook(
        "'http://10.0.0.1/' cannot be told of anything: its address is private",
        fix="give an https URL of a public address",
    ),
    errors.WrongKind(
        f"job {JOB} is of kind benchmark, which compiles nothing", fix="compare compilations: GET /jobs?kind=compile"
    ),
    errors.DigestMismatch(
        "the bytes are not those that were announced",
        fix="send them again",
        details={"expected": "9f86...", "found": "2c26..."},
    ),
    errors.PartTooLarge("report.html has 80000000 bytes", fix=f"download /artifacts/{ARTIFACT}"),
    SourceUnavailable("the compiler makes no source from this record", fix="measure it again with this version"),
    MalformedModel("this is not an ONNX file: wrong wire type", fix="export the model again"),
    errors.QueueFull("100 jobs of this owner wait already", fix="wait for some of them to end", details={"limit": 100}),
    errors.DeviceTimeUsed(
        "owner 'ada' has had 36001 of its 36000 device seconds of 2026-11",
        fix="wait for the next month (UTC), or ask an operator for more: PATCH /owners/ada",
        details={"limit": 36000.0, "used": 36001.2, "month": "2026-11", "retry_after_s": 777600},
    ),
    errors.TooManyAtOnce(
        "8 uploads of this owner are open already",
        fix="let some of them end, then ask again",
        details={"limit": 8, "of": "uploads"},
    ),
    errors.RateLimited(
        "this key has sent more than 2000 requests a second",
        fix="wait for as long as Retry-After says, and follow jobs at /jobs/{id}/events instead of asking",
        details={"retry_after_s": 1, "requests_per_s": 2000, "burst": 4000},
    ),
    InternalError(
        "the service failed; this is our fault",
        fix=f"try again; if it stays, report it with the request id {REQUEST}",
        details={"request": REQUEST},
    ),
    errors.Busy("too many models are being looked at", fix="ask again in a moment"),
    errors.DatabaseUnavailable("the database does not answer", fix="retry in some seconds"),
    errors.StorageUnavailable("the disk is full", fix="free space where the blobs are kept"),
)
"""The first of a status stands for it where a route declares the status alone."""
