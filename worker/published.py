"""The catalogues that a worker publishes, told by a process of their own: what they are made from takes memory, and is read once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

PATIENCE_S = 120.0
_PASSED_ON = ("PATH", "PYTHONPATH")


def published() -> Mapping[str, list[dict[str, Any]]]:
    """What `worker.catalogue.published` gives. Raises `OSError`, `subprocess.SubprocessError`."""
    told = subprocess.run(
        [sys.executable, "-P", "-m", "worker.catalogue"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    )
    catalogues: dict[str, list[dict[str, Any]]] = json.loads(told.stdout)
    return catalogues
