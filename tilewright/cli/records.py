"""`tilewright records`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    console,
    failures,
    id_column,
    number_column,
    print_json,
    results,
    seconds,
    table,
    time_of,
)
from tilewright.cli.progress import transfer_bar
from tilewright.errors import UsageError

if TYPE_CHECKING:
    from tilewright.client import Client
    from tilewright.wire import TuningRecord

records = typer.Typer(
    help="Look at tuning records, write them to files, carry them elsewhere.", invoke_without_command=True
)


@records.callback()
def list_records(
    context: typer.Context,
    kind: Annotated[str, typer.Option("--kind", help="Such as kernel.")] = "",
    operator: Annotated[
        str, typer.Option("--operator", help="Contained, such as Conv, or a whole kernel's, such as Conv+Relu.")
    ] = "",
    workload: Annotated[str, typer.Option("--workload", help="A workload's key.")] = "",
    target: Annotated[str, typer.Option("--target", help="Such as cpu:x86-64-v4.")] = "",
    device: Annotated[str, typer.Option("--device", help="Fingerprint of the machine that measured.")] = "",
    job: Annotated[str, typer.Option("--job", help="Measured by this job.")] = "",
    model: Annotated[str, typer.Option("--model", help="Digest of the model compiled.")] = "",
    since: Annotated[str, typer.Option("--since", help="Not before this time, RFC 3339.")] = "",
    until: Annotated[str, typer.Option("--until", help="Before this time, RFC 3339.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    csv: Annotated[bool, typer.Option("--csv", help="All that fit, as CSV.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="All that fit, as Parquet.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default for CSV: printed.")] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List measurements, newest first.

    With `--json`: `{"records": [...]}`; into a file all that fit, whatever --limit.
    """
    if context.invoked_subcommand:
        return
    given = {"kind": kind, "operator": operator, "workload": workload, "target": target, "device": device}
    given |= {"job": job, "model": model, "since": since, "until": until}
    where = {name: value for name, value in given.items() if value}
    with failures(as_json):
        if csv and parquet:
            raise UsageError("--csv and --parquet exclude each other", fix="give one of them")
        if parquet and not output:
            raise UsageError("Parquet is not printed", fix="name a file with --output")
        with connect(url, key, profile) as client:
            if csv or parquet or output:
                _to_file(client, output, "parquet" if parquet else "csv" if csv else _suffix(output), where, as_json)
                return
            found = list(client.tuning_records(limit=limit, **where))
        print_json({"records": [one.said for one in found]}) if as_json else _show(found)


@records.command()
def show(
    record: Annotated[str, typer.Argument(help="The id of a record.")],
    source: Annotated[bool, typer.Option("--source", help="Also show the C source that was measured.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Show one record. With `--json`: the record, and with `--source` its `source`."""
    with failures(as_json), connect(url, key, profile) as client:
        found = client.tuning_record(record)
        text = client.record_source(record) if source else ""
        if as_json:
            print_json({**found.said, **({"source": text} if source else {})})
        elif source:
            print(text)
        else:
            _show_one(found)


@records.command("export")
def export_records(
    output: Annotated[Path, typer.Argument(help="The file to write.")],
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Write all records, as `tilewright records import` reads them (admin). With `--json`: `file` and `bytes`."""
    with failures(as_json), connect(url, key, profile) as client:
        with transfer_bar("export", quiet=as_json) as progress:
            path = client.export_records(output, progress)
        _written(path, as_json)


@records.command("import")
def import_records(
    source: Annotated[Path, typer.Argument(help="A file of `tilewright records export`.")],
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Add the records of a file (admin). With `--json`: what the server made of them."""
    with failures(as_json), connect(url, key, profile) as client:
        with transfer_bar("import", quiet=as_json) as progress:
            said = client.import_records(source, progress)
        if as_json:
            print_json(said)
        else:
            _imported(said)


def _to_file(client: Client, output: Path | None, format: str, where: dict[str, str], as_json: bool) -> None:
    """Into the file, or without one to standard output. Raises `UsageError` when CSV would be printed among JSON."""
    if output:
        _written(client.records_to(output, format, **where), as_json)
        return
    if as_json:
        raise UsageError("CSV is not printed where JSON is asked for", fix="name a file with --output")
    with tempfile.TemporaryDirectory() as folder:
        path = client.records_to(Path(folder) / "records", format, **where)
        with path.open(encoding="utf-8", newline="") as file:
            shutil.copyfileobj(file, sys.stdout)


def _show_one(found: TuningRecord) -> None:
    """All of a record but its links; the workload's text, if the server has it, at the end."""
    times = ("seconds", "p10", "p90")
    for name, value in found.said.items():
        if name not in ("links", "workload_text"):
            shown = seconds(value) if name in times else json.dumps(value) if isinstance(value, dict) else value
            print(f"{name:12} {'' if shown is None else shown}".rstrip())
    if text := found.said.get("workload_text"):
        print(f"\n{text}")


def _imported(said: Mapping[str, Any]) -> None:
    """What became of the lines of an import."""
    for name in ("records", "workloads"):
        counts = said.get(name) or {}
        print(f"{name}: " + ", ".join(f"{value} {what.replace('_', ' ')}" for what, value in counts.items()))
    for refusal in said.get("refusals") or ():
        console().print(f"  - line {refusal.get('line')}: {refusal.get('reason')}", markup=False)


def _suffix(output: Path | None) -> str:
    """The format that a file's name asks for, JSON if none."""
    suffix = output.suffix.lower().removeprefix(".") if output else ""
    return suffix if suffix in ("csv", "parquet") else "json"


def _written(path: Path, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(path), "bytes": path.stat().st_size})
    else:
        print(path)


def _show(found: list[TuningRecord]) -> None:
    numbers = map(number_column, ("median", "p10", "p90", "threads"))
    shown = table(id_column("record"), "operator", "target", *numbers, "variant", "measured")
    for one in found:
        figures = (seconds(one.seconds), seconds(one.p10), seconds(one.p90), str(one.threads))
        algorithm = str(one.variant.get("algorithm", ""))
        shown.add_row(one.id, one.operator, one.target, *figures, algorithm, time_of(one.said.get("created_at")))
    results().print(shown)
