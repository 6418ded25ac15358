"""What every command shares: options, the client, and how results and failures are printed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from tilewright.errors import ClientError, UsageError

if TYPE_CHECKING:
    from tilewright.client import Client
    from tilewright.wire import Work

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Url = Annotated[str, typer.Option("--url", help="The server; default: --profile, TILEWRIGHT_URL, the running `up`.")]
Key = Annotated[
    str, typer.Option("--key", help="The API key; default: TILEWRIGHT_API_KEY, the profile's, that of `up`.")
]
ProfileName = Annotated[str, typer.Option("--profile", help="A server of `tilewright profiles`.")]

MISUSE = frozenset({"bad_request", "invalid_options"})
"""The codes of requests that a server refuses because they make no sense: exit status 2, wherever that is found."""
PIPE_WIDTH = 240
"""Columns of a table that goes to a file or a program: nothing is wrapped."""

chosen_profile: ContextVar[str] = ContextVar("chosen_profile", default="")
"""Given before the command: `tilewright --profile lab jobs`."""


def connect(url: str, key: str, profile: str = "") -> Client:
    """The client of a command. Raises `ServerUnreachable` when no server is known, `UsageError`."""
    return make_client(url, key, profile or chosen_profile.get())


def make_client(url: str, key: str, profile: str) -> Client:
    """A client, for which alone the library of HTTP is loaded. Raises as `connect` does."""
    from tilewright.client import Client

    return Client(url, key, profile=profile)


def demand_place(target: Path) -> None:
    """Raises `UsageError` where the file `target` cannot be written, before anything is done to make it."""
    folder = target.parent
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is not a file", fix="name a file")
    if not folder.is_dir():
        raise UsageError(f"cannot write {target}: there is no folder {folder}", fix="make it, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {target}: its folder cannot be written", fix="name a file in another folder")


def console() -> Console:
    """For people, on standard error: standard output stays for results."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def results() -> Console:
    """For people, on standard output: tables and other results."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One line of JSON on standard output, flushed, so that a pipe sees events as they come."""
    print(json.dumps(value, default=str), file=sys.stdout, flush=True)


def table(*columns: str | Column) -> Table:
    """An empty table without lines."""
    return Table(*columns, box=None, pad_edge=False, header_style="bold")


def id_column(name: str) -> Column:
    """For ids, which are shown whole: they are what other commands are given."""
    return Column(name, min_width=36, no_wrap=True)


def number_column(name: str) -> Column:
    """For numbers."""
    return Column(name, justify="right", no_wrap=True)


def seconds(value: float | None) -> str:
    """Seconds in the unit that people would say."""
    if value is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= scale:
            return f"{value / scale:.3f} {unit}"
    return f"{value * 1e6:.2f} us"


def size(value: float | None) -> str:
    """Bytes in the unit that people would say."""
    if value is None:
        return ""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def time_of(said: Any) -> str:
    """A time of the server, to the second."""
    return str(said or "")[:19].replace("T", " ")


def artifact_id(client: Client, given: str) -> str:
    """The id of an artifact, given itself or its job. Raises what the server says, `UsageError`."""
    from tilewright.names import artifact_of, id_of

    with contextlib.suppress(LookupError):
        return artifact_of(found_job(client, given))
    return id_of(given)


def found_job(client: Client, given: str) -> Any:
    """The job with an id. Raises LookupError when there is none, or what the server says."""
    try:
        return client.job(given)
    except ClientError as error:
        if error.status == 404:
            raise LookupError(given) from error
        raise


def count(number: Any, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_refusals(refusals: Any, shown: Console) -> None:
    """Every reason against a model, with what would mend it."""
    for refusal in refusals:
        where = " ".join(filter(None, (refusal.get("operator"), repr(refusal["node"]) if refusal.get("node") else "")))
        text = "; ".join(filter(None, (refusal.get("reason"), refusal.get("fix"))))
        shown.print(f"  - {where + ': ' if where else ''}{text}", markup=False)


def print_problem(work: Work) -> None:
    """Why a job failed."""
    problem: Mapping[str, Any] = work.problem or {}
    console().print(f"{work.id} {work.state}: {problem.get('message', '')}", style="bold red", markup=False)
    print_refusals(problem.get("refusals") or (), console())
    if problem.get("fix"):
        console().print(f"Fix: {problem['fix']}", markup=False)


@contextlib.contextmanager
def failures(as_json: bool, output: Path | None = None) -> Iterator[None]:
    """Print a failure and leave with its exit status. That `output` cannot be written is one, found before all else."""
    try:
        if output is not None:
            demand_place(output)
        yield
    except ClientError as error:
        if as_json:
            print_json({"error": error.to_json()})
        else:
            refusals = error.problem.get("refusals") or ()
            message = error.message.partition("\n")[0] if refusals else error.message
            console().print(message, style="bold red", markup=False)
            print_refusals(refusals, console())
            if error.fix:
                console().print(f"Fix: {error.fix}", markup=False)
        makes_no_sense = error.status is not None and error.problem.get("code") in MISUSE
        raise typer.Exit(UsageError.exit_status if makes_no_sense else error.exit_status) from None
