"""`python -m bench.gpu.contest NETWORK PRECISION`: one network, all engines in turn on one GPU; a row of JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.gpu.notebook import Deadline, Row
from bench.gpu.subjects import TOLERANCE, floor_ms, inputs_of, model_file
from bench.gpu.translation import translate
from bench.race.spread import Ratio, Spread
from compiler.devices.cuda.measure.driver import gpu_here
from compiler.devices.cuda.target import resolve

ROUNDS = 9
TURN = 20
"""Inferences of one engine in a round, timed one by one, then again in a row."""
WARMING = 3
"""Inferences before a turn is timed."""
OURS = "ours"
STAGES = (("eager", OURS, "graph", "cublas", "xla"), ("compiled",), ("autotuned",))
"""Engines that are prepared before all so far are timed."""
RESERVE_S = {"compiled": 60.0, "autotuned": 150.0, "xla": 60.0}
"""Seconds that must be left before such an engine is prepared."""
Report = Callable[[str], None]


def main(arguments: list[str]) -> int:
    """Exit status 0 when the row was written."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.contest", description=__doc__)
    parser.add_argument("network")
    parser.add_argument("precision")
    parser.add_argument("--artifact", type=Path, help="ours; left out where there is none")
    parser.add_argument("--engines", default="eager,graph,cublas,compiled,autotuned,xla")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--folder", type=Path, required=True, help="where models lie")
    parser.add_argument("--json", type=Path, required=True, help="the row to write")
    given = parser.parse_args(arguments)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(given.folder / "inductor"))
    rows = contest(
        given.network,
        given.precision,
        given.artifact,
        given.engines.split(","),
        Deadline.after(given.seconds),
        given.folder,
        lambda said: print(said, flush=True),
    )
    for row in rows:
        draft = given.json.with_suffix(".part")
        draft.write_text(json.dumps(row))
        draft.replace(given.json)
    return 0


def contest(
    network: str,
    precision: str,
    artifact: Path | None,
    asked: Sequence[str],
    deadline: Deadline,
    folder: Path,
    tell: Report,
) -> Iterator[Row]:
    """The row of one network, then again with each engine that takes long to prepare.

    When one of these is killed the rest has been reported.

    An engine that cannot be prepared, or whose outputs are not those of the first, is named under `left_out`.
    """
    import torch

    from bench.gpu.engines import SETS, Engine, TorchEngines, cublas, ours, xla

    model = onnx.load(model_file(network, folder))
    program = translate(model)
    inputs = [inputs_of(model, seed) for seed in range(SETS)]
    torches = TorchEngines(program, precision, inputs)
    ways: Mapping[str, Callable[[], Engine]] = {
        "eager": torches.eager,
        OURS: lambda: ours(_given(artifact), inputs),
        "graph": lambda: torches.graphed("graph", torches.module),
        "cublas": lambda: cublas(program, precision, inputs),
        "xla": lambda: xla(program, precision, inputs),
        "compiled": lambda: torches.compiled("compiled", None),
        "autotuned": lambda: torches.compiled("autotuned", "max-autotune-no-cudagraphs"),
    }
    engines: list[Engine] = []
    left_out: dict[str, str] = {}
    reference = None
    facts = {
        "network": network,
        "precision": precision,
        "product": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "channels_last": torches.channels_last,
        "floor_ms": floor_ms(model, precision, resolve("cuda", gpu_here())),
    }
    for stage in STAGES:
        for name in (name for name in stage if name == OURS or name in asked):
            if deadline.left < RESERVE_S.get(name, 10.0):
                left_out[name] = f"only {deadline.left:.0f} s were left"
                continue
            tell(f"{network} {precision}: preparing {name}")
            try:
                engine = ways[name]()
                engine.submit(0)
                engine.finish()
                outputs = engine.outputs()
                apart = difference(outputs, outputs if reference is None else reference)
                if not apart <= TOLERANCE[precision]:
                    other = engines[0].name if engines else "finite numbers"
                    left_out[name] = f"its outputs are {apart:.2g} from {other}"
                    continue
                reference = outputs if reference is None else reference
                engines.append(engine)
            except Exception as error:
                left_out[name] = f"{type(error).__name__}: {str(error)[:300]}"
        if set(stage) & {OURS, *asked}:
            prepared = {one.name: round(one.prepared_s, 2) for one in engines}
            yield {**facts, "prepared_s": prepared, "left_out": dict(left_out), **judged(*_rounds(engines))}


def _rounds(engines: Sequence[Any]) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[float]]]:
    """Seconds by engine: of each round alone and in a row, and of every single inference alone.

    Who begins changes each round.
    """
    from bench.gpu.engines import seconds_of

    times: dict[str, dict[str, list[float]]] = {one.name: {"alone": [], "in_a_row": []} for one in engines}
    samples: dict[str, list[float]] = {one.name: [] for one in engines}
    for number in range(ROUNDS):
        begins = number % max(len(engines), 1)
        for engine in (*engines[begins:], *engines[:begins]):
            seconds_of(engine, WARMING)
            single = [seconds_of(engine, 1) for _ in range(TURN)]
            samples[engine.name] += single
            times[engine.name]["alone"].append(float(np.median(single)))
            times[engine.name]["in_a_row"].append(seconds_of(engine, TURN))
    return times, samples


def judged(times: Mapping[str, Mapping[str, Sequence[float]]], samples: Mapping[str, Sequence[float]]) -> Row:
    """Medians and spreads in milliseconds, and ours over the best peer's with its interval.

    `alone` is one inference, from its call until its outputs are there; `in_a_row` one of many that follow each other.
    The best peer is that with the least median alone.
    """
    peers = [name for name in times if name != OURS]
    row: dict[str, Any] = {
        "ms": {name: Spread.of(values, 1e3).median for name, values in samples.items()},
        "spread_ms": {
            name: [Spread.of(values, 1e3).p10, Spread.of(values, 1e3).p90] for name, values in samples.items()
        },
        "in_a_row_ms": {name: Spread.of(one["in_a_row"], 1e3).median for name, one in times.items()},
        "best": min(peers, key=lambda name: Spread.of(samples[name]).median, default=None),
        "ratio": None,
        "ratio_in_a_row": None,
    }
    if OURS in times and row["best"]:
        for key, what in (("ratio", "alone"), ("ratio_in_a_row", "in_a_row")):
            best = min(peers, key=lambda name: float(np.median(times[name][what])))
            found = Ratio.of(times[OURS][what], times[best][what])
            row[key] = [found.value, found.low, found.high]
    return row


def difference(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """The largest relative norm over all outputs; infinite where a number is not finite."""
    worst = 0.0
    for one, other in zip(outputs, reference, strict=True):
        a, b = one.astype(np.float64), other.astype(np.float64)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return float("inf")
        worst = max(worst, float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)))
    return worst


def _given(artifact: Path | None) -> Path:
    if artifact is None:
        raise FileNotFoundError("no artifact of ours was made")
    return artifact


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
