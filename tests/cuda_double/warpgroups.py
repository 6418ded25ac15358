"""Launches of kernels that multiply by a warpgroup once: operands behind descriptors, sums in registers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.cuda_double.double import Device
from tests.cuda_double.layouts import SWIZZLE_CODES, k_major


def multiplied(
    device: Device, kernel: str, a: np.ndarray, b: np.ndarray, d: np.ndarray, numbers: Sequence[int], *more: np.ndarray
) -> np.ndarray:
    """What a kernel leaves of sums that begin as d[64, n], as d.

    a, b     bytes of both operands as their descriptors describe them
    numbers  parameters behind the sizes of both
    more     arrays that it reads besides
    """
    # Register 4j + e of a thread of warp w: row 16w + lane / 4 + 8 (e / 2), column 8j + 2 (lane % 4) + e % 2.
    thread, register = np.arange(128), np.arange(d.shape[1] // 2)[:, None]
    rows = thread // 32 * 16 + thread % 32 // 4 + register % 4 // 2 * 8
    columns = register // 4 * 8 + thread % 4 * 2 + register % 2
    sums = device.upload(d[rows, columns])
    operands = [device.upload(a), device.upload(b), sums, *map(device.upload, more)]
    shared = -(-a.size // 1024) * 1024 + b.size
    device.launch(kernel, [1], [128], [*operands, a.size, b.size, *numbers], shared=shared)
    found = np.empty_like(d)
    found[rows, columns] = device.download(sums, rows.shape, d.dtype)
    return found


def sparsely_multiplied(
    device: Device, kernel: str, a: np.ndarray, b: np.ndarray, d: np.ndarray, metadata: np.ndarray, accumulate: int
) -> np.ndarray:
    """The same of 64 bytes of what a row of a keeps and 128 of a row of b, along k."""
    (bytes_a, _, stride_a), (bytes_b, _, stride_b) = k_major(a, 64), k_major(b, 128)
    numbers = [stride_a, stride_b, SWIZZLE_CODES[64], SWIZZLE_CODES[128], accumulate]
    return multiplied(device, kernel, bytes_a, bytes_b, d, numbers, metadata)
