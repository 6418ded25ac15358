"""Every schedule that is found for a model, run whole and in turn: prediction, time, ratio to the sequential schedule."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from bench import report
from bench.asked import CACHE, positive_numbers
from bench.cache import Cache
from bench.public import PublicModelError
from bench.race.cores import held_to
from bench.schedule.found import find
from bench.schedule.row import rows
from bench.schedule.table import markdown
from bench.subjects import Subject, check, subject
from bench.zoo import NoSuchNetwork
from compiler.contract import CompileOptions
from compiler.errors import TilewrightError
from compiler.trace import unhurried
from tilewright.errors import ClientError, UsageError

DEFAULT = ("squeezenet1_0", "inception_v3", "nasnet_a_mobile", "randwire_small", "shufflenet_v2", "densenet121")
"""Networks with branches."""


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a model failed; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench schedule", description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=f"of the zoo or the public set, or an .onnx file (default: {', '.join(DEFAULT)})",
    )
    parser.add_argument(
        "--threads", type=positive_numbers, default=(2,), metavar="N,...", help="one race for each (default: 2)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=CompileOptions().tuning_budget_s,
        help="seconds of tuning the kernels of each model (default: %(default)g)",
    )
    parser.add_argument(
        "--solver", type=float, default=0.0, metavar="S", help="seconds of looking for the optimum with OR-tools"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of tuning records (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    told: list[dict[str, Any]] = []
    try:
        names = given.models or DEFAULT
        for name in names:
            check(name)
        section = report.Section("schedule", arguments, ())
        for found in measured(names, given.threads, given.budget, given.solver, Cache(given.cache), console):
            told += found
            if given.json:
                report.write(given.json, told)
    except (NoSuchNetwork, PublicModelError) as error:
        parser.error(str(error))
    except ClientError as error:
        console.print(f"{error.message}\nFix: {error.fix}", markup=False, soft_wrap=True)
        return error.exit_status
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    table = markdown(told)
    print(table, end="")
    if given.markdown:
        section.append(given.markdown, table)
    return 1 if any("problem" in row for row in told) else 0


def measured(
    names: Sequence[str], threads: Sequence[int], budget_s: float, solver_s: float, cache: Cache, console: Console
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each model and number of threads, as they come; a model that fails makes one with its `problem`."""
    for at, name in enumerate(names):
        one = subject(name, cache.place("models"))
        for count in threads:
            said = f"[{at + 1}/{len(names)}] {name}, T{count}"
            try:
                with console.status(said) as status:
                    found = race(one, count, budget_s, solver_s, cache, status, said)
            except (TilewrightError, ClientError) as error:
                found = [{"model": name, "threads": count, "problem": f"{error.message} {error.fix}".strip()}]
            for row in found:
                console.print(f"{said}: {summary(row)}", markup=False, soft_wrap=True)
            yield found


def race(
    one: Subject, threads: int, budget_s: float, solver_s: float, cache: Cache, status: Status, said: str
) -> list[dict[str, Any]]:
    """Kernels are tuned or known, then all schedules found, then all run in turn on as many cores as threads.

    Raises what the compiler raises, and `UsageError` for too few cores or no solver.
    """
    options = CompileOptions.from_json(
        {**one.options, "threads": threads, "tuning_budget_s": budget_s, "scheduler": "sequential"}
    )
    cache.compiled(one, options, lambda event: status.update(f"{said}: compiling, {event.phase} {event.fraction:.0%}"))
    records = cache.records()
    with held_to(threads), tempfile.TemporaryDirectory(prefix="tilewright-schedules-") as folder:
        status.update(f"{said}: scheduling")
        try:
            schedules = find(one, options, records, solver_s)
        except ImportError as error:
            raise UsageError(
                f"no solver: {error}", fix="pip install 'tilewright[solver]', or leave --solver out"
            ) from error
        status.update(f"{said}: {len(schedules.found)} schedules in turn")
        raced = schedules.backend.race(
            schedules.kernels, [found.plan for found in schedules.found], options.seed, unhurried, Path(folder)
        )
    if raced is None:
        raise UsageError("the schedules could not be run", fix="free some disk space, and measure for this machine")
    return rows(one.name, threads, schedules, raced)


def summary(row: dict[str, Any]) -> str:
    """One line for people, while the rest is measured."""
    if "problem" in row:
        return f"failed: {row['problem']}"
    return f"{row['scheduler']} {row['ms']:.3f} ms, predicted {row['predicted_ms']:.3f} ms, ratio {row['ratio']:.3f}"
