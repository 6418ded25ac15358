"""IREE's compiler and runtime, in the model's own precision.

What its compiler does by default with a convolution is far from what it can do: SqueezeNet 1.1 takes 98 ms on one
thread, and 6 ms as windows of a matrix product with tiled operands. FLAGS are the best found.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path

import onnx

from bench.engines.driver import EngineFailed, Opened, Task

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
    "--iree-global-opt-use-im2col-for-convs",
)
SAID = 600
"""Characters of what the compiler says when it fails."""


def compile_model(model: Path, folder: Path, threads: int) -> Path:
    """The compiled module in `folder`, for any number of threads, with the names of its ports beside it.

    Raises `EngineFailed`.
    """
    digest = hashlib.sha256(model.read_bytes() + repr(FLAGS).encode()).hexdigest()[:16]
    module = folder / f"{model.stem}-{digest}.vmfb"
    if module.exists():
        return module
    graph = onnx.load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    ports = {"inputs": inputs, "outputs": [value.name for value in graph.output]}
    module.with_suffix(".json").write_text(json.dumps(ports) + "\n")
    imported, draft = module.with_suffix(".mlir"), module.with_suffix(".part")
    _run("iree.compiler.tools.import_onnx", str(model), "-o", str(imported))
    _run("iree.compiler.tools.scripts.iree_compile", str(imported), *FLAGS, "-o", str(draft))
    imported.unlink()
    draft.replace(module)
    return module


def open_module(task: Task) -> Opened:
    """The module in a runtime of its own, its inputs in the runtime's memory.

    Each run ends when the outputs are the host's.
    """
    runtime = importlib.import_module("iree.runtime")  # by name: no extra of ours brings it
    if task.threads > 1:
        runtime.flags.parse_flags(f"--task_topology_group_count={task.threads}")
    config = runtime.Config("local-task" if task.threads > 1 else "local-sync")
    module = runtime.VmModule.mmap(config.vm_instance, str(task.file))
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    entry = next(name for name in module.function_names if not name.startswith("__") and "$" not in name)
    function = context.modules[module.name][entry]
    ports = json.loads(task.file.with_suffix(".json").read_text())
    given = [runtime.asdevicearray(config.device, task.inputs[name]) for name in ports["inputs"]]

    def once() -> list[object]:
        results = function(*given)
        several = results if isinstance(results, list | tuple) else [results]
        return [result.to_host() for result in several]

    return Opened(once, tuple(ports["outputs"]))


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise EngineFailed(f"IREE cannot compile the model: {' | '.join(said)[:SAID]}", fix="leave iree out of --peers")
