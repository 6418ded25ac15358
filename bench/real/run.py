"""Any folder of ONNX files: each compiled with its dimensions left open, run beside ONNX Runtime at several sizes."""

from __future__ import annotations

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from bench import report
from bench.asked import seconds
from bench.real.judge import AGREES, ALONE, CORRECTED, CRASHED, STATUSES, Verdict, judge

LIMIT_S = 600.0
SPAWN = multiprocessing.get_context("spawn")
"""A new interpreter for each model: one that dies costs no other, and what it held at most is its own."""


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where a model is refused, differs or crashes; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench real", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folders, or single ONNX files")
    parser.add_argument("--only", metavar="TEXT", default="", help="files whose names have it")
    parser.add_argument("--budget", type=seconds, default=0.0, help="seconds of tuning of each (default: 0)")
    parser.add_argument("--limit", type=seconds, default=LIMIT_S, help="wall seconds of each (default: %(default)g)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the verdicts there too, as they come")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    files = [file for file in files_of(given.paths) if given.only in file.name]
    if not files:
        parser.error("there is no such ONNX file")
    section = report.Section("real", arguments, ("onnxruntime",))
    verdicts: list[Verdict] = []
    for file in files:
        verdicts.append(judged(file, given.budget, given.limit))
        print(row(verdicts[-1]), flush=True)
        if given.json:
            report.write(given.json, [one.to_json() for one in verdicts])
    print(f"\n{table(verdicts)}", end="")
    if given.markdown:
        section.append(given.markdown, table(verdicts))
    return int(any(one.status not in (AGREES, CORRECTED, ALONE) for one in verdicts))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The ONNX files among paths and in folders, small ones first."""
    found = [file for path in paths for file in (path.rglob("*.onnx") if path.is_dir() else [path])]
    return sorted({file for file in found if file.is_file()}, key=lambda file: (file.stat().st_size, file))


def judged(file: Path, budget_s: float, limit_s: float) -> Verdict:
    """The verdict on a model by a process of its own, which is ended after `limit_s` seconds."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_serve, args=(theirs, file, budget_s), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return Verdict(file.stem, CRASHED, f"it took longer than {limit_s:g} s")
        answer: Verdict = ours.recv()
        return answer
    except EOFError:
        process.join()
        return Verdict(file.stem, CRASHED, f"the process ended with exit status {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()


def _serve(pipe: Connection, file: Path, budget_s: float) -> None:
    pipe.send(judge(file, budget_s))


def table(verdicts: Sequence[Verdict]) -> str:
    """A row for each model, and how many there are of each status."""
    counted = Counter(one.status for one in verdicts)
    total = ", ".join(f"{counted[status]} {status}" for status in STATUSES if counted[status])
    lines = [
        "| model | verdict | compiled for | sizes | distance | compile CPU s | peak MB | reason |",
        "|---|---|---|---|---|---|---|---|",
        *map(row, verdicts),
    ]
    return "\n".join(lines) + f"\n\n{len(verdicts)} models: {total}.\n"


def row(one: Verdict) -> str:
    """A line of the table."""
    far, reason = f"{one.distance:.1e}" if one.sizes else "", one.reason.replace("|", "/").replace("\n", " ")
    taken = [one.took, one.sizes or "", far, one.seconds or "", one.bytes // 10**6 or ""]
    return f"| {' | '.join(map(str, (one.model, one.status, *taken, reason)))} |"
