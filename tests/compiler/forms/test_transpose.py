from __future__ import annotations

import pytest

from compiler.forms.transpose import as_transpose
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from tests.parse import parse_kernel


def workload(text: str, *layouts: Layout) -> Workload:
    """A kernel on dense buffers, the first ones in `layouts`."""
    kernel = parse_kernel(text)
    slots = (*kernel.inputs, *kernel.outputs)
    given = (*layouts, *(Layout.plain(slot.type.rank) for slot in slots[len(layouts) :]))
    buffers = tuple(
        Buffer.whole(at, slot.type, layout) for at, (slot, layout) in enumerate(zip(slots, given, strict=True))
    )
    count = len(kernel.inputs)
    return Workload(kernel, buffers[:count], buffers[count:], (False,) * count)


IMAGE = """
kernel Add(in x: f32[2, 5, 6, 7], in b: f32[5]; out y: f32[2, 5, 6, 7])
  for n:2, c:5, h:6, w:7
    y[n, c, h, w] = add(x[n, c, h, w], b[c])
"""


def test_an_image_that_becomes_nchw_is_read_along_channels_and_written_along_joined_pixels() -> None:
    form = as_transpose(workload(IMAGE, Layout.channels_last(4)))
    assert form is not None
    assert (form.reads.extent, form.writes.extent) == (5, 42)
    assert [load.slot for load in form.transposed] == ["x"]
    assert [axis.extent for axis in form.outer] == [2]


def test_images_in_one_layout_are_no_transpose() -> None:
    assert as_transpose(workload(IMAGE)) is None
    assert as_transpose(workload(IMAGE, Layout.channels_last(4), Layout.plain(1), Layout.channels_last(4))) is None


def test_a_block_of_its_own_axes_is_a_transpose_as_well() -> None:
    form = as_transpose(workload("kernel T(in x: f32[4, 9]; out y: f32[9, 4])\n    for i:4, j:9: y[j, i] = x[i, j]\n"))
    assert form is not None
    assert (form.reads.extent, form.writes.extent) == (9, 4)


@pytest.mark.parametrize(
    "text",
    [
        "kernel Pad(in x: f32[4, 9]; out y: f32[12, 4])\n  for i:4, j:12\n"
        "    y[j, i] = where(lt(#(j):i64, 9:i64), x[i, j], 0.0:f32)\n",
        "kernel Sum(in x: f32[4, 9]; out y: f32[9])\n  for j:9\n    y[j] = sum<f32> i:4 . x[i, j]\n",
        "kernel Run(in x: f32[4, 9]; out y: f32[9, 4])\n  for seq i:4, j:9\n    y[j, i] = x[i, j]\n",
        "kernel Run(in x: f32[4, 9]; out y: f32[9, 4])\n    for seq i:4, j:9: y[j, i] = x[i, j]\n",
    ],
)
def test_what_is_guarded_reduced_or_in_order_is_no_transpose(text: str) -> None:
    assert as_transpose(workload(text)) is None
