"""Why two kernels that touch were not made one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A step that left kernels apart.

    step     of fusion, by its name in `STEPS`
    kernels  the families of both, or of the one in the middle of what would have been joined
    where    the model's name of an operator that the second one carries out, or its family where there is none
    value    what is stored between them
    """

    step: str
    kernels: str
    where: str
    reason: str
    value: int

    def __str__(self) -> str:
        return f"{self.kernels} at {self.where}: {self.reason}"


def name_of(sources: tuple[str, ...], family: str) -> str:
    """The first name among the sources of a kernel, quoted; its family where it has none."""
    return next((repr(source) for source in sources if source), family)
