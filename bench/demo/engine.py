"""One engine in a process of its own: `python -m bench.demo.engine ENGINE MODEL INPUTS OUTPUTS THREADS`.

It runs MODEL once on the arrays of INPUTS (.npz), writes what that gave to OUTPUTS (.npz) and prints `ready`. Then, for
each line on standard input, a number of seconds, it runs the model for so long and prints the seconds of each run as
JSON. It ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from tilewright.arrays import read_npz, write_npz

LEAST = 3
"""Runs of one turn, however long they take."""

Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[], Any]


def tilewright_engine(model: Path, inputs: Arrays, threads: int) -> tuple[Run, tuple[str, ...]]:
    """The artifact, by its own loader; what runs it once, and the names of what that gives."""
    import tilewright

    opened = tilewright.load(model, lanes=threads)
    given = [inputs[spec.name] for spec in opened.inputs]
    return lambda: opened.run_flat(given), tuple(spec.name for spec in opened.outputs)


def onnxruntime_engine(model: Path, inputs: Arrays, threads: int) -> tuple[Run, tuple[str, ...]]:
    """ONNX Runtime's CPU provider as it comes, with all graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = tuple(output.name for output in session.get_outputs())
    given = {tensor.name: inputs[tensor.name] for tensor in session.get_inputs()}
    return lambda: session.run(names, given), names


ENGINES: Mapping[str, Callable[[Path, Arrays, int], tuple[Run, tuple[str, ...]]]] = MappingProxyType(
    {"tilewright": tilewright_engine, "onnxruntime": onnxruntime_engine}
)


def turn(run: Run, seconds: float) -> list[float]:
    """Seconds of single runs, for as long as `seconds` last and at least LEAST; the first, which wakes threads, is not among them."""
    run()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < LEAST or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return samples


def main(arguments: list[str]) -> None:
    """Serve turns until standard input ends."""
    engine, model, inputs, outputs, threads = arguments
    run, names = ENGINES[engine](Path(model), read_npz(Path(inputs)), int(threads))
    write_npz(Path(outputs), dict(zip(names, run(), strict=True)))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(run, float(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
