"""`python -m service`: run the API, or one of its chores.

serve      (default) migrate the database, make the local key, answer HTTP
migrate    bring the database to its newest step and end
reconcile  mend expired leases and lost doorbells, and sweep, in a process of its own; the API does this too
sweep      remove once what is kept for a time only, and bytes that nothing refers to; print what was removed
scrub      compare all that is kept with its digests, print what is lost or damaged; status 1 where something is
backup     copy into a folder what must be kept, while all runs; of PostgreSQL the blobs alone
restore    put a backup back, with nothing running
key        make an API key for an owner and print it, once
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa
import uvicorn
from pydantic import ValidationError

from compiler.errors import TilewrightError
from service import logs
from service.blobs.open_blobs import open_blobs
from service.blobs.private import OTHERS, private_folder
from service.config import Settings, exit_status, reason
from service.db import migrate
from service.db.engine import Database
from service.errors import DatabaseUnavailable
from service.http.admission import descriptors
from service.http.admission.connections import KEEP_ALIVE_S, Connection
from service.jobs.accounts import access, audit
from service.jobs.accounts.audit import Asking
from service.jobs.inspection.inspector import Inspector
from service.jobs.operations import backup, reconcile, retention
from service.jobs.operations.backup import Saved
from service.jobs.scheduling.doorbell import ring_of
from service.jobs.storage import integrity
from service.jobs.storage.integrity import Scrubbed
from service.threads import lasting

DATA_NAMES = ("tilewright.db", "api_key", "blobs", "up.lock")
"""Some of these a data folder holds that was used."""

MOST_DAYS = 36500.0
"""After which a key may end at the latest."""

log = logs.logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or `exit_status` of an error, which is printed with its fix."""
    parser = argparse.ArgumentParser(prog="python -m service", description="Tilewright's API.")
    commands = parser.add_subparsers(dest="command")
    for name, chore in CHORES.items():
        commands.add_parser(name, help=(chore.__doc__ or "").split(".")[0])
    scrub = commands.add_parser("scrub", help="Compare all that is kept with its digests")
    scrub.add_argument("--json", action="store_true", help="print one JSON object")
    for name, purpose in (("backup", "Copy what must be kept, while all runs"), ("restore", "Put a backup back")):
        commands.add_parser(name, help=purpose).add_argument("folder", type=Path)
    key = commands.add_parser("key", help="Make an API key and print it")
    key.add_argument("owner")
    rights = key.add_mutually_exclusive_group()
    rights.add_argument(
        "--scope", action="append", choices=access.SCOPES, help="may be repeated; default: read, compile"
    )
    rights.add_argument("--role", choices=list(access.ROLES), help="instead of scopes")
    key.add_argument("--days", type=_days, help="after how many days the key ends; left out: never")
    key.add_argument("--label", default="")
    given = parser.parse_args(arguments)
    try:
        settings = Settings()
        logs.configure(json_lines=settings.log_json)
        os.umask(OTHERS)  # what SQLite makes is the owner's alone too, in whatever folder its URL names
        private_folder(settings.data_dir, DATA_NAMES)
        if given.command == "key":
            scopes = access.ROLES[given.role or "compiler"] if given.scope is None else given.scope
            _key(settings, given.owner, scopes, given.label, given.days)
        elif given.command in ("backup", "restore"):
            return (_backup if given.command == "backup" else _restore)(settings, given.folder)
        elif given.command == "scrub":
            return _report(_scrubbed(settings), as_json=given.json)
        else:
            CHORES[given.command or "serve"](settings)
    except (TilewrightError, ValidationError) as error:
        print(reason(error), file=sys.stderr)
        return exit_status(error)
    return 0


def _serve(settings: Settings) -> None:
    """Migrate the database, make the local key, answer HTTP."""
    Inspector(ready=0, walls=settings.require_walls).demand_walls()
    _ = settings.tls  # what is wrong with its files is said here, before anything is done
    _migrate(settings)
    db = Database.of(settings)
    access.ensure_local_key(db, settings.api_key_file)
    given = None if settings.api_key is None else settings.api_key.get_secret_value()
    access.replace(db, access.LOCAL_OWNER, given, access.SCOPES, "TILEWRIGHT_API_KEY")
    db.dispose()
    processes = settings.api_processes
    log.info("serving", host=settings.host, port=settings.port, processes=processes, data_dir=str(settings.data_dir))
    if processes > 1:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(_emptied(settings.data_dir / f"metrics-{settings.port}"))
    descriptors.raise_limit()
    uvicorn.run(
        "service.http.app:from_environment",
        factory=True,
        http=Connection,
        workers=processes,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.graceful_shutdown_s,
        ws="none",  # a connection that becomes a web socket would leave our counts
    )


def _emptied(folder: Path) -> Path:
    """The folder in which processes add up their metrics: those of processes that are gone count no more."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


def _migrate(settings: Settings) -> None:
    """Bring the database to its newest step."""
    migrate.upgrade(settings.sqlalchemy_url)


def _reconcile(settings: Settings) -> None:
    """Mend expired leases and lost doorbells, and sweep, until SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    db = Database.of(settings)
    with contextlib.suppress(DatabaseUnavailable):  # the loop waits for it
        migrate.require_usable(db)
    blobs, rules = open_blobs(settings), retention.Rules.of(settings)
    lasting(
        "retention",
        lambda: retention.loop(db, blobs, stop, every_s=settings.retention_every_s, rules=rules),
        stop.is_set,
    ).start()
    reconcile.loop(
        db,
        ring_of(settings.celery_url),
        stop,
        every_s=settings.reconcile_every_s,
        ring_again_after_s=settings.ring_again_after_s,
        max_lost_leases=settings.max_lost_leases,
        worker_alive_s=settings.worker_alive_s,
    )


def _sweep(settings: Settings) -> None:
    """Remove once what is kept for a time only, and bytes that nothing refers to."""
    db = Database.of(settings)
    migrate.require_usable(db)
    swept = retention.sweep(db, open_blobs(settings), retention.Rules.of(settings))
    db.dispose()
    for what, count in vars(swept).items():
        print(f"{what} {count}")


def _scrubbed(settings: Settings) -> Scrubbed:
    db = Database.of(settings)
    try:
        return integrity.scrub_all(db, open_blobs(settings))
    finally:
        db.dispose()


def _report(found: Scrubbed, *, as_json: bool) -> int:
    """Print what was found; the exit status, 1 where something is lost or damaged."""
    if as_json:
        print(json.dumps(vars(found)))
    else:
        print(f"blobs {found.blobs}\nbytes {found.bytes}")
        for what in ("damaged", "lost", "mended"):
            for key in getattr(found, what):
                print(f"{what} {key}")
    return 1 if found.damaged or found.lost else 0


def _backup(settings: Settings, folder: Path) -> int:
    """Exit status 1 where bytes that a row names are lost or damaged; the rest is saved then too."""
    db = Database.of(settings)
    try:
        saved = backup.backup(
            db, open_blobs(settings), folder, key_file=settings.api_key_file, grace_s=settings.gc_grace_s
        )
    finally:
        db.dispose()
    return _tell(saved)


def _restore(settings: Settings, folder: Path) -> int:
    url = sa.make_url(settings.sqlalchemy_url)
    sqlite = url.get_backend_name() == "sqlite"
    file = Path(str(url.database)) if sqlite else None
    restored = backup.restore(folder, open_blobs(settings), database=file, key_file=settings.api_key_file)
    return _tell(restored)


def _tell(saved: Saved) -> int:
    for what in ("blobs", "bytes", "copied"):
        print(f"{what} {getattr(saved, what)}")
    print(f"database {'yes' if saved.database else 'no: dump it with its own tools'}")
    for key in saved.missing:
        print(f"missing {key}")
    return 1 if saved.missing else 0


def _days(text: str) -> float:
    """A number of days. Raises `ValueError`, which argparse reports."""
    days = float(text)
    if not 0 < days <= MOST_DAYS:
        raise ValueError(text)
    return days


def _key(settings: Settings, owner: str, scopes: Sequence[str], label: str, days: float | None) -> None:
    db = Database.of(settings)
    audit.asking.set(Asking(request_id="", address=audit.CONSOLE))
    expires_at = None if days is None else time.time() + days * 24 * 3600
    print(access.make_key(db, owner, scopes, label, expires_at=expires_at))
    db.dispose()


CHORES: dict[str, Callable[[Settings], None]] = {
    "serve": _serve,
    "migrate": _migrate,
    "reconcile": _reconcile,
    "sweep": _sweep,
}

if __name__ == "__main__":
    sys.exit(main())
