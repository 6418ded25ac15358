"""One compilation in a process of its own, which may crash or hang.

The process is forked from one that has imported the compiler and computed nothing, so a trial costs what it compiles.
It ends itself by an alarm: in the sandbox of a job no process may end another.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.contract import PHASES, CompileOptions, Event
from compiler.minimise.failure import TIMED_OUT, Failure, problem
from compiler.pipeline import compile_model
from compiler.request import Host, Request

FINISHED = "compiled"
"""What stands in place of a failure for a model that compiles, or that gets past the phase which was waited for."""


class _Past(Exception):
    """A compilation got past the phase in which it was to fail."""


def in_own_process(work: Callable[[], Any], seconds: float, phase_file: Path | None = None) -> Any:
    """What `work` gives (plain JSON), computed in a child process.

    A Failure where the process was ended: by its alarm after `seconds` (code `timed_out`), or by another signal (code
    `crashed`), in the phase that `phase_file` names.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's threads wait for work; none holds a lock
        child = os.fork()
    if not child:
        _do(work, seconds, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return json.loads(said)
    phase = phase_file.read_text() if phase_file and phase_file.exists() else ""
    phase = phase or PHASES[0]
    if not os.WIFSIGNALED(status):
        return Failure.crash(f"exit status {os.waitstatus_to_exitcode(status)}", phase)
    if os.WTERMSIG(status) == signal.SIGALRM:
        return Failure((), problem(TIMED_OUT, f"it was not done after {seconds:g} seconds", phase))
    return Failure.crash(signal.Signals(os.WTERMSIG(status)).name, phase)


def _do(work: Callable[[], Any], seconds: float, writing: int) -> None:
    """In the child: never returns."""
    status = 1
    try:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        said = json.dumps(work()).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(said)
        status = 0
    finally:
        os._exit(status)


def compile_once(
    model: Path,
    options: CompileOptions,
    data: Mapping[str, Path] | None,
    samples: Mapping[str, Path],
    until: str,
    phase_file: Path,
) -> dict[str, Any]:
    """Compiles without measuring, and gives the failure as JSON, or `{"compiled": ...}`.

    until  a compilation that gets past this phase has not failed as was waited for, and ends there
    """
    phase = PHASES[0]

    def observe(event: Event) -> None:
        nonlocal phase
        if event.kind != "phase" or event.phase == phase:
            return
        if PHASES.index(event.phase) > PHASES.index(until):
            raise _Past
        phase = event.phase
        phase_file.write_text(phase)

    phase_file.write_text(phase)
    unmeasured = replace(options, tuning_budget_s=0.0)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=phase_file.parent) as folder:
        try:
            request = Request(model, Path(folder) / "made.tw", unmeasured, data, samples)
            compile_model(request, Host(observe=observe, measure=False))
            return {FINISHED: True}
        except _Past:
            return {FINISHED: False}
        except Exception as error:
            print(error, file=sys.stderr)
            return Failure.of(error, phase).to_json()


def trial(
    model: Path,
    options: CompileOptions,
    data: Mapping[str, Path] | None,
    samples: Mapping[str, Path],
    until: str,
    seconds: float,
    scratch: Path,
) -> Failure | None:
    """How compiling a file fails up to the phase `until`; None where it does not."""
    phase_file = scratch / "phase"
    said = in_own_process(lambda: compile_once(model, options, data, samples, until, phase_file), seconds, phase_file)
    if isinstance(said, Failure):
        return said
    return None if FINISHED in said else Failure.from_json(said)
