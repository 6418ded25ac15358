"""`tilewright targets`, `operators` and `workers`: what a server can do."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    console,
    failures,
    number_column,
    print_json,
    results,
    table,
    time_of,
)


def targets(url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """List what can be compiled for, and who serves it. With `--json`: `{"targets": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        found = client.targets()
    if as_json:
        print_json({"targets": [target.said for target in found]})
        return
    shown = table("target", "what it is", "measured by", "built by", number_column("queued"))
    for target in found:
        said = target.said
        by = [", ".join(said.get(name) or ()) or "-" for name in ("measured_by", "built_by")]
        shown.add_row(target.name, str(said.get("description", "")), *by, str(said.get("queued", "")))
    results().print(shown)
    if not found:
        console().print("No worker has told yet what it can do: see `tilewright workers`.")


def operators(
    query: Annotated[str, typer.Argument(help="Only names that hold this.")] = "",
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List the operators of ONNX that can be compiled. With `--json`: `{"operators": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        found = [one for one in client.operators() if query.lower() in one.name.lower()]
    if as_json:
        print_json({"operators": [one.said for one in found]})
        return
    shown = table("operator", "domain", "opsets", "what is not taken")
    for one in found:
        opsets = one.said.get("opsets") or ()
        span = f"{opsets[0]} to {opsets[-1]}" if opsets else ""
        shown.add_row(one.name, str(one.said.get("domain", "")), span, str(one.said.get("limits", "")))
    results().print(shown)
    if not found:
        console().print(f"No operator holds {query!r}." if query else "No worker has told yet what it can do.")


def workers(url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """List the workers that are alive. With `--json`: `{"workers": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        found = client.workers()
    if as_json:
        print_json({"workers": [worker.said for worker in found]})
        return
    shown = table("worker", "queues", "state", "compiler", "since")
    for worker in found:
        state = "busy" if worker.busy else "idle"
        since = time_of(worker.said.get("started_at"))
        shown.add_row(worker.name, ", ".join(worker.queues), state, worker.compiler, since)
    results().print(shown)
    if not found:
        console().print("No worker is alive: start one, or `tilewright up`.")
