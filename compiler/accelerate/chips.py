"""Accelerators by the name of their target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.contract import kinds
from compiler.errors import TargetUnavailable


@dataclass(frozen=True)
class Chip:
    """An accelerator as Vela is asked for it; times are for this system and memory mode of Arm's `vela.ini`."""

    target: str
    family: str
    macs: int
    system: str
    memory_mode: str
    arena_cache: int
    """Bytes of the fast memory, where the memory mode does not say."""
    format: str = kinds.NPU.formats[0]
    """One of FORMATS, in which Vela is given models."""

    @property
    def profile(self) -> str:
        """The profile of `compiler.legalise` whose operators it has: those of its family."""
        return PROFILES[self.family]


FORMATS = kinds.NPU.formats
"""By the ending of their files; what a model is quantised and judged as is the same."""
PROFILES = {"EthosU55": "ethos-u55-128", "EthosU65": "ethos-u65-256", "EthosU85": "ethos-u85-256"}

_U55 = ("EthosU55", "Ethos_U55_High_End_Embedded", "Shared_Sram", 4 << 20)
_U65 = ("EthosU65", "Ethos_U65_Client_Server", "Dedicated_Sram_384KB", 1 << 40)
_U85 = ("EthosU85", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB", 1 << 40)


def _chip(target: str, kind: tuple[str, str, str, int], macs: int) -> Chip:
    family, system, mode, cache = kind
    return Chip(target, family, macs, system, mode, cache)


CHIPS = tuple(
    _chip(f"npu:ethos-{name}-{macs}", kind, macs)
    for name, kind, sizes in (("u55", _U55, (32, 64, 128, 256)), ("u65", _U65, (256,)), ("u85", _U85, (128, 256, 512)))
    for macs in sizes
)


TARGETS = tuple(chip.target for chip in CHIPS)


def chip_of(target: str, format: str = FORMATS[0]) -> Chip:
    """The accelerator of this name, given models in a format. Raises TargetUnavailable with the names there are."""
    for chip in CHIPS:
        if chip.target == target:
            return replace(chip, format=format)
    raise TargetUnavailable(f"target {target!r} is unknown", fix=f"use one of {', '.join(TARGETS)}")
