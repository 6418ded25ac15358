"""`tilewright timeline`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import tilewright
from tilewright.arrays import read_npz
from tilewright.carried import carried
from tilewright.cli.output import Json, console, failures, print_json
from tilewright.cli.run import refusals
from tilewright.errors import UsageError
from tilewright.files import whole
from tilewright.loading import read_manifest

REPEATS = 30


def timeline(
    artifact: Annotated[Path, typer.Argument(help="A .tw file for this machine's CPU.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Draw the timeline to this .svg, or write it to this .json for Perfetto.",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs that are measured.")] = REPEATS,
    inputs: Annotated[
        Path | None, typer.Option("--input", help="An .npz with the inputs by name; default: random.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure when each task of an artifact's plan runs here, beside when it was predicted to.

    With `--json`: all of it.
    """
    with failures(as_json, output):
        require_cpu(artifact)
        chart = carried(artifact, "chart")
        with tilewright.load(artifact) as model, refusals(model):
            given = read_npz(inputs) if inputs else model.random_inputs(seed)
            schedule = chart.read(model.plan_json(), "lane", model.trace(given, repeats))
        if output:
            with whole(output) as file:
                if output.suffix == ".json":
                    file.write(json.dumps(chart.trace_events(schedule)).encode())
                else:
                    file.write(chart.schedule_svg(schedule).encode())
        if as_json:
            print_json({"artifact": str(artifact), "repeats": repeats, **chart.told(schedule)})
            return
        for line in chart.summary(schedule):
            print(line)
        if output:
            console().print(f"written: {output}", markup=False)


def require_cpu(artifact: Path) -> None:
    """Raises `UsageError` for an artifact whose tasks have no times."""
    target = str(read_manifest(artifact).get("target"))
    if target.startswith("npu"):
        raise UsageError(
            f"{artifact} is for {target}, which is not here: nothing of it can be measured",
            fix="see the estimated cycles of each operator in its placement.json",
        )
    if target.startswith("cuda"):
        raise UsageError(
            f"{artifact} is for {target}, where launches do not tell when they run",
            fix="see the predicted timeline in its plan.svg, or profile the process with the tools of the GPU's vendor",
        )
