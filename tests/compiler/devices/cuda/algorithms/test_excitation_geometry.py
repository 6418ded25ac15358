"""How squeeze and excitation is shared out between blocks, and which is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda.algorithms.excitation.geometry import Shares, as_shared_out
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, Layout
from tests.compiler.fuse.excitations import excitation


def workload(channels: int, hidden: int, element: DType | None = DType.F16, *, constant: bool = True) -> Workload:
    kernels = fuse(excitation(channels, hidden, (9, 7))).kernels
    join = next(one for one in joins(kernels) if one.kind == "excitation")
    found = cuda_workload_of(kernels, join.call)
    inputs = tuple(replace(buffer, element=element) for buffer in found.inputs)
    return replace(found, inputs=inputs, constant=tuple(one and constant for one in found.constant))


@pytest.mark.parametrize(("parts", "own"), [(1, 72), (2, 40), (4, 24), (8, 16)])
def test_blocks_have_whole_vectors_of_channels(parts: int, own: int) -> None:
    work = workload(72, 18)
    form = as_shared_out(work)
    assert form is not None
    assert (form.positions, form.images, form.count) == (63, 1, 8)
    assert form.channels_of(work, Shares(parts, 2)) == own


def test_weights_are_packed_block_by_block() -> None:
    work = workload(24, 6)
    form = as_shared_out(work)
    assert form is not None
    first, second = form.first_weights(work, Shares(2, 1))[1], form.second_weights(work, 4)[1]
    weights = np.arange(6 * 24, dtype=np.float32).reshape(6, 24)
    packed = first.pack(weights).reshape(2, 6, 16)
    np.testing.assert_array_equal(packed[0], weights[:, :16])
    np.testing.assert_array_equal(packed[1, :, :8], weights[:, 16:])
    assert not packed[1, :, 8:].any()
    packed = second.pack(weights.T).reshape(4, 6, 8)
    np.testing.assert_array_equal(packed[..., :6].reshape(24, 6), weights.T)
    assert not packed[..., 6:].any()


def test_weights_that_are_no_constants_and_channels_far_apart_are_refused() -> None:
    assert as_shared_out(workload(24, 6, constant=False)) is None
    work = workload(24, 6)
    plain = replace(work.inputs[0], layout=Layout.plain(4), strides=(24 * 63, 63, 7, 1))
    assert as_shared_out(replace(work, inputs=(plain, *work.inputs[1:]))) is None
