"""`tilewright export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import Json, failures, print_json
from tilewright.exports import browser_folder, oci_layout, triton_repository


class Form(StrEnum):
    """What an artifact is written as."""

    TRITON = "triton"
    OCI = "oci"
    BROWSER = "browser"


def export(
    artifact: Annotated[Path, typer.Argument(help="A .tw file.")],
    folder: Annotated[
        Path,
        typer.Argument(help="For triton the model repository, for oci a folder that is not there, for browser any."),
    ],
    form: Annotated[
        Form,
        typer.Option("--as", help="A model of Triton's Python backend, an OCI image layout, or files for web pages."),
    ],
    name: Annotated[
        str, typer.Option("--name", help="The model's name, or the image's tag. Default: the file's.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Write an artifact for a model server, a registry or web pages.

    With `--json`: `folder`, and of an image its `digest`.
    """
    with failures(as_json):
        if form is Form.TRITON:
            said = {"folder": str(triton_repository(artifact, folder, name))}
        elif form is Form.BROWSER:
            said = {"folder": str(browser_folder(artifact, folder))}
        else:
            said = {"digest": oci_layout(artifact, folder, name), "folder": str(folder)}
        if as_json:
            print_json(said)
        else:
            print(*reversed(said.values()), sep="  ")
