"""Layers of known networks with pruned weights: leaving zeros out beside our dense form and dense peers, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import openvino

from bench import report
from bench.engines.tilewright import calls
from bench.race.spread import Ratio
from bench.sparse.layers import FORMS, LAYERS, Layer, with_channels_last
from bench.sparse.picture import picture
from bench.sparse.row import Row
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model

ROUNDS = 25
PEERS = ("onnxruntime", "openvino")
CLOSE = 2e-3
"""Of the largest value: outputs further from ONNX Runtime's than this make a time mean nothing."""


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
    parser.add_argument("--svg", type=Path, metavar="PATH", help="draw the table there")
    given = parser.parse_args(arguments)
    if unknown := set(given.layers) - set(names):
        parser.error(f"no such layer: {', '.join(sorted(unknown))}")
    section = report.Section("sparse", arguments, PEERS)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[Row] = []
    for batch in given.batch:
        for layer in LAYERS:
            if layer.name in (given.layers or names):
                rows += measured(layer, batch, given)
                if given.json:
                    report.write(given.json, [asdict(row) for row in rows])
    if given.svg:
        given.svg.write_text(picture(rows))
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
    """A row for each form and share: all artifacts of a layer take turns with the dense one and the peers.

    Every engine reads and fills arrays of its own, so that its call is all that is timed.
    """
    kinds = [(form, share) for form in given.forms for share in given.shares]
    x, ours_x = (layer.input(batch, channels_last=last) for last in (False, True))
    with tempfile.TemporaryDirectory(prefix="tilewright-sparse-") as name, ExitStack() as opened:
        folder = Path(name)
        dense = _compiled(layer, batch, 0.0, given.forms[0], folder, given.budget)
        theirs = layer.pruned(batch, 0.0, given.forms[0], channels_last=False).SerializeToString()
        peers = {"onnxruntime": _onnxruntime(theirs, x), "openvino": _openvino(theirs, x)}
        artifacts = [_compiled(layer, batch, share, form, folder, given.budget) for form, share in kinds]
        models = [opened.enter_context(Model(artifact, lanes=1)) for artifact in (dense, *artifacts)]
        distances = [
            _distance(model.run_flat([ours_x])[0], _expected(layer, batch, share, form, x))
            for model, (form, share) in zip(models[1:], kinds, strict=True)
        ]
        results = [np.zeros(spec.shape, np.float32) for spec in models[0].outputs]
        ways: list[Callable[[], Any]] = [model.bind([ours_x], results) for model in models]
        seconds = taken_in_turns([*ways, *peers.values()], given.rounds)
        ours, each, theirs = seconds[0], seconds[1 : len(models)], seconds[len(models) :]
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
                    dict(zip(peers, map(median, theirs), strict=True)),
                    ratio.value,
                    ratio.low,
                    ratio.high,
                    distance,
                )
            )
            print(f"{layer.name} batch {batch} {form} {share:.0%}: {ratio.value:.2f} by {rows[-1].taken}", flush=True)
        return rows


def _compiled(layer: Layer, batch: int, share: float, form: str, folder: Path, budget: float) -> Path:
    artifact = folder / f"{form}_{round(1e4 * share)}.tw"
    model = artifact.with_suffix(".onnx")
    model.write_bytes(layer.pruned(batch, share, form, channels_last=True).SerializeToString())
    compile_model(model, artifact, CompileOptions(tuning_budget_s=budget, threads=1))
    return artifact


def _taken(artifact: Path) -> str:
    """The algorithms of the convolutions and products, each once; `sparse` alone where one leaves zeros out."""
    families = ((call["tile"].split()[0], {*call["family"].split("+")}) for call in calls(artifact))
    found = dict.fromkeys(name for name, family in families if family & {"Conv", "MatMul", "Gemm"})
    return "sparse" if "sparse" in found else ", ".join(found)


def _onnxruntime(model: bytes, x: np.ndarray) -> Callable[[], Any]:
    session = single_threaded(model)
    binding = session.io_binding()
    binding.bind_ortvalue_input(session.get_inputs()[0].name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    return partial(session.run_with_iobinding, binding)


def _openvino(model: bytes, x: np.ndarray) -> Callable[[], Any]:
    core = openvino.Core()
    wanted = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    request = core.compile_model(core.read_model(model), "CPU", wanted).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    return partial(request.infer)


def _expected(layer: Layer, batch: int, share: float, form: str, x: np.ndarray) -> np.ndarray:
    """What ONNX Runtime makes of the pruned weights."""
    session = single_threaded(layer.pruned(batch, share, form, channels_last=False).SerializeToString())
    return with_channels_last(session.run(None, {session.get_inputs()[0].name: x})[0])


def _distance(found: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(found.astype(np.float64) - right).max() / np.abs(right).max())


def table(rows: Sequence[Row]) -> str:
    """A line for each layer, batch and form; times as parts of our dense form's, `=` where a dense kernel was taken."""
    shares = sorted({row.share for row in rows})
    heads = "".join(f" {share:.0%} zeros |" for share in shares)
    lines = [
        f"| layer | batch | dense ms | by | ONNX Runtime | OpenVINO | zeros |{heads} left out from |",
        f"|---|---:|---:|---|---:|---:|---|{'---:|' * len(shares)}---:|",
    ]
    groups: dict[tuple[str, int, str], dict[float, Row]] = {}
    for row in rows:
        groups.setdefault((row.layer, row.batch, row.form), {})[row.share] = row
    for (layer, batch, form), own in groups.items():
        first = next(iter(own.values()))
        peers = " | ".join(f"{first.peers_s[peer] / first.dense_s:.2f}" for peer in PEERS)
        cells = "".join(f" {_cell(own[share])} |" if share in own else " |" for share in shares)
        lines.append(
            f"| {layer} | {batch} | {1e3 * first.dense_s:.3f} | {first.dense_taken} | {peers} | {form} |{cells} "
            f"{_least(own)} |"
        )
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    return f"{row.ratio:.2f}{'' if row.leaves_out else ' ='}"


def _least(own: dict[float, Row]) -> str:
    """The least share from which on zeros are left out at every share that was measured."""
    left: list[float] = []
    for share in sorted(own, reverse=True):
        if not own[share].leaves_out:
            break
        left.append(share)
    return f"{left[-1]:.0%}" if left else "none"
