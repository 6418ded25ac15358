"""What every kind of target says of itself."""

from __future__ import annotations

from typing import Protocol


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
