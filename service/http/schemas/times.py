"""Times that a caller names."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field

DATE = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]")


def _with_date(text: Any) -> Any:
    """Seconds since 1970, which pydantic would take, are no RFC 3339."""
    if not isinstance(text, str) or not DATE.match(text):
        raise ValueError("write a time as 2026-11-21T04:00:00Z")
    return text


Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_with_date)]
"""RFC 3339, with its offset from UTC."""


def seconds_of(moment: datetime | None) -> float | None:
    """Seconds since 1970."""
    return None if moment is None else moment.timestamp()
