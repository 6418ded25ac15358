"""What every command shares: options, the client, and how results and failures are printed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console

from tilewright.client import Client
from tilewright.errors import ClientError

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Url = Annotated[str, typer.Option("--url", help="The server; default: TILEWRIGHT_URL, else the running `up`.")]
Key = Annotated[str, typer.Option("--key", help="The API key; default: TILEWRIGHT_API_KEY, else that of `up`.")]


def connect(url: str, key: str) -> Client:
    """The client of a command. Raises `ServerUnreachable` when no server is known."""
    return Client(url, key)


def console() -> Console:
    """For people, on standard error: standard output stays for results."""
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One line of JSON on standard output, flushed, so that a pipe sees events as they come."""
    print(json.dumps(value, default=str), file=sys.stdout, flush=True)


@contextlib.contextmanager
def failures(as_json: bool) -> Iterator[None]:
    """Print a failure and leave with its exit status."""
    try:
        yield
    except ClientError as error:
        if as_json:
            print_json({"error": error.to_json()})
        else:
            shown = console()
            shown.print(error.message, style="bold red", markup=False)
            for refusal in error.problem.get("refusals", ()):
                where = f"{refusal['operator']} {refusal['node']!r}: " if refusal.get("operator") else ""
                shown.print(f"  - {where}{refusal.get('reason', '')} {refusal.get('fix', '')}".rstrip(), markup=False)
            if error.fix:
                shown.print(f"Fix: {error.fix}", markup=False)
        raise typer.Exit(error.exit_status) from None
