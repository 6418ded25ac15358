"""`tilewright minimise`: runs on this machine, in a process of its own, where the compiler is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import options as given
from tilewright.cli.output import Json, failures, print_json, results
from tilewright.errors import ClientError, UsageError


def minimise(
    model: Annotated[Path, typer.Argument(help="An ONNX file that is refused, disagrees, or crashes the compiler.")],
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
    seconds: Annotated[float, typer.Option("--seconds", help="When to stop; what was found so far is kept.")] = 300.0,
    as_json: Json = False,
) -> None:
    """Find the smallest part of a model that fails as the whole does, here and without a server; ONNX out.

    The file has no weights that the failure does not need. Of a wrong result the inputs that show it are written
    beside it, as .npz. With `--json`: the report, and `model`, the file.
    """
    with failures(as_json):
        if find_spec("compiler") is None:
            raise UsageError(
                "the compiler is not installed here",
                fix="install tilewright with what the server needs: tilewright[server]",
            )
        options = given.build_options(threads, dim, shape, None, tolerance, precision, option)
        words = [str(model), "--seconds", str(seconds), "--options", json.dumps({**options, "target": target})]
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
