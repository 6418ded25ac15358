"""Commands that run a module of the compiler on this machine, without a server, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import typer

from tilewright.cli.output import print_json, results
from tilewright.extras import require


def needs_compiler() -> None:
    """Raises `UsageError` where what the compiler needs is not installed."""
    require("server", "the compiler")


def run_here(module: str, words: Sequence[str], *, as_json: bool) -> None:
    """Run `python -m module words` and print what it prints; it exits as the module does.

    Raises `UsageError` where what the compiler needs is not installed.
    """
    needs_compiler()
    command = [sys.executable, "-m", module, *words, *(["--json"] if as_json else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if as_json and done.stdout:
        print_json(json.loads(done.stdout))
    else:
        results().print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False, highlight=False, soft_wrap=True)
    if done.returncode:
        raise typer.Exit(done.returncode)
