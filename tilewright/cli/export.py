"""`tilewright export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import Json, failures, print_json
from tilewright.exports import oci_layout, triton_repository


class Form(StrEnum):
    """What an artifact is written as."""

    TRITON = "triton"
    OCI = "oci"


def export(
    artifact: Annotated[Path, typer.Argument(help="A .tw file.")],
    folder: Annotated[
        Path, typer.Argument(help="For triton the model repository, for oci a folder that is not there.")
    ],
    form: Annotated[Form, typer.Option("--as", help="A model of Triton's Python backend, or an OCI image layout.")],
    name: Annotated[
        str, typer.Option("--name", help="The model's name, or the image's tag. Default: the file's.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Write an artifact for a model server or a registry. With `--json`: `folder`, and of an image its `digest`."""
    with failures(as_json):
        if form is Form.TRITON:
            said = {"folder": str(triton_repository(artifact, folder, name))}
        else:
            said = {"digest": oci_layout(artifact, folder, name), "folder": str(folder)}
        if as_json:
            print_json(said)
        else:
            print(*reversed(said.values()), sep="  ")
