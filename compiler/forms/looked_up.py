"""Matrices kept as steps in which each column looks up one element in a vector of a row (`compiler.ir.lookups`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.kept_groups import PickedGroups, joined
from compiler.ir.lookups import Lookups, order_of
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

ORDER_BYTES = 2
"""Of an input's place."""


@dataclass(frozen=True)
class LookedUp(PickedGroups):
    """Weights that are not zero, each column's from anywhere in a vector of A's row.

    A step is float32[panel], the weights, then uint8[panel]: which elements of the vector they are multiplied with. The
    place of a step is the element of a row at which its vector begins. Behind all steps, where inputs are ordered,
    follows uint16[depth]: which element of A each of a row's is.
    """

    ordered: bool = False

    @staticmethod
    def of(panels: Panels, encoding: Lookups, dims: tuple[int, ...]) -> LookedUp | None:
        """How a constant of shape `dims` is kept in an encoding.

        None where the panels are not of the whole constant with the encoding's lines for columns, or their width is one
        that it does not tell of.
        """
        columns = dims[encoding.lines]
        depth = int(np.prod(dims)) // columns
        is_first = next(axis for axis, dim in enumerate(dims) if dim > 1) == encoding.lines
        wanted = [(depth, 1 if is_first else columns), (columns, depth if is_first else 1)]
        *inner, outer = panels.source
        fill = encoding.fill(panels.panel)
        if fill is None or panels.starts != (0,) or [*joined([one for one in inner if one[0] > 1]), outer] != wanted:
            return None
        return LookedUp(Groups(panels, DType.F32), fill, window=panels.panel, ordered=encoding.ordered)

    @property
    def step_bytes(self) -> int:
        """A weight for each column, and where it is multiplied."""
        return (LANE_BYTES + 1) * self.panel

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1] + (ORDER_BYTES * self.groups.panels.depth if self.ordered else 0)

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant without its zeros."""
        dense, sums = self._dense(constant)
        lines = dense[:, :, :, 0].transpose(0, 2, 1)
        if not self.ordered:
            return self._packed(lines, sums)
        whole = lines.reshape(-1, lines.shape[2])[: self.groups.panels.columns]
        order = order_of(np.asarray(whole != 0))
        assert order is not None, "the encoding says that columns can be combined"
        return self._with_order(self._packed(lines[:, :, order], sums), order)

    def specimen(self) -> np.ndarray:
        """Columns that have about as many weights as there is room for, anywhere, in any order."""
        packed = super().specimen()
        if not self.ordered:
            return packed
        return self._with_order(packed, np.random.default_rng(self.kept).permutation(self.groups.panels.depth))

    def _with_order(self, packed: np.ndarray, order: np.ndarray) -> np.ndarray:
        packed[self.parts[-1] :] = np.ascontiguousarray(order.astype("<u2")).view(np.uint8)
        return packed

    def _told(self, places: np.ndarray) -> np.ndarray:
        return places.astype(np.uint8)
