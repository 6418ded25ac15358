"""What every kind of target says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ceilings:
    """What bounds a kernel's speed (Williams et al., "Roofline", 2009): of all lanes of a plan together.

    flop_per_s   fp32 operations a second, 2 for a multiply-add
    bytes_per_s  bytes read a second, by level of memory, the fastest first
    measured     on this hardware; else they are a profile's
    """

    flop_per_s: float
    bytes_per_s: Mapping[str, float]
    measured: bool = False


class Target(Protocol):
    """One kind of device that code is made for."""

    @property
    def name(self) -> str:
        """Such as `cpu:x86-64-v3` or `cuda:sm_90`."""
        ...

    @property
    def hardware(self) -> str:
        """Fingerprint of the device that measures; empty when cross-compiling."""
        ...

    @property
    def lanes(self) -> int:
        """Cores of a CPU; streams that a plan has by default on a GPU."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether code for this target can be measured on this machine."""
        ...

    def ceilings(self, lanes: int) -> Ceilings:
        """Of a plan of so many lanes."""
        ...
