"""`tilewright watch`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from tilewright import job_kinds
from tilewright.cli import options as given
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, console, failures, print_json
from tilewright.cli.progress import job_bar


def watch(
    job: Annotated[str, typer.Argument(help="The id of a job, benchmark or inference.")],
    timeout: given.Timeout = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Follow a job to its end, and show what it made. With `--json`: a line for each event, then the job."""
    with failures(as_json), connect(url, key, profile) as client:
        with job_bar(quiet=as_json) as show:
            for event in client.events(job, within_s=timeout):
                if as_json:
                    print_json({"seq": event.seq, "kind": event.kind, **event.data})
                show(event)
        ended = client.job(job)
        if as_json:
            print_json(ended.said)
        ended.require_success()
        if not as_json:
            kind = job_kinds.find(ended.kind)
            if kind and kind.name != "compile":
                found = client.result(ended, kind.result) if kind.result else client.report(ended)["report"]
                import_module(kind.cli).show(found)
            else:
                console().print(f"done: tilewright download {ended.id}", markup=False)
                if ended.artifact_id:
                    print(ended.artifact_id)
