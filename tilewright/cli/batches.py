"""`tilewright batches` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

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
    table,
    time_of,
)

batches = typer.Typer(help="Compilations of one request for several targets or options.", invoke_without_command=True)

BatchId = Annotated[str, typer.Argument(help="The id of a batch, as `tilewright batches` lists it.")]


@batches.callback()
def list_batches(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List batches, newest first. With `--json`: `{"batches": [...]}`."""
    if context.invoked_subcommand:
        return
    with failures(as_json), connect(url, key, profile) as client:
        found = list(client.batches(limit=limit))
    if as_json:
        print_json({"batches": [one.said for one in found]})
        return
    shown = table(id_column("batch"), "created", "jobs", "model")
    for one in found:
        states = " ".join(f"{count} {state}" for state, count in one.states.items())
        shown.add_row(one.id, time_of(one.said.get("created_at")), states, one.model[:12])
    results().print(shown)


@batches.command()
def show(batch: BatchId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Show its compilations beside each other. With `--json`: the comparison."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.compare(client.batch(batch)), as_json)


@batches.command()
def cancel(batch: BatchId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Cancel all of it that has not ended. With `--json`: the batch."""
    with failures(as_json), connect(url, key, profile) as client:
        said = client.cancel_batch(batch)
        states = ", ".join(f"{count} {state}" for state, count in said.states.items())
        print_json(said.said) if as_json else print(f"{said.id}: {states}")


@batches.command()
def retry(batch: BatchId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Compile again what of it failed or was cancelled. With `--json`: the batch."""
    with failures(as_json), connect(url, key, profile) as client:
        said = client.retry_batch(batch)
        states = ", ".join(f"{count} {state}" for state, count in said.states.items())
        print_json(said.said) if as_json else print(f"{said.id}: {states}")


def compare(
    job: Annotated[list[str], typer.Argument(help="Ids of compilations.")],
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Show compilations beside each other: options that differ, what came of them. With `--json`: the same."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.compare(job), as_json)


def _print(comparison: Mapping[str, Any], as_json: bool) -> None:
    print_json(comparison) if as_json else results().print(_table(comparison))


def _table(comparison: Mapping[str, Any]) -> Table:
    numbers = ("latency", "benchmark", "MiB", "kernels", "largest error")
    shown = table(id_column("job"), "state", "options", *map(number_column, numbers), "why it failed")
    for one in comparison["jobs"]:
        figures, timed = one["figures"], one["benchmarks"]
        shown.add_row(
            one["job"] + (" *" if one["job"] == comparison["fastest"] else ""),
            one["state"],
            " ".join(f"{name}={value}" for name, value in one["options"].items()),
            f"{1e3 * figures['latency_s']:.3f} ms" if "latency_s" in figures else "",
            f"{1e3 * timed[0]['median_s']:.3f} ms" if timed else "",
            f"{figures['artifact_bytes'] / 2**20:.1f}" if "artifact_bytes" in figures else "",
            f"{figures['kernels']:.0f}" if "kernels" in figures else "",
            f"{figures['largest_error']:.1e}" if "largest_error" in figures else "",
            (one["problem"] or {}).get("message", "").partition("\n")[0],
        )
    return shown
