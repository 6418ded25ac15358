"""`python -m worker --queue cpu`: one worker for one device, until SIGTERM."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from service.blobs.local import Blobs
from service.config import Settings
from service.db.engine import Database
from service.logs import configure, logger
from worker import device, group, kernel, scratch
from worker.app import make_app, serve
from worker.config import WorkerSettings
from worker.desk import Desk
from worker.presence import Presence
from worker.reap import reap

_PRESENCE_PATIENCE_S = 0.1


def main(arguments: list[str] | None = None, *, command: tuple[str, ...] = group.COMPILE) -> int:
    """Parse, clear away what dead workers left, serve; the exit status. `command` is what compiles each job."""
    parser = argparse.ArgumentParser(
        prog="python -m worker", description="Hold a device and run the jobs of one queue."
    )
    parser.add_argument("--queue", default="cpu", help="which jobs to run (default: cpu)")
    parser.add_argument("--name", default="", help="name in the workers' table (default: made of queue, host, process)")
    chosen = parser.parse_args(arguments)
    settings, own = Settings(), WorkerSettings()
    configure(json_lines=settings.log_json)
    if kernel.LINUX:
        kernel.prctl(
            kernel.PR_SET_DUMPABLE, 0
        )  # its environment, with the database's password, is not a job's business
    desk = open_desk(settings, own, queue=chosen.queue, name=chosen.name, command=command)
    removed = reap(desk.scratch)
    logger(__name__).info("worker starts", worker=desk.name, queue=desk.queue, leftovers_removed=removed)
    desk.presence.start()
    try:
        return serve(make_app(settings.broker_url, desk, own.look_every_s), desk)
    finally:
        desk.presence.stop(_PRESENCE_PATIENCE_S)


def open_desk(settings: Settings, own: WorkerSettings, *, queue: str, name: str, command: tuple[str, ...]) -> Desk:
    """The desk that the settings describe."""
    db = Database(settings.sqlalchemy_url)
    name = name or f"{queue}@{socket.gethostname()}:{os.getpid()}"
    hardware = device.facts()
    return Desk(
        name=name,
        queue=queue,
        device=str(hardware["device"]),
        hardware=hardware,
        db=db,
        blobs=Blobs(settings.blob_root),
        scratch=_scratch(own.scratch_dir),
        presence=Presence(db, name, queue, hardware, own.seen_every_s),
        limits=own.limits,
        lease_s=settings.lease_s,
        max_attempts=own.max_attempts,
        command=command,
    )


def _scratch(root: Path) -> Path:
    scratch.prepare(root)
    return root


if __name__ == "__main__":
    sys.exit(main())
