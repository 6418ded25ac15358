"""`tilewright bench`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    artifact_id,
    connect,
    console,
    failures,
    id_column,
    number_column,
    print_json,
    results,
    seconds,
    table,
)
from tilewright.cli.progress import job_bar

if TYPE_CHECKING:
    from tilewright.benchmark import Benchmark, Comparison


def bench(
    artifacts: Annotated[list[str], typer.Argument(help="Ids of artifacts, or of the jobs that make them.")],
    length: Annotated[float | None, typer.Option("--seconds", help="Timed for each artifact; default: 3.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Default: those of its plan.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of inputs and order.")] = None,
    binding: Annotated[
        int | None, typer.Option("--binding", help="Binding of artifacts that hold several; default: 1.")
    ] = None,
    dims: Annotated[
        list[str] | None, typer.Option("--dim", help="NAME=SIZE of a dimension with a range; default: its opt.")
    ] = None,
    sample: Annotated[
        Path | None, typer.Option("--samples", help="An .npz of inputs to time on; default: numbers that are drawn.")
    ] = None,
    workload: given.Workload = "",
    kernels: Annotated[bool, typer.Option("--kernels", help="Show the time of each kernel.")] = False,
    price: Annotated[
        float | None,
        typer.Option("--price", min=0.0, help="Price of an hour of the device, to show the cost of inferences."),
    ] = None,
    priority: given.Priority = 0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the figures.")] = True,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Time artifacts against each other on the server's device. With `--json`: the benchmark with every sample."""
    asked = {
        "seconds": length,
        "threads": threads,
        "seed": seed,
        "binding": binding,
        "dims": given.sizes(dims) or None,
        "profile": kernels or as_json,
    }
    options = {name: value for name, value in asked.items() if value is not None}
    with failures(as_json), connect(url, key, profile) as client:
        wanted = [artifact_id(client, one) for one in artifacts]
        samples = [sample] if sample else []
        queued = client.benchmark(wanted, options, samples=samples, workload=workload, priority=priority)
        if not wait:
            print_json(queued.said) if as_json else print(queued.id)
            return
        try:
            with job_bar(quiet=as_json) as show_event:
                ended = client.wait(queued, show_event)
        except KeyboardInterrupt:
            console().print(f"The benchmark goes on: tilewright watch {queued.id}, or tilewright cancel {queued.id}")
            raise
        ended.require_success()
        if as_json:
            costs = {one.artifact: one.cost(price) for one in ended.artifacts} if price is not None else None
            print_json(ended.said if costs is None else {**ended.said, "cost_of_a_million": costs})
        else:
            show(ended, kernels, price)


def show(found: Benchmark, kernels: bool = False, price: float | None = None) -> None:
    """The figures, for people; artifacts are called A, B, C, ... in the order asked for.

    price  of an hour of the device, in any currency; None: unknown
    """
    out = results()
    names = {one.artifact: name for one, name in zip(found.artifacts, ascii_uppercase, strict=False)}
    columns = ("median", "p10-p90", "p99", "runs", "lanes", "first load", "warm load", "copy in", "copy out")
    figures = table("", id_column("artifact"), "target", *map(number_column, columns))
    for one in found.artifacts:
        figures.add_row(
            names[one.artifact],
            one.artifact,
            one.target,
            seconds(one.median_s),
            f"{seconds(one.p10_s)} - {seconds(one.p90_s)}",
            seconds(one.p99_s),
            str(one.runs) if one.runs else "estimated",
            str(one.lanes),
            seconds(one.first_load_s),
            seconds(one.warm_load_s),
            seconds(one.copy_in_s),
            seconds(one.copy_out_s),
        )
    out.print(figures)
    if found.sample:
        out.print(f"timed on the sample {found.sample}", markup=False)
    for one in found.artifacts:
        if one.stream:
            out.print(f"\n{names[one.artifact]} with many inferences in flight: {streamed(one.stream)}", markup=False)
            out.print(_devices(one.stream))
    for comparison in found.comparisons:
        out.print(verdict(comparison, names), style="bold", markup=False)
    if price is not None:
        for one in found.artifacts:
            out.print(f"{names[one.artifact]}: a million inferences cost {one.cost(price):.4g}", markup=False)
    for notice in found.notices:
        for artifact, name in names.items():
            notice = notice.replace(artifact, name)
        out.print(f"note: {notice}", markup=False)
    if kernels:
        for one in found.artifacts:
            out.print(f"\nkernels of {names[one.artifact]}, each run one lane at a time:", markup=False)
            out.print(_kernels(one.kernels))


def verdict(found: Comparison, names: dict[str, str]) -> str:
    """`A is faster by 1.23x ± 0.02`, with B: or `cannot tell`, with the interval."""
    a, b = names.get(found.a, found.a), names.get(found.b, found.b)
    if found.faster is None:
        percent = f"{found.confidence:.0%}"
        return f"{a} against {b}: cannot tell ({b} takes {found.low:.3f} to {found.high:.3f} of {a}'s time, {percent})"
    faster, other = (a, b) if found.faster == "a" else (b, a)
    return f"{faster} is {found.verdict.partition(' is ')[2]} than {other}".replace("  ", " ")


def streamed(found: Mapping[str, Any]) -> str:
    """`782 a second, one each 1.28 ms (predicted 1.05 ms); devices are idle for 17 % of the time`.

    Of an accelerator's, where nothing was measured, whose estimate that is.
    """
    beside = found.get("estimated") or f"predicted {seconds(found['predicted_period_s'])}"
    return (
        f"{found['per_second']:.4g} a second, one each {seconds(found['period_s'])} "
        f"({beside}); devices are idle for {found['bubble']:.0%} of the time"
    )


def _devices(found: Mapping[str, Any]) -> Any:
    shown = table("device", "target", number_column("busy"), number_column("kernels"), number_column("of the frames"))
    for at, device in enumerate(found["devices"]):
        own = [part for part in found["parts"] if part["device"] == at]
        kernels = " + ".join(str(part["kernels"]) for part in own) or "0"
        shares = " + ".join(f"{part['share']:.0%}" for part in own) or "0%"
        shown.add_row(_printable(device["name"]), device["target"], f"{device['busy']:.0%}", kernels, shares)
    return shown


def _printable(names: str) -> str:
    """Names of a model, which may hold anything, as text for a terminal."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in names))


def _kernels(found: Any) -> Any:
    shown = table(number_column("call"), "family", number_column("time"), number_column("share"), "tile", "nodes")
    for kernel in found:
        shown.add_row(
            str(kernel.get("call", "")),
            str(kernel.get("family", "")),
            seconds(kernel.get("seconds")),
            f"{kernel.get('share', 0.0):.1%}",
            str(kernel.get("tile") or ""),
            _printable(" ".join(kernel.get("nodes") or ())),
        )
    return shown
