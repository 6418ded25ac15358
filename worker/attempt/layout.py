"""Lay out what a job works with in a folder of its own, so that it sees these files and none of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from service.blobs.store import Blobs
from service.jobs.scheduling.lease import Claim, Input

ARRAYS = "inputs"
"""What a claim calls the arrays of an inference."""

Laid = tuple[tuple[str, Path], ...]


def lay_out(claim: Claim, blobs: Blobs, folder: Path) -> Laid:
    """Put a claim's inputs into `folder`, which is empty; each with its name, in the claim's order.

    The files are called by their positions: no name that a user gave becomes a path. Their bytes have the digests by
    which they are named: what the job is said to be made of is what it is given. Raises `BlobLost`, `BlobDamaged`,
    `StorageUnavailable`, `OSError` (disk full).
    """
    return _laid(claim.inputs, blobs, folder, "")


def lay_out_samples(claim: Claim, blobs: Blobs, folder: Path) -> Laid:
    """The same with a claim's samples, beside its inputs."""
    return _laid(claim.samples, blobs, folder, "sample")


def _laid(files: Sequence[Input], blobs: Blobs, folder: Path, prefix: str) -> Laid:
    laid = []
    for position, file in enumerate(files):
        path = folder / f"{prefix}{position}"
        blobs.copy_to(file.key, path, file.bytes)
        laid.append((file.name, path))
    return tuple(laid)
