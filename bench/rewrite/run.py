"""Kernels launched per inference beside the layers that peers execute.

Also what each family of rules and step of fusion is worth.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from bench import report
from bench.asked import CACHE, positive, positive_numbers
from bench.cache import Cache
from bench.ending import ended
from bench.engines.catalogue import chosen, telling
from bench.models.run import DEFAULT as LIGHT
from bench.problem import problem
from bench.public import PUBLIC
from bench.race.cores import probe
from bench.race.race import ROUNDS
from bench.rewrite.ablation import Asked, ablate, all_names
from bench.rewrite.counts import count
from bench.rewrite.table import ablated, counted
from bench.subjects import check, subject
from bench.zoo import ZOO
from compiler.contract import CompileOptions
from compiler.disabled import enabled_passes
from compiler.errors import TilewrightError
from tilewright.errors import ClientError, UsageError

HEAVY = ("vit_base", "bert_base", "gpt2_small")
"""Networks with hundreds of megabytes of weights: their light sisters have the same kernels."""
BUDGET_S = 8.0
COUNTED = (*(entry.name for entry in ZOO if entry.name not in HEAVY), *(model.name for model in PUBLIC))
ABLATED = (*LIGHT, *(model.name for model in PUBLIC))


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a model failed; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench rewrite", description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="of the zoo or the public set, or an .onnx file (default: all that are not heavy)",
    )
    parser.add_argument("--counts", action="store_true", help="counts alone: nothing is compiled or timed")
    parser.add_argument(
        "--without",
        default="",
        metavar="NAME,...",
        help="leave out only these, one at a time; single rules too "
        "(default: each family of rules and each step of fusion)",
    )
    parser.add_argument(
        "--threads", type=positive_numbers, default=(1,), metavar="N,...", help="races for each (default: 1)"
    )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="of each race (default: %(default)s)")
    parser.add_argument(
        "--budget", type=float, default=BUDGET_S, help="seconds of tuning for each program (default: %(default)g)"
    )
    parser.add_argument(
        "--peers", default="onnxruntime,openvino", help="whose layers are counted (default: %(default)s)"
    )
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder of artifacts and tuning records (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the tables there too")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, arguments, console), parser, console)


def run(given: argparse.Namespace, arguments: Sequence[str], console: Console) -> int:
    """What was asked for, counted, measured and printed: exit status 1 when a model failed."""
    peers, cache = telling(chosen(given.peers)), Cache(given.cache)
    names = given.models or (COUNTED if given.counts else ABLATED)
    for name in names:
        check(name)
    left_out = _names(given.without)
    section = report.Section("rewrite", arguments, peers)
    counts: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for row in counting(names, peers, cache, console):
        counts.append(row)
        _write(given.json, counts, losses)
    for threads in () if given.counts else given.threads:
        asked = Asked(threads, given.rounds, given.budget, cache)
        for row in ablating(names, left_out, asked, console):
            losses.append(row)
            _write(given.json, counts, losses)
    tables = counted(counts, peers) + ("" if given.counts else f"\n{ablated(losses)}")
    print(tables, end="")
    if given.markdown:
        section.append(given.markdown, tables)
    return 1 if any("problem" in row for row in (*counts, *losses)) else 0


def counting(names: Sequence[str], peers: Sequence[str], cache: Cache, console: Console) -> Iterator[dict[str, Any]]:
    """One row for each model, as it comes; a model that fails makes a row with its `problem`."""
    for at, name in enumerate(names):
        said = f"[{at + 1}/{len(names)}] {name}"
        try:
            with console.status(f"{said}: counting"):
                row = count(subject(name, cache.place("models")), peers, cache).to_json()
            layers = ", ".join(f"{peer} {one['layers']}" for peer, one in row["peers"].items())
            console.print(
                f"{said}: {row['operators']} operators, {row['kernels']} kernels{layers and '; '}{layers}",
                soft_wrap=True,
            )
        except (TilewrightError, ClientError) as error:
            row = {"model": name, "problem": problem(error)}
            console.print(f"{said}: failed: {row['problem']}", markup=False, soft_wrap=True)
        yield row


def ablating(names: Sequence[str], left_out: Sequence[str], asked: Asked, console: Console) -> Iterator[dict[str, Any]]:
    """The rows of each model, as they come; a model that cannot be compiled at all makes one row with its `problem`."""
    with probe() as cores:
        for at, name in enumerate(names):
            said = f"[{at + 1}/{len(names)}] {name}, T{asked.threads}"
            one = subject(name, asked.cache.place("models"))
            try:
                with console.status(said) as status:
                    for row in ablate(one, left_out, asked, cores, partial(_tell, status, said)):
                        console.print(f"{said}: {summary(row)}", markup=False, soft_wrap=True)
                        yield row
            except (TilewrightError, ClientError) as error:
                nothing = dict.fromkeys(("ms", "ratio"))
                yield {
                    "model": name,
                    "threads": asked.threads,
                    "without": "nothing",
                    "same": False,
                    **nothing,
                    "problem": error.message,
                }


def summary(row: dict[str, Any]) -> str:
    """One line for people, while the rest is measured."""
    said = f"without {row['without']} "
    if "problem" in row:
        return f"{said}failed: {row['problem']}"
    if row["same"]:
        return f"{said}the same kernels"
    low, high = row["ratio_interval"]
    return (
        f"{said}{row['kernels']} -> {row['kernels_without']} kernels, {row['ms']:.3f} -> {row['ms_without']:.3f} ms, "
        f"ratio {row['ratio']:.3f} ({low:.3f}..{high:.3f})"
    )


def _names(text: str) -> tuple[str, ...]:
    """What is disabled, one at a time. Raises `UsageError` for what is neither rule nor step."""
    names = tuple(filter(None, text.split(",")))
    try:
        enabled_passes(CompileOptions(without=names).without)
    except TilewrightError as error:
        raise UsageError(error.message, fix=error.fix) from error
    return names or all_names()


def _write(file: Path | None, counts: Sequence[dict[str, Any]], losses: Sequence[dict[str, Any]]) -> None:
    if file is not None:
        report.write(file, {"counts": counts, "ablation": losses})


def _tell(status: Status, said: str, more: str) -> None:
    status.update(f"{said}: {more}")
