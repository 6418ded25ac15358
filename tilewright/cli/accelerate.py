"""`tilewright accelerate`: runs on this machine, in a process of its own, where the compiler is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.here import run_here
from tilewright.cli.output import Json, failures


def accelerate(
    model: Annotated[Path, typer.Argument(help="An ONNX file, in fp32 or with QuantizeLinear and DequantizeLinear.")],
    target: Annotated[str | None, typer.Option("--target", help="An accelerator, such as npu:ethos-u55-128.")] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", help="Instead of a target: a CPU and an accelerator, cpu,npu:ethos-u65-256."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help="With --devices: latency, throughput, or latency_ms=30 (most throughput within it)."
        ),
    ] = "latency",
    carry: Annotated[
        list[str] | None,
        typer.Option("--carry", help="OUTPUT=INPUT: a state that goes from inference to inference; repeatable."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the model's name with .tw.")] = None,
    samples: Annotated[
        list[Path] | None, typer.Option("--samples", help="An .npz of real inputs to calibrate on; repeatable.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", help="Largest error of approximations, relative to an output's largest value."),
    ] = 0.05,
    ranges: Annotated[
        str | None, typer.Option("--ranges", help="best (default), mse, minmax, percentile or entropy.")
    ] = None,
    equalise: Annotated[
        bool, typer.Option("--equalise", help="Scale channels between layers to like ranges of weights.")
    ] = False,
    snr_db: Annotated[
        float | None, typer.Option("--snr-db", help="Signal to noise that every output must have; default 10.")
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Leave operators that the accelerator lacks to the CPU.")
    ] = False,
    format: Annotated[
        str | None, typer.Option("--format", help="Format of the files for Vela: tflite (default), tosa.")
    ] = None,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    as_json: Json = False,
) -> None:
    """Compile for an accelerator with Arm's Vela, here and without a server; one artifact out."""
    with failures(as_json, output):
        words = [str(model), "--tolerance", str(tolerance), "--objective", objective]
        words += ["--target", target] if target else []
        words += ["--devices", devices] if devices else []
        words += [word for one in carry or () for word in ("--carry", one)]
        words += [word for path in samples or () for word in ("--samples", str(path))]
        words += [f"--dim={one}" for one in dim or ()]
        words += ["--out", str(output)] if output else []
        words += ["--format", format] if format else []
        words += ["--ranges", ranges] if ranges else []
        words += ["--equalise"] if equalise else []
        words += ["--snr-db", str(snr_db)] if snr_db is not None else []
        words += ["--as-is"] if as_is else []
        run_here("compiler.accelerate", words, as_json=as_json)
