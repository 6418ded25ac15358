"""The demo: each model compiled over HTTP, downloaded, run, compared with ONNX Runtime and timed beside it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

import tilewright
from bench.asked import positive
from bench.demo import table
from bench.demo.subjects import choose
from bench.engines.catalogue import OURS
from bench.engines.driver import EngineFailed
from bench.race.cores import probe
from bench.race.outputs import largest_difference
from bench.race.race import ROUNDS, Contender, Race, race
from bench.race.spread import Spread
from bench.server import server
from bench.subject import Subject
from bench.zoo import NoSuchNetwork
from tilewright import Client, Job
from tilewright.cli.progress import job_bar
from tilewright.errors import ClientError

OUT = Path("build")
AGREES_WITHIN = 1e-2
"""Of ONNX Runtime's outputs, relative to the largest value. Both compute in fp32; the proof is against the
reference."""
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
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        demo = run(given.models, given.out, given.rounds, console, quiet=given.json)
    except NoSuchNetwork as error:
        parser.error(str(error))
    except ClientError as error:
        console.print(f"{error.message}\nFix: {error.fix}", markup=False)
        return error.exit_status
    except KeyboardInterrupt:
        console.print("interrupted; every process of the demo is gone")
        return 130
    file = given.out / "demo.json"
    write(file, asdict(demo))
    if given.json:
        print(file.read_text(), end="")
    else:
        table.show(Console(highlight=False), asdict(demo), file)
    return 0 if demo.passed else 1


def run(names: Sequence[str], out: Path, rounds: int, console: Console, *, quiet: bool) -> Demo:
    """The whole demo; a model that fails makes a row with its `problem`.

    Raises `ClientError` when there is no server.
    """
    begin = time.monotonic()
    folder = out / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    subjects, skipped = choose(names, folder)
    for left in skipped:
        console.print(f"{left.name} is skipped: {left.reason}", markup=False)
    if skipped and not names:
        console.print(f"the zoo stands in for them: {', '.join(subject.name for subject in subjects)}", markup=False)
    with server(out.resolve() / "demo-data") as client:
        machine = machine_facts(client)
        for subject in subjects:
            console.print(f"{subject.name} ({subject.source})", markup=False)
            rows.append(row_of(client, subject, folder / f"{subject.name}.tw", rounds, console, quiet=quiet))
    first = subjects[0] if subjects else None
    seconds = time.monotonic() - begin
    return Demo(machine, rows, [asdict(left) for left in skipped], seconds, by_hand(out, first) if first else "")


def row_of(
    client: Client, subject: Subject, artifact: Path, rounds: int, console: Console, *, quiet: bool
) -> dict[str, Any]:
    """One model: compiled, downloaded, run in both engines. What fails ends up under `problem`."""
    row: dict[str, Any] = {"model": subject.name, "source": subject.source}
    artifact.unlink(missing_ok=True)
    try:
        with job_bar(quiet=quiet) as show:
            job = client.wait(client.compile(subject.file, subject.options, fresh=True), show).require_success()
        row |= compiled(job, client.report(job)["report"])
        row["artifact"] = str(client.download(job, artifact))
        with console.status("timing beside ONNX Runtime"):
            row |= raced(subject, artifact, rounds)
        if not row["onnxruntime_difference"] <= AGREES_WITHIN:
            raise EngineFailed(
                f"ONNX Runtime's outputs differ by {row['onnxruntime_difference']}", fix="report this model"
            )
    except ClientError as error:
        console.print(f"{subject.name} failed: {error.message}\nFix: {error.fix}", markup=False)
        row["problem"] = error.to_json()
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


def raced(subject: Subject, artifact: Path, rounds: int) -> dict[str, Any]:
    """Both engines on all lanes of the plan, and on one thread."""
    with tilewright.load(artifact) as loaded:
        inputs = loaded.random_inputs() if subject.inputs is None else subject.inputs
        lanes = int(loaded.manifest["lanes"])
    contenders = (Contender(OURS, artifact), Contender(PEER, subject.file))
    with probe() as cores:
        all_lanes = race(contenders, inputs, lanes, cores, rounds=rounds)
        alone = all_lanes if lanes == 1 else race(contenders, inputs, 1, cores, rounds=rounds)
    return {**to_json(all_lanes), "one_thread": to_json(alone)}


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
