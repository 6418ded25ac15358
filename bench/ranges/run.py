"""One artifact for a range of sizes beside an artifact compiled for each size, and beside ONNX Runtime, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import public, report
from bench.asked import of_subjects
from bench.ranges.subjects import SUBJECTS, Ranged
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

ROUNDS = 15
CLOSE = 2e-3
"""Of the largest value of an output: further from ONNX Runtime's than this, a time means nothing."""


@dataclass(frozen=True)
class Row:
    """Medians in seconds at one size; `distance` is how far the range's outputs are from ONNX Runtime's."""

    model: str
    sizes: Mapping[str, int]
    is_opt: bool
    ranged: float
    exact: float
    peer: float
    distance: float


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where an artifact is far from ONNX Runtime; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench ranges", description=__doc__)
    given = of_subjects(parser, arguments, [one.name for one in SUBJECTS], ROUNDS)
    section = report.Section("ranges", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [row for one in SUBJECTS if one.name in given.models for row in measured(one, given)]
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return int(any(row.distance > CLOSE for row in rows))


def measured(one: Ranged, given: argparse.Namespace) -> list[Row]:
    """A row for each size."""
    file = public.fetch(one.name)
    peer = single_threaded(file)
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-ranges-") as folder:
        ranged = _compiled(file, Path(folder) / "ranged.tw", dict(one.dims), given.budget)
        opt = {name: size["opt"] for name, size in one.dims.items() if not isinstance(size, int)}
        for number, sizes in enumerate(one.sizes):
            exact = _compiled(file, Path(folder) / f"{number}.tw", one.at(sizes), given.budget)
            with ExitStack() as opened:
                whole, single = (opened.enter_context(Model(artifact)) for artifact in (ranged, exact))
                inputs = one.drawn({spec.name: (spec.dtype, spec.shape) for spec in single.inputs})
                found, right = whole.run(inputs), peer.run(None, inputs)
                ways = [partial(whole.run, inputs), partial(single.run, inputs), partial(peer.run, None, inputs)]
                taken = taken_in_turns(ways, given.rounds, time.perf_counter)
            seconds, alone, others = (median(own) for own in taken)
            rows.append(Row(one.name, sizes, sizes == opt, seconds, alone, others, _distance([*found.values()], right)))
            print(f"{one.name} {dict(sizes)}: {seconds / alone:.2f} of the exact one's time", flush=True)
    return rows


def _compiled(file: Path, artifact: Path, dims: dict[str, Any], budget: float) -> Path:
    compile_model(Request(file, artifact, CompileOptions(dims=dims, tuning_budget_s=budget, threads=1)))
    return artifact


def _distance(found: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """The largest difference, relative to the largest value of an output; infinite where shapes differ."""
    if any(one.shape != other.shape for one, other in zip(found, right, strict=True)):
        return float("inf")
    pairs = [(one.astype(np.float64), other.astype(np.float64)) for one, other in zip(found, right, strict=True)]
    return max(float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30)) for a, b in pairs)


def table(rows: Sequence[Row]) -> str:
    """The rows as a table; `*` marks the size that the range is tuned for."""
    lines = [
        "| model | sizes | range ms | exact ms | range / exact | ONNX Runtime / range |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        sizes = ", ".join(map(str, row.sizes.values())) + ("*" if row.is_opt else "")
        lines.append(
            f"| {row.model} | {sizes} | {1e3 * row.ranged:.2f} | {1e3 * row.exact:.2f} | "
            f"{row.ranged / row.exact:.2f} | {row.peer / row.ranged:.2f} |"
        )
    return "\n".join(lines) + "\n"
