"""Run one claimed job: a child compiles, this process keeps the lease and writes down the outcome."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from compiler.contract import Event
from compiler.errors import TilewrightError
from service.blobs.local import CHUNK, StoredBlob
from service.errors import DatabaseUnavailable, NotFound, StorageUnavailable
from service.jobs import lease
from service.jobs.records import to_row
from service.logs import logger
from worker import device, problems
from worker.bell import Bell
from worker.child import Spec
from worker.desk import Desk
from worker.frames import GarbledFrame
from worker.group import Group
from worker.heartbeat import Heartbeat
from worker.problems import DiskFull
from worker.scratch import Folder, Process, folder
from worker.supervise import Ending, supervise

RETRIED = frozenset({DiskFull.code, StorageUnavailable.code})
"""Faults of this machine at this moment: another attempt, perhaps elsewhere, may end otherwise. Limits, missing tools and
targets are not among them: they would only fail again, later."""


_STOP_PATIENCE_S = 0.1
_DATABASE_RETRY_S = 0.5

log = logger(__name__)
T = TypeVar("T")


def run(desk: Desk, claim: lease.Claim, lock: int = -1) -> str:
    """Compile, and write the outcome under the claim's fence; every process of the job is dead at return.

    lock  descriptor of the device lock, inherited by the job, or -1

    Returns what became of the job: `succeeded`, `failed`, `cancelled`, `released` (given back, because this worker
    goes down), `retried` (given back, because this machine was at fault), or `lost` (another's: nothing written).
    """
    bell = Bell()
    heartbeat = Heartbeat(desk.db, claim, bell)
    measured = _Measured(claim)
    desk.stop.attend(bell)
    desk.presence.busy_with(claim.job_id)
    heartbeat.start()
    try:
        with folder(desk.scratch, f"{claim.job_id}-{claim.fence}") as place:
            ending = _attempt(desk, claim, place, lock, bell, _observer(heartbeat, measured))
            artifact, ending = _store(desk, place, ending)
            return _settle(desk, claim, heartbeat, measured.records, ending, artifact)
    finally:
        heartbeat.stop(_STOP_PATIENCE_S)
        desk.presence.busy_with(None)
        desk.stop.attend(None)
        bell.close()


@dataclass
class _Measured:
    """Records that arrive from the child, checked one by one: it may be hostile."""

    claim: lease.Claim
    records: list[Mapping[str, Any]] = field(default_factory=list)

    def keep(self, record: Mapping[str, Any]) -> None:
        claim = self.claim
        try:
            to_row(record, owner=claim.owner, job=claim.job_id, model_digest=claim.model_digest)
        except TilewrightError as error:
            raise GarbledFrame(error.message) from error
        self.records.append(record)


def _observer(heartbeat: Heartbeat, measured: _Measured) -> Callable[[Event], None]:
    def observe(event: Event) -> None:
        if event.kind == "record":
            measured.keep(event.data)
        else:
            heartbeat.tell(event)

    return observe


def _attempt(
    desk: Desk, claim: lease.Claim, place: Folder, lock: int, bell: Bell, observe: Callable[[Event], None]
) -> Ending:
    """The child from start to end."""
    try:
        spec = Spec(
            model=place.show(desk.blobs.path(claim.model_key)),
            artifact=place.artifact,
            scratch=place.work,
            options=claim.options,
            records=tuple(_records(desk, claim)),
            limits=desk.limits,
        )
        group = Group.start(spec.to_json(), place.work, command=desk.command, lock=lock)
        with contextlib.suppress(
            OSError
        ):  # dead already, or no space to say whose it is: `supervise` ends it all the same
            place.sign(Process.of(os.getpid()), Process.of(group.launcher.pid))
        return supervise(group, desk.limits, bell, observe)
    except NotFound as error:
        missing = problems.InputsMissing(
            "the bytes of the model are gone from the blob store", fix="upload the model again", details=error.details
        )
        return Ending("problem", problem=missing.to_json())
    except OSError as error:
        return Ending("problem", problem=problems.from_exception(error, desk.limits).to_json())


def _records(desk: Desk, claim: lease.Claim) -> list[dict[str, Any]]:
    measured = device.measured_as(str(claim.options.get("target", "cpu")))
    return lease.records_for(desk.db, claim.owner, *measured) if measured else []


def _store(desk: Desk, place: Folder, ending: Ending) -> tuple[StoredBlob | None, Ending]:
    """Bring the artifact of a successful child into the blob store."""
    if ending.kind != "report":
        return None, ending
    try:
        return _put(desk, place.artifact), ending
    except (StorageUnavailable, OSError) as error:
        cause = error.__cause__ if isinstance(error, StorageUnavailable) else error
        if isinstance(cause, OSError) and cause.errno in problems.OUT_OF_SPACE:
            return None, Ending("problem", problem=problems.from_os_error(cause).to_json())
        if isinstance(error, StorageUnavailable):
            return None, Ending("problem", problem=error.to_json())
        unread = problems.CompilerCrashed(
            f"the compiler reported success and left no readable artifact: {error.strerror}", fix="report this model"
        )
        return None, Ending("problem", problem=unread.to_json())


def _put(desk: Desk, path: Path) -> StoredBlob:
    """Copy a file that an untrusted process wrote: it must be that file itself, not a way to another."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file, desk.blobs.writer() as writer:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(0, "it is not a plain file")
        while chunk := file.read(CHUNK):
            writer.write(chunk)
        return writer.commit()


def _settle(
    desk: Desk,
    claim: lease.Claim,
    heartbeat: Heartbeat,
    records: list[Mapping[str, Any]],
    ending: Ending,
    artifact: StoredBlob | None,
) -> str:
    """Write the outcome; `lost` when the fence kept it out."""
    if ending.kind == "lost":
        log.warning("lease lost", job=str(claim.job_id), fence=claim.fence)
        return "lost"
    if ending.kind == "stop":
        heartbeat.stop(_STOP_PATIENCE_S)
        return _give_back(desk, claim, heartbeat, records, "released")
    heartbeat.stop(patience_s=5.0)
    _persist(desk, heartbeat.flush)
    db = desk.db
    match ending.kind:
        case "cancel":
            written, became = _persist(desk, lambda: lease.cancelled(db, claim, records=records)), "cancelled"
        case "report" if artifact is not None:
            report = {**ending.report, "artifact_digest": artifact.sha256, "artifact_bytes": artifact.bytes}
            receipt = _receipt(desk, claim, report, ending)
            written = _persist(
                desk,
                lambda: lease.succeed(db, claim, artifact=artifact, report=report, receipt=receipt, records=records),
            )
            became = "succeeded"
        case _ if ending.problem.get("code") in RETRIED and claim.attempt < desk.max_attempts:
            log.warning("job is tried again", job=str(claim.job_id), attempt=claim.attempt, problem=ending.problem)
            return _give_back(desk, claim, heartbeat, records, "retried")
        case _:
            written = _persist(desk, lambda: lease.fail(db, claim, ending.problem, records=records))
            became = "failed"
    return became if written else "lost"


def _give_back(
    desk: Desk, claim: lease.Claim, heartbeat: Heartbeat, records: list[Mapping[str, Any]], became: str
) -> str:
    try:
        heartbeat.flush()
        return became if lease.release(desk.db, claim, records=records) else "lost"
    except DatabaseUnavailable as error:
        log.warning("lease not released, it will run out", job=str(claim.job_id), reason=error.message)
        return "lost"


def _persist(desk: Desk, write: Callable[[], T]) -> T | None:
    """Repeat until the database answers; None when this worker goes down meanwhile, and the lease runs out."""
    while True:
        try:
            return write()
        except DatabaseUnavailable as error:
            log.warning("outcome not written yet", reason=error.message)
            if desk.stop.wait(_DATABASE_RETRY_S):
                return None


def _receipt(desk: Desk, claim: lease.Claim, report: Mapping[str, Any], ending: Ending) -> dict[str, Any]:
    return {
        "report": dict(report),
        "job": str(claim.job_id),
        "attempt": claim.attempt,
        "fence": claim.fence,
        "model_digest": claim.model_digest,
        "options": claim.options,
        "worker": desk.name,
        "hardware": dict(desk.hardware),
        "sandbox": list(ending.standing),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
