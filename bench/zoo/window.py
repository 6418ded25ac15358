"""Sizes and pads of sliding windows over the height and width of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

Pair = int | tuple[int, int]
Pads = tuple[int, int, int, int]
"""Top, left, bottom, right, the order of ONNX."""


class DoesNotFit(ValueError):
    """A window is larger than the padded image it slides over."""


def same_pads(size: Sequence[int], kernel: int, stride: int) -> Pads:
    """TensorFlow's SAME padding of an H x W image: ceil(size / stride) outputs, the odd pixel at the end."""
    totals = [max((math.ceil(s / stride) - 1) * stride + kernel - s, 0) for s in size]
    (top, left), (bottom, right) = (t // 2 for t in totals), (t - t // 2 for t in totals)
    return top, left, bottom, right


def pair(value: Pair) -> tuple[int, int]:
    """Height and width of one number or two."""
    return (value, value) if isinstance(value, int) else value


def pads_of(value: Pair | Pads) -> Pads:
    """All four pads of one number, of (vertical, horizontal), or of four."""
    if isinstance(value, int):
        return value, value, value, value
    return (*value, *value) if len(value) == 2 else value


def window(
    size: Sequence[int], kernel: tuple[int, int], stride: tuple[int, int], pads: Pads, ceil: bool = False
) -> tuple[int, int]:
    """Output height and width of a sliding window; a ceil-mode window must start inside the image or its left pad."""
    out = []
    for axis in (0, 1):
        room = size[axis] + pads[axis] + pads[axis + 2] - kernel[axis]
        if room < 0:
            raise DoesNotFit(f"a window of {kernel} does not fit into an image of {tuple(size)} padded by {pads}")
        count = (math.ceil(room / stride[axis]) if ceil else room // stride[axis]) + 1
        if ceil and (count - 1) * stride[axis] >= size[axis] + pads[axis]:
            count -= 1
        out.append(count)
    return out[0], out[1]
