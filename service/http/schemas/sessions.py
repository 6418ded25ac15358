"""Sessions of the page, as they go over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.http.schemas.common import utc
from service.jobs.accounts.keys import Made

SESSION_EXAMPLE: dict[str, Any] = {"owner": "local", "expires_at": "2026-11-28T04:00:00.000Z"}
LINK_EXAMPLE: dict[str, Any] = {"link": "/#/enter/twl_shown-this-once", "expires_at": "2026-11-22T04:00:00.000Z"}


class SessionOut(BaseModel):
    """A session that was begun; its token is in the cookie alone."""

    model_config = ConfigDict(json_schema_extra={"example": SESSION_EXAMPLE})

    owner: str
    expires_at: datetime = Field(description="When it ends, if the browser does not end before.")

    @classmethod
    def of(cls, made: Made) -> Self:
        """From what was made."""
        return cls(owner=made.shown.owner, expires_at=_end(made))


class SessionLinkOut(BaseModel):
    """A link that opens the page signed in, once."""

    model_config = ConfigDict(json_schema_extra={"example": LINK_EXAMPLE})

    link: str = Field(
        description="A path of this service. What follows `#` no browser sends; `/` and a view may be added."
    )
    expires_at: datetime

    @classmethod
    def of(cls, made: Made) -> Self:
        """From what was made."""
        return cls(link=f"/#/enter/{made.text}", expires_at=_end(made))


def _end(made: Made) -> datetime:
    ends = made.shown.row.expires_at
    assert ends is not None, "a session and a link end"
    return utc(ends)
