"""`python -m tests.scale`: what each thing that the service does costs of PostgreSQL and of the process that asks.

It makes a PostgreSQL of its own (commits are synced), does each thing many times in turn, and prints JSON for
`python -m bench scale --times FILE`. Seconds are of processors, so that other work on the machine adds little to them;
only how long a commit takes is by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from compiler.contract import COMPILER_VERSION, CompileOptions, Event
from service.blobs.store import StoredBlob
from service.db import owners
from service.db.engine import Database
from service.db.insert import add_up
from service.db.models import Job, Total
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle import find
from service.jobs.operations import reconcile
from service.jobs.operations.statistics import numbers
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import Measured
from service.jobs.storage import models
from service.jobs.submission.submit import Submission, submit
from tests.servers import Databases, Postgres, running_postgres

TICKS = os.sysconf("SC_CLK_TCK")
BACKLOGS = (100, 1000, 10_000)
QUEUE = "cpu"
HEARTBEATS = 6
"""Of each job that is measured, each with news and records."""
RECORDS = 5
COMMITS = 200
RECORD = {
    **{"kind": "kernel", "operator": "Conv+Relu", "description": "f32[1, 64, 56, 56], f32[64, 64, 3, 3]"},
    **{"target": "cpu:x86-64-v4", "hardware": "cpu:x86-64-v4/62047a4b3376a6f5", "threads": 1, "seconds": 2e-4},
    **{"p10": 1.9e-4, "p90": 2.3e-4, "samples": 31, "compiler": f"{COMPILER_VERSION}+0123456789abcdef"},
}


class Meter:
    """Processor seconds of the server's processes, and of this one, while something is done."""

    def __init__(self, server: Postgres) -> None:
        assert server.process is not None
        self._postmaster = server.process.pid
        self.found: dict[str, dict[str, float]] = {}

    def __call__(self, name: str, count: int, act: Callable[[int], object]) -> None:
        """Do it so often; what one costs in the mean."""
        theirs, ours = self._server(), time.process_time()
        for number in range(count):
            act(number)
        spent = (self._server() - theirs, time.process_time() - ours)
        self.found[name] = {"database_s": spent[0] / count, "process_s": spent[1] / count, "count": count}
        print(
            f"{name}: {spent[0] / count * 1e3:.2f} ms of PostgreSQL, {spent[1] / count * 1e3:.2f} ms", file=sys.stderr
        )

    def _server(self) -> float:
        """All its processes, those that have ended included."""
        total = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                words = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[1]) == self._postmaster:
                total += int(words[11]) + int(words[12])
            elif int(entry.parent.name) == self._postmaster:
                total += sum(map(int, words[11:15]))
        return total / TICKS


def record(number: int) -> dict[str, Any]:
    """A measurement of a tile of its own."""
    levels = {"register": {"m": number % 14, "n": 32}, "block": {"m": number, "k": 512}}
    variant = {"algorithm": "direct", "levels": levels, "source": "fedcba9876543210", "weights": "cache"}
    return {**RECORD, "workload": f"{number % 997:024x}", "variant": variant}


def backlog(db: Database, like: uuid.UUID, count: int) -> None:
    """So many more jobs wait as the one with this id, at a priority below all others."""
    columns = [column.name for column in Job.__table__.columns]
    fresh = {"id": "gen_random_uuid()", "artifact_id": "gen_random_uuid()", "priority": "-1", "state": "'QUEUED'"}
    fresh |= {"fence": "0", "attempts": "0", "lease_owner": "NULL", "lease_until": "NULL", "published_at": "created_at"}
    taken = ", ".join(fresh.get(name, name) for name in columns)
    statement = (
        f"INSERT INTO jobs ({', '.join(columns)}) SELECT {taken} FROM jobs, generate_series(1, :n) WHERE id = :id"
    )
    with db.write() as session:
        session.execute(sa.text(statement), {"n": count, "id": like})
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")


def measure(server: Postgres, count: int) -> dict[str, Any]:
    """The whole table, and the bytes that a job leaves in the database and in its log of writes."""
    db = Database(Databases(server.url).migrated())
    meter = Meter(server)
    with db.write() as session:
        owner = owners.named(session, "ada")
    blob = StoredBlob(key="k" * 64, sha256="d" * 64, bytes=1000)
    model = models.keep(db, owner, blob).digest
    options = CompileOptions.from_json({"target": QUEUE})
    waiting = Submission(owner=owner, model=model, options=options, fresh=True)
    before = _sizes(db)
    claims: list[lease.Claim] = []
    meter("submit", count, lambda number: submit(db, waiting, limits=UNLIMITED))
    meter("claim", count, lambda number: claims.append(_claimed(db)))

    def news(number: int) -> None:
        claim = claims[number % count]
        said = [Event("phase", "tile", 0.1 + number / 1e6, "kernel 3 of 20", {"kernel": 3})]
        measured = Measured([record(number * RECORDS + one) for one in range(RECORDS)])
        assert lease.heartbeat(db, claim, said, measured, batch=number // count + 1) == "ok"

    meter("news", HEARTBEATS * count, news)
    meter("heartbeat", count, lambda number: lease.heartbeat(db, claims[number], ()))
    meter("read", count, lambda number: find.job(db, owner, claims[number].job_id))
    report = {"kernels": 20, "phase_seconds": dict.fromkeys(("load", "tile", "pack", "agree"), 1.0)}

    def ended(number: int) -> None:
        key = f"{number:064x}"
        made = StoredBlob(key=key, sha256=key, bytes=1_000_000)
        assert lease.succeed(db, claims[number], made=made, report=report, circumstances=report)

    meter("succeed", count, ended)
    after = _sizes(db)
    per_job = {name: (after[name] - before[name]) / count for name in after}
    meter("seen", count, lambda number: lease.seen(db, f"w{number % 50}", [QUEUE], {}, COMPILER_VERSION, None))
    meter("look", count, lambda number: lease.is_ready(db, [QUEUE]))
    like = claims[0].job_id
    waited = 0
    for depth in BACKLOGS:
        backlog(db, like, depth - waited)
        waited = depth
        few = max(3, count // 10)
        for _ in range(few):
            submit(db, waiting, limits=UNLIMITED)
        meter(f"claim at {depth}", few, lambda number: _claimed(db))
        meter(f"numbers at {depth}", few, lambda number: list(numbers(db, 30.0)))
        meter(f"reconcile at {depth}", few, lambda number: _reconcile(db))
    commit_s = _commit_s(db)
    db.dispose()
    return {
        "seconds": meter.found,
        "commit_s": commit_s,
        "bytes_per_job": per_job,
        "heartbeats_per_job": HEARTBEATS,
        "records": RECORDS,
    }


def _claimed(db: Database) -> lease.Claim:
    claim = lease.claim(db, "w1", [QUEUE], 3600.0)
    assert claim is not None
    return claim


def _commit_s(db: Database) -> float:
    """How long the row of a sum is locked: from its UPDATE to the end of the commit.

    It is the quickest tenth, since other work on the machine can only lengthen it.
    """
    took = []
    for _ in range(COMMITS):
        with db.write() as session:
            add_up(session, Total, "value", 1.0, name="tuning_records", labels="{}")
            begin = time.perf_counter()
        took.append(time.perf_counter() - begin)
    return statistics.quantiles(took, n=10)[0]


def _reconcile(db: Database) -> None:
    terms: dict[str, Any] = {"ring_again_after_s": 3600.0, "max_lost_leases": 3, "worker_alive_s": 30.0}
    reconcile.reconcile(db, _Silent(), **terms)


class _Silent:
    """A doorbell that nobody hears."""

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nothing."""


def _sizes(db: Database) -> dict[str, float]:
    with db.read() as session:
        size = session.scalar(sa.text("SELECT pg_database_size(current_database())"))
        log = session.scalar(sa.text("SELECT pg_current_wal_lsn() - '0/0'"))
    return {"stored": float(size or 0), "log": float(log or 0)}


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="how often each is done (300)")
    given = parser.parse_args()
    with running_postgres(Postgres(durable=True)) as server:
        found = measure(server, given.count)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
