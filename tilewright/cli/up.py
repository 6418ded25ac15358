"""`tilewright up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import Json, console, failures, print_json
from tilewright.discover import data_dir, find_server
from tilewright.errors import ClientError
from tilewright.up import run
from tilewright.up.page import show
from tilewright.up.run import NotReady, Ready

DEFAULT_PORT = 8750
BROKERS = ("No broker: the database tells workers of jobs", f"{run.BROKER} names the broker that tells workers of jobs")


def up(
    data: Annotated[
        Path | None, typer.Option("--data", help="Data folder; default: below the XDG data folder.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="TCP port; 0: any free one.")] = DEFAULT_PORT,
    ready_file: Annotated[
        Path | None, typer.Option("--ready-file", help="Write url and key_file there as JSON once ready.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser once ready.")] = False,
    as_json: Json = False,
) -> None:
    """Run the whole service on this machine until Ctrl-C: API and workers; no data leaves it."""

    def announce(ready: Ready) -> None:
        if as_json:
            print_json(ready.to_json())
        else:
            print(_welcome(ready), flush=True)
        if open_page and not show(ready.page):
            console().print("No browser was found: open the link yourself.", markup=False)

    with failures(as_json):
        try:
            run.up(data or data_dir(), port, ready_file, announce, lambda line: console().print(line, markup=False))
        except OSError as error:
            fix = "make room or give rights there, or name another folder with --data"
            raise NotReady(f"the service cannot run: {error}", fix=fix) from error


def _welcome(ready: Ready) -> str:
    try:
        found = find_server().url == ready.url
    except ClientError:
        found = False
    where = "" if found else f' --url {ready.url} --key "$(cat {ready.key_file})"'
    return (
        f"Tilewright is ready at {ready.url} (API documentation: {ready.url}/docs)\n"
        f"Page, signed in (the link works once, for a day): {ready.page}\n"
        f"API key: in {ready.key_file}\n\n"
        f"  tilewright compile model.onnx{where}\n"
        f'  curl -H "Authorization: Bearer $(cat {ready.key_file})" -F model=@model.onnx {ready.url}/compile\n\n'
        f"{BROKERS[run.has_broker()]}. Data and logs: {ready.data}. Ctrl-C stops everything."
    )
