"""A translated graph over CuPy's arrays: products are cuBLAS's, and convolutions products of unfolded windows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.gpu.array_network import Around, Array, Arrays, array_table
from bench.gpu.translation import Program, evaluate

WARMING = 3
"""Runs before a capture: CuPy compiles its kernels and takes its memory in them."""


def network(program: Program, dtype: str, xp: Any, erf: Callable[[Array], Array]) -> Callable[[Sequence[Array]], Any]:
    """A function of the inputs' arrays, in the program's order; `xp` is CuPy, or what has its functions.

    Float weights are kept as `dtype` on the device.
    """

    def padded(x: Array, around: Around, value: float) -> Array:
        return xp.pad(x, [(0, 0), (0, 0), *around], constant_values=value) if any(map(any, around)) else x

    def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
        """[N, C, *out, *kernel], a view of x [N, C, H, W]."""
        reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
        found = xp.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
        return found[(..., *(slice(None, None, step) for step in (*strides, *dilations)))]

    def convolve(
        x: Array, w: Array, strides: Sequence[int], around: Around, dilations: Sequence[int], groups: int
    ) -> Array:
        found = windows(padded(x, around, 0.0), w.shape[2:], strides, dilations)
        n, _, height, width = found.shape[:4]
        columns = found.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, -1, height * width)
        product = xp.matmul(w.reshape(groups, w.shape[0] // groups, -1), columns)
        return product.reshape(n, w.shape[0], height, width)

    def pool(x: Array, kernel: Sequence[int], strides: Sequence[int], around: Around, kind: str) -> Array:
        found = windows(padded(x, around, -np.inf if kind == "max" else 0.0), kernel, strides, (1, 1))
        return found.max((-2, -1)) if kind == "max" else found.sum((-2, -1))

    table = array_table(Arrays(xp, erf, convolve, pool, dtype))
    weights = {
        name: xp.asarray(array.astype(dtype) if array.dtype.kind == "f" else array)
        for name, array in program.weights.items()
    }
    return lambda inputs: evaluate(program, table, inputs, weights)


class Captured:
    """A network in one CUDA graph over inputs of its own, in memory of a pool of its own."""

    def __init__(self, program: Program, precision: str, inputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Raises ImportError without CuPy, or without the libraries of CUDA that it opens."""
        os.environ["CUPY_TF32"] = str(int(precision == "tf32"))
        import cupy
        from cupyx.scipy.special import erf

        began = time.monotonic()
        dtype = "float16" if precision == "fp16" else "float32"
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(self.pool.malloc), self.stream:
            run = network(program, dtype, cupy, erf)
            self.sets = [
                [cupy.asarray(array.astype(dtype) if array.dtype.kind == "f" else array) for array in ordered]
                for ordered in ([one[name] for name in program.inputs] for one in inputs)
            ]
            self.static = [array.copy() for array in self.sets[0]]
            for _ in range(WARMING):
                run(self.static)
            self.stream.begin_capture()
            self.results = run(self.static)
            self.graph = self.stream.end_capture()
        self.prepared_s = time.monotonic() - began

    def submit(self, number: int) -> None:
        """Begins an inference on an input set."""
        with self.stream:
            for static, array in zip(self.static, self.sets[number], strict=True):
                static[...] = array
        self.graph.launch(self.stream)

    def outputs(self) -> list[np.ndarray]:
        """Those of the last inference, which is over."""
        return [result.get().astype(np.float32) for result in self.results]
