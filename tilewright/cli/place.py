"""`tilewright place`: runs on this machine, in a process of its own, where the compiler is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.here import run_here
from tilewright.cli.output import Json, failures


def place(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    platform: Annotated[Path, typer.Option("--platform", help="A .toml file that describes devices and links.")],
    objective: Annotated[
        str, typer.Option("--objective", help="latency, throughput, or latency_ms=30: most frames within it.")
    ] = "latency",
    carry: Annotated[
        list[str] | None,
        typer.Option("--carry", help="OUTPUT=INPUT: a state that goes from frame to frame; repeatable."),
    ] = None,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write lanes, transfers and the curve there.")] = None,
    as_json: Json = False,
) -> None:
    """Predict where a model's parts would run on a described platform, and how fast; nothing is run."""
    with failures(as_json):
        words = [str(model), "--platform", str(platform), "--objective", objective]
        words += [word for one in carry or () for word in ("--carry", one)]
        words += [f"--dim={one}" for one in dim or ()]
        words += ["--svg", str(svg)] if svg else []
        run_here("compiler.platforms", words, as_json=as_json)
