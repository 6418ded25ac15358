"""What a module prints as JSON in a process of its own.

A worker asks so for what takes memory, or would start CUDA in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

PATIENCE_S = 120.0
"""Also for a driver that has to wake its device."""
PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def answer(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """What `python -m module arguments` prints.

    environment  variables beside PASSED_ON

    Raises `OSError`, `subprocess.SubprocessError`, and `ValueError` for what is no JSON.
    """
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
        env={**own, **(environment or {})},
    )
    return json.loads(done.stdout)
