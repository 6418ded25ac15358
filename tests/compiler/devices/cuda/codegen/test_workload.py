from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType
from compiler.tuning.tune import workload_key
from tests.parse import parse_kernel

KERNEL = parse_kernel("kernel Neg(in x0: f32[8]; out y0: f32[8]) for i:8 y0[i] = neg(x0[i])")


def graph(offset: int, element: DType | None) -> KernelGraph:
    """A map into a slice of a larger storage."""
    whole = Buffer.whole(0, KERNEL.inputs[0].type)
    part = replace(Buffer.whole(1, KERNEL.outputs[0].type), storage=2, offset=offset, element=element)
    return KernelGraph({0: whole, 1: part}, (Call(KERNEL, (0,), (1,)),), (0,), (1,))


@pytest.mark.parametrize(
    ("element", "offset", "seen"),
    [(None, 3, 3), (None, 4, 0), (None, 21, 1), (DType.F16, 4, 4), (DType.F16, 8, 0), (DType.BF16, 19, 3)],
)
def test_of_an_offset_only_what_16_bytes_leave_is_seen(element: DType | None, offset: int, seen: int) -> None:
    kernels = graph(offset, element)
    workload = cuda_workload_of(kernels, kernels.calls[0])
    assert (workload.inputs[0].offset, workload.outputs[0].offset) == (0, seen)
    assert (workload.outputs[0].id, workload.outputs[0].storage) == (0, 0)
    assert parse_workload(str(workload)) == workload


def test_workloads_that_are_aligned_alike_are_one() -> None:
    keys = [
        workload_key(cuda_workload_of(kernels, kernels.calls[0])) for kernels in (graph(at, None) for at in (0, 4, 1))
    ]
    assert keys[0] == keys[1] != keys[2]
