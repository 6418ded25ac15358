"""`tilewright compress`."""

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
    table,
)
from tilewright.cli.progress import sent


def compress(
    model: Annotated[str, typer.Argument(help="An ONNX file, a zip or folder, an address, or a digest.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the model's name with .compressed.onnx.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option("--samples", help="An .npz of real inputs to calibrate on, one or several; repeatable."),
    ] = None,
    largest_error: Annotated[
        float | None,
        typer.Option("--largest-error", help="How far outputs may be from the dense ones (relative L2); as fast then."),
    ] = None,
    latency_ms: Annotated[
        float | None, typer.Option("--latency-ms", help="Most milliseconds of an inference; the error is minimised.")
    ] = None,
    sparsity: Annotated[
        float | None,
        typer.Option("--sparsity", help="Share of zeros, or of what the form saves, 0 to 1; the error is minimised."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--form", help="unstructured (default), 1x4, 1x16, 4x16, 2:4, combined, codebook or low_rank."),
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="obs (default), wanda or magnitude.")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="In which layers are timed: fp32 (default), bf16, int8, ...")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="The name of a node that stays dense; repeatable.")
    ] = None,
    ends: Annotated[bool, typer.Option("--ends", help="Take the first and last layers too.")] = False,
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
    """Give a model's weights zeros, or another form that saves, and download it as ONNX.

    With `--json`: the report, and `model`, the file.
    """
    with failures(as_json, output):
        wanted = given.other_options(option)
        wanted |= given.given_of(largest_error=largest_error, latency_ms=latency_ms, sparsity=sparsity)
        wanted |= given.given_of(form=form, method=method, precision=precision, keep=keep, ends=ends or None)
        if dim:
            wanted["dims"] = given.sizes(dim)
        target = output or Path(given.file_name(model)).with_suffix(".compressed.onnx")
        given.demand_files(model, *(data or ()), *(samples or ()))
        called, model = given.name_of(name, model), given.fetched(model)
        limits = {"max_queue_s": max_queue, "max_run_s": max_run}
        said = given.given_of(name=called, note=note, tags=tag, compiler=compiler, **limits)
        with connect(url, key, profile) as client:
            source = sent(client, model, data, quiet=as_json)
            queued = client.compress(source, wanted, samples=samples or (), priority=priority, **said)
            made.fetch(client, queued, target, show, as_json=as_json, timeout=timeout)


def show(report: Mapping[str, Any]) -> None:
    """What became of each layer, and the trade-off, for people."""
    out, saved = results(), report.get("saved") or "zeros"
    layers = table(
        "layer",
        "operator",
        "weights",
        number_column(saved),
        number_column("us"),
        number_column("dense us"),
        number_column("error alone"),
        "",
    )
    for row in report.get("layers") or ():
        layers.add_row(
            str(row.get("node")),
            row.get("operator"),
            "x".join(map(str, row.get("weights") or ())),
            f"{row.get('sparsity') or 0:.0%}",
            _number(row.get("us")),
            _number(row.get("dense_us")),
            _number(row.get("error")),
            row.get("reason") or ("" if row.get("rank") is None else f"rank {row['rank']}"),
        )
    out.print(layers)
    curve = table(
        number_column(saved), number_column("predicted ms"), number_column("expected"), number_column("error")
    )
    for one in report.get("curve") or ():
        curve.add_row(
            f"{one.get('sparsity') or 0:.1%}",
            _number(one.get("predicted_ms")),
            _number(one.get("expected_error")),
            _number(one.get("error")),
        )
    out.print(curve)
    for notice in report.get("notices") or ():
        out.print(f"note: {notice}", markup=False)
    for one in report.get("outputs") or ():
        agree = "" if one.get("agree") is None else f", {one['agree']:.1%} of decisions agree"
        out.print(f"{one.get('name')}: error {_number(one.get('error'))} of the dense output{agree}", markup=False)
    before, after = _number(report.get("dense_ms")), _number(report.get("predicted_ms"))
    reached = f"{report.get('sparsity') or 0:.1%} {saved}; {after} ms, of {before} predicted"
    out.print(f"{reached}; {report.get('samples')} samples, {report.get('held_out')} held out", markup=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
