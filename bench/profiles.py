"""`python -m bench profiles`: one artifact for all of x86-64 beside ONNX Runtime, and beside artifacts for one profile.

The artifacts for one profile are made of the measurements that the common one packs, so that both have the same tiles:
what differs is the artifact. All run on one thread, in turns, by this process's time on its core.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench import subjects
from bench.asked import seconds
from bench.ending import ended
from bench.report import write
from bench.subject import Subject
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions, kinds
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Host, Request

FAMILY = kinds.X86.name
NETWORKS = ("squeezenet1_1", "resnet18", "mobilenet_v2")
LOADS = 5
"""Of which the least time counts: what else the machine does takes a part of each."""


@dataclass(frozen=True)
class Row:
    """One model under one profile: `ms` of the common artifact, `over_alone` over that of the profile's own artifact.

    common_mib, alone_mib, model_mib  sizes of the files
    load_ms                           of the common artifact, its digests checked
    over_peer                         over ONNX Runtime, which takes what the processor has
    """

    model: str
    profile: str
    ms: float
    over_alone: float
    over_peer: float
    load_ms: float
    common_mib: float
    alone_mib: float
    model_mib: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for what cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m bench profiles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"(default: {', '.join(NETWORKS)})")
    parser.add_argument("--budget", type=seconds, default=30.0, help="seconds of tuning, for all profiles (default 30)")
    parser.add_argument("--rounds", type=int, default=15, help="(default 15)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    console = Console()

    def measure() -> int:
        for name in given.models:
            subjects.check(name)
        with tempfile.TemporaryDirectory(prefix="tilewright-profiles-") as folder:
            for name in given.models or NETWORKS:
                rows.extend(measured(subjects.subject(name, Path(folder)), Path(folder), given.budget, given.rounds))
                if given.json:
                    write(given.json, [asdict(row) for row in rows])
        console.print(table(rows), soft_wrap=True)
        return 0

    return ended(measure, parser, console)


def measured(subject: Subject, folder: Path, budget: float, rounds: int) -> list[Row]:
    """A row for each profile that this machine can run."""
    options: dict[str, Any] = {**subject.options, "threads": 1, "compare": []}
    common = folder / f"{subject.name}.tw"
    whole = CompileOptions.from_json({**options, "target": FAMILY, "tuning_budget_s": budget})
    compile_model(Request(subject.file, common, whole))
    with zipfile.ZipFile(common) as archive:
        described = json.loads(archive.read("manifest.json"))
        records = [json.loads(line) for line in archive.read("records.jsonl").splitlines()]
    here = {profile.name for profile in PROFILES if runs_here(profile)}
    targets = [one["target"] for one in described["profiles"] if one["target"] in here]
    with ExitStack() as stack:
        ways: list[Callable[[], Any]] = []
        alone = {target: folder / f"{subject.name}.{target[4:]}.tw" for target in targets}
        loads = []
        for target in targets:
            own = CompileOptions.from_json({**options, "target": target, "tuning_budget_s": 0.0})
            compile_model(Request(subject.file, alone[target], own), Host(records))
            pair = [stack.enter_context(Model(common, target=target)), stack.enter_context(Model(alone[target]))]
            inputs = subject.inputs or pair[0].random_inputs()
            loads.append(min(Model(common, target=target).load_seconds for _ in range(LOADS)))
            ways += [partial(model.run, inputs) for model in pair]
        peer = single_threaded(subject.file)
        ways.append(lambda: peer.run(None, dict(inputs)))
        *ours, theirs = taken_in_turns(ways, rounds)
    pairs = list(zip(ours[::2], ours[1::2], strict=True))
    return [
        Row(
            subject.name,
            target,
            1e3 * median(one),
            median(a / b for a, b in zip(one, other, strict=True)),
            median(a / b for a, b in zip(one, theirs, strict=True)),
            1e3 * load,
            *(path.stat().st_size / 2**20 for path in (common, alone[target], subject.file)),
        )
        for target, (one, other), load in zip(targets, pairs, loads, strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """As a page of results shows it."""
    lines = [
        "| model | profile | ms | over its own artifact | over ONNX Runtime | load ms | MiB | own MiB | model MiB |"
    ]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        figures = (f"{row.ms:.3f}", f"{row.over_alone:.3f}", f"{row.over_peer:.3f}", f"{row.load_ms:.1f}")
        sizes = (f"{size:.2f}" for size in (row.common_mib, row.alone_mib, row.model_mib))
        lines.append(f"| {' | '.join((row.model, row.profile.partition(':')[2], *figures, *sizes))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
