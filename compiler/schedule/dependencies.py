"""Which calls of a kernel graph must have ended before one may begin."""

from __future__ import annotations

from compiler.ir.buffers import KernelGraph


def predecessors(kernels: KernelGraph) -> tuple[tuple[int, ...], ...]:
    """For each call the earlier calls that write into a storage it reads."""
    writers: dict[int, list[int]] = {}
    found = []
    for position, call in enumerate(kernels.calls):
        read = dict.fromkeys(kernels.buffers[id].storage for id in call.inputs)
        found.append(tuple(sorted({writer for storage in read for writer in writers.get(storage, ())})))
        for storage in dict.fromkeys(kernels.buffers[id].storage for id in call.outputs):
            writers.setdefault(storage, []).append(position)
    return tuple(found)
