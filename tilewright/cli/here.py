"""Commands that run a module of the compiler on this machine, without a server, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from tilewright.cli.output import console, print_json, results
from tilewright.errors import ClientError, UsageError
from tilewright.extras import require


def needs_compiler() -> None:
    """Raises `UsageError` where what the compiler needs is not installed."""
    require("server", "the compiler")


def run_here(
    module: str, words: Sequence[str], *, as_json: bool, show: Callable[[Mapping[str, Any]], None] | None = None
) -> None:
    """Run `python -m module words` and print what it prints; it exits as the module does.

    show  prints the report of one that succeeded, for people, where a module prints JSON; without, its own words are

    Raises `UsageError` where what the compiler needs is not installed.
    """
    needs_compiler()
    command = [sys.executable, "-m", module, *words, *(["--json"] if as_json else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if as_json:
        print_json(_parsed(done))
    else:
        told = show is not None and not done.returncode
        for text, shown in (("" if told else done.stdout, results()), (done.stderr, console())):
            if said := text.rstrip():
                shown.print(said, markup=False, highlight=False, soft_wrap=True)
        if show is not None and told:
            show(_parsed(done))
    if done.returncode:
        raise typer.Exit(done.returncode)


def _parsed(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON that a module printed, on either stream. Raises `UsageError`, `ClientError` where it printed none."""
    for text in (done.stdout, done.stderr):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    kind = UsageError if done.returncode == UsageError.exit_status else ClientError
    raise kind((done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1])
