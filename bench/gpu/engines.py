"""The engines of one measurement, in one process.

Each is a function that carries out inference number i and returns when it is done or queued.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu.torch_network import network
from bench.gpu.translation import Program

SETS = 4
"""Different inputs, taken in turn."""
WARMING = 3
"""Runs before a capture: libraries choose their algorithms and memory in them."""
Submit = Callable[[int], None]


@dataclass(frozen=True)
class Engine:
    """`submit(i)` begins an inference on input set i, `finish()` waits for all that were begun.

    Then `outputs()` are those of the last. `kept` is what must live as long: compiled code, an opened model.
    """

    name: str
    submit: Submit
    outputs: Callable[[], list[np.ndarray]]
    prepared_s: float
    finish: Callable[[], None] = torch.cuda.synchronize
    kept: Any = None


class TorchEngines:
    """PyTorch's modes on one network, in one precision and memory format."""

    def __init__(self, program: Program, precision: str, inputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        tf32 = precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        self.program, self.given = program, inputs
        self.dtype = torch.float16 if precision == "fp16" else torch.float32
        self.channels_last = False
        self._build()
        if any(array.ndim == 4 for array in inputs[0].values()):
            self._choose_format()

    def _build(self) -> None:
        self.module = network(self.program, self.dtype, "cuda", channels_last=self.channels_last)
        self.sets = [[self._tensor(one[name]) for name in self.program.inputs] for one in self.given]

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array).cuda()
        tensor = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        last = self.channels_last and tensor.dim() == 4
        return tensor.contiguous(memory_format=torch.channels_last) if last else tensor

    def _choose_format(self) -> None:
        """Keeps the memory format in which the captured network is faster."""
        seconds = {}
        for channels_last in (False, True):
            self.channels_last = channels_last
            self._build()
            engine = self.graphed("format", self.module)
            seconds[channels_last] = min(seconds_of(engine, 20) for _ in range(5))
        self.channels_last = seconds[True] <= seconds[False]
        self._build()

    def eager(self) -> Engine:
        """PyTorch without a compiler."""
        return self._direct("eager", self.module)

    def compiled(self, name: str, mode: str | None) -> Engine:
        """torch.compile, captured in a CUDA graph; the time it takes is the engine's to be prepared."""
        began = time.monotonic()
        torch._dynamo.reset()
        module = torch.compile(self.module, dynamic=False, **({"mode": mode} if mode else {}))
        return self.graphed(name, module, began)

    def graphed(self, name: str, module: Callable[..., Any], began: float | None = None) -> Engine:
        """A module in one CUDA graph over static inputs, into which each inference copies its own."""
        began = time.monotonic() if began is None else began
        static = [tensor.clone(memory_format=torch.preserve_format) for tensor in self.sets[0]]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(WARMING):
                module(*static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            results = module(*static)

        def submit(number: int) -> None:
            copy(static, self.sets[number])
            graph.replay()

        return Engine(name, submit, lambda: _arrays(results), time.monotonic() - began, kept=module)

    def _direct(self, name: str, module: Callable[..., Any]) -> Engine:
        last: list[Any] = [None]

        def submit(number: int) -> None:
            with torch.inference_mode():
                last[0] = module(*self.sets[number])

        return Engine(name, submit, lambda: _arrays(last[0]), 0.0)


def ours(artifact: Path, inputs: Sequence[Mapping[str, np.ndarray]]) -> Engine:
    """The artifact through its own loader, inputs and outputs in the GPU's memory.

    An inference is over when `submit` returns.
    """
    from compiler.pack.loader import Model

    began = time.monotonic()
    model = Model(artifact)
    given = [[torch.from_numpy(one[spec.name]).cuda() for spec in model.inputs] for one in inputs]
    static = [tensor.clone() for tensor in given[0]]
    results = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda") for spec in model.outputs]
    run = model.bind(static, results)

    def submit(number: int) -> None:
        copy(static, given[number])
        run()

    return Engine("ours", submit, lambda: _arrays(results), time.monotonic() - began, kept=model)


def xla(program: Program, precision: str, inputs: Sequence[Mapping[str, np.ndarray]]) -> Engine:
    """XLA through JAX. Its memory beside PyTorch's is taken as needed. Raises ImportError without JAX."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from bench.gpu.jax_network import network as for_xla

    began = time.monotonic()
    dtype = "float16" if precision == "fp16" else "float32"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    compiled = for_xla(program, dtype)

    def cast(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype) if array.dtype.kind == "f" else array

    sets = [[jax.device_put(cast(one[name])) for name in program.inputs] for one in inputs]
    last: list[Any] = [compiled(sets[0])]
    jax.block_until_ready(last[0])

    def submit(number: int) -> None:
        last[0] = compiled(sets[number])

    def finish() -> None:
        # The device's own barrier does not cover what XLA has not handed to it yet.
        jax.block_until_ready(last[0])

    seconds = time.monotonic() - began
    return Engine("xla", submit, lambda: [np.asarray(one) for one in last[0]], seconds, finish)


def cublas(program: Program, precision: str, inputs: Sequence[Mapping[str, np.ndarray]]) -> Engine:
    """CuPy's functions, whose products are cuBLAS's, in one CUDA graph. Raises ImportError without CuPy."""
    from bench.gpu.cupy_network import Captured

    made = Captured(program, precision, inputs)
    return Engine("cublas", made.submit, made.outputs, made.prepared_s, made.stream.synchronize, made)


def copy(into: Sequence[torch.Tensor], from_: Sequence[torch.Tensor]) -> None:
    """Into tensors that keep their addresses, as a captured graph needs them; equal numbers and shapes."""
    for static, tensor in zip(into, from_, strict=True):
        static.copy_(tensor)


def seconds_of(engine: Engine, count: int) -> float:
    """Seconds of one inference when `count` follow each other and all are waited for."""
    engine.finish()
    began = time.perf_counter()
    for number in range(count):
        engine.submit(number % SETS)
    engine.finish()
    return (time.perf_counter() - began) / count


def _arrays(results: Sequence[torch.Tensor]) -> list[np.ndarray]:
    return [result.detach().float().cpu().numpy() for result in results]
