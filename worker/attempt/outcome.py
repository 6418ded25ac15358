"""Write down how an attempt ended.

What it made goes into the blob store, then the outcome into the database under the claim's fence.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from compiler.contract import job_kinds
from compiler.errors import DiskFull, TilewrightError
from service.blobs.store import CHUNK, StoredBlob
from service.db.plain import storable
from service.errors import DatabaseUnavailable, StorageUnavailable
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import NOTHING, Claim
from service.logs import logger
from worker import problems
from worker.attempt.context import WorkerContext
from worker.attempt.supervise import Ending
from worker.lease.heartbeat import Heartbeat
from worker.problems import JobKilled, TimeLimit

LOAD_TRIES = 2
"""Attempts at a job of which the model was not read in time: the machine may have been too busy, once."""

STOP_PATIENCE_S = 0.1
_BEAT_PATIENCE_S = 5.0
_DATABASE_RETRY_S = 0.5

log = logger(__name__)
T = TypeVar("T")


def store(context: WorkerContext, claim: Claim, output: Path, ending: Ending) -> tuple[StoredBlob | None, Ending]:
    """Bring the artifact, model or arrays of a successful child into the blob store; a benchmark makes none.

    The ending is a problem when that fails, or the child says that it compiled another model than the claim's.
    """
    if ending.kind != "report" or not job_kinds.of(claim.kind).writes:
        return None, ending
    used = ending.report.get("model_digest", claim.model_digest)
    if job_kinds.of(claim.kind).reads and used != claim.model_digest:
        other = problems.read_otherwise(str(claim.model_digest), str(used))
        return None, Ending("problem", problem=other.to_json(), standing=ending.standing, log=ending.log)
    try:
        return _put(context, output), ending
    except StorageUnavailable as error:
        problem = storage_problem(error)
    except OSError as error:
        full = error.errno in problems.OUT_OF_SPACE
        problem = problems.from_os_error(error) if full else problems.unreadable(claim.kind, str(error.strerror))
    return None, Ending("problem", problem=problem.to_json(), standing=ending.standing, log=ending.log)


def store_first(context: WorkerContext, claim: Claim, path: Path, report: Mapping[str, Any]) -> None:
    """Keep an artifact that was made before measuring, as long as the job has no other; the job goes on without it."""
    try:
        lease.first_made(context.db, claim, artifact=_put(context, path), report=report)
        path.unlink()
    except (OSError, TilewrightError) as error:
        log.warning("the first artifact was not kept", job=str(claim.job_id), reason=str(error))


def storage_problem(error: StorageUnavailable) -> TilewrightError:
    """The same; of a blob store whose disk is full, that."""
    cause = error.__cause__
    full = isinstance(cause, OSError) and cause.errno in problems.OUT_OF_SPACE
    return problems.from_os_error(cause) if isinstance(cause, OSError) and full else error


def _put(context: WorkerContext, path: Path) -> StoredBlob:
    """Copy a file that an untrusted process wrote: it must be that file itself, not a way to another."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file, context.blobs.writer() as writer:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(0, "it is not a plain file")
        while chunk := file.read(CHUNK):
            writer.write(chunk)
        return writer.commit()


def settle(context: WorkerContext, claim: Claim, heartbeat: Heartbeat, ending: Ending, made: StoredBlob | None) -> str:
    """Write the outcome, with the measurements that are left; what became of the job, as `attempt.run.run` says it."""
    if ending.kind == "lost":
        log.warning("lease lost", job=str(claim.job_id), fence=claim.fence)
        return "lost"
    said = storable(ending.log)
    if ending.kind == "stop":
        heartbeat.stop(STOP_PATIENCE_S)
        return _give_back(context, claim, heartbeat, "released", "the worker is shutting down", said)
    heartbeat.stop(_BEAT_PATIENCE_S)
    if ending.kind == "problem" and claim.attempt < _tries(context, ending.problem):
        log.warning("job is tried again", job=str(claim.job_id), attempt=claim.attempt, problem=ending.problem)
        fault = str(ending.problem["code"]).replace("_", " ")
        return _give_back(
            context, claim, heartbeat, "retried", f"this machine was at fault: {fault}; tried again", said
        )
    measured = persist(context, heartbeat.flush) or NOTHING
    match ending.kind:
        case "cancel":
            became = "cancelled"
            written = persist(context, lambda: lease.cancelled(context.db, claim, measured=measured, log=said))
        case "report":
            became = "succeeded"
            how = _circumstances(context, ending)
            report = ending.report
            written = persist(
                context, lambda: lease.succeed(context.db, claim, report, made, how, measured=measured, log=said)
            )
        case _:
            became = "failed"
            problem = ending.problem
            written = persist(context, lambda: lease.fail(context.db, claim, problem, measured=measured, log=said))
    return became if written else "lost"


def _tries(context: WorkerContext, problem: Mapping[str, Any]) -> int:
    """How often a job is tried that ends with this problem.

    More than once for faults of this machine at this moment: another attempt, perhaps elsewhere, may end otherwise.
    Limits, missing tools and targets are not among them: they would only fail again, later.
    """
    match problem.get("code"):
        case DiskFull.code | StorageUnavailable.code:
            return context.max_attempts
        case JobKilled.code:
            return context.max_lost_leases
        case TimeLimit.code if _mapping(problem.get("details")).get("phase") == problems.LOAD:
            return LOAD_TRIES
    return 1


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _give_back(context: WorkerContext, claim: Claim, heartbeat: Heartbeat, became: str, reason: str, said: str) -> str:
    """One try only: a worker that goes down has no time, and the lease runs out by itself."""
    try:
        measured = heartbeat.flush()
        written = lease.release(context.db, claim, reason=reason, measured=measured, log=said)
        return became if written else "lost"
    except DatabaseUnavailable as error:
        log.warning("lease not released, it will run out", job=str(claim.job_id), reason=error.message)
        return "lost"


def persist(context: WorkerContext, write: Callable[[], T]) -> T | None:
    """Repeat until the database answers; None when this worker goes down meanwhile, and the lease runs out."""
    while True:
        try:
            return write()
        except DatabaseUnavailable as error:
            log.warning("outcome not written yet", reason=error.message)
            if context.stop.wait(_DATABASE_RETRY_S):
                return None


def _circumstances(context: WorkerContext, ending: Ending) -> dict[str, Any]:
    return {
        "worker": context.name,
        "hardware": dict(context.hardware),
        "sandbox": list(ending.standing),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
