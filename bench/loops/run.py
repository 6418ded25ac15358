"""Greedy decoders as one Loop, in the artifact and in ONNX Runtime, one thread, in turns."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import report
from bench.loops.decoder import greedy_decoder
from bench.turns import single_threaded
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

STEPS = 448
ROUNDS = 15
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "small": (128, 4, 2, 2000),
    "tiny whisper": (384, 6, 4, 8000),
}
"""Width, heads, layers and words of a decoder."""


@dataclass(frozen=True)
class Row:
    """Seconds of each inference, in turns; `is_equal`: whether all tokens are."""

    name: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    is_equal: bool


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where tokens differ from ONNX Runtime's; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench loops", description=__doc__)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning for each artifact (default: 0)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"inferences of each (default: {ROUNDS})")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    section = report.Section("loops", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [measured(name, growing, given) for name in SIZES for growing in (False, True)]
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return int(not all(row.is_equal for row in rows))


def measured(name: str, growing: bool, given: argparse.Namespace) -> Row:
    """One decoder, whose caches grow or have a fixed capacity."""
    width, heads, layers, words = SIZES[name]
    source = greedy_decoder(width, heads, layers, words, STEPS, growing=growing)
    peer = single_threaded(source)
    ours, others, is_equal = [], [], True
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as folder:
        file, artifact = Path(folder) / "model.onnx", Path(folder) / "model.tw"
        file.write_bytes(source)
        compile_model(Request(file, artifact, CompileOptions(tuning_budget_s=given.budget, threads=1)))
        with Model(artifact) as model:
            for number in range(given.rounds + 1):
                feeds = {"start": np.array([number], np.int64)}
                begin = time.perf_counter()
                found = model.run(feeds)["tokens"]
                middle = time.perf_counter()
                wanted = peer.run(None, feeds)[0]
                end = time.perf_counter()
                is_equal &= np.array_equal(found, wanted)
                if number:
                    ours.append(middle - begin)
                    others.append(end - middle)
    return Row(f"{name}, {'growing' if growing else 'fixed'} caches", tuple(ours), tuple(others), is_equal)


def table(rows: Sequence[Row]) -> str:
    """Medians, and the median of ratios of neighbours with the 10th and the 90th percentile."""
    lines = ["| decoder | ours ms | ONNX Runtime ms | ours / ORT | tokens |", "|---|---|---|---|---|"]
    for row in rows:
        ratios = np.array(row.ours) / np.array(row.peer)
        low, middle, high = np.percentile(ratios, [10, 50, 90])
        times = " | ".join(f"{1e3 * float(np.median(one)):.1f}" for one in (row.ours, row.peer))
        said = "equal" if row.is_equal else "DIFFERENT"
        lines.append(f"| {row.name} | {times} | {middle:.2f} ({low:.2f}..{high:.2f}) | {said} |")
    return "\n".join(lines) + "\n"
