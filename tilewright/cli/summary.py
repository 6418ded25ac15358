"""The last lines of a compilation: how fast, beside what, how exact, how large, where to see it, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.output import seconds, size

if TYPE_CHECKING:
    from tilewright.wire import Job

NAMED = 12
"""Letters of the column of names."""
ELSEWHERE = {"windows": "Windows", "macos": "macOS"}
"""By the option `system`: what an artifact runs on that is not made for Linux, where compilers are."""


def lines(job: Job, artifact: Path, server: str, report: Mapping[str, Any]) -> list[str]:
    """What is known of a compilation that has succeeded; `report` is empty where it cannot be had.

    server  its address
    """
    threads = report.get("threads")
    with_threads = f" with {threads} thread{'' if threads == 1 else 's'}" if threads else ""
    estimated = ", estimated" if report.get("placement") else ""
    cached = ", from the cache" if job.cached else ""
    said = [("latency", f"{seconds(job.latency_s)}{with_threads}{estimated}" if job.latency_s else "")]
    said += [("compared", printable(str(one.get("said", "")))) for one in job.compared]
    said += [("profiles", _profiles(report)), ("error", _error(job, report))]
    said += [("size", size(report.get("artifact_bytes")))]
    said += [("job", f"{server}/#/jobs/{job.id}{cached}")]
    system = str((job.said.get("options") or {}).get("system", "linux"))
    said += [("next", next_command(str(report.get("target", "cpu")), system, artifact))]
    return [f"{name:{NAMED}}{text}" for name, text in said if text]


def printable(text: str) -> str:
    """Text of a server for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _profiles(report: Mapping[str, Any]) -> str:
    """Of an artifact for several profiles, what its first program for each takes, or that it was not run."""
    firsts = {str(one.get("profile") or ""): one for one in reversed(report.get("bindings") or ())}
    took = {name: seconds(one["latency_s"]) if one["verified"] else "not run here" for name, one in firsts.items()}
    return ", ".join(f"{printable(name.partition(':')[2])} {said}" for name, said in reversed(took.items()) if name)


def _error(job: Job, report: Mapping[str, Any]) -> str:
    """Beside what was permitted."""
    if report.get("verified") is False and not _profiles(report):
        return "NOT VERIFIED: its report says why"
    if job.error is None:
        return ""
    permitted = report.get("tolerance")
    beside = f", of {permitted:.2g} permitted" if isinstance(permitted, int | float) else ""
    return f"{job.error:.2g} of the largest value{beside}{_beside_float32(report.get('beside_float32') or ())}"


def _beside_float32(outputs: Sequence[Mapping[str, Any]]) -> str:
    """The error on the random inputs beside that of float32 itself, and decisions that differ."""
    if not outputs:
        return ""
    ours, plain = (max(float(one[name]) for one in outputs) for name in ("artifact", "float32"))
    said = "; no worse than float32 itself" if ours <= plain else f"; float32 itself: {plain:.2g}, this {ours:.2g}"
    rows, other = (sum(int(one[name]) for one in outputs) for name in ("decisions", "differing"))
    return said + (f"; {other} of {rows} decisions differ" if rows else "")


def next_command(target: str, system: str, artifact: Path) -> str:
    """A command to go on with: a measurement on what runs the artifact, else what there is.

    system  the option of that name
    """
    named = f'"{artifact}"' if " " in str(artifact) else str(artifact)
    if target.startswith("wasm"):
        return f"tilewright export {named} page --as browser"
    if place := ELSEWHERE.get(system):
        return f"on {place}: python {named} --bench"
    if target.startswith("cpu"):
        return f"tilewright run {named} --bench"
    return f"python {named} --help"
