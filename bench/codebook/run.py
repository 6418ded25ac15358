"""Products of few rows by weights of few values: looked up beside our dense form and dense peers, one thread."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import report
from bench.engines.tilewright import calls
from bench.race.spread import Ratio
from bench.sparse.run import onnxruntime_call, openvino_call
from bench.turns import taken_in_turns
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request

ROUNDS = 25
PEERS = ("onnxruntime", "openvino")
SIZES = ("4096x4096", "4096x1024", "3072x768", "768x3072", "1024x256")
KINDS = ("2", "4", "16", "16 each", "256")
CLOSE = 2e-5
"""Of the largest value: outputs further from float64 than this make a time mean nothing."""


@dataclass(frozen=True)
class Row:
    """Medians in seconds of one product. The ratio to the dense form is the median of the rounds' ratios.

    values  of the weights, `each` where each output has its own
    taken   the algorithm that the search took
    peers   seconds of ONNX Runtime and OpenVINO, which multiply in fp32
    bytes   of the artifacts
    """

    inputs: int
    outputs: int
    rows: int
    values: str
    taken: str
    dense_taken: str
    seconds: float
    dense_s: float
    peers_s: tuple[float, float]
    ratio: float
    low: float
    high: float
    bytes: int
    dense_bytes: int
    distance: float


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where a result is far from float64; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench codebook", description=__doc__)
    sizes = f"inputs x outputs (default: {' '.join(SIZES)})"
    parser.add_argument("sizes", nargs="*", type=_size, metavar="SIZE", help=sizes)
    parser.add_argument("--rows", type=int, nargs="+", default=[1], help="of a product (default: 1)")
    parser.add_argument("--values", choices=KINDS, nargs="+", default=KINDS, help="of weights (default: all)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of tuning for each artifact (default: 5)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each (default: {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    section = report.Section("codebook", arguments, PEERS)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows: list[Row] = []
    for many in given.rows:
        for inputs, outputs in given.sizes or map(_size, SIZES):
            rows += measured(inputs, outputs, many, given)
            if given.json:
                report.write(given.json, [asdict(row) for row in rows])
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return int(any(row.distance > CLOSE for row in rows))


def _size(text: str) -> tuple[int, int]:
    inputs, _, outputs = text.partition("x")
    if not inputs.isdecimal() or not outputs.isdecimal() or not int(inputs) * int(outputs):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1024x4096")
    return int(inputs), int(outputs)


def weights_of(inputs: int, outputs: int, values: str) -> np.ndarray:
    """fp32[outputs, inputs]: of so many values, of as many for each output, or for an empty text of any values."""
    random = np.random.default_rng(3)
    dense = (0.05 * random.normal(size=(outputs, inputs))).astype(np.float32)
    if not values:
        return dense
    count, each = int(values.split()[0]), values.endswith("each")
    books = (0.05 * random.normal(size=(outputs if each else 1, count))).astype(np.float32)
    places = random.integers(0, count, (outputs, inputs))
    return np.asarray(books[np.arange(outputs)[:, None] if each else 0, places])


def model_of(weights: np.ndarray, rows: int) -> bytes:
    """A Gemm with these weights and no bias."""
    outputs, inputs = weights.shape
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, outputs])],
        [numpy_helper.from_array(weights, "w")],
    )
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def measured(inputs: int, outputs: int, rows: int, given: argparse.Namespace) -> list[Row]:
    """A row for each count of values: all artifacts of a size take turns with the dense one and the peers."""
    x = np.random.default_rng(4).normal(size=(rows, inputs)).astype(np.float32)
    each = [weights_of(inputs, outputs, values) for values in ("", *given.values)]
    with tempfile.TemporaryDirectory(prefix="tilewright-codebook-") as name, ExitStack() as opened:
        artifacts = [_artifact(Path(name), at, weights, rows, given.budget) for at, weights in enumerate(each)]
        models = [opened.enter_context(Model(artifact, lanes=1)) for artifact in artifacts]
        distances = [_distance(model.run_flat([x])[0], x, weights) for model, weights in zip(models, each, strict=True)]
        plain, y = model_of(each[0], rows), np.zeros((rows, outputs), np.float32)
        peers = (onnxruntime_call(plain, x), openvino_call(plain, x, "fp32"))
        seconds = taken_in_turns([*(model.bind([x], [y]) for model in models), *peers], given.rounds)
        dense, theirs = seconds[0], seconds[len(models) :]
        found = []
        for at, values in enumerate(given.values, 1):
            ratio = Ratio.of(seconds[at], dense)
            found.append(
                Row(
                    inputs,
                    outputs,
                    rows,
                    values,
                    _taken(artifacts[at]),
                    _taken(artifacts[0]),
                    median(seconds[at]),
                    median(dense),
                    (median(theirs[0]), median(theirs[1])),
                    ratio.value,
                    ratio.low,
                    ratio.high,
                    artifacts[at].stat().st_size,
                    artifacts[0].stat().st_size,
                    distances[at],
                )
            )
            print(f"{inputs}x{outputs} x{rows}, {values} values: {ratio.value:.2f} by {found[-1].taken}", flush=True)
        return found


def _artifact(folder: Path, number: int, weights: np.ndarray, rows: int, budget: float) -> Path:
    model, artifact = folder / f"{number}.onnx", folder / f"{number}.tw"
    model.write_bytes(model_of(weights, rows))
    compile_model(Request(model, artifact, CompileOptions(tuning_budget_s=budget, threads=1)))
    return artifact


def _taken(artifact: Path) -> str:
    """The algorithms of its kernels, each once."""
    return ", ".join(dict.fromkeys(call["tile"].split()[0] for call in calls(artifact)))


def _distance(found: np.ndarray, x: np.ndarray, weights: np.ndarray) -> float:
    """The largest difference from the product in float64, relative to the largest value."""
    wide = x.astype(np.float64) @ weights.T.astype(np.float64)
    return float(np.abs(found - wide).max() / np.abs(wide).max())


def table(rows: Sequence[Row]) -> str:
    """A line for each product and count of values."""
    lines = [
        "| inputs x outputs | rows | values | us | by | dense us | by | ONNX Runtime us | OpenVINO us | part of dense "
        "| MB | dense MB |",
        "|---|---:|---|---:|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        theirs = " | ".join(f"{1e6 * one:.0f}" for one in row.peers_s)
        lines.append(
            f"| {row.inputs} x {row.outputs} | {row.rows} | {row.values} | {1e6 * row.seconds:.0f} | {row.taken} "
            f"| {1e6 * row.dense_s:.0f} | {row.dense_taken} | {theirs} "
            f"| {row.ratio:.2f} ({row.low:.2f}..{row.high:.2f}) | {row.bytes / 1e6:.2f} | {row.dense_bytes / 1e6:.2f} |"
        )
    return "\n".join(lines) + "\n"
