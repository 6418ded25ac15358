"""The demonstration kernels, each with a run on one device that returns what it computed beside a float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.cuda_double.double import Device, Node, TensorMap

KERNELS = Path(__file__).parent / "kernels"
Outcome = tuple[np.ndarray, np.ndarray]
"""Computed, and expected in float64."""


def numbers(shape: tuple[int, ...], seed: int, dtype: type = np.float32) -> np.ndarray:
    """Normal numbers, rounded to the dtype; never zeros, which hide errors."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def vector_add(device: Device, n: int = 2050) -> Outcome:
    x, y = numbers((n,), 1), numbers((n,), 2)
    z = device.allocate(4 * n)
    device.launch("vector_add", [-(-n // 1024)], [256], [device.upload(x), device.upload(y), z, n])
    return device.download(z, (n,), np.float32), x.astype(np.float64) + y


def reduce_sum(device: Device, n: int = 3000, blocks: int = 5) -> Outcome:
    x = numbers((n,), 3) + 1
    parts, out, counter = device.allocate(4 * blocks), device.allocate(8), device.upload(np.zeros(1, np.uint32))
    found = []
    for _ in range(2):  # the second launch needs the counter set back
        device.launch("reduce_sum", [blocks], [256], [device.upload(x), parts, counter, out, n])
        found.append(device.download(out, (1,), np.float32))
    return np.concatenate(found), np.repeat(x.astype(np.float64).sum(), 2)


def softmax_row(device: Device, rows: int = 3, columns: int = 201) -> Outcome:
    x = numbers((rows, columns), 4, np.float16) * np.float16(3)
    y = device.allocate(2 * x.size)
    shared = 4 * (columns + 1) // 2 * 2 + 8 * 4 + 4
    device.launch("softmax_row", [rows], [128], [device.upload(x), y, columns], shared=shared)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64))
    return device.download(y, x.shape, np.float16), e / e.sum(axis=1, keepdims=True)


def conv3x3(device: Device) -> Outcome:
    height, width, channels, filters = 9, 7, 64, 80
    x = numbers((height, width, channels), 5, np.float16)
    w = (numbers((filters, 3, 3, channels), 6) / 16).astype(np.float16)
    bias = numbers((filters,), 7)
    y = device.allocate(2 * height * width * filters)
    grid = [-(-height * width // 64), -(-filters // 32)]
    device.launch(
        "conv3x3", grid, [128], [device.upload(x), device.upload(w), device.upload(bias), y], shared=3 * 96 * 40 * 2
    )
    padded = np.pad(x.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    expected = np.broadcast_to(bias.astype(np.float64), (height, width, filters)).copy()
    for r in range(3):
        for s in range(3):
            expected += padded[r : r + height, s : s + width] @ w[:, r, s].astype(np.float64).T
    return device.download(y, expected.shape, np.float16), np.maximum(expected, 0)


def gemm_sm90(device: Device, m: int = 150, n: int = 72, k: int = 296) -> Outcome:
    a, b, bias = numbers((m, k), 8, np.float16), (numbers((n, k), 9) / 16).astype(np.float16), numbers((n,), 10)
    y = device.allocate(2 * m * n)
    map_a = TensorMap(device.upload(a), "float16", (k, m), (64, 128))
    map_b = TensorMap(device.upload(b), "float16", (k, n), (64, 64))
    shared = 3 * (128 + 64) * 64 * 2 + 2 * 3 * 8
    device.launch(
        "gemm_sm90", [-(-m // 128), -(-n // 64)], [384], [map_a, map_b, device.upload(bias), y, m, n, k], shared=shared
    )
    return device.download(y, (m, n), np.float16), a.astype(np.float64) @ b.astype(np.float64).T + bias


def cluster_sum(device: Device, rows: int = 3, columns: int = 700, size: int = 4) -> Outcome:
    x = numbers((rows, columns), 11) + 1
    out = device.allocate(4 * rows)
    device.launch("cluster_sum", [rows * size], [64], [device.upload(x), out, columns], shared=64, cluster=[size])
    return device.download(out, (rows,), np.float32), x.astype(np.float64).sum(axis=1)


def dense_chain(device: Device, early: bool = True, dropped: tuple[int, int] | None = None) -> Outcome:
    """Four layers as a graph: two branches from the first, the fourth reads both; `dropped` leaves out one edge."""
    width = 128
    x = numbers((width,), 12)
    weights = [numbers((width, width), 13 + i) / 8 for i in range(3)] + [numbers((width, 2 * width), 20) / 8]
    arena = device.allocate(4 * width * 5)
    start = device.upload(x)

    def at(slot: int) -> np.uint64:
        return np.uint64(arena.address + 4 * width * slot)

    half = [np.ascontiguousarray(weights[3][:, :width]), np.ascontiguousarray(weights[3][:, width:])]
    layers = (  # weights, source, target, the layers it reads
        (weights[0], np.uint64(start.address), at(0), ()),
        (weights[1], at(0), at(1), (0,)),
        (weights[2], at(0), at(2), (0,)),
        (half[0], at(1), at(3), (1,)),
        (half[1], at(2), at(4), (2,)),
    )
    nodes = []
    for i, (w, source, target, reads) in enumerate(layers):
        edges = [j for j in reads if (j, i) != dropped]
        after, ahead = ([], edges) if early else (edges, [])
        arguments = [device.upload(w), source, target, width]
        nodes.append(Node("dense", [width * 32 // 128], [128], arguments, after=after, early=ahead))
    device.graph(nodes)
    first = np.maximum(weights[0].astype(np.float64) @ x, 0)
    second, third = (np.maximum(weights[i].astype(np.float64) @ first, 0) for i in (1, 2))
    expected = np.concatenate(
        [np.maximum(half[0].astype(np.float64) @ second, 0), np.maximum(half[1].astype(np.float64) @ third, 0)]
    )
    return device.download(arena, (5 * width,), np.float32)[3 * width :], expected


def two_layers(device: Device, tiles: int = 7, blocks: int = 2) -> Outcome:
    x = numbers((64 * tiles,), 30)
    y, z, events = device.allocate(x.nbytes), device.allocate(x.nbytes), device.upload(np.zeros(tiles, np.uint32))
    device.configure(f"resident={blocks}")  # a persistent kernel launches as many blocks as are resident at once
    device.launch("two_layers", [blocks], [64], [device.upload(x), y, z, events, tiles])
    return device.download(z, x.shape, np.float32), 2 * (x.astype(np.float64) + 1)


def mixed_clusters(device: Device, together: int = 2, alone: int = 8, columns: int = 300, size: int = 4) -> Outcome:
    """Rows of clusters, then rows of single blocks, which the launch puts into clusters of the same size."""
    x = numbers((together + alone, columns), 31) + 1
    out = device.allocate(4 * len(x))
    grid = [together * size + alone]
    device.launch("mixed_clusters", grid, [64], [device.upload(x), out, columns, together], shared=64, cluster=[size])
    return device.download(out, (len(x),), np.float32), x.astype(np.float64).sum(axis=1)


def row_maximum(device: Device, rows: int = 3, columns: int = 40) -> Outcome:
    x = numbers((rows, columns), 32)
    out = device.allocate(4 * rows)
    device.launch("row_maximum", [rows], [64], [device.upload(x), out, columns], shared=4 * 64)
    return device.download(out, (rows,), np.float32), x.astype(np.float64).max(axis=1)


def long_sum(device: Device, k: int = 4608) -> Outcome:
    a, b = (np.abs(numbers(shape, seed)).view(np.uint32) & 0xFFFFE000 for shape, seed in (((16, k), 33), ((k, 8), 34)))
    d = device.allocate(4 * 16 * 8)
    device.launch("long_sum", [1], [32], [device.upload(a), device.upload(b), d, k])
    expected = a.view(np.float32).astype(np.float64) @ b.view(np.float32).astype(np.float64)
    return device.download(d, (16, 8), np.float32), expected


def passed_on(device: Device, blocks: int = 12) -> Outcome:
    """Three kernels one after another by programmatic edges; the third reads what both others have written."""
    x = numbers((64 * blocks,), 35)
    first, second, third, ring = (device.allocate(x.nbytes) for _ in range(4))
    device.graph(
        [
            Node("plus_one", [blocks], [64], [device.upload(x), first]),
            Node("counted", [blocks], [64], [second], early=[0]),
            Node("sum_in_ring", [blocks], [64], [first, second, third, ring], early=[1]),
        ]
    )
    expected = x.astype(np.float64) + 1 + np.arange(len(x))
    return device.download(third, x.shape, np.float32), expected.reshape(blocks, 64)[:, ::-1].reshape(-1)


@dataclass(frozen=True)
class Demonstration:
    """One kernel: its file, how it is run, and the relative norm of the error it may have."""

    file: str
    run: Callable[[Device], Outcome]
    tolerance: float
    text: str = ""
    """Instead of the file's."""

    @property
    def source(self) -> str:
        return self.text or (KERNELS / self.file).read_text()


DEMONSTRATIONS = {
    "vector_add": Demonstration("vector_add.cu", vector_add, 1e-7),
    "reduce_sum": Demonstration("reduce.cu", reduce_sum, 1e-6),
    "softmax_row": Demonstration("softmax.cu", softmax_row, 1e-3),
    "conv3x3": Demonstration("conv.cu", conv3x3, 1e-3),
    "gemm_sm90": Demonstration("gemm_sm90.cu", gemm_sm90, 1e-3),
    "cluster_sum": Demonstration("cluster_sum.cu", cluster_sum, 1e-6),
    "mixed_clusters": Demonstration("mixed_clusters.cu", mixed_clusters, 1e-6),
    "row_maximum": Demonstration("row_maximum.cu", row_maximum, 1e-7),
    "long_sum": Demonstration("long_sum.cu", long_sum, 1e-6),
    "passed_on": Demonstration("passed_on.cu", passed_on, 1e-6),
    "dense_chain": Demonstration("dense_chain.cu", dense_chain, 1e-6),
    "dense_chain_full_edges": Demonstration("dense_chain.cu", partial(dense_chain, early=False), 1e-6),
    "two_layers": Demonstration("events.cu", two_layers, 1e-7),
}


def error(outcome: Outcome) -> float:
    """The relative norm of the difference; infinite where a result is no number."""
    computed, expected = outcome[0].astype(np.float64), outcome[1]
    if not np.isfinite(computed).all():
        return float("inf")
    return float(np.linalg.norm(computed - expected) / np.linalg.norm(expected))
