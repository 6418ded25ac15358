"""Lay out what a job works with in a folder of its own, so that it sees these files and none of others."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from service.blobs.store import Blobs
from service.jobs.lease import Claim, Input

ARRAYS = "inputs"
"""What a claim calls the arrays of an inference."""

Laid = tuple[tuple[str, Path], ...]


def lay_out(claim: Claim, blobs: Blobs, folder: Path, opened: ExitStack) -> Laid:
    """Put a claim's inputs into `folder`, which is empty; each with its name, in the claim's order.

    The files are called by their positions: no name that a user gave becomes a path. They may be read until `opened` is
    closed. Raises `BlobLost`, `BlobDamaged`, `StorageUnavailable`, `OSError` (disk full).
    """
    laid = []
    for position, file in enumerate(claim.inputs):
        laid.append((file.name, _link(file, blobs, folder / str(position), opened)))
    return tuple(laid)


def _link(file: Input, blobs: Blobs, path: Path, opened: ExitStack) -> Path:
    """A hard link where one can be made, so that the job keeps the file when the store forgets it meanwhile."""
    source = opened.enter_context(blobs.local(file.key, file.bytes)).absolute()
    try:
        path.hardlink_to(source)
    except OSError:
        path.symlink_to(source)  # another file system, or one without such links
    return path
