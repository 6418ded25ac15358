"""`tilewright legalise`: in a process of its own on this machine, or with `--server` as a job."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli import made
from tilewright.cli import options as given
from tilewright.cli.here import run_here
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, results
from tilewright.cli.progress import sent
from tilewright.errors import UsageError


def legalise(
    model: Annotated[str, typer.Argument(help="An ONNX file; with --server also an address or a digest.")],
    accelerator: Annotated[str, typer.Option("--for", help="An accelerator's profile: a name, or a .toml file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: the model's name with .legal.onnx.")
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option("--samples", help="An .npz of real inputs, which ranges and errors are taken from; repeatable."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Error that an output may have, relative to its largest value.")
    ] = 0.05,
    judge: Annotated[
        str, typer.Option("--judge", help="Which error must be within it: sampled, or proved.")
    ] = "sampled",
    terms: Annotated[int, typer.Option("--terms", help="Most terms of a sum of ReLUs.")] = 32,
    method: Annotated[
        str, typer.Option("--method", help="auto, exact (no approximations) or sums (of ReLUs).")
    ] = "auto",
    whole: Annotated[bool, typer.Option("--whole", help="Refuse a model with a node that stays on the CPU.")] = False,
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=VALUE of a symbolic dimension.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Let the server do it, as a job.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Bring a model to an accelerator that has few operators, here or with `--server` on the server; ONNX out.

    With `--json`: the report, and `model`, the file.
    """
    with failures(as_json, output):
        if not server:
            words = [model, "--for", accelerator, "--tolerance", str(tolerance), "--judge", judge]
            words += ["--terms", str(terms), "--method", method]
            words += [word for path in samples or () for word in ("--samples", str(path))]
            words += [f"--dim={one}" for one in dim or ()]
            words += ["--output", str(output)] if output else []
            words += ["--whole"] if whole else []
            run_here("compiler.legalise", words, as_json=as_json, show=show)
            return
        wanted = {"profile": described(accelerator), "tolerance": tolerance, "judge": judge, "terms": terms}
        wanted |= {"method": method, "whole": whole, "dims": given.sizes(dim)}
        target = output or Path(given.file_name(model)).with_suffix(".legal.onnx")
        given.demand_files(model, *(samples or ()))
        source = given.fetched(model)
        with connect(url, key, profile) as client:
            kept = sent(client, source, quiet=as_json)
            said = given.given_of(name=given.name_of(None, model))
            queued = client.legalise(kept, wanted, samples=samples or (), **said)
            made.fetch(client, queued, target, show, as_json=as_json)


def show(report: Mapping[str, Any]) -> None:
    """What became of each node that the accelerator lacks, how far outputs may be off, and estimates, for people."""
    profile = report.get("profile")
    lines = [
        f"{row['operator']} {row['node']}: CPU, {row['reason']}" for row in report.get("left") or () if row["reason"]
    ]
    lines = ["before:", *(f"  {line}" for line in lines), "after:"]
    other = 0
    for node, rows in itertools.groupby(report.get("placement") or (), lambda row: row["node"]):
        found = _became([*rows])
        other += not found
        lines += [f"  {node}: {found}"] if found else []
    lines += [f"  {other} as they were, on {profile}"] if other else []
    for one in report.get("outputs") or ():
        bound = "no bound" if one.get("proved") is None else f"at most {one['proved']:.3g}"
        lines.append(f"output {one['name']}: {bound}, sampled {one['sampled']:.3g}, of {one['largest']:.3g}")
    for when in ("before", "after"):
        one = report.get(when) or {}
        times = [f"{1e3 * seconds:.3g} ms beside a {cpu}" for cpu, seconds in (one.get("seconds") or {}).items()]
        lines.append(
            f"{when}: {100 * (one.get('share') or 0):.0f} % of {one.get('nodes')} nodes on {profile}, "
            f"{one.get('handovers')} hand-overs" + (f", estimated {', '.join(times)}" if times else "")
        )
    for line in (*lines, *(f"note: {notice}" for notice in report.get("notices") or ())):
        results().print(line, markup=False, highlight=False, soft_wrap=True)


def _became(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where what a node of the model became runs, by which rules, and how wrong it is; empty for one that stayed."""
    rules, last = sorted({rule for row in rows for rule in row["rules"]}), rows[-1]
    reasons = [*dict.fromkeys(row["reason"] for row in rows if row["reason"])]
    if not rules and not reasons:
        return ""
    places = [*dict.fromkeys(row["where"] for row in rows)]
    said = [" and ".join(places) + (f", {len(rows)} nodes" if len(rows) > 1 else "")]
    said += [f"by {', '.join(rules)}"] if rules else []
    if last.get("bound") is not None:
        on = f" on {last['domain'][0]:g} ... {last['domain'][1]:g}" if last.get("domain") else ""
        said.append(f"wrong by at most {last['bound']:.3g}{on}")
        said += [f"sampled {last['error']:.3g}"] if last.get("error") is not None else []
    return ", ".join([*said, *reasons[:1]])


def described(accelerator: str) -> str | dict[str, Any]:
    """A profile's name, or what its file says. Raises `UsageError` for a file that is missing or no TOML."""
    path = Path(accelerator)
    if path.suffix != ".toml":
        return accelerator
    try:
        return {"name": path.stem, **tomllib.loads(path.read_text())}
    except (OSError, ValueError) as error:
        raise UsageError(f"{accelerator}: {error}", fix="give a name, or a .toml file with a profile") from None
