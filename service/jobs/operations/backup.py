"""Copies of everything that must be kept, made while the service runs, and put back.

Neither order of copying is right by itself: the blobs first, and the database names some that came later; the database
first, and retention removes some that it names. So the blobs are copied first, then the database, then the blobs that
it names and that are missing still: these were written after the first copy began, and retention leaves alone for the
grace whatever was written. Where the first copy takes long it is repeated, until one is short against the grace.

A copy of a blob gets its name only when its bytes have the digest that the key says; one that is there is not copied
again. So a backup that broke off goes on where it stopped, and one into the folder of the last takes what is new.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.blobs.local import LocalBlobs, sync_folder
from service.blobs.private import FILE, private_folder
from service.blobs.store import Blobs, storage_errors
from service.db import snapshot
from service.db.engine import Database
from service.errors import BlobDamaged, BlobLost, NotReady

FORMAT, VERSION = "tilewright-backup", 1
DATABASE, MANIFEST, KEY_FILE = "tilewright.db", "backup.json", "api_key"
ROUNDS, SNAPSHOTS = 10, 3


@dataclass(frozen=True)
class Saved:
    """What a backup holds. `missing` are keys that rows name and whose bytes are lost or damaged in the store."""

    blobs: int
    bytes: int
    copied: int
    database: bool
    missing: tuple[str, ...] = ()


def backup(db: Database, blobs: Blobs, folder: Path, *, key_file: Path, grace_s: float) -> Saved:
    """Bring `folder` to what is kept now: the blobs, and of SQLite the database and the local key.

    Beside PostgreSQL it copies the blobs alone and drops none: before and after its own dump, within the grace.
    Raises `NotReady` when copying never keeps up with the grace, `DatabaseUnavailable`, `StorageUnavailable`.
    """
    private_folder(folder, (MANIFEST, "blobs"))
    target = LocalBlobs(folder / "blobs")
    copied = _catch_up(blobs, target, grace_s)
    if db.engine.dialect.name != "sqlite":
        return _saved(target, folder, copied, database=False)
    missing: set[str] = set()
    draft = folder / f".{DATABASE}"
    for _ in range(SNAPSHOTS):
        snapshot.take(db, draft)
        named = _named(draft)
        new, missing = _copy(blobs, target, named)
        copied += new
        if not missing:  # else their rows may have gone after the copy of the database: look again
            break
    _replace(draft, folder / DATABASE)
    if key_file.exists():
        _write(folder / KEY_FILE, key_file.read_bytes())
    for key in _keys(target):
        if key not in named:
            target.delete(key)
    return _saved(target, folder, copied, database=True, missing=tuple(sorted(missing)))


def restore(folder: Path, blobs: Blobs, *, database: Path | None, key_file: Path) -> Saved:
    """Put a backup back: the blobs into the store, then the database under its name, which must be free.

    database  the file of SQLite; None: PostgreSQL, whose dump is restored by its own tools

    Every blob is compared with its digest; what is in the store already is not copied again, so that a restoration that
    broke off can be repeated. Raises `NotReady` for what is no backup or a database that is in use, `BlobDamaged` for a
    backup that is damaged, and `StorageUnavailable`.
    """
    manifest = _manifest(folder)
    if database is not None and not manifest.database:
        raise NotReady("this backup holds no database", fix="set TILEWRIGHT_DATABASE_URL to that of its PostgreSQL")
    if database is not None and database.exists():
        raise NotReady(f"there is a database already: {database}", fix="restore into an empty data folder")
    source = LocalBlobs(folder / "blobs")
    named: Mapping[str, int | None] = dict.fromkeys(_keys(source))
    if database is not None:
        draft = database.with_name(f".{database.name}.restored")
        with storage_errors():
            shutil.copyfile(folder / DATABASE, draft)
            draft.chmod(FILE)
        named = {key: size for key, size in _named(draft).items() if key not in manifest.missing}
    copied, missing = _copy(source, blobs, named)
    if missing:
        raise BlobDamaged(
            f"{len(missing)} blobs of the backup are lost or damaged, the first is {min(missing)}",
            fix="restore from another backup",
        )
    if database is not None:
        _replace(draft, database)
        if (folder / KEY_FILE).exists() and not key_file.exists():
            _write(key_file, (folder / KEY_FILE).read_bytes())
    size = sum(source.size(key) for key in named)
    return Saved(len(named), size, copied, database is not None, manifest.missing)


def _catch_up(blobs: Blobs, target: LocalBlobs, grace_s: float) -> int:
    """Copy what the store has until a round is short against the grace; how many were copied."""
    copied = 0
    for _ in range(ROUNDS):
        began = time.monotonic()
        copied += _copy(blobs, target, dict.fromkeys(_keys(blobs)))[0]
        if time.monotonic() - began < grace_s / 4:
            return copied
    raise NotReady(
        "copying what is new takes longer than it is certain to be kept",
        fix="back up to a faster disk, or raise TILEWRIGHT_GC_GRACE_S",
    )


def _copy(source: Blobs, target: Blobs, named: Mapping[str, int | None]) -> tuple[int, set[str]]:
    """Copy the keys that the target has not; how many, and which are lost or damaged."""
    copied, missing = 0, set()
    for key, length in named.items():
        if _is_there(target, key, length):
            continue
        try:
            _copy_one(source.read(key, length=length), target, key)
            copied += 1
        except (BlobLost, BlobDamaged):
            missing.add(key)
    return copied, missing


def _is_there(target: Blobs, key: str, length: int | None) -> bool:
    try:
        size = target.size(key)
    except BlobLost:
        return False
    return length is None or size == length


def _copy_one(chunks: Iterable[bytes], target: Blobs, key: str) -> None:
    with target.writer() as writer:
        for chunk in chunks:
            writer.write(chunk)
        stored = writer.commit()
    if stored.key != key:
        target.delete(stored.key)
        raise BlobDamaged(f"blob {key!r} has other bytes than its name promises", fix="see python -m service scrub")


def _keys(blobs: Blobs) -> list[str]:
    listed = blobs.keys()
    return [key for key, _ in listed]


def _named(file: Path) -> Mapping[str, int | None]:
    copy = Database(f"sqlite:///{file}")
    try:
        return snapshot.named(copy)
    finally:
        copy.dispose()


def _saved(target: LocalBlobs, folder: Path, copied: int, *, database: bool, missing: tuple[str, ...] = ()) -> Saved:
    """Write the manifest, which makes the folder a backup."""
    sizes = [target.size(key) for key in _keys(target)]
    saved = Saved(len(sizes), sum(sizes), copied, database, missing)
    manifest = {"format": FORMAT, "version": VERSION, "made_at": time.time(), **vars(saved)}
    _write(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    return saved


def _manifest(folder: Path) -> Saved:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        raise NotReady(f"{folder} is no whole backup", fix="name a folder that python -m service backup has finished")
    return Saved(
        manifest["blobs"], manifest["bytes"], manifest["copied"], manifest["database"], tuple(manifest["missing"])
    )


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.draft")
    with storage_errors():
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE), "wb") as file:
            file.write(data)
    _replace(draft, path)


def _replace(draft: Path, path: Path) -> None:
    """Give a finished file its name, durably."""
    with storage_errors():
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
