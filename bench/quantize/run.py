"""Signal to noise by method of ranges, decisions that agree with fp32, and CPU time of int8 beside fp32, one thread.

What both runtimes make of the same int8 file is told too: on x86 without VNNI sums of two products saturate in others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import report
from bench.quantize.subjects import SUBJECTS, Deciding
from bench.subjects import subject
from bench.turns import single_threaded, taken_in_turns
from compiler.contract import CompileOptions, QuantisedOutput, QuantizeOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.quantize import quantize
from compiler.request import Request

NETWORKS = ("tiny_mobile", "squeezenet1_1", "mobilenet_v2", "shufflenet_v2")
METHODS: Mapping[str, Mapping[str, Any]] = {
    "best": {"ranges": "best"},
    "minmax": {"ranges": "minmax"},
    "percentile": {"ranges": "percentile"},
    "entropy": {"ranges": "entropy"},
    "mse": {"ranges": "mse"},
    "mse, biases as they are": {"ranges": "mse", "bias_correction": False},
    "mse, equalised": {"ranges": "mse", "equalise": True},
}
"""Options of each column."""
SAMPLES = 3
ROUNDS = 40


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench quantize", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of the zoo (default: {' '.join(NETWORKS)})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"inferences of each engine (default: {ROUNDS})")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning for each artifact (default: 0)")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the tables there too")
    given = parser.parse_args(arguments)
    section = report.Section("quantize", arguments, ("onnxruntime",))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tables = [noise_table([]), time_table([]), decision_table([])]
    with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
        noises, times = [], []
        for name in given.networks or NETWORKS:
            noises.append(noise(name, Path(folder)))
            times.append(timed(name, Path(folder), given.rounds, given.budget))
            print(noise_table(noises[-1:]), time_table(times[-1:]), sep="\n", flush=True)
        decisions = [row for one in SUBJECTS for row in decided(one, Path(folder))]
        tables = [noise_table(noises), time_table(times), decision_table(decisions)]
    text = "\n".join(tables)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def noise(name: str, folder: Path) -> dict[str, Any]:
    """Of one network: the least signal to noise of its outputs in dB by method, on normal inputs."""
    one = subject(name, folder)
    found: dict[str, Any] = {"model": name}
    for method, options in METHODS.items():
        wanted = QuantizeOptions(**options, derived_samples=SAMPLES)
        report = quantize(one.file, quantised_of(name, folder), wanted)
        found[method] = least(report.outputs)
        found["layers"] = sum(row.precision == "int8" for row in report.layers)
    return found


def least(outputs: Iterable[QuantisedOutput]) -> float:
    """Signal to noise of the output that has least, in dB."""
    return min((one.snr_db for one in outputs if one.snr_db is not None), default=float("inf"))


def quantised_of(name: str, folder: Path) -> Path:
    """Where a network's quantised model is."""
    return folder / f"{name}.int8.onnx"


def timed(name: str, folder: Path, rounds: int, budget: float) -> dict[str, Any]:
    """Median CPU seconds of one network in turns: ours in int8 and fp32, ONNX Runtime on the same two files.

    One thread's CPU time is what it would take alone, but for caches, also where others want the core.
    """
    files = (quantised_of(name, folder), folder / f"{name}.onnx")
    options = CompileOptions(threads=1, tuning_budget_s=budget)
    with ExitStack() as opened:
        ways: list[Any] = []
        for file in files:
            artifact = file.with_suffix(".tw")
            compile_model(Request(file, artifact, options))
            model = opened.enter_context(Model(artifact))
            inputs = model.random_inputs(0)
            ways.append(partial(model.run, inputs))
        ways += [partial(single_threaded(file).run, None, inputs) for file in files]
        ours, _, theirs, wanted = ([*made.values()] if isinstance(made := way(), dict) else made for way in ways)
        seconds = [median(taken) for taken in taken_in_turns(ways, rounds)]
    times = {"int8": seconds[0], "fp32": seconds[1], "peer int8": seconds[2], "peer fp32": seconds[3]}
    return {"model": name, **times, "db": decibels_of(ours, wanted), "peer db": decibels_of(theirs, wanted)}


def decibels_of(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Signal to noise of the output that has least, in dB."""
    pairs = ((a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, wanted, strict=True))
    ratios = [np.square(b).sum() / max(np.square(a - b).sum(), 1e-300) for a, b in pairs]
    return float(10 * np.log10(min(ratios)))


def decided(one: Deciding, folder: Path) -> list[dict[str, Any]]:
    """By method, the part of decisions (the greatest output) that are those of fp32, by ONNX Runtime."""
    file = one.file(folder)
    inputs = one.inputs()
    np.random.default_rng(0).shuffle(inputs)
    archive = folder / f"{one.name}.npz"
    np.savez(archive, **{one.input: inputs[: one.calibrated, None]})  # type: ignore[arg-type]
    rest = inputs[one.calibrated :]
    right = _answers(file, one.input, rest)
    sure = np.sort(right, axis=1)[:, -1] - np.sort(right, axis=1)[:, -2]
    rows = []
    for method, options in METHODS.items():
        begin = time.perf_counter()
        report = quantize(file, folder / "decided.onnx", QuantizeOptions(**options), {one.name: archive})
        taken = time.perf_counter() - begin
        same = _answers(folder / "decided.onnx", one.input, rest).argmax(axis=1) == right.argmax(axis=1)
        rows.append(
            {
                "model": one.name,
                "method": method,
                "snr": least(report.outputs),
                "inputs": len(rest),
                "same": float(same.mean()),
                "widest": float(sure[~same].max(initial=0.0)),
                "seconds": taken,
            }
        )
    return rows


def _answers(file: Path, name: str, inputs: np.ndarray) -> np.ndarray:
    session = single_threaded(file)
    return np.concatenate([session.run(None, {name: one[None]})[0].reshape(1, -1) for one in inputs])


def noise_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Decibels of each method."""
    head = f"| model | int8 layers | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}\n"
    cells = [" | ".join(f"{row[method]:.1f}" for method in METHODS) for row in rows]
    return head + "".join(f"| {row['model']} | {row['layers']} | {c} |\n" for row, c in zip(rows, cells, strict=True))


def time_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Milliseconds and ratios."""
    head = (
        "| model | ours int8 ms | ours fp32 ms | int8 / fp32 | ONNX Runtime int8 ms | ONNX Runtime fp32 ms | "
        "ours / ONNX Runtime, int8 | ours dB | ONNX Runtime dB |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['model']} | {1e3 * row['int8']:.2f} | {1e3 * row['fp32']:.2f} | {row['int8'] / row['fp32']:.2f} | "
        f"{1e3 * row['peer int8']:.2f} | {1e3 * row['peer fp32']:.2f} | {row['int8'] / row['peer int8']:.2f} | "
        f"{row['db']:.1f} | {row['peer db']:.1f} |\n"
        for row in rows
    )


def decision_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Decisions that agree, and how far apart the first two answers of fp32 were where they did not."""
    head = (
        "| model | ranges | dB | inputs | agree | widest lead of fp32 where not | seconds |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['model']} | {row['method']} | {row['snr']:.1f} | {row['inputs']} | {row['same']:.1%} | "
        f"{row['widest']:.3f} | {row['seconds']:.1f} |\n"
        for row in rows
    )
