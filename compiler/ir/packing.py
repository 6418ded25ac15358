"""Packings: constants rearranged ahead of time into the order in which a kernel reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from compiler.ir.tensor import DType


class Packing(Protocol):
    """How a constant is rearranged.

    Packings are frozen and compare by value: equal ones of one constant are stored once.
    """

    @property
    def dtype(self) -> DType:
        """Of the packed elements."""
        ...

    @property
    def elements(self) -> int:
        """How many packed elements there are."""
        ...

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The packed form of a constant given in its logical shape: `elements` elements of `dtype`."""
        ...


@runtime_checkable
class Steered(Protocol):
    """A packing whose elements say where others lie: no kernel may be timed on any elements but such as these."""

    def specimen(self) -> np.ndarray:
        """What `pack` might give, always the same."""
        ...


@dataclass(frozen=True)
class Panels:
    """B[batch, k, n] as panels of `panel` columns, each k by panel, zero-padded: float32[batch, panels, depth, panel].

    Each batch's B begins at an element of `starts`; `source` lists the axes of k, then n, as (extent, stride), all in
    elements of the row-major constant.
    """

    starts: tuple[int, ...]
    depth: int
    columns: int
    panel: int
    source: tuple[tuple[int, int], ...]
    dtype: DType = DType.F32

    @property
    def elements(self) -> int:
        """fp32 elements of the packed constant, those that fill the last panel included."""
        return len(self.starts) * -(-self.columns // self.panel) * self.panel * self.depth

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant as float32[batch, panels, depth, panel]; columns that there are not are zeros."""
        panels = -(-self.columns // self.panel)
        packed = np.zeros((len(self.starts), panels, self.depth, self.panel), np.float32)
        for batch, start in zip(packed, self.starts, strict=True):
            for panel, columns in zip(batch, self.each(constant, start), strict=True):
                panel[:, : columns.shape[1]] = columns
        return packed

    def each(self, constant: np.ndarray, start: int) -> Iterator[np.ndarray]:
        """Of one batch, which begins at `start`, the columns of each panel as [depth, up to `panel`]."""
        matrix = strided(constant.astype(np.float32, copy=False), self.source, start).reshape(self.depth, self.columns)
        for first in range(0, self.columns, self.panel):
            yield matrix[:, first : first + self.panel]


def strided(constant: np.ndarray, source: tuple[tuple[int, int], ...], offset: int) -> np.ndarray:
    """A read-only view of a row-major constant: axes given as (extent, stride in elements) from element `offset`."""
    flat = np.ascontiguousarray(constant).reshape(-1)[offset:]
    extents = [extent for extent, _ in source]
    strides = [stride * flat.itemsize for _, stride in source]
    return np.lib.stride_tricks.as_strided(flat, extents, strides, writeable=False)
