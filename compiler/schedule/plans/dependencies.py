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


def may_run_concurrently(kernels: KernelGraph) -> tuple[bool, ...]:
    """For each call whether it can run at the same time as some other, neither being before the other. O(n e / 64)."""
    before = predecessors(kernels)
    ancestors: list[int] = []
    descendants = [0] * len(before)
    for earlier in before:
        bits = 0
        for one in earlier:
            bits |= ancestors[one] | 1 << one
        ancestors.append(bits)
    for call in reversed(range(len(before))):
        for one in before[call]:
            descendants[one] |= descendants[call] | 1 << call
    return tuple(
        above.bit_count() + below.bit_count() < len(before) - 1
        for above, below in zip(ancestors, descendants, strict=True)
    )
