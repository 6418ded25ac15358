"""ONNX Runtime's CPU provider with all graph optimisations.

As it comes it splits each operator; or it runs operators beside each other.

Its parallel execution mode has as many threads as the race between operators and one within each. With several within
each as well it has more threads than cores, all of which spin: at two threads that took 1.1 to 2.3 times as long on
each of seven networks.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engines.driver import Layer, Opened, Task

KERNEL = "_kernel_time"
"""Ends the name of the event that times a node."""
WARM_UPS = 2


def open_session(task: Task) -> Opened:
    """A session; it computes in the model's own precision."""
    return _opened(_session(task, {}), task)


def open_parallel_session(task: Task) -> Opened:
    """A session in which operators that do not need each other run side by side, each on one thread."""
    from onnxruntime import ExecutionMode

    settings = {
        "execution_mode": ExecutionMode.ORT_PARALLEL,
        "inter_op_num_threads": task.threads,
        "intra_op_num_threads": 1,
    }
    return _opened(_session(task, settings), task)


def _opened(session: Any, task: Task) -> Opened:
    names = tuple(output.name for output in session.get_outputs())
    given = {tensor.name: task.inputs[tensor.name] for tensor in session.get_inputs()}
    return Opened(lambda: session.run(names, given), names)


def layers(task: Task, seconds: float) -> list[Layer]:
    """The profile of a session.

    A node is identified by its own name and by those of the values it gives in the optimised graph.
    """
    import onnx

    with tempfile.TemporaryDirectory(prefix="tilewright-ort-") as folder:
        optimised = Path(folder) / "optimised.onnx"
        session = _session(
            task,
            {
                "enable_profiling": True,
                "profile_file_prefix": str(Path(folder) / "profile"),
                "optimized_model_filepath": str(optimised),
            },
        )
        given = {tensor.name: task.inputs[tensor.name] for tensor in session.get_inputs()}
        end = time.perf_counter() + seconds
        runs = 0
        while runs <= WARM_UPS or time.perf_counter() < end:
            session.run(None, given)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(optimised, load_external_data=False).graph
    results = {node.name: tuple(node.output) for node in graph.node}
    samples: dict[str, list[float]] = {}
    kinds: dict[str, str] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL):
            name = event["name"].removesuffix(KERNEL)
            samples.setdefault(name, []).append(1e-6 * event["dur"])
            kinds[name] = event["args"]["op_name"]
    return [
        Layer(kinds[name], (name, *results.get(name, ())), statistics.median(taken[WARM_UPS:]))
        for name, taken in samples.items()
    ]


def _session(task: Task, settings: Mapping[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(str(task.file), options, providers=["CPUExecutionProvider"])
