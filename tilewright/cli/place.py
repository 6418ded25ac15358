"""`tilewright place`: in a process of its own on this machine, or with `--server` as a job."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import legalise
from tilewright.cli import options as given
from tilewright.cli.here import run_here
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, print_json, results
from tilewright.cli.progress import job_bar, sent
from tilewright.errors import UsageError

MOST_STAGES = 12
"""Shown as text; JSON has all."""


def place(
    model: Annotated[str, typer.Argument(help="An ONNX file; with --server also an address or a digest.")],
    platform: Annotated[Path, typer.Option("--platform", help="A .toml file that describes devices and links.")],
    objective: Annotated[
        str, typer.Option("--objective", help="latency, throughput, or latency_ms=30: most frames within it.")
    ] = "latency",
    carry: Annotated[
        list[str] | None,
        typer.Option("--carry", help="OUTPUT=INPUT: a state that goes from frame to frame; repeatable."),
    ] = None,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write lanes, transfers and the curve there.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Let the server do it, as a job.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Predict where a model's parts would run on a described platform, and how fast; nothing is run."""
    with failures(as_json):
        if not server:
            words = [model, "--platform", str(platform), "--objective", objective]
            words += [word for one in carry or () for word in ("--carry", one)]
            words += [f"--dim={one}" for one in dim or ()]
            words += ["--svg", str(svg)] if svg else []
            run_here("compiler.platforms", words, as_json=as_json)
            return
        wanted = {"platform": described(platform), "objective": objective, "dims": given.sizes(dim)}
        wanted["carry"] = {out: into for out, _, into in (one.partition("=") for one in carry or ())}
        given.demand_files(model)
        source = given.fetched(model)
        with connect(url, key, profile) as client:
            kept = sent(client, source, quiet=as_json)
            queued = client.place(kept, wanted, **given.given_of(name=given.name_of(None, model)))
            with job_bar(quiet=as_json) as show_event:
                ended = client.wait(queued, show_event).require_success()
            report = client.report(ended)["report"]
        drawn = report.pop("svg")
        if svg:
            svg.write_text(drawn)
        if as_json:
            print_json({**report, "job": ended.id})
        else:
            show(report)


def show(report: Mapping[str, Any]) -> None:
    """The placement that is best for the objective, and each device alone, for people."""
    chosen = report.get("chosen") or {}
    stages = chosen.get("placement") or ()
    lines = [f"{report.get('platform')}: {report.get('about')}", f"for {report.get('objective')}: {_times(chosen)}"]
    for one in stages[:MOST_STAGES]:
        units = one["units"]
        said = units[0] + (f" ... {units[-1]}" if len(units) > 1 else "")
        span = f"{one['begin_ms']:9.3f} to {one['end_ms']:9.3f} ms"
        lines.append(f"  {span}  {' or '.join(one['devices'])}: {len(units)} units, {said}")
    if len(stages) > MOST_STAGES:
        lines.append(f"  and {len(stages) - MOST_STAGES} more (--json has all)")
    lines += [
        f"{name} alone: {_times(one) if one else 'cannot run it'}" for name, one in (report.get("alone") or {}).items()
    ]
    for line in lines:
        results().print(line, markup=False, highlight=False, soft_wrap=True)


def described(path: Path) -> dict[str, Any]:
    """What a platform's file says, and the files that it names. Raises `UsageError` for one that is wrong."""
    try:
        said = tomllib.loads(path.read_text())
        for device in said.get("devices", {}).values():
            records, accelerator = device.get("records", {}), device.get("accelerator", {})
            if "file" in records:
                records["times"] = json.loads((path.parent / records.pop("file")).read_text())
            named = path.parent / str(accelerator.get("profile", ""))
            if named.suffix == ".toml":
                accelerator["profile"] = legalise.described(str(named))
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error}", fix="docs/placement.md shows a platform's file") from None
    return said


def _times(one: Mapping[str, Any]) -> str:
    often = one.get("frames_per_second")
    return f"{one.get('latency_ms', 0):.3f} ms" + (f", {often:.2f} frames per second" if often else "")
