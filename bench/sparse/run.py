"""ResNet-18's layers with pruned weights: leaving zeros out beside our dense form and ONNX Runtime, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import report
from bench.engines.tilewright import calls
from bench.race.spread import Ratio
from bench.sparse.layers import FORMS, LAYERS, Layer
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model

ROUNDS = 25
CLOSE = 2e-3
"""Of the largest value: outputs further from ONNX Runtime's than this make a time mean nothing."""


@dataclass(frozen=True)
class Row:
    """Medians in seconds of one layer. The ratio to the dense form is the median of the rounds' ratios.

    taken  the algorithm that the search took
    """

    layer: str
    batch: int
    form: str
    share: float
    taken: str
    dense_taken: str
    sparse_s: float
    dense_s: float
    peer_s: float
    ratio: float
    low: float
    high: float
    distance: float


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where an artifact is far from ONNX Runtime; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench sparse", description=__doc__)
    names = [layer.name for layer in LAYERS]
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"of {', '.join(map(repr, names))} (default: all)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="images (default: 1 16)")
    parser.add_argument("--forms", nargs="+", choices=[*FORMS], default=[*FORMS], help="of zeros (default: all)")
    parser.add_argument(
        "--shares", type=_share, nargs="+", default=[0.7, 0.8, 0.9, 0.95], help="of zeros (default: 0.7 0.8 0.9 0.95)"
    )
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of tuning for each artifact (default: 5)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each (default: {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    if unknown := set(given.layers) - set(names):
        parser.error(f"no such layer: {', '.join(sorted(unknown))}")
    section = report.Section("sparse", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[Row] = []
    for batch in given.batch:
        for layer in LAYERS:
            if layer.name in (given.layers or names):
                rows += measured(layer, batch, given)
                if given.json:
                    report.write(given.json, [asdict(row) for row in rows])
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return int(any(row.distance > CLOSE for row in rows))


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of zeros from 0 to below 1")
    return number


def measured(layer: Layer, batch: int, given: argparse.Namespace) -> list[Row]:
    """A row for each form and share: all artifacts of a layer take turns with the dense one and ONNX Runtime."""
    kinds = [(form, share) for form in given.forms for share in given.shares]
    x = np.random.default_rng(1).standard_normal((batch, layer.depth, layer.size, layer.size)).clip(0)
    x = x.astype(np.float32)
    last = {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))}
    with tempfile.TemporaryDirectory(prefix="tilewright-sparse-") as name, ExitStack() as opened:
        folder = Path(name)
        dense = _compiled(layer, batch, layer.weights(), folder / "dense", given.budget)
        peer = _peer(layer, batch, layer.weights())
        artifacts = [
            _compiled(layer, batch, layer.weights(share, form), folder / f"{form}_{round(1e4 * share)}", given.budget)
            for form, share in kinds
        ]
        models = [opened.enter_context(Model(artifact, lanes=1)) for artifact in (dense, *artifacts)]
        distances = [
            _distance(model.run(last)["y"], _peer(layer, batch, layer.weights(share, form)).run(None, {"x": x})[0])
            for model, (form, share) in zip(models[1:], kinds, strict=True)
        ]
        ways: list[Callable[[], Any]] = [partial(model.run, last) for model in models]
        seconds = taken_in_turns([*ways, partial(peer.run, None, {"x": x})], given.rounds)
        ours, theirs, each = seconds[0], seconds[-1], seconds[1:-1]
        rows = []
        for (form, share), artifact, times, distance in zip(kinds, artifacts, each, distances, strict=True):
            ratio = Ratio.of(times, ours)
            rows.append(
                Row(
                    layer.name,
                    batch,
                    form,
                    share,
                    _taken(artifact),
                    _taken(dense),
                    median(times),
                    median(ours),
                    median(theirs),
                    ratio.value,
                    ratio.low,
                    ratio.high,
                    distance,
                )
            )
            print(f"{layer.name} batch {batch} {form} {share:.0%}: {ratio.value:.2f} by {rows[-1].taken}", flush=True)
        return rows


def _compiled(layer: Layer, batch: int, weights: np.ndarray, place: Path, budget: float) -> Path:
    model, artifact = place.with_suffix(".onnx"), place.with_suffix(".tw")
    model.write_bytes(layer.model(batch, weights, channels_last=True).SerializeToString())
    compile_model(model, artifact, CompileOptions(tuning_budget_s=budget, threads=1))
    return artifact


def _taken(artifact: Path) -> str:
    """The algorithm of the convolution."""
    found = [call["tile"].split()[0] for call in calls(artifact) if "Conv" in call["family"]]
    return ", ".join(found)


def _peer(layer: Layer, batch: int, weights: np.ndarray) -> Any:
    return single_threaded(layer.model(batch, weights, channels_last=False).SerializeToString())


def _distance(found: np.ndarray, right: np.ndarray) -> float:
    """The largest difference between channels-last and NCHW, relative to the largest value."""
    wide = found.astype(np.float64).transpose(0, 3, 1, 2) - right.astype(np.float64)
    return float(np.abs(wide).max() / np.abs(right).max())


def table(rows: Sequence[Row]) -> str:
    """A line for each layer, batch and form; times as parts of our dense form's, `=` where a dense kernel was taken."""
    shares = sorted({row.share for row in rows})
    heads = "".join(f" {share:.0%} zeros |" for share in shares)
    lines = [
        f"| layer | batch | dense ms | by | ONNX Runtime | zeros |{heads} left out from |",
        f"|---|---:|---:|---|---:|---|{'---:|' * len(shares)}---:|",
    ]
    groups: dict[tuple[str, int, str], dict[float, Row]] = {}
    for row in rows:
        groups.setdefault((row.layer, row.batch, row.form), {})[row.share] = row
    for (layer, batch, form), own in groups.items():
        first = next(iter(own.values()))
        cells = "".join(f" {_cell(own[share])} |" if share in own else " |" for share in shares)
        lines.append(
            f"| {layer} | {batch} | {1e3 * first.dense_s:.3f} | {first.dense_taken} | "
            f"{first.peer_s / first.dense_s:.2f} | {form} |{cells} {_least(own)} |"
        )
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    return f"{row.ratio:.2f}{'' if row.taken == 'sparse' else ' ='}"


def _least(own: dict[float, Row]) -> str:
    """The least share from which on zeros are left out at every share that was measured."""
    left: list[float] = []
    for share in sorted(own, reverse=True):
        if own[share].taken != "sparse":
            break
        left.append(share)
    return f"{left[-1]:.0%}" if left else "none"
