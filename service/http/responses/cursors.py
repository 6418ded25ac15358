"""Cursors of lists: opaque to the caller; and the header that names the next page (RFC 8288).

To the service a cursor is the last row seen: its id, or its time and what distinguishes it from others of that time.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import uuid
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from service.errors import BadRequest

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Rows per page.")]


def link(request: Request, response: Response, cursor: str | None) -> str | None:
    """The same cursor, which the header `Link` of the answer names too, with the rest of the query as it was asked."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    return cursor


async def _following(request: Request, response: Response) -> Callable[[str | None], str | None]:
    return lambda cursor: link(request, response, cursor)


Following = Annotated[Callable[[str | None], str | None], Depends(_following)]
"""Of a list: hands on `next_cursor`, and names that page in the header `Link`."""


def encode(last: uuid.UUID | None) -> str | None:
    """The cursor of the page after this row."""
    return None if last is None else _pack(_ID, last.bytes)


def decode(cursor: str | None) -> uuid.UUID | None:
    """The row before the page. Raises `BadRequest` for what `encode` never made."""
    if cursor is None:
        return None
    (id,) = _unpack(_ID, cursor)
    return uuid.UUID(bytes=id)


def encode_place(last: tuple[float, uuid.UUID] | None) -> str | None:
    """The cursor of the page after the row with this time and id."""
    return None if last is None else _pack(_PLACE, last[0], last[1].bytes)


def decode_place(cursor: str | None) -> tuple[float, uuid.UUID] | None:
    """The row before the page. Raises `BadRequest` for what `encode_place` never made."""
    if cursor is None:
        return None
    seconds, id = _unpack(_PLACE, cursor)
    return seconds, uuid.UUID(bytes=id)


def encode_moment(last: tuple[float, str] | None) -> str | None:
    """The cursor of the page after the row with this time and SHA-256 (hex)."""
    return None if last is None else _pack(_MOMENT, last[0], bytes.fromhex(last[1]))


def decode_moment(cursor: str | None) -> tuple[float, str] | None:
    """The row before the page. Raises `BadRequest` for what `encode_moment` never made."""
    if cursor is None:
        return None
    seconds, digest = _unpack(_MOMENT, cursor)
    return seconds, digest.hex()


def encode_text(last: str | None) -> str | None:
    """The cursor of the page after the row with this name."""
    return None if last is None else base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def decode_text(cursor: str | None) -> str | None:
    """The row before the page. Raises `BadRequest` for what `encode_text` never made."""
    if cursor is None:
        return None
    try:
        name = base64.urlsafe_b64decode(cursor + "==").decode()
    except ValueError:
        name = ""
    if encode_text(name) != cursor or not name.isprintable() or not name:
        raise _malformed(cursor)
    return name


_ID, _PLACE, _MOMENT = struct.Struct(">16s"), struct.Struct(">d16s"), struct.Struct(">d32s")


def _pack(form: struct.Struct, *values: float | bytes) -> str:
    return base64.urlsafe_b64encode(form.pack(*values)).decode().rstrip("=")


def _unpack(form: struct.Struct, cursor: str) -> tuple[Any, ...]:
    """What `_pack` was given. Raises `BadRequest` for what it never made; a time that is not finite is none."""
    try:
        values = form.unpack(base64.urlsafe_b64decode(cursor + "=="))
    except (binascii.Error, ValueError, struct.error):
        values = (math.nan,)
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise _malformed(cursor)
    return values


def _malformed(cursor: str) -> BadRequest:
    return BadRequest(f"cursor {cursor!r:.60} is malformed", fix="pass next_cursor of a page, or leave it out")
