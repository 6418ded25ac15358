"""JSON that every database takes: without NUL, NaN, infinities and halves of surrogate pairs.

What a compilation says of a hostile model may hold any of them, and saying it must not fail.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(value: Any) -> Any:
    """The value with NUL and lone surrogates replaced by U+FFFD, and numbers that are not finite by None."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\0", REPLACEMENT)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def dumps(value: Any) -> str:
    """JSON text of `storable(value)`."""
    return json.dumps(storable(value), separators=(",", ":"), allow_nan=False)
