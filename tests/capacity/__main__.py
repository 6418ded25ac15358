"""`python -m tests.capacity --jobs 60`: what one worker of the many-machine form does in an hour, and what that leaves.

It starts the services of docker-compose.yml without containers (PostgreSQL, Redis, one API, a reconciler, one CPU
worker), has the worker compile one network again and again, each time as another model, and counts bytes in the
database, in the blob store and in the logs, and the connections of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import sqlalchemy as sa

from service.db.engine import Database
from tests.end_to_end import models
from tests.end_to_end.fleet import Fleet, running
from tests.servers import Missing

PER = 1000
"""Jobs that figures are told for."""
LOOK_S = 0.5
HOUR_S, DAY_S = 3600.0, 86400.0
CONNECTIONS = "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1"


def sizes(fleet: Fleet, db: Database) -> dict[str, int]:
    """Bytes in the database, in the blob store and in the logs of all processes."""
    with db.read() as session:
        rows = int(session.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0)
    stored = sum(file.stat().st_size for file in (fleet.folder / "blobs").rglob("*") if file.is_file())
    return {"database": rows, "blobs": stored, "logs": sum((m.folder / "log").stat().st_size for m in fleet.machines)}


def connections(db: Database) -> int:
    """Of all processes but this one."""
    with db.read() as session:
        counted = session.execute(sa.text(CONNECTIONS)).all()
        session.rollback()
    return int(sum(count for _, count in counted)) - 1


def distinct(model: bytes, number: int) -> bytes:
    """The same network as another model, which no cache answers."""
    whole = onnx.load_from_string(model)
    whole.doc_string = f"model {number}"
    return bytes(whole.SerializeToString())


def measure(fleet: Fleet, count: int, network: str, budget_s: float) -> dict[str, Any]:
    """The figures of so many jobs, one after another on one worker."""
    (api,) = fleet.apis(1)
    fleet.start("reconciler")
    fleet.start("cpu-worker")
    db = Database(fleet.database_url)
    model, options = models.tiny(network), {"threads": 1, "tuning_budget_s": budget_s}
    with api.client(fleet.key) as client:
        client.wait(client.compile(model, options)).require_success()  # what a first job measures of the machine
        idle, before = connections(db), sizes(fleet, db)
        begin, most = time.monotonic(), 0
        queued = [client.compile(distinct(model, number), options) for number in range(count)]
        for job in queued:
            while not (state := client.job(job.id)).ended:
                most = max(most, connections(db))
                time.sleep(LOOK_S)
            state.require_success()
        took = time.monotonic() - begin
    after = sizes(fleet, db)
    begin = time.monotonic()
    time.sleep(20.0)
    rested = sizes(fleet, db)["logs"] - after["logs"]
    log_a_day = rested / (time.monotonic() - begin) * DAY_S
    db.dispose()
    grown = {name: (after[name] - before[name]) / count * PER for name in after}
    return {
        "network": network,
        "tuning_budget_s": budget_s,
        "jobs": count,
        "jobs_an_hour": round(count / took * HOUR_S),
        f"mb_of_{PER}_jobs": {name: round(size / 1e6, 2) for name, size in grown.items()},
        "log_mb_a_day_idle": round(log_a_day / 1e6, 3),
        "connections": {"idle": idle, "most": most, "processes": dict(Counter(m.name for m in fleet.machines))},
        "load_average": os.getloadavg()[0],
    }


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 2 when a server is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.capacity", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--network", default="tiny_cnn", choices=models.TINY)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning of each job")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tw-capacity-") as folder:
        try:
            with running(Path(folder)) as fleet:
                found = measure(fleet, given.jobs, given.network, given.budget)
        except Missing as reason:
            print(reason, file=sys.stderr)
            return 2
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
