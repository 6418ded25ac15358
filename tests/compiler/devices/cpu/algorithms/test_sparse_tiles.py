from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cpu.algorithms.sparse.plane import Plane
from compiler.devices.cpu.algorithms.sparse.tiles import MOST_FILL, MOST_TILES, sparse_tiles
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.encodings.encoding import DENSE
from compiler.encodings.sparse import Sparse
from compiler.encodings.zeros import CLASSES
from compiler.forms.sparse import PLACES, as_sparse_product, multiplies_by
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.parsing.tokens import ParseError
from compiler.ir.tensor import Layout
from tests.parse import parse_kernel

V4 = PROFILES[0]
CONV = """
kernel Conv(in x0: f32[{b}, {c}, {h}, {h}], in x1: f32[{k}, {c}, {r}, {r}]; out y0: f32[{b}, {k}, {o}, {o}])
  for b:{b}, k:{k}, oy:{o}, ox:{o}
    y0[b, k, oy, ox] = sum<f32> c:{c}, r:{r}, s:{r} . mul(x0[b, c, {t}*oy + r, {t}*ox + s], x1[k, c, r, s])
"""
VECTORS = (7, 7, 7, 13)
"""Fills of a tenth, in groups of four lines."""
SCATTERED = (7, 13, 23, 38)


def conv(b: int, c: int, k: int, h: int, r: int = 3, t: int = 1, fills: tuple[int, ...] = SCATTERED) -> Workload:
    kernel = parse_kernel(CONV.format(b=b, c=c, k=k, h=h, r=r, t=t, o=(h - r) // t + 1))
    last = Layout.channels_last(4)
    inputs = (Buffer.whole(0, kernel.inputs[0].type, last), Buffer.whole(0, kernel.inputs[1].type))
    outputs = (Buffer.whole(0, kernel.outputs[0].type, last),)
    return Workload(kernel, inputs, outputs, (False, True), ((DENSE,), (DENSE, Sparse.of(0, fills))))


SHAPES = [
    conv(1, 64, 64, 58),
    conv(16, 256, 256, 16),
    conv(1, 512, 512, 9),
    conv(16, 512, 512, 9),
    conv(4, 128, 256, 29, 3, 2),
    conv(1, 256, 1024, 14, 1),
    conv(2, 33, 65, 12, 2, fills=VECTORS),
]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: str(profile.name))
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_sums_fit_the_registers_and_distances_their_16_bits(profile: CpuTarget, lanes: int, shape: int) -> None:
    workload = SHAPES[shape]
    options = sparse_tiles(workload, profile, lanes)
    assert 0 < len(options) <= MOST_TILES
    assert [one.seconds for one in options] == sorted(one.seconds for one in options)
    assert len({one.tile for one in options}) == len(options)
    view = as_sparse_product(workload)
    assert view is not None
    for one in options:
        plane = Plane.of(view, one.tile, profile.vector_floats)
        held = plane.vectors * (plane.group + (plane.group > 1)) + 1
        assert held < profile.vector_registers
        _, streams = plane.streams(workload)
        assert streams.distances.max() < PLACES
        assert streams.distances.max() + plane.summed <= plane.floats
        assert view.encoding.fill(plane.group) <= MOST_FILL * CLASSES
        assert (one.error, count_tiles(workload, one.tile, profile)) == (0.0, plane.tasks)


def test_images_lie_side_by_side_where_there_are_enough_to_fill_a_vector() -> None:
    best = sparse_tiles(conv(16, 256, 256, 16), V4, 1)[0].tile
    assert best.extent("block", "b") == V4.vector_floats
    view = as_sparse_product(conv(16, 256, 256, 16))
    assert view is not None
    assert Plane.of(view, best, V4.vector_floats).is_aligned
    assert sparse_tiles(conv(1, 256, 256, 16), V4, 1)[0].tile.extent("block", "b") == 1


def test_a_few_rows_of_many_images_share_what_their_windows_stage() -> None:
    options = sparse_tiles(conv(16, 128, 128, 30, fills=(20,) * 4), V4, 1)
    grouped = [option.tile for option in options if option.tile.extent("register", "n") == 4]
    rows = {tile.extent("block", "m") for tile in grouped if tile.extent("block", "b") == 16}
    assert rows == {1, 2, 4}, "one row of sixteen images exceeds the registers"


def test_lines_with_the_same_zeros_are_summed_together() -> None:
    workload = conv(1, 64, 64, 58, fills=VECTORS)
    assert sparse_tiles(workload, V4, 1)[0].tile.extent("register", "n") == 4
    assert sparse_tiles(conv(1, 64, 64, 58), V4, 1)[0].seconds > 1.5 * sparse_tiles(workload, V4, 1)[0].seconds


def test_fewer_zeros_take_longer_and_too_few_have_no_tiles() -> None:
    seconds = [sparse_tiles(conv(1, 64, 64, 58, fills=(fill,) * 4), V4, 1)[0].seconds for fill in (4, 8, 16, 32)]
    assert seconds == sorted(seconds)
    assert sparse_tiles(conv(1, 64, 64, 58, fills=(45, 50, 60, 64)), V4, 1) == []


def test_only_factors_that_are_weights_as_they_are_count() -> None:
    workload = SHAPES[0]
    assert [multiplies_by(workload.kernel, slot) for slot in workload.kernel.inputs] == [True, True]
    sums = parse_kernel("kernel Sum(in x: f32[64, 32]; out y: f32[64])\n  for i:64\n    y[i] = sum<f32> k:32 . x[i, k]")
    assert not multiplies_by(sums, sums.inputs[0])
    halves = parse_kernel(
        "kernel MatMul(in x: f32[64, 32], in w: f16[32, 8], in q: i8[32, 8]; out y: f32[64, 8])\n  for i:64, j:8\n"
        "    y[i, j] = sum<f32> k:32 . mul(mul(x[i, k], cast(q[k, j]):f32), cast(w[k, j]):f32)"
    )
    assert [multiplies_by(halves, slot) for slot in halves.inputs] == [False, True, False]


@pytest.mark.parametrize("zero", ["0:i32", "cast(0:i8):i32", "cast(z[j]):i32"])
def test_bytes_count_less_their_zero_point(zero: str) -> None:
    kernel = parse_kernel(
        "kernel MatMulInteger(in x: u8[64, 32], in w: i8[32, 8], in z: i8[8]; out y: i32[64, 8])\n  for i:64, j:8\n"
        f"    y[i, j] = sum<i32> k:32 . mul(sub(cast(x[i, k]):i32, 3:i32), sub(cast(w[k, j]):i32, {zero}))"
    )
    assert [multiplies_by(kernel, slot) for slot in kernel.inputs] == [True, True, False]


def test_workloads_with_sparse_weights_are_read_back_equal_and_have_keys_of_their_own() -> None:
    workload = SHAPES[0]
    workload.verify()
    assert parse_workload(str(workload)) == workload
    assert repr(workload) != repr(replace(workload, encodings=()))
    assert repr(replace(workload, encodings=())).endswith("narrow=(False, False))")
    for wrong in ("sparse_0_7_13", "sparse_0_7_13_23_99", "sparse_3_7_13_23_38"):
        with pytest.raises(ParseError, match="expected an encoding"):
            parse_workload(str(workload).replace("sparse_0_7_13_23_38", wrong))
