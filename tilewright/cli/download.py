"""`tilewright download`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    failures,
    found_job,
    print_json,
)
from tilewright.cli.progress import transfer_bar
from tilewright.names import artifact_of


def download(
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or of the job that made it.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the artifact's id with .tw.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="While the job measures: the verified artifact from before.")
    ] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Fetch an artifact: checked by SHA-256; a broken download goes on where it stopped. With `--json`: `artifact`."""
    with failures(as_json, output), connect(url, key, profile) as client:
        try:
            job = found_job(client, artifact)
            name = artifact_of(job if partial else job.require_success())
        except LookupError:
            name = artifact_of(artifact)
        with transfer_bar("download", quiet=as_json) as progress:
            path = client.download(name, output or Path(f"{name}.tw"), progress, partial=partial)
        if as_json:
            print_json({"artifact": str(path), "bytes": path.stat().st_size})
        else:
            print(path)
