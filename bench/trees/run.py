"""Ensembles of decision trees in the artifact and in ONNX Runtime, one thread, in turns, through Python.

Each run gets other samples than the one before: with the same ones a processor learns which way branches go.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.trees.forests import ENSEMBLES, FEATURES, Ensemble, model_of
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Host, Request

ROWS = (1, 1000)
DIFFERENT = 256
"""Rows of samples that are drawn for each row of a run, up to a number that fits a cache."""
ROUNDS = 21


@dataclass(frozen=True)
class Row:
    """Seconds of one run in each round; `error` is the greatest difference of an output from the peer's."""

    name: str
    rows: int
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    error: float


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments. Raises where outputs differ by more than rounding."""
    parser = argparse.ArgumentParser(prog="python -m bench trees", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of turns (default: {ROUNDS})")
    parser.add_argument("--only", metavar="TEXT", default="", help="ensembles whose names have it")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    chosen = [name for name in ENSEMBLES if given.only in name]
    if not chosen:
        parser.error(f"no ensemble has {given.only!r} in its name: {', '.join(ENSEMBLES)}")
    section = report.Section("trees", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    text = table([measured(name, ENSEMBLES[name], rows, given.rounds) for name in chosen for rows in ROWS])
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def measured(name: str, ensemble: Ensemble, rows: int, rounds: int) -> Row:
    """One ensemble at one number of samples. Raises AssertionError where the outputs differ."""
    source = model_of(ensemble, rows)
    peer = single_threaded(source)
    random = np.random.default_rng(1)
    count = max(DIFFERENT // rows, 4)
    feeds = [{"x": random.normal(size=(rows, FEATURES)).astype(np.float32)} for _ in range(count)]
    with tempfile.TemporaryDirectory(prefix="tilewright-trees-") as folder:
        file, artifact = Path(folder) / "model.onnx", Path(folder) / "model.tw"
        file.write_bytes(source)
        compile_model(Request(file, artifact, CompileOptions(threads=1)), Host(measure=False))
        with Model(artifact) as model:
            error = max(_error(model, peer, feed) for feed in feeds)
            turns = _next(feeds, model.run), _next(feeds, lambda feed: peer.run(None, feed))
            ours, others = taken_in_turns(turns, rounds)
    return Row(name, rows, tuple(ours), tuple(others), error)


def _next(feeds: Sequence[Any], run: Callable[[Any], Any]) -> Callable[[], Any]:
    endless = itertools.cycle(feeds)
    return lambda: run(next(endless))


def _error(model: Model, peer: Any, feed: dict[str, np.ndarray]) -> float:
    found, wanted = list(model.run(feed).values()), peer.run(None, feed)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return max(float(np.max(np.abs(one - other))) for one, other in zip(found, wanted, strict=True))


def table(rows: Sequence[Row]) -> str:
    """Medians, and the median of ratios of neighbours with the 10th and the 90th percentile."""
    lines = ["| ensemble | rows | ours us | ONNX Runtime us | ours / ORT | error |", "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        ratios = np.array(row.ours) / np.array(row.peer)
        low, middle, high = np.percentile(ratios, [10, 50, 90])
        times = " | ".join(f"{1e6 * float(np.median(one)):.1f}" for one in (row.ours, row.peer))
        lines.append(f"| {row.name} | {row.rows} | {times} | {middle:.2f} ({low:.2f}..{high:.2f}) | {row.error:.1e} |")
    return "\n".join(lines) + "\n"
