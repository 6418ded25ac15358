"""Models of speech at 1, 3 and 12 seconds of sound from one artifact, beside ONNX Runtime, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from bench import report
from bench.asked import of_subjects
from bench.speech.subjects import SUBJECTS, Speech, fetch
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

ROUNDS = 9


@dataclass(frozen=True)
class Row:
    """Medians, in seconds of processor time, of runs for `sound` seconds of sound.

    exact     of an artifact made for this length, None where that was not asked for
    distance  of the first output from ONNX Runtime's, relative to its largest value; infinite where sizes differ
    spread    (the third quartile less the first) / median of our time over ONNX Runtime's in a round
    """

    model: str
    sound: float
    ours: float
    peer: float
    exact: float | None
    distance: float
    spread: float


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench speech", description=__doc__)
    parser.add_argument("--exact", action="store_true", help="also an artifact for the shortest length alone")
    parser.add_argument("--artifacts", type=Path, metavar="PATH", help="keep artifacts there, and take those there are")
    given = of_subjects(parser, arguments, [one.name for one in SUBJECTS], ROUNDS)
    section = report.Section("speech", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [row for one in SUBJECTS if one.name in given.models for row in measured(one, given)]
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def measured(one: Speech, given: argparse.Namespace) -> list[Row]:
    """A row for each length."""
    rows = []
    with ExitStack() as opened:
        scratch = opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewright-speech-"))
        folder: Path = given.artifacts or Path(scratch)
        file = fetch(one, Path(scratch))
        peer = single_threaded(file)
        whole = opened.enter_context(Model(_compiled(one, file, folder, given.budget)))
        for place, length in enumerate(one.lengths):
            feeds = one.feeds(length)
            takes = {spec.name: feeds[spec.name] for spec in whole.inputs}
            ways = [partial(whole.run, takes), partial(peer.run, None, dict(feeds))]
            if given.exact and one.axis and not place:
                exact = opened.enter_context(Model(_compiled(one, file, folder, given.budget, length)))
                ways.append(partial(exact.run, takes))
            found, right = next(iter(whole.run(takes).values())), peer.run(None, dict(feeds))[0]
            taken = taken_in_turns(ways, given.rounds)
            sound = one.samples(length, right) / one.rate
            rows.append(row_of(one.name, sound, taken, distance(found, right)))
            print(f"{one.name} {sound:.2f} s: {rows[-1].ours / rows[-1].peer:.2f} of ONNX Runtime's time", flush=True)
    return rows


def row_of(name: str, sound: float, taken: Sequence[Sequence[float]], far: float) -> Row:
    """What rounds of us, of ONNX Runtime and perhaps of an artifact for this length say."""
    ratios = [ours / peer for ours, peer in zip(taken[0], taken[1], strict=True)]
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    ours, peer, *exact = map(median, taken)
    return Row(name, sound, ours, peer, exact[0] if exact else None, far, float((high - low) / middle))


def _compiled(one: Speech, file: Path, folder: Path, budget: float, length: int | None = None) -> Path:
    """An artifact for all lengths, or for one."""
    artifact = folder / f"{one.name}{'' if length is None else f'-{length}'}.tw"
    if not artifact.is_file():
        options = dict(one.options) if length is None else one.at(length)
        options |= {"tuning_budget_s": budget, "threads": 1}
        folder.mkdir(parents=True, exist_ok=True)
        compile_model(Request(file, artifact, CompileOptions.from_json(options)))
    return artifact


def distance(found: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest value; infinite where sizes differ."""
    if found.size != right.size:
        return float("inf")
    differences = np.abs(found.ravel().astype(np.float64) - right.ravel())
    return float(differences.max(initial=0) / max(np.abs(right).max(initial=0), 1e-30))


def table(rows: Sequence[Row]) -> str:
    """The rows as a table. The real-time factor is the seconds that a second of sound takes."""
    lines = [
        "| model | sound s | ms | real-time factor | over ONNX Runtime | spread | over exact | distance |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        alone = "" if row.exact is None else f"{row.ours / row.exact:.2f}"
        lines.append(
            f"| {row.model} | {row.sound:.2f} | {1e3 * row.ours:.1f} | {row.ours / row.sound:.4f} | "
            f"{row.ours / row.peer:.2f} | {row.spread:.2f} | {alone} | {row.distance:.1e} |"
        )
    return "\n".join(lines) + "\n"
