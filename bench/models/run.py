"""Whole models beside peers: each engine in a process of its own, taking turns on the same inputs, outputs compared with a float64 reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.status import Status

from bench import report
from bench.asked import add_common, positive, positive_numbers
from bench.cache import Cache
from bench.ending import ended
from bench.engines.catalogue import chosen
from bench.models.measure import Asked, measure
from bench.models.table import markdown
from bench.problem import problem
from bench.race.cores import probe
from bench.race.race import ROUNDS
from bench.subject import Subject
from bench.subjects import check, subject
from bench.zoo import ZOO
from compiler.contract import CompileOptions, kinds
from compiler.errors import TilewrightError
from tilewright.errors import ClientError

GIANT_GFLOP = 15.0
"""A network with more work than this takes minutes to compile and to time."""
DEFAULT = tuple(entry.name for entry in ZOO if entry.paper and entry.gflop <= GIANT_GFLOP)
"""The networks of the literature that are no giants; those without a paper are there for tests, and so small that calls decide."""
ALL = tuple(entry.name for entry in ZOO if entry.paper)


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a model failed; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench models", description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=f"of the zoo or the public set, or an .onnx file (default: networks of the zoo up to {GIANT_GFLOP:g} GFLOP)",
    )
    parser.add_argument("--all", action="store_true", help="the zoo's giants too")
    parser.add_argument(
        "--threads", type=positive_numbers, default=(1, 2), metavar="N,...", help="one race for each (default: 1,2)"
    )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="of each race (default: %(default)s)")
    parser.add_argument(
        "--scheduler",
        choices=kinds.schedulers(),
        default=CompileOptions().scheduler,
        help="of ours (default: %(default)s)",
    )
    add_common(parser)
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, arguments, console), parser, console)


def run(given: argparse.Namespace, arguments: Sequence[str], console: Console) -> int:
    """What was asked for, measured and told: exit status 1 when a model failed."""
    peers = chosen(given.peers)
    asked = Asked(peers, given.precision, given.budget, Cache(given.cache), given.scheduler)
    names = given.models or (ALL if given.all else DEFAULT)
    for name in names:
        check(name)
    section = report.Section("models", arguments, peers)
    rows: list[dict[str, Any]] = []
    for row in measured(names, given.threads, given.rounds, asked, console):
        rows.append(row)
        if given.json:
            report.write(given.json, rows)
    table = markdown(rows, peers)
    print(table, end="")
    if given.markdown:
        section.append(given.markdown, table)
    return 1 if any("problem" in row for row in rows) else 0


def measured(
    names: Sequence[str], threads: Sequence[int], rounds: int, asked: Asked, console: Console
) -> Iterator[dict[str, Any]]:
    """One row for each model and number of threads, as it comes; a model that fails makes a row with its `problem`."""
    with probe() as cores:
        for at, name in enumerate(names):
            said = f"[{at + 1}/{len(names)}] {name}"
            with console.status(f"{said}: building"):
                one = subject(name, asked.cache.place("models"))
            for count in threads:
                try:
                    with console.status(f"{said}, T{count}") as status:
                        tell = partial(_tell, status, f"{said}, T{count}")
                        row = measure(one, count, rounds, asked, cores, tell).to_json()
                except (TilewrightError, ClientError) as error:
                    row = failed(one, count, asked, problem(error))
                console.print(f"{said}, T{count}: {summary(row)}", markup=False, soft_wrap=True)
                yield row


def failed(one: Subject, threads: int, asked: Asked, problem: str) -> dict[str, Any]:
    """The row of a model that could not be measured."""
    nothing: dict[str, Any] = {
        "gflop": None,
        "ours_ms": None,
        "peers": {},
        "ratio_to_best": None,
        "max_rel_error": None,
    }
    return {"model": one.name, "threads": threads, "precision": asked.precision, **nothing, "problem": problem}


def summary(row: Mapping[str, Any]) -> str:
    """One line for people, while the rest is measured."""
    if "problem" in row:
        return f"failed: {row['problem']}"
    if row["best"] is None:
        return f"{row['ours_ms']:.3f} ms"
    low, high = row["ratio_interval"]
    return (
        f"{row['ours_ms']:.3f} ms, {row['best']} {row['peers'][row['best']]:.3f} ms, ratio {row['ratio_to_best']:.3f} "
        f"({low:.3f}..{high:.3f}), {row['rounds']} of {row['rounds'] + row['discarded']} rounds kept"
        f"{'' if row['calm'] else ': others used the cores in every one'}"
    )


def _tell(status: Status, said: str, more: str) -> None:
    status.update(f"{said}: {more}")
