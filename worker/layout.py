"""Lay out what a job works with in a folder of its own, so that it sees these files and none of others."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from service.blobs.store import Blobs
from service.jobs.lease import Claim

ARRAYS = "inputs"
"""What a claim calls the arrays of an inference."""

_PIECE = 1 << 30
_NOT_IN_KERNEL = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP)
"""Of `copy_file_range`: an old kernel, or file systems between which it does not copy."""

Laid = tuple[tuple[str, Path], ...]


def lay_out(claim: Claim, blobs: Blobs, folder: Path) -> Laid:
    """Put a claim's inputs into `folder`, which is empty; each with its name, in the claim's order.

    The files are called by their positions: no name that a user gave becomes a path. Raises `BlobLost`, `BlobDamaged`,
    `StorageUnavailable`, `OSError` (disk full).
    """
    laid = []
    for position, file in enumerate(claim.inputs):
        path = folder / str(position)
        with blobs.local(file.key, file.bytes) as source:
            _copy(source, path)
        laid.append((file.name, path))
    return tuple(laid)


def _copy(source: Path, path: Path) -> None:
    """The bytes, in a file of the job's own: what it does to that never reaches the blob, which all owners share.

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
    path.chmod(0o400)


def _copy_in_kernel(source: int, target: int) -> None:
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "copy_file_range")
    while os.copy_file_range(source, target, _PIECE):
        pass
