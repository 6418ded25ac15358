"""`tilewright legalise`: runs on this machine, in a process of its own, where the compiler is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.here import run_here
from tilewright.cli.output import Json, failures


def legalise(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    accelerator: Annotated[str, typer.Option("--for", help="An accelerator's profile: a name, or a .toml file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the model's name with .legal.onnx.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option("--samples", help="An .npz of real inputs, which ranges and errors are taken from; repeatable."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Error that an output may have, relative to its largest value.")
    ] = 0.05,
    judge: Annotated[
        str, typer.Option("--judge", help="Which error must be within it: sampled, or proved.")
    ] = "sampled",
    terms: Annotated[int, typer.Option("--terms", help="Most terms of a sum of ReLUs.")] = 32,
    method: Annotated[
        str, typer.Option("--method", help="auto, exact (no approximations) or sums (of ReLUs).")
    ] = "auto",
    whole: Annotated[bool, typer.Option("--whole", help="Refuse a model with a node that stays on the CPU.")] = False,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    as_json: Json = False,
) -> None:
    """Bring a model to an accelerator that has few operators, here and without a server; ONNX out."""
    with failures(as_json, output):
        words = [str(model), "--for", accelerator, "--tolerance", str(tolerance), "--judge", judge]
        words += ["--terms", str(terms), "--method", method]
        words += [word for path in samples or () for word in ("--samples", str(path))]
        words += [f"--dim={one}" for one in dim or ()]
        words += ["--output", str(output)] if output else []
        words += ["--whole"] if whole else []
        run_here("compiler.legalise", words, as_json=as_json)
