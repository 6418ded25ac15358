"""`tilewright race`: compiles and races on this machine, in processes of its own, where the compiler is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright import local
from tilewright.cli import options as given
from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, console, failures, print_json, results
from tilewright.errors import ClientError, UsageError

PROGRAM = "worker.race"


def race(
    model: Annotated[str, typer.Argument(help="An ONNX file, or an address of one.")],
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Of all; default: every core.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="In which each takes a turn.")] = 9,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", help="onnxruntime or openvino, repeatable; default: those that are installed."),
    ] = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    budget: given.Budget = None,
    precision: given.Precision = None,
    option: given.Others = None,
    as_json: Json = False,
) -> None:
    """Compile a model here and race it with other runtimes, without a server, to see how much faster it is.

    With `--json`: `artifact`, the file, which is kept for the next time, `threads`, `ours_s`, and `peers`, each with
    `peer`, `said`, `theirs_s`, `ratio`, `low`, `high`, `rounds` and `difference`.
    """
    with failures(as_json):
        needs_compiler()
        if not as_json:
            console().print("compiling, unless that was done before", style="dim")
        source = Path(given.fetched(model))
        asked = given.build_options(threads, dim, shape, budget, None, precision, option)
        artifact = local.compiled(source, asked)
        found = _raced(source, artifact, threads, rounds, peer or [])
        if not found:
            raise UsageError("no other runtime is installed here", fix="pip install onnxruntime, or openvino")
        ran = next((one for one in found if one["ours_s"]), None)
        if as_json:
            ours = {"threads": ran["threads"] if ran else None, "ours_s": ran["ours_s"] if ran else None}
            print_json({"artifact": str(artifact), **ours, "peers": found})
            return
        out = results()
        for line in _lines(found, ran):
            out.print(line, markup=False, soft_wrap=True)


def _lines(found: list[dict[str, Any]], ran: dict[str, Any] | None) -> list[str]:
    """Ours first, then what is said of each peer without it."""
    many = f"{ran['threads']} thread{'s' if ran['threads'] > 1 else ''}" if ran else ""
    ours = [f"Tilewright {ran['said'].partition('; ')[0]} with {many}"] if ran else []
    return ours + [one["said"].partition("; ")[2] if one["ours_s"] else one["said"] for one in found]


def _raced(model: Path, artifact: Path, threads: int | None, rounds: int, wanted: list[str]) -> list[dict[str, Any]]:
    """What the race says of each peer. Raises `UsageError` for a peer that is unknown, `ClientError`."""
    command = [sys.executable, "-m", PROGRAM, str(model), str(artifact), "--rounds", str(rounds), "--json"]
    command += [f"--peer={one}" for one in wanted]
    command += ["--threads", str(threads)] if threads else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["the race ended"])[-1]
        raise (UsageError if done.returncode == 2 else ClientError)(said)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
