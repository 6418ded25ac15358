"""Normalisations of rows and the dense layers that read them."""

from __future__ import annotations

import numpy as np

from compiler.fuse import fuse
from compiler.fuse.joins import Join, joins
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch


def normalisation(
    rows: tuple[int, ...],
    channels: int,
    columns: int,
    *,
    norm: str = "LayerNormalization",
    kept: bool = False,
    after: str = "",
    seed: int = 0,
) -> Graph:
    """A sum, its rows normalised, and a dense layer of them; `after` is an activation.

    `kept`: what follows adds the normalised rows to another dense layer of the first one's result.
    """
    s = Sketch(seed, DType.F32)
    x = s("Add", s.x(*rows, channels), s.normal(channels))
    affine = [s.positive(channels), *([s.normal(channels)] if norm == "LayerNormalization" else [])]
    row = s(norm, x, *affine, axis=-1)
    y = s("Add", s("MatMul", row, s.normal(channels, columns)), s.normal(columns))
    y = s(after, y) if after else y
    return s.graph(s("Add", s("MatMul", y, s.normal(columns, channels)), row) if kept else y)


def join_of(graph: Graph) -> tuple[KernelGraph, Join]:
    """The kernels of a graph and the join of its normalisation and the dense layer."""
    kernels = fuse(graph).kernels
    (found,) = joins(kernels, frozenset({"normalised"}))
    return kernels, found


def extreme(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Rows of very different sizes, one of equal elements, one far from zero, one with one large element."""
    rows = random.normal(size=(int(np.prod(shape[:-1])), shape[-1])) * 10.0 ** random.integers(-3, 4, (1, 1))
    rows *= np.logspace(-2, 1, len(rows))[:, None]
    rows[0] = 0.75
    rows[-1] = 40.0 + random.normal(size=shape[-1])
    rows[len(rows) // 2, shape[-1] // 3] = 200.0
    return rows.reshape(shape).astype(np.float32)
