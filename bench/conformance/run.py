"""ONNX's conformance suite: each case compiled to an artifact, run, and compared with what the suite expects."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import report
from bench.asked import positive, seconds
from bench.conformance.judge import BOUND, CRASHED, PASSED, WRONG, Verdict
from bench.conformance.suite import chosen
from bench.conformance.table import counts, table, write
from bench.conformance.workers import judged
from bench.ending import ended
from compiler.contract import COMPILER_VERSION
from tilewright.errors import UsageError

JOBS = 2
LIMIT_S = 300.0


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a case was computed wrongly or crashed; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench conformance", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="cases with this in their name, or of this operator; several words must all fit",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--jobs", type=positive, default=JOBS, help="processes at a time (default: %(default)s)")
    parser.add_argument(
        "--limit", type=seconds, default=LIMIT_S, metavar="SECONDS", help="of one case (default: %(default)g)"
    )
    parser.add_argument("--target", default="cpu", help="what to compile for; it must run here (default: cpu)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the verdict on each case there too")
    parser.add_argument("--write", action="store_true", help="write the table into docs/operators.md")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, console), parser, console)


def run(given: argparse.Namespace, console: Console) -> int:
    """What was asked for. Raises `UsageError`."""
    if given.write and given.only:
        raise UsageError("--write takes the whole suite, not a part of it", fix="leave out --only or --write")
    cases = chosen(given.only)
    if not cases:
        raise UsageError(f"no case has {' and '.join(given.only)}", fix="see --list")
    if given.list:
        print(*(f"{case.name} ({case.group})" for case in cases), sep="\n")
        return 0
    place = {case.name: at for at, case in enumerate(cases)}
    found = shown(judged(cases, given.jobs, given.limit, given.target), len(cases), console)
    verdicts = sorted(found, key=lambda verdict: place[verdict.case])
    if given.json:
        report.write(given.json, to_json(verdicts))
    print(table(verdicts), end="")
    if given.write:
        write(verdicts)
    tally = counts(verdicts)
    return 1 if tally[WRONG] or tally[CRASHED] else 0


def shown(verdicts: Iterator[Verdict], total: int, console: Console) -> Iterator[Verdict]:
    """The same verdicts; each that does not pass is printed as it comes."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("conformance", total=total)
        for verdict in verdicts:
            progress.update(bar, advance=1, description=verdict.case)
            if verdict.status not in (PASSED, BOUND):
                console.print(f"{verdict.status} {verdict.case}: {verdict.reason}", markup=False, soft_wrap=True)
            yield verdict


def to_json(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Counts and every verdict, with the versions that they are of."""
    return {
        "onnx": onnx.__version__,
        "compiler": COMPILER_VERSION,
        "counts": counts(verdicts),
        "cases": [verdict.to_json() for verdict in verdicts],
    }
