"""The demo: each model compiled over HTTP, downloaded, run, compared with ONNX Runtime and timed beside it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

import tilewright
from bench.asked import positive
from bench.demo import table
from bench.demo.subjects import COSTS, ZOO, Skipped, choose
from bench.engines.catalogue import OURS
from bench.engines.driver import EngineFailed
from bench.race.cores import probe
from bench.race.outputs import largest_difference
from bench.race.race import ROUNDS, Contender, Race, race
from bench.race.spread import Spread
from bench.server import server
from bench.subject import Subject
from bench.subjects import check
from bench.zoo import NoSuchNetwork
from tilewright import Client, Job
from tilewright.cli.progress import job_bar
from tilewright.errors import ClientError
from tilewright.up import page

OUT = Path("build")
AGREES_WITHIN = 1e-2
"""Of ONNX Runtime's outputs, relative to the largest value. Both compute in fp32; the proof is against the
reference."""
FIRST_BUDGET_S, BUDGET_S = 4.0, 8.0
"""Of tuning, of the first of the demo's own models, whose result is there within a minute on two slow cores; of others.
"""
FIRST_ROUNDS = 6
"""Of the first one's race, at most."""
LIMIT_S = 240.0
"""Which the demo's own models take together: one that would go past it, by what others took, is left out."""
PEER = "onnxruntime"
VERSIONS = (PEER, "onnx", "numpy")


@dataclass(frozen=True)
class Demo:
    """All that the demo found, as `demo.json` holds it."""

    machine: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    skipped: Sequence[Mapping[str, str]]
    seconds: float
    repeat: str
    passed: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", all("problem" not in row for row in self.rows))


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a model failed; 2 for wrong arguments; 3 when no server came up; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench demo", description=__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="of the zoo or the public set (default: the demo's own)"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="where demo.json, demo/ and demo-data/ go (default: build)"
    )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="of each race")
    parser.add_argument("--json", action="store_true", help="print demo.json to standard output")
    parser.add_argument(
        "--stay",
        action=argparse.BooleanOptionalAction,
        help="leave the page open afterwards, until Ctrl-C (default: on a terminal)",
    )
    given = parser.parse_args(arguments)
    stay = given.stay if given.stay is not None else sys.stdin.isatty() and sys.stderr.isatty() and not given.json
    console = Console(stderr=True, highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    file = given.out / "demo.json"

    def done(demo: Demo) -> None:
        write(file, asdict(demo))
        if given.json:
            print(file.read_text(), end="")
        else:
            table.show(Console(highlight=False), asdict(demo), file)

    try:
        for name in given.models:
            check(name)
        passed = run(given.models, given.out, given.rounds, Telling(console, quiet=given.json), done, stay=stay)
    except NoSuchNetwork as error:
        parser.error(str(error))
    except ClientError as error:
        console.print(f"{error.message}\nFix: {error.fix}", markup=False)
        return error.exit_status
    except KeyboardInterrupt:
        console.print("interrupted; every process of the demo is gone")
        return 130
    return 0 if passed else 1


@dataclass(frozen=True)
class Telling:
    """What is said while the demo runs, each line with the seconds since it began."""

    console: Console
    quiet: bool = False
    """Without bars."""
    begin: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.begin

    def __call__(self, text: str) -> None:
        """Say it."""
        self.console.print(f"[{self.seconds:4.0f} s] {text}", markup=False, soft_wrap=True)


def run(
    names: Sequence[str],
    out: Path,
    rounds: int,
    tell: Telling,
    done: Callable[[Demo], None],
    *,
    stay: bool = False,
) -> bool:
    """The whole demo: the first model as soon as may be, then the others; whether none failed.

    A model that fails makes a row with its `problem`. `done` is given what was found, before the server ends; with
    `stay` that is when the user says so. Raises `ClientError` when there is no server.
    """
    folder = out / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    data = out.resolve() / "demo-data"
    head = names[0] if names else ZOO[0]
    budget = None if names else FIRST_BUDGET_S
    tell(f"a server of its own starts (log: {data}.log); {head} goes first")
    subjects, skipped = choose([head], folder)
    rows = []
    with server(data) as client:
        machine = machine_facts(client)
        for subject in subjects:
            few = rounds if names else min(rounds, FIRST_ROUNDS)
            seen = partial(show_page, client, data, tell)
            rows.append(row_of(client, budgeted(subject, budget), folder, few, tell, seen))
        others, more = choose(names[1:], folder) if len(names) != 1 else ([], [])
        others = sorted((one for one in others if one.name != head), key=lambda one: cost_of(one.name))
        skipped += more
        if others:
            tell(f"then {', '.join(subject.name for subject in others)}")
        for subject in others:
            if not names and tell.seconds + cost_of(subject.name) * unit_s(rows) > LIMIT_S:
                skipped.append(Skipped(subject.name, f"it would take the demo past {LIMIT_S / 60:.0f} minutes"))
                continue
            own = budgeted(subject, None if names else BUDGET_S)
            rows.append(row_of(client, own, folder, rounds, tell))
        for left in skipped:
            tell(f"{left.name} is skipped: {left.reason}")
        repeat = by_hand(out, subjects[0]) if subjects else ""
        demo = Demo(machine, rows, [asdict(left) for left in skipped], tell.seconds, repeat)
        done(demo)
        if stay:
            wait(client, tell)
    return demo.passed


def budgeted(subject: Subject, budget_s: float | None) -> Subject:
    """The model with this tuning budget, in seconds; None: the service's default."""
    if budget_s is None:
        return subject
    return replace(subject, options={**subject.options, "tuning_budget_s": budget_s})


def cost_of(name: str) -> float:
    """How long a model takes, in times of the first."""
    return COSTS.get(name, 1.0)


def unit_s(rows: Sequence[Mapping[str, Any]]) -> float:
    """Seconds that a model of cost 1 may take, by those that are done: by the slowest of them."""
    return max((float(row["seconds"]) / cost_of(row["model"]) for row in rows), default=0.0)


def show_page(client: Client, data: Path, tell: Telling, job: str) -> None:
    """Say where the job is seen while the demo goes on."""
    entrance = page.link(client.url, data / "api_key")
    at = f"/jobs/{job}" if "/#/" in entrance else f"/#/jobs/{job}"
    tell(f"its page, signed in (the link works once, while the demo runs): {entrance}{at}")


def wait(client: Client, tell: Telling) -> None:
    """Until Ctrl-C."""
    tell(f"the page stays open at {client.url}; Ctrl-C ends the demo")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def row_of(
    client: Client,
    subject: Subject,
    folder: Path,
    rounds: int,
    tell: Telling,
    submitted: Callable[[str], None] = lambda job: None,
) -> dict[str, Any]:
    """One model: compiled, downloaded to `folder`, run in both engines. What fails ends up under `problem`.

    `submitted` is told the job's id before it is waited for.
    """
    row: dict[str, Any] = {"model": subject.name, "source": subject.source}
    artifact = folder / f"{subject.name}.tw"
    artifact.unlink(missing_ok=True)
    begin = tell.seconds
    tell(f"{subject.name} ({subject.source}) is compiled")
    try:
        with job_bar(quiet=tell.quiet) as show:
            made = client.compile(subject.file, subject.options, fresh=True)
            submitted(made.id)
            job = client.wait(made, show).require_success()
        row["job"] = job.id
        row |= compiled(job, client.report(job)["report"])
        row["artifact"] = str(client.download(job, artifact))
        tell(
            f"{subject.name}: {row['kernels']} kernels for {row['nodes']} operators, largest error "
            f"{row['max_rel_error']:.1e} of {row['tolerance']:.0e}; it is raced with ONNX Runtime"
        )
        row |= raced(subject, artifact, rounds, tell)
        if not row["onnxruntime_difference"] <= AGREES_WITHIN:
            raise EngineFailed(
                f"ONNX Runtime's outputs differ by {row['onnxruntime_difference']}", fix="report this model"
            )
    except ClientError as error:
        tell(f"{subject.name} failed: {error.message}\nFix: {error.fix}")
        row["problem"] = error.to_json()
    row["seconds"] = tell.seconds - begin
    return row


def compiled(job: Job, report: Mapping[str, Any]) -> dict[str, Any]:
    """What the job and its report say of a compilation."""
    return {
        "nodes": report["nodes"],
        "kernels_before": report["kernels_before_fusion"],
        "kernels": report["kernels"],
        "phase_seconds": report["phase_seconds"],
        "compile_seconds": job.said["run_seconds"],
        "queue_seconds": job.said["queue_seconds"],
        "arena_bytes": report["arena_bytes"],
        "weight_bytes": report["weight_bytes"],
        "max_rel_error": max((error["max_relative"] for error in report["errors"]), default=0.0),
        "tolerance": report["tolerance"],
        "records_measured": report["records_measured"],
        "hardware": report["hardware"],
        "notices": report["notices"],
    }


def raced(subject: Subject, artifact: Path, rounds: int, tell: Telling) -> dict[str, Any]:
    """Both engines on all lanes of the plan, and on one thread; the first is told as soon as it is known."""
    with tilewright.load(artifact) as loaded:
        inputs = loaded.random_inputs() if subject.inputs is None else subject.inputs
        lanes = int(loaded.manifest["lanes"])
    contenders = (Contender(OURS, artifact), Contender(PEER, subject.file))
    with probe() as cores, tell.console.status("") as status:

        def races(threads: int) -> Race:
            where = f"{subject.name} beside ONNX Runtime, {threads} thread{'s' * (threads > 1)}"
            status.update(f"{where}: round 1")
            return race(contenders, inputs, threads, cores, rounds=rounds, watch=lambda over: at(where, over))

        def at(where: str, over: int) -> None:
            status.update(f"{where}: round {over + 1}")

        all_lanes = races(lanes)
        found = to_json(all_lanes)
        tell(f"{subject.name}: {sentence(found)}")
        alone = found if lanes == 1 else to_json(races(1))
    return {**found, "one_thread": alone}


def sentence(found: Mapping[str, Any]) -> str:
    """Both medians, and how many times as fast ours is in 80 of 100 rounds, if that tells which is faster."""
    ours, theirs, ratio = found["ours_ms"]["median"], found["onnxruntime_ms"]["median"], found["ratio"]
    spread = f"{ratio['p10']:.2f} to {ratio['p90']:.2f}"
    times = f"{ratio['median']:.2f} times as fast ({spread})"
    if ratio["p10"] <= 1 <= ratio["p90"]:
        times = f"cannot tell which is faster ({spread} times as fast)"
    threads = f"{found['threads']} thread{'s' * (found['threads'] > 1)}"
    return f"{ours:.3g} ms; ONNX Runtime {theirs:.3g} ms: {times} on {threads}"


def to_json(result: Race) -> dict[str, Any]:
    """Plain JSON.

    The ratio is ONNX Runtime's time over ours, above 1 where ours is faster; its spread is that between rounds.
    """
    ratios = [theirs / ours for ours, theirs in zip(result.medians(OURS), result.medians(PEER), strict=True)]
    return {
        "threads": result.threads,
        "ours_ms": asdict(result.ms(OURS)),
        "onnxruntime_ms": asdict(result.ms(PEER)),
        "ratio": asdict(Spread.of(ratios)),
        "onnxruntime_difference": largest_difference(result.outputs[OURS], result.outputs[PEER]),
    }


def machine_facts(client: Client) -> dict[str, Any]:
    """What the worker says of its machine, the load before the demo, and the versions of the peers."""
    facts: Mapping[str, Any] = client.workers()[0].hardware
    kept = ("model", "machine", "system", "cores", "memory_bytes", "l1_bytes", "l2_bytes", "target", "fingerprint")
    versions = {"python": ".".join(map(str, sys.version_info[:3])), **{name: version(name) for name in VERSIONS}}
    return {
        **{name: facts[name] for name in kept if name in facts},
        "load_average": os.getloadavg()[0],
        "versions": versions,
    }


def by_hand(out: Path, subject: Subject) -> str:
    """Shell lines that repeat the compilation of `subject`."""
    data = out / "demo-data"
    return (
        f"tilewright up --data {data} &\n"
        f'curl -H "Authorization: Bearer $(cat {data}/api_key)" -F model=@{subject.file} '
        f"'http://127.0.0.1:8750/compile?fresh=true'"
    )


def write(file: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(document, indent=2, default=str) + "\n")
    draft.replace(file)
