"""`tilewright jobs`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from tilewright.cli.output import Json, Key, Url, connect, failures, print_json
from tilewright.wire import Job


def jobs(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only these states, such as RUNNING.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    cancel: Annotated[str, typer.Option("--cancel", help="Cancel the job with this id instead.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """List your jobs, newest first, or cancel one. With `--json`: `{"jobs": [...]}`, or the cancelled job."""
    with failures(as_json), connect(url, key) as client:
        if cancel:
            job = client.cancel(cancel)
            print_json(job.said) if as_json else print(f"{job.id} {job.state}")
            return
        found = list(client.jobs(states=[name.upper() for name in state or ()], limit=limit))
        if as_json:
            print_json({"jobs": [job.said for job in found]})
        else:
            Console().print(_table(found))


def _table(found: list[Job]) -> Table:
    id = Column("job", min_width=36, no_wrap=True)  # whole: it is what other commands are given
    table = Table(id, "state", "phase", "done", "created", "why it failed", box=None)
    for job in found:
        problem = (job.problem or {}).get("message", "")
        created = str(job.said.get("created_at", ""))[:19]
        table.add_row(job.id, job.state, job.phase or "", f"{job.fraction:.0%}", created, problem.partition("\n")[0])
    return table
