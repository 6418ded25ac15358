"""`tilewright recommend`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.output import Json, Key, ProfileName, Url, artifact_id, connect, console, failures, print_json
from tilewright.cli.progress import job_bar
from tilewright.errors import UsageError
from tilewright.recommend import largest_error
from tilewright.recommend import recommend as chosen


def recommend(
    artifacts: Annotated[list[str], typer.Argument(help="Ids of two to eight artifacts, or of the jobs.")],
    latency_ms: Annotated[
        float | None, typer.Option("--latency-ms", min=0.0, help="What 99 of 100 runs must stay below.")
    ] = None,
    error: Annotated[
        float | None, typer.Option("--max-error", min=0.0, help="The largest relative error that is accepted.")
    ] = None,
    length: Annotated[float | None, typer.Option("--seconds", help="Timed for each artifact; default: 3.")] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Time artifacts on the server's device and say which to take, and why; exit status 1 if none reaches the aim.

    With `--json`: `recommended` (null: none), `nearest`, `because`, and `evidence` with the benchmark's id.
    """
    with failures(as_json), connect(url, key, profile) as client:
        wanted = [artifact_id(client, one) for one in artifacts]
        if len({*wanted}) < 2:
            raise UsageError("one artifact is no choice", fix="name two or more, compiled with other options")
        queued = client.benchmark(wanted, {} if length is None else {"seconds": length})
        with job_bar(quiet=as_json) as show_event:
            ended = client.wait(queued, show_event).require_success()
        errors = {one: largest_error(client.receipt(one)) for one in wanted}
        choice = chosen(ended, errors, None if latency_ms is None else latency_ms / 1e3, error)
        if as_json:
            print_json(choice.to_json())
        else:
            if choice.artifact:
                print(choice.artifact)
            out = console()
            if not choice.artifact:
                out.print(f"none; the nearest is {choice.nearest}", style="bold", markup=False)
            for reason in choice.because:
                out.print(f"  {reason}", markup=False)
            out.print(f"  measured by benchmark {ended.id}", markup=False)
        if choice.artifact is None:
            raise typer.Exit(1)
