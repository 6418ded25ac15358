"""`python -m bench texts`: an encoder on texts of unequal lengths, beside ONNX Runtime and OpenVINO, which pad.

Ours takes all texts as one axis of tokens (option `ragged`). The peers have texts one by one, and in batches padded to
the longest of each, as texts come and sorted by length. Engines take turns, with as many threads each. Processor time
is compared, which others' work changes least; of several threads wall time. All results are compared with those of ONNX
Runtime text by text. In int8 all have a model whose products are of bytes, quantised by the range of what is multiplied
(ours by that of each text, the peers by that of a padded batch, so that their results depend on it).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
from numpy.typing import NDArray
from rich.console import Console

import tilewright
from bench.ending import ended
from bench.texts.encoder import INPUTS, Encoder, InBytes, minilm, modernbert
from compiler.contract import CompileOptions
from compiler.pipeline import compile_model
from compiler.request import Request
from tilewright.errors import UsageError

BATCHES = (1, 4, 8, 32)
MEDIAN, SPREAD, LONGEST = 24, 0.7, 512
"""Of lengths: log-normal, cut at the longest."""
MOST_TEXTS = 64
"""Of a run of ours."""
TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2, "int8": 5e-2}
"""Of what differs from ONNX Runtime's result of a text alone, relative to the largest number of all."""
MODELS: Mapping[str, Callable[[type[Encoder]], bytes]] = {
    "minilm": lambda kind: minilm(kind=kind),
    "bge-small": lambda kind: minilm(layers=12, kind=kind),
    "modernbert": modernbert,
}
"""Of seeded weights."""
Array = NDArray[Any]
Feeds = Mapping[str, Array]
Run = Callable[[], list[Array]]


def texts_of(lengths: Sequence[int], vocabulary: int, seed: int) -> list[Feeds]:
    """Drawn tokens, by the names of inputs without the mask."""
    random = np.random.default_rng(seed)
    return [
        {"input_ids": random.integers(1, vocabulary, length), "token_type_ids": np.zeros(length, np.int64)}
        for length in lengths
    ]


def lengths_of(count: int, median: float, spread: float, seed: int) -> list[int]:
    """Log-normal numbers of tokens; all equal where nothing is spread."""
    drawn = np.random.default_rng(seed).lognormal(np.log(median), spread, count)
    return [int(one) for one in np.clip(np.round(drawn), 1, LONGEST)]


def padded(texts: Sequence[Feeds]) -> dict[str, Array]:
    """A batch as long as its longest text."""
    longest = max(len(text["input_ids"]) for text in texts)
    found = {name: np.zeros((len(texts), longest), np.int64) for name in INPUTS}
    for at, text in enumerate(texts):
        for name, line in text.items():
            found[name][at, : len(line)] = line
        found["attention_mask"][at, : len(text["input_ids"])] = 1
    return found


def batched(run: Callable[[Feeds], Array], texts: Sequence[Feeds], batch: int, is_sorted: bool) -> list[Array]:
    """The first output of each text, in batches."""
    order = [*range(len(texts))]
    if is_sorted:
        order.sort(key=lambda at: len(texts[at]["input_ids"]))
    found: dict[int, Array] = {}
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        found.update(zip(part, run(padded([texts[at] for at in part])), strict=True))
    return [found[at] for at in range(len(texts))]


def onnxruntime_run(file: Path, threads: int = 1) -> Callable[[Feeds], Array]:
    """A session's first output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda feeds: np.asarray(session.run(None, dict(feeds))[0])


def openvino_run(file: Path, threads: int = 1, precision: str = "f32") -> Callable[[Feeds], Array]:
    """A compiled model's first output."""
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": precision}
    compiled = openvino.Core().compile_model(str(file), "CPU", config)
    return lambda feeds: np.array(compiled(dict(feeds))[0])


def ways(
    model: tilewright.Model, file: Path, texts: Sequence[Feeds], batches: Sequence[int], threads: int, precision: str
) -> dict[str, Run]:
    """What gives all results, by its name."""
    found: dict[str, Run] = {"tilewright": lambda: [next(iter(one.values())) for one in model.run_texts(texts)]}
    peers = {
        "onnxruntime": onnxruntime_run(file, threads),
        "openvino": openvino_run(file, threads, "bf16" if precision == "bf16" else "f32"),
    }
    for engine, run in peers.items():
        for batch in batches:
            for is_sorted in (False, True)[: 1 + (batch > 1)]:
                name = f"{engine} {batch}{' sorted' if is_sorted else ''}"
                found[name] = lambda run=run, batch=batch, is_sorted=is_sorted: batched(  # type: ignore[misc]
                    run, texts, batch, is_sorted
                )
    return found


def measured(
    each: Mapping[str, Run], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds of each way, which take turns; those of the processor unless `clock` is another."""
    found: dict[str, list[float]] = {name: [] for name in each}
    for _ in range(rounds):
        for name, run in each.items():
            begin = clock()
            run()
            found[name].append(clock() - begin)
    return found


def best(rates: Mapping[str, Sequence[float]], is_sorted: bool) -> str:
    """The fastest peer whose texts are sorted, or are not."""
    peers = [name for name in rates if name != "tilewright" and (name.endswith("sorted") == is_sorted)]
    return max(peers, key=lambda name: statistics.median(rates[name]))


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or as `ended` says."""
    parser = argparse.ArgumentParser(prog="python -m bench texts", description=__doc__)
    known = ", ".join(MODELS)
    parser.add_argument(
        "model", nargs="?", default="minilm", help=f"an .onnx encoder of open batch and length, or {known} (minilm)"
    )
    parser.add_argument("--texts", type=int, default=256, help="how many (256)")
    parser.add_argument("--median", type=float, default=MEDIAN, help=f"tokens of a text ({MEDIAN})")
    parser.add_argument(
        "--spread", type=float, default=SPREAD, help=f"of the logarithm of lengths; 0: equal ({SPREAD})"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="of the peers (1 4 8 32)")
    parser.add_argument("--rounds", type=int, default=5, help="in which engines take turns (5)")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of measuring when compiling (0)")
    parser.add_argument(
        "--precision", default="fp32", choices=[*TOLERANCE], help="bf16: of all but ONNX Runtime (fp32)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each engine (1)")
    parser.add_argument("--seed", type=int, default=0, help="of lengths and tokens (0)")
    parser.add_argument("--json", type=Path, help="write texts a second of each round there")
    given = parser.parse_args(arguments)
    return ended(lambda: _measure(given), parser, Console(stderr=True))


def _measure(given: argparse.Namespace) -> int:
    lengths = lengths_of(given.texts, given.median, given.spread, given.seed)
    with tempfile.TemporaryDirectory() as folder:
        file, artifact = Path(given.model), Path(folder) / "m.tw"
        if given.model in MODELS:
            file = Path(folder) / "model.onnx"
            file.write_bytes(MODELS[given.model](InBytes if given.precision == "int8" else Encoder))
        elif not file.is_file():
            raise UsageError(f"{file} is no file", fix=f"give an .onnx file of an encoder, or {', '.join(MODELS)}")
        options = CompileOptions(
            threads=given.threads,
            tuning_budget_s=given.budget,
            precision="bf16" if given.precision == "bf16" else "fp32",
            ragged=dict.fromkeys(INPUTS, 1),
            dims={"batch": MOST_TEXTS, "sequence": LONGEST},
        )
        compile_model(Request(file, artifact, options))
        with tilewright.load(artifact) as model:
            limits = model.manifest["inputs"][0].get("range") or (0, 1000)
            texts = texts_of(lengths, int(limits[1]), given.seed)
            each = ways(model, file, texts, given.batches, given.threads, given.precision)
            wanted = np.stack(batched(onnxruntime_run(file), texts, 1, is_sorted=False))
            for name, run in each.items():
                worst = float(np.abs(np.stack(run()) - wanted).max() / np.abs(wanted).max())
                is_alone = name == "tilewright" or given.precision != "int8"
                if is_alone and worst > TOLERANCE[given.precision]:
                    raise UsageError(f"{name} differs by {worst:.1e} from ONNX Runtime", fix="look for the fault")
            clock = time.process_time if given.threads == 1 else time.perf_counter
            seconds = measured(each, given.rounds, clock)
    rates = {name: [given.texts / one for one in took] for name, took in seconds.items()}
    _show(rates, lengths, given.threads)
    if given.json:
        given.json.write_text(json.dumps({"lengths": lengths, "texts_per_second": rates}, indent=2) + "\n")
    return 0


def _show(rates: Mapping[str, Sequence[float]], lengths: Sequence[int], threads: int) -> None:
    print(f"{len(lengths)} texts of {statistics.mean(lengths):.1f} tokens, at most {max(lengths)}; {threads} threads\n")
    kind = " of processor time" if threads == 1 else ""
    print(f"| engine, batch | texts a second{kind} | ours over it |\n|---|---:|---:|")
    for name, all_rates in rates.items():
        ratios = sorted(mine / other for mine, other in zip(rates["tilewright"], all_rates, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        print(f"| {name} | {statistics.median(all_rates):.1f} | {spread} |")
    for is_sorted in (False, True):
        if any(name.endswith("sorted") == is_sorted for name in rates if name != "tilewright"):
            print(f"\nbest peer {'sorted' if is_sorted else 'as they come'}: {best(rates, is_sorted)}", end="")
    print()


if __name__ == "__main__":
    sys.exit(main())
