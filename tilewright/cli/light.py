"""`tilewright strip` and `refit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import Json, failures, print_json
from tilewright.light import refit as refitted
from tilewright.light import strip as stripped


def strip(
    artifact: Annotated[Path, typer.Argument(help="A .tw file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the artifact's name with .light.tw.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="Default: the artifact's name with .weights.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Leave the weights out of an artifact, into a file of their own. With `--json`: `light`, `weights`, sizes."""
    with failures(as_json):
        light, beside = output or artifact.with_suffix(".light.tw"), weights or artifact.with_suffix(".weights")
        stripped(artifact, light, beside)
        if as_json:
            sizes = {"light_bytes": light.stat().st_size, "weight_bytes": beside.stat().st_size}
            print_json({"light": str(light), "weights": str(beside), **sizes})
        else:
            print(f"{light}  {beside}")


def refit(
    light: Annotated[Path, typer.Argument(help="What `strip` wrote.")],
    weights: Annotated[Path, typer.Argument(help="The weights that it left out.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The artifact to write.")],
    as_json: Json = False,
) -> None:
    """Put the weights back: the same artifact, byte for byte. With `--json`: `artifact` and its `sha256`."""
    with failures(as_json, output):
        digest = refitted(light, weights, output)
        if as_json:
            print_json({"artifact": str(output), "sha256": digest})
        else:
            print(f"{output}  {digest}")
