"""What lies between the host's memory and that of a device which has its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transfers:
    """What a part of a model costs on such a device beside its calls, in seconds.

    run_s       each time that the part is begun there and awaited
    copy_s      each copy from one memory to the other, whatever its size
    in_byte_s   a byte more of what is brought to the device; `out_byte_s` of what is given back
    source      where these are from: `assumed`, or what measured them
    """

    run_s: float
    copy_s: float
    in_byte_s: float
    out_byte_s: float
    source: str = "assumed"

    def brought_s(self, sizes: list[int]) -> float:
        """Copies of so many bytes each to the device."""
        return self.copy_s * len(sizes) + self.in_byte_s * sum(sizes)

    def given_back_s(self, sizes: list[int]) -> float:
        """Copies of so many bytes each from the device."""
        return self.copy_s * len(sizes) + self.out_byte_s * sum(sizes)

    def __str__(self) -> str:
        rates = f"{1e-9 / self.in_byte_s:.3g} GB/s there, {1e-9 / self.out_byte_s:.3g} GB/s back"
        return f"{1e6 * self.run_s:.3g} us for a part, {1e6 * self.copy_s:.3g} us for a copy, {rates} ({self.source})"
