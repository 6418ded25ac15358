"""One program for all sizes of a dimension beside one compiled for each size, on one core."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench import report
from bench.sizes.models import MODELS, model_of
from bench.sizes.program import Program, options_of
from compiler.devices.cpu.target import this_machine

SHARES = (64, 8, 4, 2, 1)
"""A size is the capacity over one of these."""
ROUNDS = 25


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench sizes", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"inferences of each (default: {ROUNDS})")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    section = report.Section("sizes", arguments, ())
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [row for name in given.models or MODELS for row in measured(name, given.rounds)]
    text = _table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def measured(name: str, rounds: int) -> list[tuple[str, int, float, float]]:
    """For each size: the model, the size, medians of the open program and of the static one, in microseconds.

    Rounds of both take turns.
    """
    capacity, text = MODELS[name]
    model, target = model_of(text).SerializeToString(), this_machine()
    program = Program(model, options_of({"n": {"min": 1, "opt": capacity, "max": capacity}}), target)
    rows = []
    for size in dict.fromkeys(max(capacity // share, 1) for share in SHARES):
        own = Program(model, options_of({"n": size}), target)
        program.fill(size)
        own.fill(size)
        times = [(program.once(), own.once()) for _ in range(rounds + 2)][2:]
        rows.append((name, size, *(1e6 * median(side) for side in zip(*times, strict=True))))
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def _table(rows: Sequence[tuple[str, int, float, float]]) -> str:
    lines = ["| model | n | one program for all us | compiled for n us | ratio |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {size} | {open_:.0f} | {own:.0f} | {open_ / own:.2f} |" for name, size, open_, own in rows]
    return "\n".join(lines) + "\n"
