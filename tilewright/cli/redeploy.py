"""`tilewright redeploy`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, Key, ProfileName, Url, artifact_id, connect, failures, print_json, results
from tilewright.cli.reproduce import compiled
from tilewright.errors import UsageError

COMPILER = "compiler.redeploy"
SHOWN = (("other code", "changed"), ("other call", "calls"), ("differs", "differing"), ("why", "reasons"))


def redeploy(
    artifact: Annotated[str, typer.Argument(help="A .tw file, or the id of an artifact or a job.")],
    model: Annotated[Path, typer.Argument(help="An ONNX file of the same graph, with other weights.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the model's name with .tw.")] = None,
    samples: Annotated[
        list[Path] | None, typer.Option("--samples", help="An .npz of inputs to judge on; repeatable.")
    ] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Make an artifact's program with other weights here: same plan and kernels, nothing measured, proved anew.

    Where values decide, as zeros that are left out do, it is told which kernels are others. With `--json`:
    `same_program`, the digests `artifact` and `made`, `differing`, `kernels`, `changed`, `calls`, `measured`,
    `reasons`, `errors`, `tolerance`, `notices`, and `output`, the file.
    """
    with failures(as_json, output), tempfile.TemporaryDirectory(prefix="redeploy-") as folder:
        needs_compiler()
        file = Path(artifact)
        path = output or model.with_suffix(".tw")
        if not file.exists():
            with connect(url, key, profile) as client:
                file = client.download(artifact_id(client, artifact), Path(folder) / "given.tw")
        found = compiled(COMPILER, file, model, path, samples or ())
        if "error" in found:
            raise _refused(found["error"])
        if as_json:
            print_json({**found, "output": str(path)})
        else:
            _show(found, path)


def _refused(said: dict[str, Any]) -> UsageError:
    """With the node or tensor that differs in the message."""
    each = [f"{one['operator']} {one['node']!r}: " if one["operator"] else "" for one in said.get("refusals", ())]
    where = [named + one["reason"] for named, one in zip(each, said.get("refusals", ()), strict=True)]
    return UsageError("; ".join([str(said["message"]), *where]), fix=said.get("fix", ""), problem=said)


def _show(found: dict[str, Any], path: Path) -> None:
    out = results()
    word = "yes" if found["same_program"] else "no"
    said = [f"same program: {word} ({found['kernels']} kernels, {found['measured']} calls by earlier measurements)"]
    for word, key in SHOWN:
        said += [f"  {word}: {one}" for one in found[key]]
    worst = max((one["max_relative"] for one in found["errors"]), default=0.0)
    said += [f"agrees within {worst:.1e} of the largest value: {path}", *found["notices"]]
    for line in said:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
