"""`tilewright watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.output import Json, Key, Url, connect, console, failures, print_json
from tilewright.cli.progress import job_bar


def watch(
    job: Annotated[str, typer.Argument(help="A job's id.")],
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Follow a job to its end. With `--json`: a line for each event, then the job."""
    with failures(as_json), connect(url, key) as client:
        with job_bar(quiet=as_json) as show:
            for event in client.events(job):
                if as_json:
                    print_json({"seq": event.seq, "kind": event.kind, **event.data})
                show(event)
        ended = client.job(job)
        if as_json:
            print_json(ended.said)
        ended.require_success()
        if not as_json:
            console().print(f"done; its artifact is {ended.artifact_id}", markup=False)
