"""Every command of `tilewright` but those named, tried in the environment that runs this file, in a new folder.

Prints JSON: of each command `help`, the exit status of `--help`, and of a run without a server, in which each required
argument names a file that makes no sense, `status`, `output` and `raised`, what came through.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
import typer.testing
from typer.testing import CliRunner

from tilewright.attestation import SUFFIX
from tilewright.cli import app
from tilewright.cli.commands import tree

FILE = "1"
"""The name of a file, and a number."""


def main() -> None:
    """Print what each did."""
    for suffix in ("", SUFFIX):
        Path(FILE + suffix).write_text("{}")
    tried = {}
    whole = typer.main.get_command(app)
    setattr(typer.testing, "_get_command", lambda _: whole)  # noqa: B010 (it would be made anew for each run)
    for words, command in ((each, one) for name, made in tree().items() for each, one in leaves(made, name)):
        if " ".join(words) in sys.argv[1:]:
            continue
        asked = CliRunner().invoke(app, [*words, "--help"])
        done = CliRunner().invoke(app, [*words, *given(command)])
        raised = "" if isinstance(done.exception, SystemExit | None) else repr(done.exception)
        tried[" ".join(words)] = {
            "help": asked.exit_code,
            "status": done.exit_code,
            "output": done.output,
            "raised": raised,
        }
    json.dump(tried, sys.stdout)


def leaves(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command that has no commands of its own, after the words that call it."""
    if subcommands := getattr(command, "commands", None):
        for name, one in subcommands.items():
            yield from leaves(one, *words, name)
    else:
        yield words, command


def given(command: Any) -> list[str]:
    """A value for everything that the command demands."""
    demanded = [parameter.opts[0] for parameter in command.params if parameter.required]
    return [word for name in demanded for word in ([name, FILE] if name.startswith("-") else [FILE])]


if __name__ == "__main__":
    main()
