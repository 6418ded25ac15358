"""`tilewright check`: whether a model's artifact is worse than the one that was kept, here and without a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright import local, regressions
from tilewright.cli import options as given
from tilewright.cli.here import needs_compiler
from tilewright.cli.output import Json, console, demand_place, failures, print_json
from tilewright.errors import ClientError, JobFailed, UsageError
from tilewright.loading import read_manifest
from tilewright.regressions import Verdict

PROGRAM = "worker.race.pair"
DEFAULT_TOLERANCE = 1e-3
"""Of outputs against the kept ones, where the kept artifact's options say none."""


def check(
    model: Annotated[str, typer.Argument(help="An ONNX file, or an address of one.")],
    against: Annotated[Path, typer.Option("--against", help="The artifact that was kept, a .tw file.")],
    slower: Annotated[
        str, typer.Option("--max-regression", help="How much longer a run may take: 5%, or 0.05.")
    ] = "5%",
    error: Annotated[
        float | None,
        typer.Option(
            "--max-error",
            min=0.0,
            help="Largest difference of outputs, relative to the largest value; default: the kept one's tolerance.",
        ),
    ] = None,
    larger: Annotated[str, typer.Option("--max-growth", help="How much larger the file may be.")] = "5%",
    artifact: Annotated[
        Path | None, typer.Option("--artifact", help="Check this file of the model; default: compile it now.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Keep the artifact that is compiled.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Of both; default: the kept one's.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="In which each takes a turn.")] = 15,
    budget: given.Budget = None,
    option: given.Others = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write a JUnit file there.")] = None,
    github: Annotated[
        bool | None,
        typer.Option("--github/--no-github", help="Annotations of GitHub's workflows; default: where it runs in one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that a model's artifact is not slower, less exact or larger than one that was kept.

    The model is compiled with the options of the kept artifact, and both run in turns on this machine. Exit status 0:
    it is not worse; 1: it is, or it cannot be compiled; 2: the files or options make no sense. With `--json`: `passed`
    and `checks`, each with `name`, `passed`, `said` and figures.
    """
    with failures(as_json, output):
        limits = _share("--max-regression", slower), _share("--max-growth", larger)
        given.demand_files(model, against, *([artifact] if artifact else []))
        if junit:
            demand_place(junit)
        needs_compiler()
        kept = dict(read_manifest(against)["options"])
        options = {**kept, **given.build_options(None, None, None, budget, None, None, option)}
        permitted = error if error is not None else kept.get("tolerance") or DEFAULT_TOLERANCE
        with tempfile.TemporaryDirectory(prefix="check-") as folder:
            new = artifact or output or Path(folder) / "new.tw"
            verdicts = _verdicts(
                Path(given.fetched(model)), against, new, options, (threads, rounds, not artifact), (*limits, permitted)
            )
        _tell(model, verdicts, junit, as_json, os.environ.get("GITHUB_ACTIONS") == "true" if github is None else github)
    if not all(one.passed for one in verdicts):
        raise typer.Exit(1)


def _verdicts(
    model: Path,
    kept: Path,
    new: Path,
    options: dict[str, Any],
    run: tuple[int | None, int, bool],
    limits: tuple[float, float, float],
) -> list[Verdict]:
    """What became of each question. Raises `UsageError` for artifacts that cannot be put beside each other.

    run     threads, rounds, and whether `new` is to be compiled first
    limits  how much slower and larger it may be, and the largest error
    """
    threads, rounds, is_compiled = run
    slower, larger, error = limits
    if is_compiled:
        console().print("compiling", style="dim")
        try:
            local.compile_to(new, model, options)
        except JobFailed as problem:
            return [regressions.failed_to_compile(problem.message)]
    console().print("running both in turns", style="dim")
    command = [sys.executable, "-m", PROGRAM, str(kept), str(new), "--rounds", str(rounds)]
    command += ["--threads", str(threads)] if threads else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as problem:
        raise ClientError(f"the measurement ended with status {done.returncode}: {done.stderr[-500:]}") from problem
    if done.returncode == UsageError.exit_status:
        raise UsageError(str(found["error"]), fix="give two artifacts of one model for this machine")
    if done.returncode:
        return [regressions.failed_to_compile(str(found["error"]))]
    return regressions.judged(found, slower, error, larger)


def _tell(model: str, verdicts: list[Verdict], junit: Path | None, as_json: bool, github: bool) -> None:
    """The answer, in every form that is asked for."""
    if junit:
        junit.write_text(regressions.junit(model, verdicts), encoding="utf-8")
    if github:
        for one in verdicts:
            print(regressions.annotation(model, one), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        passed = all(one.passed for one in verdicts)
        print_json({"passed": passed, "checks": [one.to_json() for one in verdicts]})
        return
    for one in verdicts:
        print(f"{'ok    ' if one.passed else 'FAILED'} {one.name:8} {one.said}")


def _share(option: str, text: str) -> float:
    try:
        return regressions.share(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no share", fix="write 5%, or 0.05") from None
