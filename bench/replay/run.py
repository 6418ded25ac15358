"""Compiles the same models with the compiler of a commit and with the present one, and lists what differs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import report
from bench.asked import positive
from bench.ending import ended
from bench.public import PublicModelError
from bench.replay.cases import SETS, Case, cases_of
from bench.replay.compiling import Kept, NotThatCompiler, default_folder
from bench.replay.difference import differences
from bench.replay.kernels import run as kernels
from bench.replay.side import ROOT, Side, at_commit, of_working_tree
from bench.replay.table import Row, summary, warmed
from tilewright.errors import UsageError

JOBS = 2


def main(arguments: list[str]) -> int:
    """Exit status 0 when everything is the same; 1 when something differs; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench replay", description=__doc__)
    parser.add_argument("ref", metavar="REF", help="the commit to compare with")
    parser.add_argument("--to", metavar="COMMIT", help="compare this commit with it (default: the working tree)")
    parser.add_argument("--set", choices=sorted(SETS), default="quick", help="which cases (default: %(default)s)")
    parser.add_argument(
        "--kernels", action="store_true", help="kernels of some hundred drawn models, in a minute, instead of a set"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="cases with this in their name alone, such as cuda:sm_90 or tiny_cnn; several words must all be there",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--warm", action="store_true", help="compile at REF alone, into the cache")
    parser.add_argument("--jobs", type=positive, default=JOBS, help="compilations at a time (default: %(default)s)")
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FILE",
        help="a records.jsonl for the tuned cases (default: what REF measures for each model, once)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_folder(),
        help="folder of models, records and outcomes (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write what was found there too")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(kernels.run if given.kernels else run, given, console), parser, console)


def run(given: argparse.Namespace, console: Console) -> int:
    """The replay that was asked for. Raises `UsageError`."""
    cases = cases_of(given.set, given.only)
    if not cases:
        raise UsageError(f"no case of the set {given.set} has {' and '.join(given.only)}", fix="see --list")
    if given.list:
        print(*cases, sep="\n")
        return 0
    if given.records and not given.records.is_file():
        raise UsageError(f"{given.records} is no file", fix="give a records.jsonl")
    with tempfile.TemporaryDirectory(prefix="replay-sides-") as folder:
        before = at_commit(given.ref, Path(folder) / "before", ROOT)
        place = Path(folder) / "after"
        after = at_commit(given.to, place, ROOT) if given.to else of_working_tree(place, ROOT)
        replay = Replay(before, None if given.warm else after, Kept(given.cache, given.records))
        if before.digest == after.digest and not given.warm:
            console.print("The compiler is the same at both: what differs now differs from run to run.")
        rows: list[Row] = []
        try:
            for row in replaying(replay, cases, given.jobs, console):
                rows.append(row)
                if given.json:
                    report.write(given.json, _json(replay, rows))
        except NotThatCompiler as error:
            raise UsageError(f"another compiler would have run: {error}", fix="see bench/replay/child.py") from error
    rows.sort(key=lambda row: cases.index(row.case))
    print(warmed(rows, before.name) if given.warm else summary(rows, before.name, after.name), end="")
    return verdict(rows)


def verdict(rows: Sequence[Row]) -> int:
    """0 when there were artifacts, and all were the same."""
    compared = any(not row.error and not row.skipped for row in rows)
    return 0 if compared and not any(row.differences for row in rows) else 1


class Replay:
    """Two compilers and what is known of them; without `after` the first is only run, for the cache."""

    def __init__(self, before: Side, after: Side | None, kept: Kept) -> None:
        self.before = before
        self.after = after
        self.kept = kept

    def __call__(self, case: Case) -> Row:
        """The row of one case. Raises NotThatCompiler."""
        try:
            subject = self.kept.subject(case.model)
        except PublicModelError as error:
            return Row(case, skipped=str(error))
        records = self.kept.records(case, subject, self.before)
        old = self.kept.outcome(case, subject, self.before, records)
        if self.after is None:
            return Row(case, error=old.error, alone=True, seconds=(old.seconds, 0.0))
        again = self.after.digest == self.before.digest
        new = self.kept.outcome(case, subject, self.after, records, again)
        found = differences(old, new)
        return Row(case, found, "" if found else old.error, seconds=(old.seconds, new.seconds))


def replaying(replay: Replay, cases: Sequence[Case], jobs: int, console: Console) -> Iterator[Row]:
    """The rows, as they come; each is printed, those of identical cases only where no progress bar is drawn."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as progress,
        ThreadPoolExecutor(jobs) as pool,
    ):
        bar = progress.add_task("replay", total=len(cases))
        waiting = {pool.submit(replay, case): case for case in cases}
        try:
            for at, done in enumerate(as_completed(waiting), 1):
                row = done.result()
                progress.update(bar, advance=1, description=str(row.case))
                if not console.is_terminal or row.differences or row.error or row.skipped:
                    took = "/".join(f"{seconds:.1f}" for seconds in row.seconds)
                    said = f"[{at}/{len(cases)}] {row.case} ({took} s): {row.verdict}"
                    console.print(said, markup=False, soft_wrap=True)
                yield row
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _json(replay: Replay, rows: Sequence[Row]) -> dict[str, object]:
    return {
        "before": replay.before.name,
        "after": replay.after.name if replay.after else None,
        "rows": [row.to_json() for row in rows],
    }
