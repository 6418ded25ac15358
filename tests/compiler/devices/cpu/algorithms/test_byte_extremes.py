from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.byte_extremes import extreme_tiles, extremes_of
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import Case, check
from tests.compiler.ops.single import defaults

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""


def case(op: str, array: np.ndarray, *, layout: Layout | None = None, **attrs: Attr) -> Case:
    """An operator over an image whose channels lie last."""
    type = TensorType(DType.of(array.dtype), array.shape)
    node = Node(op, (0,), (100,), {**defaults(op), **attrs})
    record = OPERATORS[op]
    kernel = record.define(node, (type,), record.infer(node, (type,)))
    assert isinstance(kernel, Kernel)
    slots = (*kernel.inputs, *kernel.outputs)
    lying = layout or Layout.channels_last(array.ndim)
    return Case(kernel, tuple(Buffer.whole(at, slot.type, lying) for at, slot in enumerate(slots)), (array,))


def image(dtype: type, channels: int, *space: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(channels)
    return random.integers(limits.min, limits.max + 1, (2, channels, *space)).astype(dtype)


def cases() -> list[Case]:
    found = []
    for dtype in (np.uint8, np.int8):
        found += [
            case("MaxPool", image(dtype, 64, 7, 8), kernel_shape=(3, 3), strides=(2, 2)),
            case("MaxPool", image(dtype, 70, 5, 6), kernel_shape=(3, 2), strides=(1, 2), pads=(1, 1, 1, 0)),
            case("MaxPool", image(dtype, 16, 6, 5), kernel_shape=(2, 2), dilations=(2, 2), ceil_mode=1),
            case("MaxPool", image(dtype, 130, 9), kernel_shape=(3,), pads=(2, 2)),
            case("ReduceMin", image(dtype, 33, 4, 5), axes=(2, 3)),
        ]
    return found


@pytest.mark.parametrize("width", TARGETS)
def test_they_are_those_of_the_definition(width: int) -> None:
    tiled = [replace(one, tile=extreme_tiles(one.workload, TARGETS[width], 1)[0].tile) for one in cases()]
    check([replace(one, cuts=(0.3,)) for one in tiled], TARGETS[width], "-O1")


def test_what_is_contiguous_along_no_axis_is_left_to_others() -> None:
    plain = case("MaxPool", image(np.uint8, 64, 7, 8), kernel_shape=(3, 3), strides=(2, 2), layout=Layout.plain(4))
    assert extremes_of(plain.workload) is None


def test_extremes_of_floats_and_few_channels_are_left_to_others() -> None:
    floats = case("MaxPool", image(np.uint8, 64, 7, 8).astype(np.float32), kernel_shape=(3, 3))
    assert extremes_of(floats.workload) is None
    few = case("MaxPool", image(np.uint8, 3, 7, 8), kernel_shape=(3, 3))
    assert not extreme_tiles(few.workload, TARGETS[max(TARGETS)], 1)
