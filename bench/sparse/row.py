"""What was measured of one layer with one form and share of zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.encodings.zeros import leaves_out


@dataclass(frozen=True)
class Row:
    """Medians in seconds of one layer. The ratio to the dense form is the median of the rounds' ratios.

    taken  the algorithm that the search took
    peers  engines by name, which multiply every weight
    """

    layer: str
    batch: int
    form: str
    share: float
    taken: str
    dense_taken: str
    sparse_s: float
    dense_s: float
    peers_s: Mapping[str, float]
    ratio: float
    low: float
    high: float
    distance: float

    @property
    def leaves_out(self) -> bool:
        """Whether the search took a kernel that multiplies no zeros."""
        return leaves_out(self.taken)
