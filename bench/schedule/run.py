"""Every schedule that is found for a model, run whole and in turn.

Prediction, time, ratio to the sequential schedule; or how far each is from the optimum.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from bench import report
from bench.asked import CACHE, positive_numbers, seconds
from bench.cache import Cache
from bench.ending import ended
from bench.problem import problem
from bench.race.cores import held_to
from bench.schedule import gap_table, table
from bench.schedule.found import find, instance_of, persistent_of
from bench.schedule.gaps import gaps
from bench.schedule.row import rows
from bench.settled import settled
from bench.subject import Subject
from bench.subjects import check, subject
from compiler.contract import CompileOptions
from compiler.devices.kinds import backend_of
from compiler.errors import TilewrightError
from compiler.steps import state_of
from tilewright.errors import ClientError, UsageError

DEFAULT = ("squeezenet1_0", "inception_v3", "nasnet_a_mobile", "randwire_small", "shufflenet_v2", "densenet121")
"""Networks with branches."""
THREADS, GAP_THREADS = (2,), (2, 4)
SOLVER_S = 5.0
"""Of each block, for gaps."""
Tell = Callable[[str], None]
"""Called with what goes on, in few words."""


@dataclass(frozen=True)
class Asked:
    """For which target, in which precision, tuned for how long, solved for how long, where records are kept."""

    target: str
    precision: str
    budget_s: float
    solver_s: float
    cache: Cache

    def options(self, one: Subject, threads: int) -> CompileOptions:
        """Of a compilation that tunes the kernels and leaves scheduling alone. Raises `OptionsError`."""
        settings = {
            "target": self.target,
            "precision": self.precision,
            "tuning_budget_s": self.budget_s,
            "threads": threads if self.target.startswith("cpu") else None,
            "scheduler": "sequential",
        }
        return CompileOptions.from_json({**one.options, **settings})


Measure = Callable[[Subject, int, Asked, Tell], list[dict[str, Any]]]
"""The rows of a model on so many threads."""


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
        "--gaps",
        action="store_true",
        help="run nothing: how far each scheduler is from the optimum of the model's blocks, "
        "by the times of kernels that are known or modelled",
    )
    parser.add_argument(
        "--threads",
        type=positive_numbers,
        metavar="N,...",
        help="one race for each (default: 2); with --gaps as many lanes as you like (default: 2,4)",
    )
    parser.add_argument(
        "--target",
        default=CompileOptions().target,
        help="another than this machine, such as cuda:sm_90, is predicted and not run (default: %(default)s)",
    )
    parser.add_argument("--precision", default=CompileOptions().precision, help="of arithmetic (default: %(default)s)")
    parser.add_argument(
        "--budget",
        type=seconds,
        default=CompileOptions().tuning_budget_s,
        help="seconds of tuning the kernels of each model (default: %(default)g)",
    )
    parser.add_argument(
        "--solver",
        type=seconds,
        metavar="S",
        help="seconds of looking for the optimum with OR-tools "
        f"(default: 0, which leaves it out; with --gaps {SOLVER_S:g} for each block)",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of tuning records (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, arguments, console), parser, console)


def run(given: argparse.Namespace, arguments: Sequence[str], console: Console) -> int:
    """What was asked for, measured or predicted, and printed: exit status 1 when a model failed."""
    solver_s = (SOLVER_S if given.gaps else 0.0) if given.solver is None else given.solver
    asked = Asked(given.target, given.precision, given.budget, solver_s, Cache(given.cache))
    threads = given.threads or (GAP_THREADS if given.gaps else THREADS)
    if not given.target.startswith("cpu"):
        if given.gaps:
            raise UsageError("--gaps are of schedules on lanes", fix="leave --target out")
        threads = (1,)
    names = given.models or DEFAULT
    for name in names:
        check(name)
    section = report.Section("schedule", arguments, ())
    collected: list[dict[str, Any]] = []
    for found in measured(names, threads, gaps_of if given.gaps else schedules_of, asked, console):
        collected += found
        if given.json:
            report.write(given.json, collected)
    text = gap_table.markdown(collected, solver_s) if given.gaps else table.markdown(collected)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 1 if any("problem" in row for row in collected) else 0


def measured(
    names: Sequence[str], threads: Sequence[int], measure: Measure, asked: Asked, console: Console
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each model and number of threads, as they come; a model that fails makes one with its `problem`."""
    for at, name in enumerate(names):
        one = subject(name, asked.cache.place("models"))
        for count in threads:
            said = f"[{at + 1}/{len(names)}] {name}, T{count}"
            try:
                with console.status(said) as status:
                    found = measure(one, count, asked, partial(_tell, status, said))
            except (TilewrightError, ClientError) as error:
                found = [{"model": name, "threads": count, "problem": problem(error)}]
            except ImportError as error:
                raise UsageError(
                    f"no solver: {error}", fix="pip install 'tilewright[solver]', or leave --solver and --gaps out"
                ) from error
            for row in found:
                console.print(f"{said}: {summary(row)}", markup=False, soft_wrap=True)
            yield found


def schedules_of(one: Subject, threads: int, asked: Asked, tell: Tell) -> list[dict[str, Any]]:
    """Kernels are tuned or known, then all schedules found, then all run in turn on as many cores as threads.

    What this machine cannot run is predicted alone. Raises what the compiler raises, and `UsageError` for too few
    cores.
    """
    options = asked.options(one, threads)
    if backend_of(options, os.environ).target.is_here:
        asked.cache.compiled(one, options, lambda event: tell(f"compiling, {event.phase} {event.fraction:.0%}"))
        with held_to(threads):
            return scheduled(one, options, asked, tell)
    return scheduled(one, options, asked, tell)


def scheduled(one: Subject, options: CompileOptions, asked: Asked, tell: Tell) -> list[dict[str, Any]]:
    """The rows of one model, by the records there are."""
    tell("scheduling")
    schedules = find(one, options, asked.cache.records(), asked.solver_s)
    raced = None
    if not schedules.is_here and (persistent := persistent_of(one, options, asked.cache.records())):
        schedules = replace(schedules, found=(*schedules.found, *persistent.found))
    if schedules.is_here:
        tell(f"{len(schedules.found)} schedules in turn")
        with tempfile.TemporaryDirectory(prefix="tilewright-schedules-") as folder:
            raced = schedules.race(Path(folder))
        if raced is None:
            raise UsageError("the schedules could not be run", fix="free some disk space")
    return rows(one.name, schedules, raced, schedules.taken(raced, options.tuning_budget_s))


def gaps_of(one: Subject, threads: int, asked: Asked, tell: Tell) -> list[dict[str, Any]]:
    """One row: each scheduler's gaps on the blocks of a model. Nothing is tuned or run."""
    tell("its kernels")
    ready = settled(one, asked.options(one, threads), asked.cache.records())
    handover = ready.handover
    found = gaps(instance_of(ready).problem, asked.solver_s, threads, tell)
    about = {
        "model": one.name,
        "threads": threads,
        "calls": len(ready.kernels.calls),
        "measured_calls": ready.measured,
        "state": state_of(handover) or None,
        "handover_ns": 1e9 * handover.seconds if handover else None,
        "solver_s": asked.solver_s,
    }
    return [{**about, **found.to_json()}]


def summary(row: dict[str, Any]) -> str:
    """One line for people, while the rest is measured."""
    if "problem" in row:
        return f"failed: {row['problem']}"
    if "worst_gap" in row:
        worst = row["worst_of_best"]
        said = "" if worst is None else f"the best of all schedulers at most {worst:.1%} over the optimum, "
        return f"{row['proven']} of {len(row['blocks'])} blocks proven, {said}scheduled in {row['search_s']:.2f} s"
    if row["ms"] is None:
        return f"{row['scheduler']} predicted {row['predicted_ms']:.4f} ms, {row['predicted_ratio']:.3f} of sequential"
    return f"{row['scheduler']} {row['ms']:.3f} ms, predicted {row['predicted_ms']:.3f} ms, ratio {row['ratio']:.3f}"


def _tell(status: Status, said: str, more: str) -> None:
    status.update(f"{said}: {more}")
