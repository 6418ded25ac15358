"""Cursors of lists: opaque to the caller, the id of the last row seen to us."""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import Annotated

from fastapi import Query

from service.errors import BadRequest

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Rows per page.")]


def encode(last: uuid.UUID | None) -> str | None:
    """The cursor of the page after this row."""
    return None if last is None else base64.urlsafe_b64encode(last.bytes).decode().rstrip("=")


def decode(cursor: str | None) -> uuid.UUID | None:
    """The row before the page. Raises `BadRequest` for what `encode` never made."""
    if cursor is None:
        return None
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(cursor + "=="))
    except (binascii.Error, ValueError) as error:
        raise BadRequest(
            f"cursor {cursor!r:.60} is malformed", fix="pass next_cursor of a page, or leave it out"
        ) from error
