"""What a race is run on: an artifact by its loader, and the model as it came on other runtimes, tuned for latency.

The process of each contender begins with this module: it loads no schema, and a runtime only to open a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

OURS = "tilewright"

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Opened:
    """A model that is ready: a run of it on the inputs that it was opened with, and the names of what that gives."""

    run: Callable[[], Sequence[Any]]
    outputs: tuple[str, ...]
    close: Callable[[], None] = lambda: None


def installed() -> tuple[str, ...]:
    """The peers that this Python has, in the order of `PEERS`."""
    return tuple(peer for peer in OPEN if peer != OURS and util.find_spec(peer) is not None)


def version(peer: str) -> str:
    """Of the distribution; empty where it is unknown."""
    from importlib import metadata

    try:
        return metadata.version(peer)
    except metadata.PackageNotFoundError:
        return ""


def open_artifact(file: Path, inputs: Arrays, threads: int) -> Opened:
    """The artifact's own loader. Its bytes were compared with their digests by who made the inputs."""
    from compiler.pack.loader import Model

    model = Model(file, threads, verify=False)
    given = [inputs[spec.name] for spec in model.inputs]
    return Opened(lambda: model.run_flat(given), tuple(spec.name for spec in model.outputs), model.close)


def open_onnxruntime(file: Path, inputs: Arrays, threads: int) -> Opened:
    """ONNX Runtime's CPU provider with all graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = tuple(output.name for output in session.get_outputs())
    given = {port.name: inputs[port.name] for port in session.get_inputs() if port.name in inputs}
    return Opened(lambda: session.run(names, given), names)


def open_openvino(file: Path, inputs: Arrays, threads: int) -> Opened:
    """OpenVINO's CPU plugin in the model's own precision: its default may be bf16."""
    import openvino

    wanted = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    core = openvino.Core()
    # Where the file has no suffix, as in a job, its format is found in its bytes.
    model = core.read_model(str(file)) if file.suffix == ".onnx" else core.read_model(file.read_bytes())
    request = core.compile_model(model, "CPU", wanted).create_infer_request()
    for port in request.model_inputs:
        name = port.get_any_name()
        request.set_tensor(name, openvino.Tensor(inputs[name], shared_memory=True))
    outputs = request.model_outputs
    tensors = [request.get_output_tensor(at) for at in range(len(outputs))]

    def once() -> list[Any]:
        request.infer(share_outputs=True)
        return [tensor.data for tensor in tensors]

    return Opened(once, tuple(output.get_any_name() for output in outputs))


OPEN: Mapping[str, Callable[[Path, Arrays, int], Opened]] = {
    OURS: open_artifact,
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}
