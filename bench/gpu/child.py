"""A piece of work in a process of its own: a kernel that hangs or faults takes with it only that."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GRACE_S = 5.0
"""From asking a process to end until it is killed."""
LEFT: list[subprocess.Popen[str]] = []
"""Processes that do not end, even when killed: a hung driver keeps them."""


@dataclass(frozen=True)
class Ended:
    """How a process ended. `status` is None where the time ran out; `said` the end of its output and errors."""

    status: int | None
    output: str
    said: str


def run(module: str, arguments: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> Ended:
    """`python -m module arguments` in the checkout, by the Python that runs this.

    Its whole process group is ended after `seconds`.
    """
    command = [sys.executable, "-m", module, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    # Not as a context: that would wait for a process that a hung driver keeps, and those after it would never begin.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        output, errors = _end(process)
        status = None
    except BaseException:
        _end(process)
        raise
    return Ended(status, output, (output + errors)[-2000:])


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Asks the group to end, then makes it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    LEFT.append(process)
    return "", "the process does not end, even when killed"
