"""Joins of two products and the softmax between them: why one is refused."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.buffers import Call, KernelGraph


def refusals(kernels: KernelGraph, join: Callable[[KernelGraph, int, int, int], Call | str]) -> list[str]:
    """What `join` says of each softmax, with the call before it and each that reads it."""
    softmaxes = [at for at, call in enumerate(kernels.calls) if "Softmax" in call.kernel.family]
    return [
        str(join(kernels, kernels.writer[kernels.calls[at].inputs[0]], at, reader))
        for at in softmaxes
        for reader in kernels.readers[kernels.calls[at].outputs[0]]
    ]
