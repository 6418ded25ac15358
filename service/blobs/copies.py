"""Copies of blobs, for processes that read what strangers sent.

A blob is one file for all owners who sent the same bytes, and the user of such a process owns it: what the process does
to a copy never reaches the blob.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from service.blobs.store import key_of, misread, storage_errors

READ_ONLY = 0o400

_PIECE = 1 << 30
_NOT_IN_KERNEL = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP)
"""Of `copy_file_range`: an old kernel, or file systems between which it does not copy."""


def copy(key: str, opened: Callable[[], AbstractContextManager[Path]], path: Path, mend: Callable[[], None]) -> None:
    """Copy a blob's file to a path where nothing is, with mode 0400; the copy's bytes have the digest of the key.

    opened  the file to be copied
    mend    called when the copy has other bytes, before it is made anew, once; to raise if the blob itself is damaged

    Where the file system can, both share their blocks until one is written to. Raises `OSError`, what these two raise,
    and `misread`.
    """
    for _ in range(2):
        with opened() as source:
            _copy(source, path)
        with path.open("rb", buffering=0) as copied:
            if key_of(hashlib.file_digest(copied, "sha256").hexdigest()) == key:
                return
        path.unlink()
        mend()
    raise misread(key)


@contextlib.contextmanager
def copied(copy_to: Callable[[Path], None], folder: Path) -> Iterator[Path]:
    """What `copy_to` makes of a new path in `folder`, gone after the `with` block. Raises `StorageUnavailable`."""
    path = folder / uuid.uuid4().hex
    try:
        with storage_errors():
            copy_to(path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _copy(source: Path, path: Path) -> None:
    try:
        with source.open("rb") as given, path.open("xb") as copied:
            _copy_in_kernel(given.fileno(), copied.fileno())
    except OSError as error:
        if error.errno not in _NOT_IN_KERNEL:
            raise
        path.unlink()
        shutil.copyfile(source, path)
    path.chmod(READ_ONLY)


def _copy_in_kernel(source: int, target: int) -> None:
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "copy_file_range")
    while os.copy_file_range(source, target, _PIECE):
        pass
