"""A page for each code of a problem: what the `type` of the problem leads to."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = """<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
  :root { color-scheme: light dark; }
  summary { cursor: pointer; padding: .25rem 0; }
  details { border-bottom: 1px solid #8884; }
  details > *:not(summary) { margin-left: 1rem; }
  table { border-collapse: collapse; }
  th, td { text-align: left; vertical-align: top; padding: .2rem .75rem .2rem 0; }
  code, pre { font-size: 13px; }
  pre { overflow: auto; max-height: 24rem; padding: .5rem; border: 1px solid #8884; }
  .method { display: inline-block; min-width: 4.5rem; font-weight: bold; }
</style>"""
PATH = "/docs/errors"
FAULTS = {"caller": "the request", "ours": "the service", "machine": "the machine, for now or for this job"}


@dataclass(frozen=True)
class Kind:
    """`status` None: it is told of jobs, and answers no request."""

    code: str
    status: int | None
    fault: str
    advice: str


KINDS: tuple[Kind, ...] = (
    Kind("bad_request", 400, "caller", "a field, header, part or id is malformed: `refusals` names each"),
    Kind("not_authenticated", 401, "caller", "send a valid key"),
    Kind("not_allowed", 403, "caller", "use a key with the scope that `detail` names"),
    Kind("owner_suspended", 403, "caller", "ask an operator to let the owner in again"),
    Kind(
        "quota_exceeded", 403, "caller", "delete models, or ask an operator for more: `details` has `limit` and `used`"
    ),
    Kind("not_found", 404, "caller", "check the id; what another owner has is not there"),
    Kind(
        "source_unknown",
        404,
        "caller",
        "the text of this record's workload was never recorded: compile such a model again",
    ),
    Kind("no_such_route", 404, "caller", "see `/docs`"),
    Kind("method_not_allowed", 405, "caller", "use a method of `Allow`"),
    Kind("job_not_finished", 409, "caller", "wait: follow the job's events, or ask again after `Retry-After`"),
    Kind("job_finished", 409, "caller", "nothing: it has ended"),
    Kind("wrong_offset", 409, "caller", "go on at `Upload-Offset`"),
    Kind("owner_exists", 409, "caller", "choose another name"),
    Kind("key_ended", 409, "caller", "make a new key"),
    Kind("model_in_use", 409, "caller", "wait for its jobs, or send `cancel=true`"),
    Kind("job_in_use", 409, "caller", "wait for the runs of its artifact, or cancel them"),
    Kind("artifact_never_made", 410, "caller", "see the job's report; mend the cause and compile again"),
    Kind("removed", 410, "caller", "it was kept for its time: make it again"),
    Kind("body_too_large", 413, "caller", "send less, or raise `TILEWRIGHT_MAX_MODEL_BYTES`"),
    Kind(
        "encoding_unsupported", 415, "caller", "send the body without `Content-Encoding`; a zip of a model is unpacked"
    ),
    Kind("range_unsatisfiable", 416, "caller", "the file has no such range; see `Content-Range`"),
    Kind("invalid_options", 422, "caller", "mend the option that `detail` names"),
    Kind("idempotency_key_reused", 422, "caller", "use a new key for a new request"),
    Kind(
        "invalid_webhook",
        422,
        "caller",
        "give an https URL of a public address, and a secret of the standard's form or none",
    ),
    Kind("wrong_kind", 422, "caller", "ask it of a job of the kind that `fix` names"),
    Kind("digest_mismatch", 422, "caller", "the bytes were damaged on the way: send them again"),
    Kind("part_too_large", 422, "caller", "download the whole artifact"),
    Kind("source_unavailable", 422, "caller", "this version makes no source from that record: measure again"),
    Kind(
        "too_many_at_once",
        429,
        "caller",
        "`details.limit` requests of this kind are open: let some end, try again after `Retry-After`",
    ),
    Kind("rate_limited", 429, "caller", "the key asks too often: try again after `Retry-After`"),
    Kind("queue_full", 429, "caller", "too many jobs of this owner wait: try again after `Retry-After`"),
    Kind(
        "device_time_used",
        429,
        "caller",
        "the owner's device seconds of this month are used up: wait for the next, or ask an operator for more",
    ),
    Kind("internal", 500, "ours", "try again; report it with the request id if it stays"),
    Kind("artifact_unreadable", 500, "ours", "compile again with `fresh`"),
    Kind("unavailable", 503, "machine", "try again after `Retry-After`"),
    Kind("busy", 503, "machine", "too many models are being looked at: try again after `Retry-After`"),
    Kind("not_ready", 503, "machine", "see `/readyz`; try again after `Retry-After`"),
    Kind("database_unavailable", 503, "machine", "try again after `Retry-After`"),
    Kind("database_full", 507, "machine", "its disk is full: delete jobs or models, or tell the operator"),
    Kind("storage_unavailable", 507, "machine", "the disk is full, or the store away: tell the operator"),
    Kind("blob_lost", 507, "machine", "bytes that were kept are gone: send the model again, or compile again"),
    Kind("blob_damaged", 507, "machine", "bytes that were kept are others now: send the model again, or compile again"),
    Kind(
        "artifact_lost",
        507,
        "machine",
        "those of an artifact: compile again, the cache does not answer with it any more",
    ),
    Kind("malformed_model", None, "caller", "the file is not valid ONNX: export it again"),
    Kind("unsupported_model", None, "caller", "`refusals` has every node that cannot be compiled; see `/operators`"),
    Kind("unbound_dimension", None, "caller", "bind it: `details.options` is filled in to be edited"),
    Kind("model_too_large", None, "caller", "a stated limit is exceeded"),
    Kind("invalid_inputs", None, "caller", "arrays of an inference do not fit: `refusals` names each"),
    Kind("budget_missed", None, "caller", "no layer holds `snr_db`: ask for less, or send samples like real inputs"),
    Kind("unverified", None, "caller", "drawn inputs cannot verify an output: send samples"),
    Kind("artifact_unusable", None, "caller", "the artifact is damaged or of another version: compile again"),
    Kind("target_unavailable", None, "machine", "no worker can make or run that target: see `/targets`"),
    Kind("toolchain_missing", None, "machine", "the worker's C compiler: tell the operator"),
    Kind("toolchain_failed", None, "machine", "the worker's C compiler: tell the operator"),
    Kind("place_unusable", None, "machine", "the worker has no folder for its files: tell the operator"),
    Kind("resource_exhausted", None, "machine", "memory, disk or time ran out: tell the operator"),
    Kind("disk_full", None, "machine", "memory, disk or time ran out: tell the operator"),
    Kind(
        "time_limit",
        None,
        "machine",
        "a limit of jobs, met in `details.phase`: smaller shapes or model, or a greater limit",
    ),
    Kind(
        "memory_limit",
        None,
        "machine",
        "a limit of jobs, met in `details.phase`: smaller shapes or model, or a greater limit",
    ),
    Kind(
        "process_limit",
        None,
        "machine",
        "a limit of jobs, met in `details.phase`: smaller shapes or model, or a greater limit",
    ),
    Kind(
        "disk_limit",
        None,
        "machine",
        "a limit of jobs, met in `details.phase`: smaller shapes or model, or a greater limit",
    ),
    Kind(
        "walls_missing", None, "machine", "the machine cannot raise a wall that its operator demands: tell the operator"
    ),
    Kind(
        "queue_time_limit",
        None,
        "machine",
        "no worker began it within its `max_queue_s`: give it more, or see `/targets` for who serves",
    ),
    Kind(
        "worker_lost",
        None,
        "machine",
        "its workers vanished, or its processes were killed, again and again: see their logs",
    ),
    Kind(
        "job_killed",
        None,
        "machine",
        "its workers vanished, or its processes were killed, again and again: see their logs",
    ),
    Kind(
        "inputs_missing",
        None,
        "machine",
        "what it works with is lost or damaged: send the model again, or compile the artifact again",
    ),
    Kind("compiler_crashed", None, "ours", "report it"),
    Kind("run_crashed", None, "ours", "report it"),
    Kind("disagreement", None, "ours", "what was made was wrong and is not handed out: report it"),
    Kind("verify_failed", None, "ours", "what was made was wrong and is not handed out: report it"),
)
"""As docs/api.md says."""


def type_of(code: str) -> str:
    """The `type` of a problem: where its page is, relative to the service."""
    return f"{PATH}/{code}"


def render(kind: Kind, example: dict[str, Any] | None) -> str:
    """The page, with what such an answer may say."""
    origin = f"HTTP status {kind.status}" if kind.status else "Told of jobs that have failed"
    shown = ""
    if example is not None:
        shown = f"<h2>For example</h2><p>{escape(example['detail'])}</p><p>Fix: {escape(example['fix'])}</p>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{kind.code}</title>{STYLE}'
        f"<h1><code>{kind.code}</code></h1><p>{origin}. At fault: {FAULTS[kind.fault]}.</p>"
        f"<p>{escape(kind.advice)}</p>{shown}"
    )


BY_CODE = {kind.code: kind for kind in KINDS}
