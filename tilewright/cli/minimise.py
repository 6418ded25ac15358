"""`tilewright minimise`: of a file on this machine, in a process of its own; of a failed job on the server."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import made
from tilewright.cli import options as given
from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, print_json, results
from tilewright.errors import ClientError, UsageError


def minimise(
    model: Annotated[str, typer.Argument(help="An ONNX file that fails, or the id of a job that failed.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the model's name with .minimised.onnx.")
    ] = None,
    target: given.Target = "cpu",
    threads: given.Threads = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    tolerance: given.Tolerance = None,
    precision: given.Precision = None,
    option: given.Others = None,
    samples: Annotated[
        list[Path] | None, typer.Option("--samples", help="The .npz that the compilation was given; repeatable.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="When to stop and keep the smallest part so far.")
    ] = 300.0,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Find the smallest part of a model that fails as the whole does; ONNX out.

    Of a file here and without a server, with the options of the compilation that failed; of a job on the server, with
    that job's options. The file has no weights that the failure does not need. Of a wrong result of a file the
    inputs that show it are written beside it, as .npz. With `--json`: the report, and `model`, the file.
    """
    with failures(as_json, output):
        if not Path(model).exists() and _is_id(model):
            with connect(url, key, profile) as client:
                queued = client.minimise(model, seconds)
                made.fetch(client, queued, output or Path(f"{model}.minimised.onnx"), show, as_json=as_json)
            return
        needs_compiler()
        options = given.build_options(threads, dim, shape, None, tolerance, precision, option)
        words = [model, "--seconds", str(seconds), "--options", json.dumps({**options, "target": target})]
        words += ["--output", str(output)] if output else []
        words += ["--samples", *map(str, samples)] if samples else []
        command = [sys.executable, "-m", "compiler.minimise", *words, *(["--json"] if as_json else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not as_json and done.returncode == 0:
            results().print(done.stdout.rstrip(), markup=False, highlight=False, soft_wrap=True)
            return
        if not as_json or not done.stdout:
            raise UsageError(done.stderr.strip()[-2000:] or f"the compiler ended with status {done.returncode}")
        said: dict[str, Any] = json.loads(done.stdout)
        if "error" in said:
            kind = UsageError if done.returncode == 2 else ClientError
            raise kind(said["error"]["message"], fix=said["error"]["fix"])
        print_json(said)


def show(report: Mapping[str, Any]) -> None:
    """What remained and what was tried, for people."""
    out = results()
    nodes, problem = report.get("nodes") or {}, report.get("problem") or {}
    out.print(
        f"{nodes.get('after')} of {nodes.get('before')} nodes still end with {problem.get('code')}: "
        f"{problem.get('message')}",
        markup=False,
        soft_wrap=True,
    )
    for one in report.get("tried") or ():
        out.print(f"{one.get('step')}: {one.get('trials')} trials, {one.get('nodes')} nodes remain", markup=False)


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
