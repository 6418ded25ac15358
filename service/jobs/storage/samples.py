"""Samples of a compilation: .npz archives of inputs, each with the name by which its sender knows it.

They are kept as blobs that the job's row names, and go with the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from service.blobs.store import StoredBlob
from service.db import kept
from service.db.plain import storable
from service.errors import BlobLost

LONGEST_NAME = 200
"""Characters."""


@dataclass(frozen=True)
class SampleFile:
    """One, in the blob store. It has not been read."""

    name: str
    blob: StoredBlob

    def to_json(self) -> dict[str, Any]:
        """As the job's row holds it."""
        return {"name": self.name, "sha256": self.blob.sha256, "bytes": self.blob.bytes, "key": self.blob.key}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> SampleFile:
        """Of a row."""
        return cls(plain["name"], StoredBlob(plain["key"], plain["sha256"], plain["bytes"]))


def of_row(samples: Sequence[dict[str, Any]] | None) -> tuple[SampleFile, ...]:
    """Those of a job's row."""
    return tuple(map(SampleFile.from_json, samples or ()))


def name(session: Session, samples: Sequence[SampleFile]) -> None:
    """Note that a row names samples that were written a moment ago."""
    kept.name(session, {sample.blob.key: sample.blob.bytes for sample in samples})


def demand_bytes(session: Session, samples: Sequence[SampleFile]) -> None:
    """Raises `BlobLost` where some are known to be lost or damaged; sending them again mends that."""
    faults = kept.faults(session, [sample.blob.key for sample in samples])
    if lost := [sample for sample in samples if sample.blob.key in faults]:
        raise BlobLost(
            f"samples {', '.join(repr(sample.name) for sample in lost)} are "
            f"{' and '.join(sorted({str(faults[sample.blob.key]) for sample in lost}))}",
            fix="send them again, with POST /compile; the operator may have them in a backup",
            details={"samples": [sample.blob.sha256 for sample in lost]},
        )


def sample_name(filename: str, position: int) -> str:
    """What a sample is called: the last part of its file's name, or its position, from 1, where it has none."""
    last = PurePosixPath(filename.replace("\\", "/")).name
    return str(storable(last))[:LONGEST_NAME] or str(position + 1)
