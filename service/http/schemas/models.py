"""Models, uploads and lists of jobs as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Model, Upload
from service.http.schemas.common import JOB_EXAMPLE, JobOut, RequestBody, utc
from service.jobs.operations.removal import Removal
from service.jobs.storage.uploads import RAW_TYPES, ZIP

DIGEST = r"^[0-9a-f]{64}$"
DIGEST_EXAMPLE: str = JOB_EXAMPLE["model"]
BATCH_ID = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a10"
UPLOAD_ID = "019aa1ef-1b7a-7e55-8f3c-2d9a6e4b7c31"

MODEL_EXAMPLE: dict[str, Any] = {
    "digest": DIGEST_EXAMPLE,
    "bytes": 104857600,
    "files": [{"path": "weights/layer0.bin", "bytes": 104800000, "sha256": "5feceb66ffc86f38d952786c6d696c79" * 2}],
    "created_at": "2026-11-21T03:59:58.000Z",
    "name": "resnet50",
    "note": None,
    "tags": [],
    "jobs": None,
    "links": {"self": f"/models/{DIGEST_EXAMPLE}", "file": f"/models/{DIGEST_EXAMPLE}/file"},
}
UPLOAD_EXAMPLE: dict[str, Any] = {
    "id": UPLOAD_ID,
    "bytes": 104857600,
    "received": 16777216,
    "media_type": ZIP,
    "sha256": None,
    "created_at": "2026-11-21T03:59:40.000Z",
    "model": None,
    "links": {"self": f"/uploads/{UPLOAD_ID}"},
}


class FileOut(BaseModel):
    """A file of external data."""

    path: str = Field(description="Relative to the ONNX file.")
    bytes: int
    sha256: str


class ModelOut(BaseModel):
    """An uploaded model."""

    model_config = ConfigDict(json_schema_extra={"example": MODEL_EXAMPLE})

    digest: str = Field(
        description="SHA-256 of the ONNX file; with external data that of the JSON text "
        '`{"data":{path:sha256,...},"model":sha256}`, keys sorted, no spaces.'
    )
    bytes: int = Field(description="Size of all its files.")
    files: list[FileOut] = Field(description="External data.")
    created_at: datetime
    name: str | None = Field(None, description="Name given by its owner.")
    note: str | None = None
    tags: list[str] = Field([], description="Words to find it by.")
    jobs: int | None = Field(None, description="Number of its compilations; null in lists.")
    links: dict[str, str]

    @classmethod
    def of(cls, model: Model, jobs: int | None = None) -> Self:
        """From a row."""
        here = f"/models/{model.digest}"
        return cls(
            digest=model.digest,
            bytes=model.bytes,
            files=[FileOut(path=one["path"], bytes=one["bytes"], sha256=one["sha256"]) for one in model.files],
            created_at=utc(model.created_at),
            name=model.name,
            note=model.note,
            tags=model.tags or [],
            jobs=jobs,
            links={"self": here, "file": f"{here}/file"},
        )


class ModelPage(BaseModel):
    """Models, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"models": [MODEL_EXAMPLE], "next_cursor": None}})

    models: list[ModelOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class GoneOut(BaseModel):
    """What was deleted; `jobs` counts those of every kind."""

    jobs: int
    artifacts: int
    benchmarks: int
    inferences: int


class KeptOut(BaseModel):
    """What stays."""

    tuning_records: int = Field(description="Measurements of its kernels: they serve other models too.")


class RemovalOut(BaseModel):
    """What became of a model that was to be deleted."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "digest": DIGEST_EXAMPLE,
                "stopping": 0,
                "deleted": {"jobs": 3, "artifacts": 2, "benchmarks": 1, "inferences": 0},
                "kept": {"tuning_records": 412},
            }
        }
    )

    digest: str
    stopping: int = Field(description="Jobs that must stop first; then nothing was deleted yet: repeat the request.")
    deleted: GoneOut
    kept: KeptOut

    @classmethod
    def of(cls, removal: Removal) -> Self:
        """From the outcome."""
        return cls(
            digest=removal.digest,
            stopping=removal.stopping,
            deleted=GoneOut(**vars(removal.deleted)),
            kept=KeptOut(tuning_records=removal.records_kept),
        )


class UploadIn(RequestBody):
    """What will arrive in pieces."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"bytes": 104857600, "media_type": ZIP, "sha256": DIGEST_EXAMPLE}}
    )

    bytes: int = Field(ge=1, le=2**62, description="Of the whole.")
    media_type: str = Field(
        RAW_TYPES[0],
        pattern="^(" + "|".join((*RAW_TYPES, ZIP)).replace(".", r"\.") + ")$",
        description=f"`{RAW_TYPES[0]}` for an ONNX file, `{ZIP}` for a zip of one and its external data.",
    )
    sha256: Annotated[str, Field(pattern=DIGEST)] | None = Field(
        None,
        description="SHA-256 of the whole; if the bytes have another, the answer is 422 and the upload is removed.",
    )


class UploadOut(BaseModel):
    """A model that arrives in pieces."""

    model_config = ConfigDict(json_schema_extra={"example": UPLOAD_EXAMPLE})

    id: uuid.UUID
    bytes: int = Field(description="Of the whole.")
    received: int = Field(description="How many have arrived; the next piece begins here.")
    media_type: str
    sha256: str | None
    created_at: datetime
    model: ModelOut | None = Field(description="The model that it became when the last byte had come.")
    links: dict[str, str]

    @classmethod
    def of(cls, upload: Upload, model: Model | None = None) -> Self:
        """From a row."""
        return cls(
            id=upload.id,
            bytes=upload.bytes,
            received=upload.received,
            media_type=upload.media_type,
            sha256=upload.sha256,
            created_at=utc(upload.created_at),
            model=None if model is None else ModelOut.of(model),
            links={"self": f"/uploads/{upload.id}", **({"model": f"/models/{model.digest}"} if model else {})},
        )


class JobList(BaseModel):
    """Several jobs of one request, in its order."""

    model_config = ConfigDict(json_schema_extra={"example": {"jobs": [JOB_EXAMPLE], "batch": BATCH_ID}})

    jobs: list[JobOut]
    batch: uuid.UUID = Field(description="What they share: `/batches/{batch}`.")
