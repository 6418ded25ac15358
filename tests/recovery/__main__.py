"""`python -m tests.recovery --jobs 1000 --database postgresql`: a backup, a loss and a migration, with data, timed.

It fills a database and a store by the service's own functions, backs them up as docs/operations.md says (with
`pg_dump` beside PostgreSQL), does more work, throws all of it away, restores, and compares every row and every blob
with what there was at the backup. Then the schema is taken some steps back and brought to the newest again. What was
done after the backup is what is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from compiler.contract import CompileOptions, Event
from service.blobs.local import LocalBlobs
from service.db import migrate, owners
from service.db.engine import Database
from service.db.models import Row
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.operations import backup
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import Measured
from service.jobs.storage import models
from service.jobs.submission.submit import Submission, submit
from tests.scale.__main__ import QUEUE, RECORDS, record
from tests.servers import Databases, Missing, Postgres, postgres_programs, running_postgres

GRACE_S = 3600.0
BACK_TO = "0010"
"""A step whose tables hold all that a job leaves: the way back to it loses no row of these."""
TABLES = ("owners", "models", "jobs", "attempts", "events", "tuning_records", "artifacts", "usage", "totals")
LATER = 0.05
"""The share of jobs that end after the backup, and are lost."""


@dataclass
class Place:
    """Where a service keeps what it has: a database by its URL, and blobs below `folder`."""

    folder: Path
    url: str
    dumps: Callable[[list[str]], None] | None = None
    """Runs a program of PostgreSQL's; None for SQLite."""
    took: dict[str, float] = field(default_factory=dict)

    @property
    def blobs(self) -> LocalBlobs:
        """The store."""
        return LocalBlobs(self.folder / "blobs")

    @property
    def file(self) -> Path | None:
        """SQLite's file."""
        return None if self.dumps else Path(str(sa.make_url(self.url).database))

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Keep how many seconds it takes."""
        begin = time.perf_counter()
        yield
        self.took[what] = time.perf_counter() - begin


def work(db: Database, blobs: LocalBlobs, first: int, count: int, size: int) -> None:
    """So many jobs from POST to artifact, of which each is of a model of its own and has `size` random bytes."""
    with db.write() as session:
        owner = owners.named(session, "ada")
    for number in range(first, first + count):
        with blobs.writer() as writer:
            writer.write(b"model %d" % number)
            model = models.keep(db, owner, writer.commit()).digest
        submit(
            db,
            Submission(owner=owner, model=model, options=CompileOptions.from_json({"target": QUEUE})),
            limits=UNLIMITED,
        )
        claim = lease.claim(db, "w1", [QUEUE], GRACE_S)
        assert claim is not None
        said = [Event("phase", "tile", 0.5, "kernel 3 of 20", {"kernel": 3})]
        measured = Measured([record(number * RECORDS + one) for one in range(RECORDS)])
        assert lease.heartbeat(db, claim, said, measured, batch=1) == "ok"
        with blobs.writer() as writer:
            writer.write(os.urandom(size))
            made = writer.commit()
        assert lease.succeed(db, claim, made=made, report={"kernels": 20}, circumstances={})


def rows(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of TABLES, as they are written, in order."""
    with db.read() as session:
        found = {}
        for name in TABLES:
            table = Row.metadata.tables[name]
            found[name] = sorted(
                (tuple(map(repr, row)) for row in session.execute(sa.select(table))), key=lambda row: row
            )
        return found


def recover(place: Place, into: Place, count: int, size: int) -> dict[str, Any]:
    """What was kept and how long each step took. Raises `AssertionError` where a row or a blob is another."""
    migrate.upgrade(place.url)
    db, saved = Database(place.url), place.folder / "saved"
    later = max(1, int(count * LATER))
    with place.timed("work"):
        work(db, place.blobs, 0, count, size)
    wanted = rows(db)

    def copied() -> backup.Saved:
        return backup.backup(db, place.blobs, saved, key_file=place.folder / "api_key", grace_s=GRACE_S)

    with place.timed("backup"):
        whole = copied()
        if place.dumps:
            place.dumps(["pg_dump", "--format=custom", "--file", str(saved / "dump")])
            copied()
    work(db, place.blobs, count, later, size)
    with place.timed("backup of what is new"):
        newer = place.folder / "newer"
        shutil.copytree(saved, newer, copy_function=os.link)
        backup.backup(db, place.blobs, newer, key_file=place.folder / "api_key", grace_s=GRACE_S)
    db.dispose()
    with place.timed("restore"):
        if into.dumps:
            into.dumps(["pg_restore", "--no-owner", "--dbname", "", str(saved / "dump")])
        backup.restore(saved, into.blobs, database=into.file, key_file=into.folder / "api_key")
    db = Database(into.url)
    assert rows(db) == wanted, "the rows of the backup are other ones"
    listed = into.blobs.keys()
    assert len({key for key, _ in listed}) == 2 * count == whole.blobs, whole
    stored = _size(db, into)
    db.dispose()
    with place.timed(f"migrate back to {BACK_TO}"):
        migrate.downgrade(into.url, BACK_TO)
    with place.timed("migrate to the newest"):
        migrate.upgrade(into.url)
    db = Database(into.url)
    kept = rows(db)
    assert {name: len(found) for name, found in kept.items()} == {name: len(found) for name, found in wanted.items()}
    db.dispose()
    return {
        "jobs": count,
        "lost": later,
        "blob_bytes": whole.bytes,
        "database_bytes": stored,
        "seconds": {name: round(seconds, 2) for name, seconds in place.took.items()},
    }


def _size(db: Database, place: Place) -> int:
    if place.file is not None:
        return place.file.stat().st_size
    with db.read() as session:
        return int(session.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0)


@contextlib.contextmanager
def places(database: str, folder: Path) -> Iterator[tuple[Place, Place]]:
    """Two that know nothing of each other. Raises `tests.servers.Missing`."""
    for name in ("before", "after"):
        (folder / name).mkdir()
    before, after = folder / "before", folder / "after"
    if database == "sqlite":
        yield tuple(Place(one, f"sqlite:///{one / 'tilewright.db'}") for one in (before, after))  # type: ignore[misc]
        return
    with running_postgres(Postgres(durable=True)) as server:
        made = Databases(server.url)
        yield tuple(_of_postgres(server, one, made.empty()) for one in (before, after))  # type: ignore[misc]


def _of_postgres(server: Postgres, folder: Path, url: str) -> Place:
    name = str(sa.make_url(url).database)

    def run(words: list[str]) -> None:
        program, *rest = words
        where = ["--host", str(server.folder), "--username", server.user]
        named = [name if word == "" else word for word in rest] if "--dbname" in rest else [*rest, name]
        subprocess.run([str(postgres_programs() / program), *where, *named], check=True)

    return Place(folder, url, run)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 1 when what was restored is something else; 2 when a server is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.recovery", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--kib", type=int, default=1000, help="of each artifact")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tw-recovery-") as folder:
        try:
            with places(given.database, Path(folder)) as (before, after):
                found = recover(before, after, given.jobs, given.kib << 10)
        except Missing as reason:
            print(reason, file=sys.stderr)
            return 2
        except AssertionError as difference:
            print(f"what was restored is not what there was: {difference}", file=sys.stderr)
            return 1
    print(json.dumps({"database": given.database, **found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
