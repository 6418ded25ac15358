"""The catalogues that a worker publishes, made in a process of their own.

What they are made from takes memory, and is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker import inquiry


def published() -> Mapping[str, list[dict[str, Any]]]:
    """What `worker.devices.catalogue.published` gives. Raises `OSError`, `subprocess.SubprocessError`."""
    catalogues: dict[str, list[dict[str, Any]]] = inquiry.answer("worker.devices.catalogue")
    return catalogues
