"""`tilewright quantize`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import made
from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    failures,
    number_column,
    results,
    size,
    table,
)
from tilewright.cli.progress import sent


def quantize(
    model: Annotated[str, typer.Argument(help="An ONNX file, a zip or folder, an address, or a digest.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the model's name with .int8.onnx.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option("--samples", help="An .npz of real inputs to calibrate on, one or several; repeatable."),
    ] = None,
    ranges: Annotated[
        str | None, typer.Option("--ranges", help="best (default), mse, minmax, percentile or entropy.")
    ] = None,
    snr_db: Annotated[
        float | None,
        typer.Option("--snr-db", help="Signal to noise that each output must have; costly layers then stay in fp32."),
    ] = None,
    equalise: Annotated[
        bool, typer.Option("--equalise", help="Scale channels so that weights on both sides have like ranges.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="The name of a node that stays in fp32; repeatable.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension, where no samples say it.")
    ] = None,
    option: given.Others = None,
    data: given.Data = None,
    priority: given.Priority = 0,
    timeout: given.Timeout = None,
    name: given.Name = None,
    note: given.Note = None,
    tag: given.Tags = None,
    max_queue: given.MaxQueue = None,
    max_run: given.MaxRun = None,
    compiler: given.Compiler = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Quantise a model to 8-bit integers and download it as ONNX. With `--json`: the report, and `model`, the file."""
    with failures(as_json, output):
        wanted = given.other_options(option)
        wanted |= given.given_of(ranges=ranges, snr_db=snr_db, equalise=equalise or None, keep=keep)
        if dim:
            wanted["dims"] = given.sizes(dim)
        target = output or Path(given.file_name(model)).with_suffix(".int8.onnx")
        given.demand_files(model, *(data or ()), *(samples or ()))
        called, model = given.name_of(name, model), given.fetched(model)
        limits = {"max_queue_s": max_queue, "max_run_s": max_run}
        said = given.given_of(name=called, note=note, tags=tag, compiler=compiler, **limits)
        with connect(url, key, profile) as client:
            source = sent(client, model, data, quiet=as_json)
            queued = client.quantize(source, wanted, samples=samples or (), priority=priority, **said)
            made.fetch(client, queued, target, show, as_json=as_json, timeout=timeout)


def show(report: Mapping[str, Any]) -> None:
    """What became of each layer, for people."""
    out = results()
    layers = table(
        "layer", "operator", "weights", "precision", number_column("weights dB"), number_column("alone dB"), ""
    )
    for row in report.get("layers") or ():
        layers.add_row(
            str(row.get("node")),
            row.get("operator"),
            "x".join(map(str, row.get("weights") or ())),
            row.get("precision"),
            _decibels(row.get("weights_db")),
            _decibels(row.get("outputs_db")),
            row.get("reason") or "",
        )
    out.print(layers)
    for notice in report.get("notices") or ():
        out.print(f"note: {notice}", markup=False)
    for one in report.get("outputs") or ():
        db = one.get("snr_db")
        out.print(f"{one.get('name')}: {'no difference' if db is None else f'{db:.1f} dB'} against fp32", markup=False)
    bytes_, before = report.get("bytes"), report.get("model_bytes")
    out.print(
        f"{size(bytes_)}, of {size(before)}; {report.get('samples')} samples, {report.get('held_out') or 0} held out",
        markup=False,
    )


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
