"""`tilewright reproduce`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, Key, ProfileName, Url, artifact_id, connect, failures, print_json, results
from tilewright.errors import ClientError, NotGenuine, UsageError
from tilewright.loading import read_manifest

if TYPE_CHECKING:
    from tilewright.client import Client

COMPILER = "compiler.reproduce"


def reproduce(
    artifact: Annotated[str, typer.Argument(help="A .tw file, a receipt as JSON, or the id of an artifact or a job.")],
    model: Annotated[
        Path | None, typer.Argument(help="The ONNX file that it was compiled from. Default: fetched from the server.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Keep the artifact that is made here.")] = None,
    samples: Annotated[
        list[Path] | None, typer.Option("--samples", help="The .npz that it was judged on; repeatable.")
    ] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Compile an artifact again here from what it packs, measuring nothing: the same bytes, or what differs.

    With `--json`: `same`, the digests `artifact` and `made`, `differing`, `fields`, `reasons`, `missing`, and of
    kernels `kernels`, `changed`, `measured`.
    """
    with failures(as_json, output), tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        needs_compiler()
        place = Path(folder)
        file = Path(artifact)
        named = _receipt(file)
        if named or not file.exists() or model is None:
            with connect(url, key, profile) as client:
                if named or not file.exists():
                    file = client.download(artifact_id(client, named or artifact), place / "given.tw")
                if model is None:
                    model = model_file(client, str(read_manifest(file)["model_digest"]), place / "model")
        found = made_again(file, model, output, samples or [])
        if as_json:
            print_json(found)
        else:
            _show(found)
        if not found["same"]:
            raise typer.Exit(NotGenuine.exit_status)


def _receipt(file: Path) -> str:
    """The artifact that a receipt is of; empty for a file that is none. Raises `UsageError` for a damaged one."""
    if file.suffix != ".json" or not file.exists():
        return ""
    try:
        return str(json.loads(file.read_text())["artifact"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no receipt: {error!r}", fix="fetch it: GET /artifacts/ID/receipt") from error


def model_file(client: Client, digest: str, folder: Path) -> Path:
    """The model's file, with its external data beside it."""
    folder.mkdir()
    return client.download_model(digest, folder)


def made_again(artifact: Path, model: Path, output: Path | None, samples: list[Path]) -> dict[str, Any]:
    """What the compiler says, in a process of its own. Raises `UsageError`, `ClientError` where it cannot compile."""
    said = compiled(COMPILER, artifact, model, output, samples)
    if "error" in said:
        raise UsageError(str(said["error"]["message"]))
    return said


def compiled(module: str, artifact: Path, model: Path, output: Path | None, samples: Sequence[Path]) -> dict[str, Any]:
    """What a command of the compiler prints of an artifact and a model, or `error`. Raises `ClientError`."""
    command = [sys.executable, "-m", module, str(artifact), str(model), "--json"]
    command += ["--out", str(output)] if output else []
    command += ["--samples", *map(str, samples)] if samples else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise ClientError(f"the compiler ended with status {done.returncode}: {done.stderr[-500:]}") from error
    return said


def _show(found: dict[str, Any]) -> None:
    out = results()
    if found["same"]:
        out.print(
            f"the same bytes, from {found['measurements']} measurements: {found['made']}", markup=False, soft_wrap=True
        )
        return
    out.print("other bytes", style="bold red")
    for word, each in (
        ("differs", "differing"),
        ("first", "fields"),
        ("why", "reasons"),
        ("other code", "changed"),
        ("not measured", "missing"),
    ):
        for one in found[each]:
            out.print(f"  {word}: {one}", markup=False, soft_wrap=True)
