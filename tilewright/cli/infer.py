"""`tilewright infer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.arrays import read_npz, write_npz
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    artifact_id,
    connect,
    console,
    failures,
    print_json,
    results,
    seconds,
)
from tilewright.cli.pieces import Pieces, demand_alone, file_of, write
from tilewright.cli.progress import job_bar
from tilewright.files import whole

if TYPE_CHECKING:
    from tilewright.wire import Inference


def infer(
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or of the job that makes it.")],
    inputs: Annotated[Path, typer.Argument(help="An .npz with the inputs by name.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Default: those of its plan.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of random numbers that the model draws.")] = None,
    pieces: Pieces = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Run an artifact once on the server's device. With `--json`: the inference, and `output`, the file."""
    with failures(as_json, output or file_of(pieces)):
        if pieces:
            demand_alone(pieces, output=output)
        given = read_npz(inputs)
        with connect(url, key, profile) as client:
            made_by = artifact_id(client, artifact)
            if pieces:
                coming = client.chunks(made_by, given, threads=threads, seed=seed)
                write(coming, pieces).show(as_json=as_json, to=pieces)
                return
            queued = client.start_inference(made_by, given, threads=threads, seed=seed)
            with job_bar(quiet=as_json) as show_event:
                ended = client.wait(queued, show_event).require_success()
            if output:
                arrays = client.outputs(ended)
                with whole(output) as file:
                    write_npz(file, arrays)
        if as_json:
            print_json({**ended.said, "output": str(output) if output else None})
            return
        show(ended)
        if output:
            console().print(f"written: {output}", markup=False)


def show(found: Inference) -> None:
    """What came out, for people."""
    out = results()
    for name, about in found.outputs.items():
        out.print(f"{name}: {about.get('dtype')} {about.get('shape')}", markup=False)
    out.print(f"run: {seconds(found.seconds)}", markup=False)
