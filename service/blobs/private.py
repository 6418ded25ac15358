"""Folders and files that nobody but their owner looks into: models, artifacts, keys and the database."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Collection
from pathlib import Path

from service.blobs.store import storage_errors
from service.errors import Misconfigured, NotReady

FOLDER, FILE = 0o700, 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_folder(path: Path, ours: Collection[str], *, whole: bool = False) -> None:
    """Make a folder of mode 0700 when it is missing, and take group's and others' rights from one that is ours.

    ours   names of which a folder of this purpose holds one once it was used
    whole  whatever it holds is ours: it lies in a folder that is

    A folder is ours to change when it belongs to this user and is empty or holds one of `ours`: what else somebody's
    mistake names, such as `/var/lib`, stays as it is. One that belongs to another user may be open to a group, which
    is how machines share it, never to everybody. Raises `NotReady` for a folder that is open and not ours to change,
    and `StorageUnavailable` when it cannot be made.
    """
    with storage_errors():
        path.mkdir(parents=True, exist_ok=True, mode=FOLDER)
        facts = path.stat()
        if not facts.st_mode & OTHERS:
            return
        if facts.st_uid == os.geteuid():
            if facts.st_mode & stat.S_ISVTX or not (whole or _is_one_of(path, ours)):
                raise _open(path, "holds other things than Tilewright's")
            path.chmod(stat.S_IMODE(facts.st_mode) & ~OTHERS)
        elif facts.st_mode & stat.S_IRWXO:
            raise _open(path, "belongs to another user")


def make_once(file: Path, content: bytes) -> None:
    """Make a file of mode 0600 that is missing; of several processes that do so the first wins.

    It appears whole or not at all. Raises OSError.
    """
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()


def _is_one_of(path: Path, ours: Collection[str]) -> bool:
    names = {entry.name for entry in os.scandir(path)}
    return not names or not names.isdisjoint(ours)


def _open(path: Path, why: str) -> NotReady:
    return Misconfigured(
        f"the folder {path} can be read by everybody on this machine, and it {why}",
        fix=f"chmod 700 it if it is Tilewright's alone, or name a folder inside it, such as {path / 'tilewright'}",
    )
