"""`tilewright compile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.output import Json, Key, Url, connect, console, failures, print_json
from tilewright.cli.progress import download_bar, job_bar
from tilewright.errors import UsageError


def compile_model(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the model's name with .tw.")] = None,
    target: Annotated[str, typer.Option(help="`cpu`, or `cpu:<profile>`.")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="Default: every core of the worker.")] = None,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    shape: Annotated[list[str] | None, typer.Option("--shape", help="INPUT=1x3x224x224.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Seconds for measuring candidates.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Largest accepted error.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", help="NAME=JSON of any other option.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile even if the cache has it.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end and download.")] = True,
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Compile a model and download the artifact. With `--json`: the job at the end, and `artifact`, the file."""
    with failures(as_json):
        options = build_options(target, threads, dim or [], shape or [], budget, tolerance, option or [])
        with connect(url, key) as client:
            job = client.compile(model, options, fresh=fresh)
            if not wait:
                print_json(job.said) if as_json else print(job.id)
                return
            try:
                with job_bar(quiet=as_json) as show:
                    job = client.wait(job, show)
            except KeyboardInterrupt:
                console().print(f"The job goes on: tilewright watch {job.id}, or tilewright jobs --cancel {job.id}")
                raise
            job.require_success()
            with download_bar(quiet=as_json) as progress:
                artifact = client.download(job, output or model.with_suffix(".tw"), progress)
            if as_json:
                print_json({**job.said, "artifact": str(artifact)})
            else:
                console().print(f"{artifact}  (job {job.id})", markup=False)


def build_options(
    target: str,
    threads: int | None,
    dims: list[str],
    shapes: list[str],
    budget: float | None,
    tolerance: float | None,
    others: list[str],
) -> dict[str, Any]:
    """Compile options as the server reads them; what was not given is left to its defaults. Raises `UsageError`."""
    options: dict[str, Any] = {"target": target}
    given = {"threads": threads, "tuning_budget_s": budget, "tolerance": tolerance}
    options |= {name: value for name, value in given.items() if value is not None}
    if dims:
        options["dims"] = {name: _whole("--dim", value) for name, value in map(_pair, dims)}
    if shapes:
        options["inputs"] = {
            name: [_whole("--shape", size) for size in text.lower().split("x") if text]
            for name, text in map(_pair, shapes)
        }
    for name, text in map(_pair, others):
        try:
            options[name] = json.loads(text)
        except ValueError:
            raise UsageError(
                f"--option {name}: {text!r} is not JSON", fix="quote strings, as in --option 'a=\"b\"'"
            ) from None
    return options


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if text.count("=") > 1 and text[-1] not in '"]}' else text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE", fix="write it as name=value")
    return name, value


def _whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a whole number", fix="give dimensions as whole numbers") from None
