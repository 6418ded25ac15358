"""A call as CUDA lowerings see it.

Its kernel, with the geometry of its buffers and how their first elements are aligned. Storages are aligned to 64 bytes
or more, but a buffer may begin anywhere in one: a Concat's operand is written into a slice of the result. How far that
is from a multiple of the widest access stays in `Buffer.offset`, so that a lowering knows which accesses its operands
allow. Of constants it is known whether they are zero at two of each four places, which sparse tensor cores leave out,
and what neighbouring columns keep of them together.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.calls import workload_of
from compiler.encodings.encoding import DENSE, Encodings, Use
from compiler.forms.sparse import multiplies_by
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Slot
from compiler.ir.machine import Workload

WIDEST_ACCESS = 16
"""Bytes that one thread loads or stores at once."""


def cuda_workload_of(kernels: KernelGraph, call: Call, *, encoded: bool = True) -> Workload:
    """A call's kernel with the geometry of its buffers, each `offset` modulo WIDEST_ACCESS.

    Equal workloads share code and measurements. `encoded`: with what the values of its constants allow.
    """
    plain = workload_of(kernels, call, encoded=False)

    def sparse(slot: Slot, id: int) -> Encodings:
        if not encoded or not multiplies_by(call.kernel, slot):
            return ()
        return kernels.encodings(id, Use.TENSOR_CORES)

    return replace(
        plain,
        encodings=tuple((DENSE, *sparse(*one)) for one in zip(call.kernel.inputs, call.inputs, strict=True)),
        inputs=tuple(_aligned(one, kernels.buffers[id]) for one, id in zip(plain.inputs, call.inputs, strict=True)),
        outputs=tuple(_aligned(one, kernels.buffers[id]) for one, id in zip(plain.outputs, call.outputs, strict=True)),
    )


def _aligned(geometry: Buffer, buffer: Buffer) -> Buffer:
    return replace(geometry, offset=buffer.offset % (WIDEST_ACCESS // buffer.dtype.bytes))
