"""Bytes that are lost or damaged: found when they are opened or checked in turn, told of, and not handed out again.

A key whose bytes are missing or others than were kept is marked in its row (`service.db.kept`). The cache answers with
no such artifact, so that the next compilation makes it again; the jobs that have it say so in `problem` and in their
log. The mark goes when the bytes are written anew, or are found whole.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from service.blobs.store import Blobs, BlobWriter, StoredBlob
from service.db import events, kept, retention, totals
from service.db.engine import Database
from service.db.models import BlobFault, JobState
from service.errors import ArtifactLost, BlobDamaged, BlobLost, DatabaseUnavailable
from service.logs import logger

AT_ONCE = 100
"""Keys that are taken to be checked in one transaction."""
EVERYTHING = 1 << 62
"""More bytes than there are."""

log = logger(__name__)

Fault = BlobLost | BlobDamaged


@dataclass(frozen=True)
class Watched:
    """A blob store that marks what it could not open as it should be; otherwise the store that it was given."""

    blobs: Blobs
    db: Database

    def writer(self, limit: int | None = None) -> BlobWriter:
        """Begin a blob of at most `limit` bytes."""
        return self.blobs.writer(limit)

    def put_file(self, path: Path) -> StoredBlob:
        """Copy a finished file in."""
        return self.blobs.put_file(path)

    def put_bytes(self, data: bytes) -> StoredBlob:
        """Keep bytes that are in memory."""
        return self.blobs.put_bytes(data)

    @contextlib.contextmanager
    def local(self, key: str, length: int | None = None) -> Iterator[Path]:
        """The blob as a file."""
        with contextlib.ExitStack() as opened:
            with self._watch(key):
                path = opened.enter_context(self.blobs.local(key, length))
            yield path

    def copy_to(self, key: str, path: Path, length: int | None = None) -> None:
        """A copy of the blob at a path."""
        with self._watch(key):
            self.blobs.copy_to(key, path, length)

    @contextlib.contextmanager
    def copy(self, key: str, length: int | None = None) -> Iterator[Path]:
        """A copy of the blob."""
        with contextlib.ExitStack() as opened:
            with self._watch(key):
                path = opened.enter_context(self.blobs.copy(key, length))
            yield path

    def read(self, key: str, start: int = 0, end: int | None = None, *, length: int | None = None) -> Iterator[bytes]:
        """A range of its bytes, in chunks."""
        with self._watch(key):
            chunks = self.blobs.read(key, start, end, length=length)
        return self._read(key, chunks)

    def size(self, key: str) -> int:
        """Length in bytes."""
        with self._watch(key):
            return self.blobs.size(key)

    def verify(self, key: str, length: int | None) -> None:
        """Compare it with its digest."""
        with self._watch(key):
            self.blobs.verify(key, length)

    def set_aside(self) -> Iterator[tuple[str, str]]:
        """The damaged blobs that were set aside."""
        return self.blobs.set_aside()

    def discard(self, name: str) -> None:
        """Remove what was set aside."""
        self.blobs.discard(name)

    def delete(self, key: str, *, unless_written_since: float | None = None) -> None:
        """Remove."""
        self.blobs.delete(key, unless_written_since=unless_written_since)

    def keys(self) -> Iterator[tuple[str, float]]:
        """Every key and its last write."""
        return self.blobs.keys()

    def check(self) -> None:
        """Write and remove a few bytes."""
        self.blobs.check()

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads."""
        return self.blobs.sweep(older_than_s)

    def _read(self, key: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        with self._watch(key):
            yield from chunks

    def _watch(self, key: str) -> AbstractContextManager[None]:
        return _noting(self.db, key)


@contextlib.contextmanager
def _noting(db: Database, key: str) -> Iterator[None]:
    try:
        yield
    except (BlobLost, BlobDamaged) as error:
        with contextlib.suppress(DatabaseUnavailable):  # what was asked for fails either way, and is found again
            note(db, key, error)
        raise


def note(db: Database, key: str, error: Fault) -> bool:
    """Mark a key, and let the jobs that have its artifact say so; False when that was known."""
    fault = BlobFault.LOST if isinstance(error, BlobLost) else BlobFault.DAMAGED
    with db.write() as session:
        if not kept.blame(session, key, fault):
            return False
        totals.count(session, "blob_faults", fault=str(fault))
        for job in kept.jobs_of(session, key):
            if job.state == JobState.SUCCEEDED:
                job.problem = problem(fault).to_json()
                session.flush()
                events.append(session, job.id, [("notice", {"message": f"the bytes of its artifact are {fault}"})])
    log.error("bytes are not as they were kept", key=key, fault=str(fault), reason=error.message, fix=error.fix)
    return True


def problem(fault: BlobFault) -> ArtifactLost:
    """What the owner of an artifact is told."""
    return ArtifactLost(
        f"the job succeeded, and the bytes of its artifact are {fault} since",
        fix="compile the model again: the cache no longer answers with this artifact",
    )


@dataclass(frozen=True)
class Scrubbed:
    """What a check of kept bytes found. `damaged` and `lost` are keys; `mended` had a fault and are whole again."""

    blobs: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()

    def __add__(self, other: Scrubbed) -> Scrubbed:
        return Scrubbed(**{name: mine + getattr(other, name) for name, mine in vars(self).items()})


def scrub(db: Database, blobs: Blobs, most_bytes: int, stop: threading.Event | None = None) -> Scrubbed:
    """Compare with their digests the bytes that were checked longest ago: about so many, at least one blob.

    Raises `DatabaseUnavailable` and `StorageUnavailable`.
    """
    found, stop = Scrubbed(), stop or threading.Event()
    with db.read() as session:
        began = kept.now(session)
    left, first = most_bytes, 1
    while not stop.is_set():
        with db.write() as session:
            due = kept.take(session, left, AT_ONCE, before=began, at_least=first)
        if not due:
            break
        found += _check(db, blobs, due, stop)
        left, first = left - sum(one.bytes for one in due), 0
    return found


def scrub_all(db: Database, blobs: Blobs) -> Scrubbed:
    """The same of everything that rows name."""
    return scrub(db, blobs, EVERYTHING)


def all_whole(db: Database, blobs: Blobs, due: list[kept.Due]) -> bool:
    """Compare these with their digests; whether all are as they were kept. Raises as `scrub` does."""
    found = _check(db, blobs, due, threading.Event())
    return found.blobs == len(due) and not found.damaged and not found.lost


def _check(db: Database, blobs: Blobs, due: list[kept.Due], stop: threading.Event) -> Scrubbed:
    found, left = Scrubbed(), list(due)
    try:
        while left and not stop.is_set():
            found += _check_one(db, blobs, left[0])
            left.pop(0)
    finally:
        if left:
            with db.write() as session:
                kept.give_back(session, left)
    return found


def _check_one(db: Database, blobs: Blobs, due: kept.Due) -> Scrubbed:
    try:
        blobs.verify(due.key, due.bytes)
    except BlobDamaged as error:
        note(db, due.key, error)
        return Scrubbed(1, due.bytes, damaged=(due.key,))
    except BlobLost as error:
        with db.write() as session:
            named = due.key in retention.named(session, [due.key])
            if not named:
                kept.forget(session, [due.key], 0.0)
        if named:
            note(db, due.key, error)
            return Scrubbed(1, 0, lost=(due.key,))
        return Scrubbed()
    with db.write() as session:
        mended = (due.key,) if kept.checked(session, due.key) else ()
    return Scrubbed(1, due.bytes, mended=mended)
