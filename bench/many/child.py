"""One engine's process: it loads the models, and for each line that it reads it measures a round.

Arguments: the folder of `bench.many.run`, the engine, and the models, of which the last is of two nodes. It answers in
lines of JSON: the models' memory, then rounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from compiler.pack.loader import Model
from tilewright.arrays import read_npz

THREADS = 2
IN_TURN, CALLERS = 3, 4
CALLS = 8
"""Of each model in a row: alone, and by each caller at once."""
SHORT_CALLS = 500


def main(arguments: Sequence[str]) -> None:
    """Until the input ends."""
    folder, engine, *names = arguments
    if engine != "tilewright":
        import onnxruntime  # noqa: F401 - the library itself is no part of the models' memory
    before = pss_mib()
    *runs, short = [opened(engine, Path(folder), name) for name in names]
    _all(runs)
    print(json.dumps({"pss_mib": pss_mib() - before}), flush=True)
    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in sys.stdin:
            print(json.dumps(one_round(runs, short, pool)), flush=True)


def opened(engine: str, folder: Path, name: str) -> Callable[[], Any]:
    """One inference of a model, which stays loaded."""
    inputs = dict(read_npz(folder / f"{name}.npz"))
    if engine == "tilewright":
        return partial(Model(folder / f"{name}.tw").run, inputs)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, inputs)


def pss_mib() -> float:
    """The proportional set of this process: of what it shares with others its part."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def one_round(runs: Sequence[Callable[[], Any]], short: Callable[[], Any], pool: ThreadPoolExecutor) -> dict[str, Any]:
    """What one turn of an engine found, seconds; `over_share` of each call at once."""
    three, alone, cpu = runs[:IN_TURN], [], 0.0
    for run in runs[:CALLERS]:
        run()
        begin = time.process_time()
        alone.append(median(_several(run)))
        cpu += (time.process_time() - begin) / CALLS if len(alone) <= IN_TURN else 0.0
    _all(three)
    begin = time.process_time()
    in_turn = median(_timed(partial(_all, three)) for _ in range(CALLS))
    in_turn_cpu = (time.process_time() - begin) / CALLS
    callers = [pool.submit(_several, run) for run in runs[:CALLERS]]
    share = [seconds * len(callers) for seconds in alone]
    over = [one / own for caller, own in zip(callers, share, strict=True) for one in caller.result()]
    return {
        "alone_s": sum(alone[:IN_TURN]),
        "alone_cpu_s": cpu,
        "in_turn_s": in_turn,
        "in_turn_cpu_s": in_turn_cpu,
        "over_share": over,
        "short_s": _timed(lambda: [short() for _ in range(SHORT_CALLS)]) / SHORT_CALLS,
    }


def _timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _several(run: Callable[[], Any]) -> list[float]:
    return [_timed(run) for _ in range(CALLS)]


def _all(runs: Sequence[Callable[[], Any]]) -> None:
    for run in runs:
        run()


if __name__ == "__main__":
    main(sys.argv[1:])
