"""Models as their owners uploaded them: one ONNX file, or a bundle of one and its external data."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from compiler.contract import bundle_digest
from service.blobs.store import Blobs, StoredBlob
from service.db import artifacts, kept
from service.db.artifacts import onnx_bytes
from service.db.engine import Database
from service.db.kept import Due
from service.db.models import Model
from service.errors import BlobLost, NotFound
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.storage import integrity
from service.jobs.storage.bundle import NO_DATA, Bundle

CHECKED_S = 3600.0
"""For so long files that were compared with their digests count as whole, for whoever asks before sending them."""


@dataclass(frozen=True)
class Kept:
    """A model's row; `new` unless the owner had it already."""

    model: Model
    new: bool


def keep(db: Database, owner: uuid.UUID, model: StoredBlob, data: Mapping[str, StoredBlob] = NO_DATA) -> Model:
    """The model's row, made unless the owner has it. `data` holds external data by relative path."""
    return put(db, owner, Bundle(model, data), UNLIMITED).model


def put(db: Database, owner: uuid.UUID, bundle: Bundle, limits: Limits) -> Kept:
    """The model's row, and whether it was made just now. Raises `QuotaExceeded`, and as `quotas.opened` does."""
    with db.write() as session:
        return put_within(session, owner, bundle, limits)


def put_within(session: Session, owner: uuid.UUID, bundle: Bundle, limits: Limits) -> Kept:
    """`put` as a part of the caller's transaction."""
    row = quotas.opened(session, owner)  # a removal of the same model at the same moment comes before or after
    model, data = bundle.model, bundle.data
    digest = digest_of(bundle)
    known = artifacts.model(session, owner, digest)
    files = [
        {"path": path, "sha256": blob.sha256, "bytes": blob.bytes, "key": blob.key}
        for path, blob in sorted(data.items())
    ]
    size = model.bytes + sum(blob.bytes for blob in data.values())
    if known is None:
        quotas.demand_room(session, row, size, limits)
    artifacts.keep_model(session, owner, digest, size, model.key, files)
    if known is not None:
        return Kept(known, new=False)
    audit.note(session, "create", f"/models/{digest}")
    made = artifacts.model(session, owner, digest)
    assert made is not None, "it was kept just now"
    return Kept(made, new=True)


@dataclass(frozen=True)
class Described:
    """A model and the number of its compilations."""

    model: Model
    jobs: int


def find(db: Database, owner: uuid.UUID, digest: str) -> Described:
    """One model. Raises `NotFound`."""
    with db.read() as session:
        return Described(required(session, owner, digest), artifacts.jobs_of_model(session, owner, digest))


def demand_bytes(session: Session, model: Model) -> None:
    """Raises `BlobLost` for a model of which files are known to be lost or damaged; sending it again mends that."""
    if faults := artifacts.model_faults(session, model):
        raise BlobLost(
            f"files of model {model.digest} are {' and '.join(sorted(set(faults)))}",
            fix="send the model again with POST /models; the operator may have it in a backup",
            details={"model": model.digest},
        )


def row(db: Database, owner: uuid.UUID, digest: str) -> Model:
    """One model's row. Raises `NotFound`."""
    with db.read() as session:
        return required(session, owner, digest)


def unchecked(db: Database, owner: uuid.UUID, digest: str) -> list[Due]:
    """Files of the owner's model that were not compared with their digests for `CHECKED_S`, for `present`.

    Raises `NotFound` for a model that is to be sent before it can be compiled.
    """
    with db.read() as session:
        found = required(session, owner, digest)
        if artifacts.model_faults(session, found):
            raise _to_be_sent(digest)
        return kept.unchecked(session, [found.blob_key, *(file["key"] for file in found.files)], CHECKED_S)


def present(db: Database, blobs: Blobs, digest: str, due: list[Due]) -> None:
    """Raises `NotFound` for a model of which these files turn out lost or damaged, else as `integrity.scrub` does."""
    if not integrity.all_whole(db, blobs, due):
        raise _to_be_sent(digest)


def _to_be_sent(digest: str) -> NotFound:
    return NotFound(f"bytes of model {digest} are lost or damaged", fix="send it again with POST /models")


def required(session: Session, owner: uuid.UUID, digest: str) -> Model:
    """The owner's model. Raises `NotFound`."""
    found = artifacts.model(session, owner, digest)
    if found is None:
        raise NotFound(f"there is no model {digest}", fix="upload it with POST /models")
    return found


def page(
    db: Database,
    owner: uuid.UUID,
    *,
    tags: Collection[str] = (),
    text: str = "",
    before: tuple[float, str] | None,
    limit: int,
) -> tuple[list[Model], tuple[float, str] | None]:
    """Models of the owner with all these tags and this text in name or note, newest first.

    And time and digest of the last one if more follow.
    """
    with db.read() as session:
        rows = list(artifacts.models_page(session, owner, tags, text, before=before, limit=limit + 1))
    last = rows[limit - 1] if len(rows) > limit else None
    return rows[:limit], None if last is None else (last.created_at, last.digest)


def file(db: Database, owner: uuid.UUID, digest: str, path: str | None) -> StoredBlob:
    """The ONNX file, or the external data with this path. Raises `NotFound`."""
    model = row(db, owner, digest)
    if path is None:
        return StoredBlob(model.blob_key, model.blob_key.rpartition("/")[2], onnx_bytes(model))
    for one in model.files:
        if one["path"] == path:
            return StoredBlob(one["key"], one["sha256"], one["bytes"])
    raise NotFound(
        f"model {digest} has no external data {path!r:.120}", fix="GET /models/{digest} lists the paths of its files"
    )


def digest_of(bundle: Bundle) -> str:
    """The digest (hex) that a model with these files has."""
    return bundle_digest(bundle.model.sha256, {path: blob.sha256 for path, blob in bundle.data.items()})
