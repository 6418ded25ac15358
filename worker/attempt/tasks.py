"""What messages can make a worker do, and how often a failure is tried again (`worker.attempt.outcome`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from service.errors import DatabaseUnavailable
from service.jobs.scheduling import lease
from service.jobs.scheduling.doorbell import TASK
from service.logs import logger
from worker.attempt.context import WorkerContext
from worker.attempt.helper import help_out
from worker.attempt.run import run
from worker.devices import device

RETRY_PAUSE_S = 2.0

log = logger(__name__)


def drain(context: WorkerContext, queue: str) -> int:
    """Claim and run jobs until none is left, the device is taken or the worker stops; how many ran.

    With no job left it measures kernels of other workers' jobs, as long as these offer any.

    Each is the best job of the worker's queues at that moment.

    queue  the one that was rung for; nothing happens unless it is the worker's

    Never raises for a database that is away or for anything a job does. Call it from one thread only.
    """
    ran = 0
    while queue in context.queues and not context.stop.requested:
        try:
            became = _run_best(context)
        except DatabaseUnavailable as error:
            log.warning("cannot look for jobs", queue=queue, reason=error.message)
            break
        if became is None:
            break
        ran += became != "helped"
        if became == "retried":
            context.stop.wait(RETRY_PAUSE_S)
    return ran


def _run_best(context: WorkerContext) -> str | None:
    """Run one job; what became of it, None when there is none or the device is in use by another process."""
    with device.hold(context.scratch, context.device) as lock:
        if lock is None:
            holder = device.holder_of(context.scratch, context.device)
            context.status.device_is_taken(True, holder)
            log.info("device is in use", device=context.device, holder=holder)
            return None
        context.status.device_is_taken(False)
        claim = lease.claim(context.db, context.name, context.queues, context.lease_s, context.owner_limits)
        if claim is None:
            return "helped" if help_out(context, lock) else None
        traced = {"trace": claim.traceparent.split("-")[1]} if claim.traceparent else {}
        with structlog.contextvars.bound_contextvars(job=str(claim.job_id), fence=claim.fence, **traced):
            log.info("job claimed", kind=str(claim.kind), attempt=claim.attempt)
            became = run(context, claim, lock)
            log.info("job left", became=became)
        return became


TASKS: Mapping[str, Callable[[WorkerContext, str], int]] = MappingProxyType({TASK: drain})
"""By the name that messages carry."""
