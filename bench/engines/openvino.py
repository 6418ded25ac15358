"""OpenVINO's CPU plugin, tuned for latency. Its own default precision may be bf16: the task's is demanded.

Of a quantised model it runs in int8 what it can, and the rest in its default precision.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.engines.driver import Layer, Opened, Task

PRECISIONS: dict[str, dict[str, str]] = {
    "fp32": {"INFERENCE_PRECISION_HINT": "f32"},
    "bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    "int8": {},
}


def open_model(task: Task) -> Opened:
    """A request whose inputs lie in the task's arrays, read from the ONNX file."""
    request = _request(task, {})
    outputs = request.model_outputs
    tensors = [request.get_output_tensor(at) for at in range(len(outputs))]

    def once() -> list[Any]:
        request.infer(share_outputs=True)
        return [tensor.data for tensor in tensors]

    return Opened(once, tuple(output.get_any_name() for output in outputs))


def layers(task: Task, seconds: float) -> list[Layer]:
    """The executed nodes of the plugin's graph, in its order.

    Each with the names of the nodes it says it was made from.
    """
    request = _request(task, {"PERF_COUNT": True})
    request.infer()
    samples: dict[str, list[float]] = {}
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        request.infer()
        for step in request.get_profiling_info():
            if step.status.name == "EXECUTED":
                samples.setdefault(step.node_name, []).append(step.real_time.total_seconds())
    found = []
    for node in request.get_compiled_model().get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        if node.friendly_name in samples:
            made_from = [name for name in info["originalLayersNames"].astype(str).split(",") if name]
            kind = f"{info['layerType'].astype(str)} {info['primitiveType'].astype(str)}"
            names = (*made_from, node.friendly_name)
            found.append(Layer(kind, names, statistics.median(samples[node.friendly_name])))
    return found


def _request(task: Task, settings: dict[str, Any]) -> Any:
    import openvino

    wanted = {
        "PERFORMANCE_HINT": "LATENCY",
        **PRECISIONS[task.precision],
        "INFERENCE_NUM_THREADS": task.threads,
        **settings,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(task.file), "CPU", wanted).create_infer_request()
    for tensor in request.model_inputs:
        name = tensor.get_any_name()
        request.set_tensor(name, openvino.Tensor(task.inputs[name], shared_memory=True))
    return request
