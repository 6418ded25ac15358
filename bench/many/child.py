"""One engine's process: it loads the models, and for each line that it reads it measures a round.

Arguments: the folder of `bench.many.run`, the engine, and the models, of which the last is of two nodes. It answers in
lines of JSON: what memory they hold, then rounds.
"""

from __future__ import annotations

import json
import re
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

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
    inputs = [dict(read_npz(Path(folder) / f"{name}.npz")) for name in names]
    before = pss_mib()
    *runs, short = [opened(engine, Path(folder) / name, fed) for name, fed in zip(names, inputs, strict=True)]
    _all(runs)
    after = pss_mib()
    held = {what: after[what] - before[what] for what in before}
    known = [_known_mib(run) for run in runs]
    print(
        json.dumps(
            {"held_mib": held, "made_mib": sum(made for made, _ in known), "arena_mib": max(one for _, one in known)}
        ),
        flush=True,
    )
    called = names[: len(runs)][:CALLERS]
    single = [opened(engine, Path(folder) / name, fed, 1) for name, fed in zip(called, inputs, strict=False)]
    sizes = [(Path(folder) / f"{name}.onnx").stat().st_size for name in called[:IN_TURN]]
    others = [np.ones((sum(sizes) - own) // 8) for own in sizes]
    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in sys.stdin:
            found = one_round(runs, short, single, pool)
            found["cold_s"] = sum(map(_cold, runs, others))
            print(json.dumps(found), flush=True)


def opened(engine: str, path: Path, inputs: Mapping[str, Any], threads: int = THREADS) -> Callable[[], Any]:
    """One inference of a model, which stays loaded; `path` without its ending."""
    if engine == "tilewright":
        return partial(Model(path.with_suffix(".tw"), lanes=threads).run, inputs)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path.with_suffix(".onnx")), options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, inputs)


def pss_mib() -> dict[str, float]:
    """The proportional set of this process: of what it shares with others its part.

    weights    of artifacts, mapped
    libraries  model.so of artifacts
    rest       constants made at load, arenas, Python, the C library's heap, stacks
    """
    found = dict.fromkeys(("weights", "libraries", "rest"), 0.0)
    head = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)\n", re.MULTILINE)
    parts = head.split(Path("/proc/self/smaps").read_text())
    for name, facts in zip(parts[1::2], parts[2::2], strict=True):
        what = "weights" if name.endswith(".tw") else "libraries" if "model.so" in name else "rest"
        pss = re.search(r"^Pss: *(\d+) kB", facts, re.MULTILINE)
        found[what] += int(pss[1]) / 1024 if pss else 0.0
    return found


def _known_mib(run: Callable[[], Any]) -> tuple[float, float]:
    """Of a model of ours: constants that were made when it was loaded, by its sources, and its arena; else zeros."""
    model = getattr(getattr(run, "func", None), "__self__", None)
    if not isinstance(model, Model):
        return 0.0, 0.0
    with zipfile.ZipFile(model.path) as archive:
        made = re.search(rb"#define MADE_BYTES (\d+)UL", archive.read("source/model.c"))
    return (int(made[1]) / 2**20 if made else 0.0), model.manifest["arena_bytes"] / 2**20


def one_round(
    runs: Sequence[Callable[[], Any]],
    short: Callable[[], Any],
    single: Sequence[Callable[[], Any]],
    pool: ThreadPoolExecutor,
) -> dict[str, Any]:
    """What one turn of an engine found, seconds.

    `over_share` of each call at once, `over_share_single` of the same models on their callers' threads alone: both over
    the time alone on all threads by the number of callers.
    """
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
    share = [seconds * len(alone) for seconds in alone]
    _all(single)
    return {
        "alone_s": sum(alone[:IN_TURN]),
        "alone_cpu_s": cpu,
        "in_turn_s": in_turn,
        "in_turn_cpu_s": in_turn_cpu,
        "over_share": _over(share, runs[:CALLERS], pool),
        "over_share_single": _over(share, single, pool),
        "short_s": _timed(lambda: [short() for _ in range(SHORT_CALLS)]) / SHORT_CALLS,
    }


def _over(share: Sequence[float], runs: Sequence[Callable[[], Any]], pool: ThreadPoolExecutor) -> list[float]:
    """Of each call, where a thread each calls the models at once."""
    callers = [pool.submit(_several, run) for run in runs]
    return [one / own for caller, own in zip(callers, share, strict=True) for one in caller.result()]


def _cold(run: Callable[[], Any], other: np.ndarray) -> float:
    """Alone, but that its thread reads as much memory before each call as the other models in turn have weights."""

    def one() -> float:
        other.sum()
        return _timed(run)

    return median(one() for _ in range(CALLS))


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
