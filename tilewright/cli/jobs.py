"""`tilewright jobs`, `finish`, `clone`, `cancel`, `purge` and `log`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    failures,
    id_column,
    number_column,
    print_json,
    results,
    seconds,
    table,
    time_of,
)

if TYPE_CHECKING:
    from tilewright.wire import Job

JobId = Annotated[str, typer.Argument(help="The id of a job, benchmark or inference.")]
Compilation = Annotated[str, typer.Argument(help="The id of a compilation.")]


def jobs(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only these states, such as RUNNING.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="compile, benchmark or inference.")] = None,
    tag: given.WithTags = None,
    query: given.Query = "",
    model: Annotated[str, typer.Option("--model", help="Only compilations of the model with this digest.")] = "",
    since: Annotated[str, typer.Option("--since", help="Made then or later, such as 2026-11-01T00:00:00Z.")] = "",
    until: Annotated[str, typer.Option("--until", help="Made before.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List your jobs, newest first. With `--json`: `{"jobs": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        states = [name.upper() for name in state or ()]
        kinds = [name.lower() for name in kind or ()]
        where = {"query": query, "model": model, "since": since, "until": until}
        wanted = {name: text for name, text in where.items() if text}
        found = list(client.jobs(states=states, kinds=kinds, tags=tag or (), limit=limit, **wanted))
        print_json({"jobs": [job.said for job in found]}) if as_json else results().print(_table(found))


def label(
    job: JobId,
    name: given.Name = None,
    note: given.Note = None,
    tag: given.Tags = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Give a job another name, note or tags; what is left out stays, "" takes it away. With `--json`: the job."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.label(job, **given.labels(name, note, tag)), as_json)


def cancel(job: JobId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Cancel a job; one that runs is stopped within seconds. With `--json`: the job."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.cancel(job), as_json)


def purge(job: JobId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Delete a job with all that it made and measured; its model stays. With `--json`: what the server says of it."""
    with failures(as_json), connect(url, key, profile) as client:
        said = client.purge(job)
        if as_json:
            print_json(said)
        elif said.get("stopping"):
            print("the job must stop first: repeat this in a few seconds")
        else:
            gone = ", ".join(f"{said.get(what, 0)} {what}" for what in ("artifacts", "tuning_records", "workloads"))
            kept = (
                "; its artifact stays with " + ", ".join(said["artifact_kept_by"]) if said["artifact_kept_by"] else ""
            )
            print(f"deleted: the job, {gone}{kept}".replace("_", " "))


def finish(job: Compilation, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """End the measuring of a compilation and keep the best found so far. With `--json`: the job."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.finish(job), as_json)


def clone(
    job: Compilation,
    target: given.Target = "",
    threads: given.Threads = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    budget: given.Budget = None,
    tolerance: given.Tolerance = None,
    precision: given.Precision = None,
    devices: given.Devices = None,
    objective: given.Objective = None,
    carry: given.Carry = None,
    option: given.Others = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile even if the cache has it.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Compile a job's model again; options given replace the job's. With `--json`: the new job."""
    with failures(as_json):
        wanted = given.build_options(
            threads, dim, shape, budget, tolerance, precision, option, devices, objective, carry
        )
        with connect(url, key, profile) as client:
            _print(client.clone(job, {**wanted, **({"target": target} if target else {})}, fresh=fresh), as_json)


def log(job: JobId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Show how a job went: attempts, events, what was printed. With `--json`: the same as an object."""
    with failures(as_json), connect(url, key, profile) as client:
        print_json(client.history(job)) if as_json else print(client.log(job), end="")


def _print(job: Job, as_json: bool) -> None:
    print_json(job.said) if as_json else print(f"{job.id} {job.state}")


def _table(found: list[Job]) -> Table:
    columns = ("kind", "state", "done", "created", "name", number_column("latency"), number_column("speed-up"))
    shown = table(id_column("job"), *columns, id_column("artifact"), "tags", "why it failed")
    for job in found:
        problem = (job.problem or {}).get("message", "").partition("\n")[0]
        created = time_of(job.said.get("created_at"))
        done = "" if job.ended else f"{job.phase or ''} {job.fraction:.0%}".strip()
        figures = (seconds(job.latency_s), _speed_up(job))
        made = (job.artifact_id or "") if job.state == "SUCCEEDED" else ""
        row = (job.id, job.kind, job.state, done, created, escape(job.name), *figures, made, " ".join(job.tags))
        shown.add_row(*row, escape(problem))
    return shown


def _speed_up(job: Job) -> str:
    """How many times as fast as the fastest of the runtimes that the artifact was raced with: `1.54x onnxruntime`."""
    raced = [one for one in job.compared if one.get("ratio")]
    least = min(raced, key=lambda one: float(one["ratio"]), default=None)
    return f"{least['ratio']:.2f}x {least.get('peer')}" if least else ""
