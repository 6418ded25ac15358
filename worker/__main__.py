"""`python -m worker --queue cpu --queue build`: one worker, for one device or as a builder, until SIGTERM."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from pydantic import ValidationError

from compiler.contract import kinds
from compiler.errors import TilewrightError
from service.blobs.open_blobs import open_blobs
from service.config import Settings
from service.db.arrivals import arrivals
from service.db.engine import Database
from service.errors import NotReady
from service.jobs import quotas
from service.jobs.integrity import Watched
from service.logs import configure, logger
from worker import device, group, kernel, queues, sandbox, schema, scratch, walls
from worker.app import make_app, serve
from worker.config import WorkerSettings
from worker.desk import Desk
from worker.presence import Presence
from worker.published import published
from worker.queues import Queues
from worker.reap import reap
from worker.rounds import Rounds
from worker.tasks import drain

_PRESENCE_PATIENCE_S = 0.1

log = logger(__name__)


def main(arguments: list[str] | None = None, *, command: tuple[str, ...] = group.CHILD) -> int:
    """Parse, clear away what dead workers left, serve; the exit status. `command` is what does each job.

    1 for a queue that cannot be served, such as `cuda:0` without a GPU, for walls that are demanded and cannot be
    raised, and for a database at another step than this program's.
    """
    parser = argparse.ArgumentParser(prog="python -m worker", description="Run the jobs of some queues, one at a time.")
    parser.add_argument(
        "--queue",
        action="append",
        metavar="NAME",
        help="may be repeated. cpu (default): hold this machine's cores, and run whatever they can; "
        "cuda:0: the same for the first GPU; "
        "build: compile for every CPU and GPU that the compilers here know, and measure nothing; "
        "or one target such as cpu:x86-64-v3",
    )
    parser.add_argument("--name", default="", help="name in the workers' table (default: made of queue, host, process)")
    chosen = parser.parse_args(arguments)
    try:
        settings, own = Settings(), WorkerSettings()
        asked = tuple(dict.fromkeys(chosen.queue or [kinds.CPU.device()]))
        serving = queues.resolve(asked, os.environ.get("CC", ""))
        on_gpu = kinds.CUDA.index_of(serving.device) is not None
        walls.demand(settings.require_walls, gpu=on_gpu)
    except (TilewrightError, ValidationError) as error:
        return _refuse(error)
    if kernel.LINUX:
        kernel.prctl(
            kernel.PR_SET_DUMPABLE, 0
        )  # its environment, with the database's password, is not a job's business
    name = chosen.name or f"{'+'.join(asked)[:100]}@{socket.gethostname()[:60]}:{os.getpid()}"
    configure(json_lines=settings.log_json, worker=name)
    desk = open_desk(settings, own, serving, name=name, command=command)
    try:
        schema.wait_for(desk.db)
    except NotReady as error:
        return _refuse(error)
    for folder in sandbox.exposed([settings.data_dir, settings.blob_root, own.scratch_dir], gpu=on_gpu):
        log.warning(
            "every job can read this folder: it lies among Python's, a compiler's or a driver's files",
            folder=str(folder),
        )
    if on_gpu and os.geteuid() == 0:
        log.warning("root's jobs cannot measure on a GPU behind their walls", fix="run this worker as an ordinary user")
    removed = reap(desk.scratch)
    log.info("worker starts", queues=desk.queues, leftovers_removed=removed)
    desk.presence.start()
    come = arrivals(desk.db, desk.queues)
    rounds = Rounds(desk, drain, own.look_every_s, come)
    try:
        return serve(make_app(settings.broker_url, desk, rounds), desk, rounds)
    finally:
        come.close()
        desk.presence.stop(_PRESENCE_PATIENCE_S)


def _refuse(error: Exception) -> int:
    print(f"python -m worker: {error}", file=sys.stderr)
    return 1


def open_desk(settings: Settings, own: WorkerSettings, serving: Queues, *, name: str, command: tuple[str, ...]) -> Desk:
    """The desk that the settings describe."""
    db = Database.of(settings)
    hardware = device.facts(serving.held)
    return Desk(
        name=name,
        queues=serving.names,
        device=serving.device,
        hardware=hardware,
        db=db,
        blobs=Watched(open_blobs(settings), db),
        scratch=_scratch(own.scratch_dir),
        presence=Presence(db, name, serving.names, hardware, own.seen_every_s, published),
        limits=own.limits,
        lease_s=settings.lease_s,
        owner_limits=quotas.Limits.of(settings),
        max_attempts=own.max_attempts,
        walls=settings.require_walls,
        max_lost_leases=settings.max_lost_leases,
        command=command,
    )


def _scratch(root: Path) -> Path:
    scratch.prepare(root)
    return root


if __name__ == "__main__":
    sys.exit(main())
