"""Lay out what a job works with in a folder of its own, so that it sees these files and none of others."""

from __future__ import annotations

from collections.abc import Sequence
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
    closed. Raises `NotFound` for one that is gone, `StorageUnavailable`, `OSError` (disk full).
    """
    return _laid(claim.inputs, blobs, folder, opened, "")


def lay_out_samples(claim: Claim, blobs: Blobs, folder: Path, opened: ExitStack) -> Laid:
    """The same with a claim's samples, beside its inputs."""
    return _laid(claim.samples, blobs, folder, opened, "sample")


def _laid(files: Sequence[Input], blobs: Blobs, folder: Path, opened: ExitStack, prefix: str) -> Laid:
    laid = []
    for position, file in enumerate(files):
        laid.append((file.name, _link(file, blobs, folder / f"{prefix}{position}", opened)))
    return tuple(laid)


def _link(file: Input, blobs: Blobs, path: Path, opened: ExitStack) -> Path:
    """A hard link where one can be made, so that the job keeps the file when the store forgets it meanwhile."""
    source = opened.enter_context(blobs.local(file.key)).absolute()
    try:
        path.hardlink_to(source)
    except OSError:
        path.symlink_to(source)  # another file system, or one without such links
    return path
