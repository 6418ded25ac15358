"""Copies of blobs, for processes that read what strangers sent.

A blob is one file for all owners who sent the same bytes, and the user of such a process owns it: what the process does
to a copy never reaches the blob.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from service.blobs.store import storage_errors

READ_ONLY = 0o400

_PIECE = 1 << 30
_NOT_IN_KERNEL = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP)
"""Of `copy_file_range`: an old kernel, or file systems between which it does not copy."""


def copy(source: Path, path: Path) -> None:
    """Copy a file to a path where nothing is, with mode 0400.

    Where the file system can, both share their blocks until one is written to. Raises `OSError`.
    """
    try:
        with source.open("rb") as given, path.open("xb") as copied:
            _copy_in_kernel(given.fileno(), copied.fileno())
    except OSError as error:
        if error.errno not in _NOT_IN_KERNEL:
            raise
        path.unlink()
        shutil.copyfile(source, path)
    path.chmod(READ_ONLY)


@contextlib.contextmanager
def copied(blob: AbstractContextManager[Path], folder: Path) -> Iterator[Path]:
    """A copy of an opened blob in `folder`, gone after the `with` block; the blob is closed once it is copied.

    Raises `StorageUnavailable`.
    """
    path = folder / uuid.uuid4().hex
    try:
        with blob as source, storage_errors():
            copy(source, path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _copy_in_kernel(source: int, target: int) -> None:
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "copy_file_range")
    while os.copy_file_range(source, target, _PIECE):
        pass
