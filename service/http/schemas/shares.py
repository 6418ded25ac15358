"""Share links as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from service.http.schemas.common import JOB_EXAMPLE, RequestBody, utc
from service.http.schemas.times import Moment
from service.jobs.lifecycle.share_links import Shown

SHARE_ID = "019aa1f7-1b22-7e05-8c3d-4f5a6b7c8d9e"
TOKEN = "tws_AAGaofcbIn4FjD1PWmt8jZ4..."

SHARE_EXAMPLE: dict[str, Any] = {
    "id": SHARE_ID,
    "job": JOB_EXAMPLE["id"],
    "download": False,
    "state": "valid",
    "created_at": "2026-11-21T04:00:00.000Z",
    "expires_at": "2026-11-28T04:00:00.000Z",
    "revoked_at": None,
}
NEW_SHARE_EXAMPLE = {**SHARE_EXAMPLE, "token": TOKEN, "link": f"/#/shared/{JOB_EXAMPLE['id']}/{TOKEN}"}


class ShareIn(RequestBody):
    """A link that is to be made."""

    model_config = ConfigDict(json_schema_extra={"example": {"expires_at": "2099-11-20T09:00:00Z", "download": False}})

    expires_at: Moment | None = Field(None, description="When it ends, within a year. Left out: in a week.")
    download: bool = Field(False, description="Whether it opens the artifact's file, too, with the sources in it.")


class ShareOut(BaseModel):
    """A link, but for its text."""

    model_config = ConfigDict(json_schema_extra={"example": SHARE_EXAMPLE})

    id: uuid.UUID
    job: uuid.UUID
    download: bool
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, shown: Shown) -> Self:
        """From a row."""
        return cls(**_plain(shown))


class NewShareOut(ShareOut):
    """A link that was made just now, with its text."""

    model_config = ConfigDict(json_schema_extra={"example": NEW_SHARE_EXAMPLE})

    token: str = Field(description="To be sent as a key is, `Authorization: Bearer tws_...`.")
    link: str = Field(
        description="Address of the page on this server; the token is behind `#`, which browsers do not send."
    )

    @classmethod
    def made(cls, shown: Shown) -> Self:
        """From a row and its token."""
        assert shown.token is not None
        return cls(**_plain(shown), token=shown.token, link=f"/#/shared/{shown.link.job_id}/{shown.token}")


class ShareList(BaseModel):
    """Links of a job, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"shares": [SHARE_EXAMPLE]}})

    shares: list[ShareOut]


def _plain(shown: Shown) -> dict[str, Any]:
    row = shown.link
    return {
        "id": row.id,
        "job": row.job_id,
        "download": row.download,
        "state": shown.state,
        "created_at": utc(row.created_at),
        "expires_at": utc(row.expires_at),
        "revoked_at": None if row.revoked_at is None else utc(row.revoked_at),
    }
