"""How much of the sweep over architectures and precisions is run: half an hour is too long for every change."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

WHOLE = "PTX_WHOLE"
"""The environment variable that `make ptx-check` sets: each pair is run, and not a few of them."""


def pairs(
    architectures: Sequence[str], precisions: Sequence[str], few: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The pairs of an architecture and a precision that are run."""
    return list(itertools.product(architectures, precisions)) if os.environ.get(WHOLE) else list(few)
