"""`tilewright queue`: requests that wait on this machine for a server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    console,
    failures,
    id_column,
    print_json,
    results,
    table,
)
from tilewright.errors import RequestRefused
from tilewright.offline import Queue, Request
from tilewright.wire import Job

queue = typer.Typer(help="Keep compilations for a time with a server.", invoke_without_command=True)


@queue.callback()
def list_queue(context: typer.Context, as_json: Json = False) -> None:
    """List what waits on this machine, oldest first. With `--json`: `{"requests": [...]}`."""
    if context.invoked_subcommand:
        return
    with failures(as_json):
        found = list(Queue())
        if as_json:
            print_json({"requests": [asdict(one) for one in found]})
            return
        shown = table(id_column("request"), "model", "refused")
        for one in found:
            shown.add_row(one.id, one.model, one.refused)
        results().print(shown)


@queue.command()
def add(
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a zip or folder with its data.")],
    target: Annotated[str | None, typer.Option("--target", help="Target to compile for.")] = None,
    threads: given.Threads = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    budget: given.Budget = None,
    tolerance: given.Tolerance = None,
    precision: given.Precision = None,
    option: given.Others = None,
    data: given.Data = None,
    name: given.Name = None,
    note: given.Note = None,
    tag: given.Tags = None,
    as_json: Json = False,
) -> None:
    """Keep a compilation here, without a server. With `--json`: the request."""
    with failures(as_json):
        options = given.build_options(threads, dim, shape, budget, tolerance, precision, option)
        options |= given.given_of(target=target)
        made = Queue().add(model, options, given.given_of(name=name, note=note, tags=tag), data or ())
        print_json(asdict(made)) if as_json else print(made.id)


@queue.command()
def send(url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Send all that waits, oldest first; what the server refuses stays, with the reason.

    With `--json`: `jobs`, and `refused`, which is exit status 4.
    """
    said: list[dict[str, Any]] = []

    def sent(request: Request, job: Job) -> None:
        said.append({"request": request.id, **job.said})
        if not as_json:
            print(job.id)

    with failures(as_json), connect(url, key, profile) as client:
        refused = Queue().send(client, sent)
        if as_json:
            print_json({"jobs": said, "refused": [asdict(one) for one in refused]})
        for one in refused if not as_json else ():
            console().print(f"{one.id} {one.model}: {one.refused}", style="bold red", markup=False)
        if refused:
            raise typer.Exit(RequestRefused.exit_status)


@queue.command()
def drop(
    request: Annotated[str, typer.Argument(help="The id of a request, as `tilewright queue` lists it.")],
    as_json: Json = False,
) -> None:
    """Take one off without sending it. With `--json`: the request."""
    with failures(as_json):
        dropped = Queue().drop(request)
        print_json(asdict(dropped)) if as_json else print(dropped.id)
