"""Open a worker: what it refuses to start without, and its context."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from compiler.contract import kinds
from service import traces
from service.blobs.open_blobs import open_blobs
from service.config import Settings
from service.db.engine import Database
from service.jobs.accounts import quotas
from service.jobs.storage.integrity import Watched
from service.logs import configure, logger
from worker import schema
from worker.attempt.context import WorkerContext
from worker.config import WorkerSettings
from worker.devices import device, queues
from worker.devices.published import published
from worker.devices.queues import Queues
from worker.lease.status import StatusThread
from worker.processes import group, scratch
from worker.processes.reap import reap
from worker.sandbox import enter, linux, restrictions

log = logger(__name__)


def own_name(asked: Sequence[str]) -> str:
    """What a worker of these queues is called that was given no name; another for each process."""
    return f"{'+'.join(asked)[:100]}@{socket.gethostname()[:60]}:{os.getpid()}"


def opened(asked: Sequence[str], name: str, *, command: tuple[str, ...] = group.CHILD) -> WorkerContext:
    """The context of a worker that may begin, with the settings of the environment; what dead workers left is gone.

    asked    names of queues, as a user gives them (`worker.devices.queues`)
    command  what does each job

    Waits for the database. Raises `TilewrightError` for a queue that cannot be served, such as `cuda:0` without a GPU,
    and for walls that are demanded and cannot be raised; `NotReady` for a database at a step that is not for this
    program; and `ValidationError` for a setting that is none.
    """
    settings, own = Settings(), WorkerSettings()
    serving = queues.resolve(asked, os.environ.get("CC", ""))
    on_gpu = kinds.CUDA.index_of(serving.device) is not None
    restrictions.demand(settings.require_walls, gpu=on_gpu)
    if linux.LINUX:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # its environment, with the database's password, is not a job's business
    configure(json_lines=settings.log_json, worker=name)
    traces.export("tilewright-worker")
    context = open_desk(settings, own, serving, name=name, command=command)
    schema.wait_for(context.db)
    for folder in enter.exposed([settings.data_dir, settings.blob_root, own.scratch_dir], gpu=on_gpu):
        log.warning(
            "every job can read this folder: it lies among Python's, a compiler's or a driver's files",
            folder=str(folder),
        )
    if on_gpu and os.geteuid() == 0:
        log.warning("root's jobs cannot measure on a GPU behind their walls", fix="run this worker as an ordinary user")
    log.info("worker starts", queues=context.queues, leftovers_removed=reap(context.scratch))
    return context


def open_desk(
    settings: Settings, own: WorkerSettings, serving: Queues, *, name: str, command: tuple[str, ...]
) -> WorkerContext:
    """The context that the settings describe."""
    db = Database.of(settings)
    hardware = {**device.facts(serving.held), "fan_out": own.fan_out}
    return WorkerContext(
        name=name,
        queues=serving.names,
        device=serving.device,
        hardware=hardware,
        db=db,
        blobs=Watched(open_blobs(settings), db),
        scratch=_scratch(own.scratch_dir),
        status=StatusThread(db, name, serving.names, hardware, own.seen_every_s, published),
        limits=own.limits,
        lease_s=settings.lease_s,
        owner_limits=quotas.Limits.of(settings),
        max_attempts=own.max_attempts,
        walls=settings.require_walls,
        fan_out=own.fan_out,
        compare=own.compare,
        max_lost_leases=settings.max_lost_leases,
        command=command,
    )


def _scratch(root: Path) -> Path:
    root = root.absolute()  # jobs have other working folders
    scratch.prepare(root)
    return root
