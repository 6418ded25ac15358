"""Error, decisions and CPU time of compressed networks beside their dense forms, by the error allowed, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import report
from bench.quantize.subjects import SUBJECTS, Deciding
from bench.subjects import subject
from bench.turns import taken_in_turns
from compiler.compress import compress
from compiler.contract import CompileOptions, CompressOptions
from compiler.errors import BudgetMissed
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

NETWORKS = ("resnet18",)
ERRORS = (0.05, 0.1, 0.2)
ROUNDS = 40
SAMPLES = 6


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench compress", description=__doc__)
    parser.add_argument(
        "networks",
        nargs="*",
        metavar="NETWORK",
        help="of the zoo, magika or mnist_conv (default: resnet18)",
    )
    parser.add_argument("--errors", type=float, nargs="+", default=ERRORS, help="largest errors, relative L2")
    parser.add_argument(
        "--form", default="unstructured", help="unstructured, 1x4, 1x16, 4x16, 2:4, combined, codebook or low_rank"
    )
    parser.add_argument("--method", default="obs", help="obs, wanda or magnitude")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"inferences of each (default: {ROUNDS})")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of measuring layers (default: 0)")
    parser.add_argument("--tuning", type=float, default=0.0, help="seconds of tuning for each artifact (default: 0)")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the tables there too")
    given = parser.parse_args(arguments)
    section = report.Section("compress", arguments, ())
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-compress-") as place:
        folder = Path(place)
        for name in given.networks or NETWORKS:
            deciding = [one for one in SUBJECTS if one.name == name]
            file = deciding[0].file(folder) if deciding else subject(name, folder).file
            samples = {"inputs": archive(deciding[0], folder)} if deciding else {}
            rows += pruned(name, file, folder, given, samples)
            print(table(rows), flush=True)
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def archive(one: Deciding, folder: Path, most: int = 32) -> Path:
    """Inputs like real ones, of which a quarter is held out by the compression."""
    inputs = one.inputs()
    np.random.default_rng(0).shuffle(inputs)
    path = folder / f"{one.name}.npz"
    np.savez(path, **{one.input: inputs[:most, None]})  # type: ignore[arg-type]
    return path


def pruned(
    name: str, file: Path, folder: Path, given: argparse.Namespace, samples: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """A row for each error that is allowed: what was saved, predicted and taken."""
    rows = []
    known: list[Mapping[str, Any]] = []

    def observe(event: Any) -> None:
        if event.kind == "record":
            known.append(event.data)

    for allowed in given.errors:
        out = folder / f"{name}.{allowed:g}.onnx"
        options = CompressOptions(
            largest_error=allowed,
            form=given.form,
            method=given.method,
            tuning_budget_s=given.budget,
            derived_samples=SAMPLES,
        )
        try:
            found = compress(file, out, options, samples, observe, records=known)
        except BudgetMissed:
            continue
        seconds = timed((file, out), folder, given.rounds, given.tuning)
        (agree,) = {one.agree for one in found.outputs} or {None}
        rows.append(
            {
                "model": name,
                "form": f"{given.form}, {given.method}",
                "allowed": allowed,
                "error": found.error,
                "expected": found.expected_error,
                "agree": agree,
                "sparsity": f"{found.sparsity:.1%} {found.saved}",
                "predicted": found.predicted_ms / found.dense_ms,
                "dense": seconds[0],
                "pruned": seconds[1],
            }
        )
    return rows


def timed(files: Sequence[Path], folder: Path, rounds: int, budget: float) -> list[float]:
    """Median CPU seconds of our artifacts of these files on one thread, in turns."""
    with ExitStack() as opened:
        ways = []
        for at, file in enumerate(files):
            artifact = folder / f"{at}.tw"
            compile_model(Request(file, artifact, CompileOptions(threads=1, tuning_budget_s=budget)))
            model = opened.enter_context(Model(artifact))
            ways.append(partial(model.run, model.random_inputs(0)))
        return [median(taken) for taken in taken_in_turns(ways, rounds)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Errors, shares of what is saved and ratios of time."""
    head = (
        "| model | form, method | error allowed | error found | by the sum | decisions agree | saved | "
        "predicted time | dense ms | ms | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['model']} | {row['form']} | {row['allowed']:g} | {row['error']:.3f} | {row['expected']:.3f} | "
        f"{'' if row['agree'] is None else format(row['agree'], '.0%')} | {row['sparsity']} | "
        f"{row['predicted']:.2f} | {1e3 * row['dense']:.3f} | {1e3 * row['pruned']:.3f} | "
        f"{row['pruned'] / row['dense']:.2f} |\n"
        for row in rows
    )
