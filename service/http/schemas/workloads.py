"""Named workloads of models as they go over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.named_workloads import NamedWorkload
from service.http.schemas.common import RequestBody, utc
from service.http.schemas.models import DIGEST_EXAMPLE

NAME_EXAMPLE = "chat-short"
WORKLOAD_EXAMPLE: dict[str, Any] = {
    "name": NAME_EXAMPLE,
    "model": DIGEST_EXAMPLE,
    "dims": {"batch": 1, "seq": 32},
    "created_at": "2026-11-21T04:00:00.000Z",
    "changed_at": "2026-11-21T04:00:00.000Z",
    "links": {"self": f"/models/{DIGEST_EXAMPLE}/workloads/{NAME_EXAMPLE}"},
}

DimName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\u0000-\u001f]+$")]
Size = Annotated[int, Field(ge=1, le=2**31 - 1)]


class WorkloadIn(RequestBody):
    """What a workload is to be."""

    model_config = ConfigDict(json_schema_extra={"example": {"dims": WORKLOAD_EXAMPLE["dims"]}})

    dims: dict[DimName, Size] = Field(
        min_length=1, max_length=64, description="By name of an open dimension of the model: its size."
    )


class WorkloadOut(BaseModel):
    """The sizes of a model's open dimensions in one use of it."""

    model_config = ConfigDict(json_schema_extra={"example": WORKLOAD_EXAMPLE})

    name: str
    model: str = Field(description="The digest of the model it is of.")
    dims: dict[str, int] = Field(description="By name of a dimension: its size.")
    created_at: datetime
    changed_at: datetime
    links: dict[str, str]

    @classmethod
    def of(cls, row: NamedWorkload) -> Self:
        """From a row."""
        return cls(
            name=row.name,
            model=row.model_digest,
            dims=row.dims,
            created_at=utc(row.created_at),
            changed_at=utc(row.changed_at),
            links={"self": f"/models/{row.model_digest}/workloads/{row.name}"},
        )


class WorkloadList(BaseModel):
    """Workloads of a model, by name."""

    model_config = ConfigDict(json_schema_extra={"example": {"workloads": [WORKLOAD_EXAMPLE]}})

    workloads: list[WorkloadOut]
