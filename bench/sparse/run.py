"""Layers of known networks with pruned weights: leaving zeros out beside our dense form and dense peers, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import openvino

from bench import report
from bench.engines.tilewright import calls
from bench.race.spread import Ratio
from bench.sparse.layers import FORMS, GATES, LAYERS, Convolution, Layer
from bench.sparse.picture import picture
from bench.sparse.quantised import in_bytes
from bench.sparse.row import Row
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions
from compiler.encodings.zeros import leaves_out
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

ROUNDS = 25
PEERS = ("onnxruntime", "openvino")
CLOSE = {"fp32": 2e-3, "bf16": 2e-2, "int8": 2e-2}
"""Of the largest value, by precision: outputs further from ONNX Runtime's than this make a time mean nothing.

In bytes that is a few steps. ONNX Runtime computes in fp32 where we do in bf16.
"""
DEFAULT_FORMS: Mapping[str, Sequence[str]] = {
    "fp32": ("unstructured", "combined", "1x4", "1x8"),
    "bf16": ("unstructured", "4x16"),
    "int8": ("unstructured", "4x16"),
}


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where an artifact is far from ONNX Runtime; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench sparse", description=__doc__)
    names = [layer.name for layer in LAYERS]
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"of {', '.join(map(repr, names))} (default: all)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="images (default: 1 16)")
    parser.add_argument(
        "--precision",
        choices=[*CLOSE],
        default="fp32",
        help="of all engines but for ONNX Runtime in bf16, which is fp32",
    )
    parser.add_argument(
        "--forms", nargs="+", choices=[*FORMS], help="of zeros (default: those that kernels of the precision leave out)"
    )
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
    given.forms = given.forms or DEFAULT_FORMS[given.precision]
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
    return int(any(row.distance > CLOSE[given.precision] for row in rows))


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
    with tempfile.TemporaryDirectory(prefix="tilewright-sparse-") as name, ExitStack() as opened:
        maker = _Maker(layer, batch, given.precision, Path(name), given.budget)
        dense = maker.artifact(0.0, given.forms[0])
        plain = maker.model(0.0, given.forms[0], channels_last=False)
        x, ours_x = (maker.input(channels_last=last) for last in (False, True))
        peers = {"onnxruntime": onnxruntime_call(plain, x), "openvino": openvino_call(plain, x, given.precision)}
        artifacts = [maker.artifact(share, form) for form, share in kinds]
        models = [opened.enter_context(Model(artifact, lanes=1)) for artifact in (dense, *artifacts)]
        distances = [
            _distance(model.run_flat([ours_x])[0], _expected(maker.model(share, form, channels_last=True), ours_x))
            for model, (form, share) in zip(models[1:], kinds, strict=True)
        ]
        results = [np.zeros(spec.shape, ours_x.dtype) for spec in models[0].outputs]
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
                    taken(calls(artifact)),
                    taken(calls(dense)),
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


@dataclass(frozen=True)
class _Maker:
    """Models and artifacts of a layer in one precision."""

    layer: Layer
    batch: int
    precision: str
    folder: Path
    budget: float

    def model(self, share: float, form: str, *, channels_last: bool) -> bytes:
        """The layer with such weights; in int8 from bytes to bytes."""
        if self.precision != "int8":
            return bytes(self.layer.pruned(self.batch, share, form, channels_last=channels_last).SerializeToString())
        plain = self.layer.pruned(self.batch, share, form, channels_last=False)
        x = self.layer.input(self.batch, channels_last=False)
        return in_bytes(plain, x, self.folder, channels_last=channels_last and isinstance(self.layer, Convolution))

    def input(self, *, channels_last: bool) -> np.ndarray:
        """What the model takes."""
        x = self.layer.input(self.batch, channels_last=channels_last)
        return np.random.default_rng(1).integers(0, 256, x.shape).astype(np.uint8) if self.precision == "int8" else x

    def artifact(self, share: float, form: str) -> Path:
        """Ours, as a layer lies in the midst of a network."""
        artifact = self.folder / f"{form}_{round(1e4 * share)}.tw"
        model = artifact.with_suffix(".onnx")
        model.write_bytes(self.model(share, form, channels_last=True))
        precision = "fp32" if self.precision == "int8" else self.precision
        options = CompileOptions(tuning_budget_s=self.budget, threads=1, precision=precision)
        compile_model(Request(model, artifact, options))
        return artifact


def taken(planned: Sequence[Mapping[str, Any]]) -> str:
    """The algorithms of layers with weights, each once; where one leaves zeros out, that one alone.

    `planned` are calls as plan.json lists them; those of a batch in slices lie inside of its call.
    """
    families = ((call["tile"].split()[0], {*call["family"].split("+")}) for call in _innermost(planned))
    found = dict.fromkeys(name for name, family in families if family & (having(Trait.CONTRACTION) | {*GATES}))
    return next(filter(leaves_out, found), ", ".join(found))


def _innermost(planned: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for call in planned:
        if "region" in call:
            yield from _innermost([*chain.from_iterable(call["region"]["bodies"])])
        else:
            yield call


def onnxruntime_call(model: bytes, x: np.ndarray) -> Callable[[], Any]:
    """Runs a model on one input by ONNX Runtime, one thread, with its output where it was."""
    session = single_threaded(model)
    binding = session.io_binding()
    binding.bind_ortvalue_input(session.get_inputs()[0].name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    return partial(session.run_with_iobinding, binding)


def openvino_call(model: bytes, x: np.ndarray, precision: str) -> Callable[[], Any]:
    """The same by OpenVINO, in bf16 where that is the precision, else in fp32."""
    core = openvino.Core()
    hint = "bf16" if precision == "bf16" else "f32"
    wanted = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1}
    request = core.compile_model(core.read_model(model), "CPU", wanted).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    return partial(request.infer)


def _expected(model: bytes, x: np.ndarray) -> np.ndarray:
    """What ONNX Runtime makes of the pruned weights."""
    session = single_threaded(model)
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def _distance(found: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    wide = right.astype(np.float64)
    return float(np.abs(found - wide).max()) / float(np.abs(wide).max())


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
