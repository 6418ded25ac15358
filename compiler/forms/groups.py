"""Panels for dot-product instructions: k is taken in groups that fill one 32-bit lane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.forms.cache_lines import LINE_BYTES
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

LANE_BYTES = 4
PAIR = LANE_BYTES // DType.BF16.bytes
"""Elements of bf16 in a lane."""


@dataclass(frozen=True)
class Groups:
    """B[batch, k, n] as dtype[batch, panels, groups, panel, group].

    Lane n of a step holds `group` consecutive elements of column n.

    `shift` is subtracted from each element before it is stored; what pads a panel is 0. With `sums`, each panel is
    followed by the sums of its columns, int32[panel], in as many elements of `dtype` as these take. With `run`, k comes
    in runs of so many elements, of which each is padded to a multiple of `align` bytes.
    """

    panels: Panels
    dtype: DType
    shift: int = 0
    sums: bool = False
    run: int = 0
    align: int = LINE_BYTES

    @property
    def group(self) -> int:
        """Elements of k in one lane."""
        return LANE_BYTES // self.dtype.bytes

    @property
    def groups(self) -> int:
        """Steps of k, those of padding included."""
        if self.run:
            return self.panels.depth // self.run * self.run_groups
        return -(-self.panels.depth // self.group)

    @property
    def run_groups(self) -> int:
        """Steps of one run with its padding."""
        return -(-self.run * self.dtype.bytes // self.align) * self.align // LANE_BYTES

    @property
    def panel_elements(self) -> int:
        """Elements from one panel to the next."""
        return (self.groups + self.sums) * self.panels.panel * self.group

    @property
    def elements(self) -> int:
        """Elements of `dtype` in all panels, with padding and sums."""
        lane_groups = self.panels.elements // self.panels.depth // self.panels.panel if self.panels.depth else 0
        return lane_groups * self.panel_elements

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant as dtype[panels, elements of a panel]; sums are stored in the bytes of `dtype`."""
        panels = self.panels
        shifted = constant.astype(np.float32) - np.float32(self.shift)
        flat = panels.pack(shifted).reshape(-1, panels.depth, panels.panel)
        runs, run = (panels.depth // self.run, self.run) if self.run else (1, panels.depth)
        steps = np.zeros((len(flat), runs, self.groups // runs * self.group, panels.panel), np.float32)
        steps[:, :, :run] = flat.reshape(len(flat), runs, run, panels.panel)
        grouped = steps.reshape(len(flat), self.groups, self.group, panels.panel).transpose(0, 1, 3, 2)
        packed = grouped.astype(self.dtype.numpy).reshape(len(flat), -1)
        if not self.sums:
            return np.ascontiguousarray(packed)
        sums = flat.sum(axis=1, dtype=np.float64).astype(np.int32)
        return np.concatenate([packed, sums.view(self.dtype.numpy)], axis=1)


@dataclass(frozen=True)
class Pairs:
    """Groups of two numbers of 16 bits in a lane, each stored in as many bits as `dtype` has: 8, or 16."""

    panels: Panels
    dtype: DType

    @property
    def _wide(self) -> Groups:
        return Groups(self.panels, DType.I16)

    @property
    def groups(self) -> int:
        """Steps of k."""
        return self._wide.groups

    @property
    def elements(self) -> int:
        """Elements of `dtype` in all panels, with padding."""
        return self._wide.elements

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant as dtype[panels, elements of a panel]."""
        return self._wide.pack(constant).astype(self.dtype.numpy)
