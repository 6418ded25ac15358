"""`tilewright changes`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, id_column, print_json, results, table
from tilewright.cli.reproduce import made_again, model_file
from tilewright.errors import NotGenuine, UsageError
from tilewright.loading import read_manifest

if TYPE_CHECKING:
    from tilewright.client import Client


def changes(
    jobs: Annotated[list[str] | None, typer.Argument(help="Compilations. Default: all that the server keeps.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many, the newest first; 0: all.")] = 0,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Tell what the compiler that is installed here changes for artifacts that another version made.

    Each is compiled again from what it packs, with nothing measured and nothing sent: which kernels are generated
    otherwise, how many measurements still hold, and what is refused now. With `--json`: `artifacts`, each with `job`,
    `artifact_id`, `same`, and what `reproduce` tells, or `refused`.
    """
    with failures(as_json), connect(url, key, profile) as client:
        needs_compiler()
        found = [_change(client, job_id, artifact_id) for job_id, artifact_id in _kept(client, jobs or [], limit)]
        if as_json:
            print_json({"artifacts": found})
        else:
            _show(found)
        if not all(one["same"] for one in found):
            raise typer.Exit(NotGenuine.exit_status)


def _kept(client: Client, jobs: list[str], limit: int) -> Iterator[tuple[str, str]]:
    """Each artifact once, with the newest compilation that has it."""
    each = map(client.job, jobs) if jobs else client.jobs(states=["SUCCEEDED"], kinds=["compile"], limit=limit)
    seen = set()
    for job in each:
        if job.artifact_id and job.artifact_id not in seen:
            seen.add(job.artifact_id)
            yield job.id, job.artifact_id


def _change(client: Client, job_id: str, artifact_id: str) -> dict[str, Any]:
    about = {"job": job_id, "artifact_id": artifact_id}
    with tempfile.TemporaryDirectory(prefix="changes-") as folder:
        try:
            file = client.download(artifact_id, Path(folder) / "given.tw")
            model = model_file(client, str(read_manifest(file)["model_digest"]), Path(folder) / "model")
            return about | made_again(file, model, None, [])
        except UsageError as error:
            return {**about, "same": False, "refused": error.message}


def _show(found: list[dict[str, Any]]) -> None:
    shown = table(id_column("job"), "kernels", "changed", "measurements that hold", "")
    for one in found:
        if "refused" in one:
            row = ("", "", "", f"refused: {one['refused']}")
        else:
            hold = f"{one['measured'] - len(one['missing'])} of {one['measured']}"
            said = "the same bytes" if one["same"] else "; ".join(one["reasons"])
            row = (str(one["kernels"]), str(len(one["changed"])), hold, said)
        shown.add_row(one["job"], *map(escape, row))
    results().print(shown)
