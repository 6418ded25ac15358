"""`tilewright download`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import Json, Key, Url, connect, console, failures, print_json
from tilewright.cli.progress import download_bar


def download(
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or of its job with --job.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the artifact's id with .tw.")] = None,
    is_job: Annotated[bool, typer.Option("--job", help="The id given is a job's.")] = False,
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Fetch an artifact: checked by SHA-256; a broken download goes on where it stopped. With `--json`: `artifact`."""
    with failures(as_json), connect(url, key) as client:
        name = client.job(artifact).require_success().artifact_id if is_job else artifact
        with download_bar(quiet=as_json) as progress:
            path = client.download(name, output or Path(f"{name}.tw"), progress)
        if as_json:
            print_json({"artifact": str(path), "bytes": path.stat().st_size})
        else:
            console().print(str(path), markup=False)
