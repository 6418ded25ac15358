"""A model that is compiled and measured, wherever it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Subject:
    """One model. `inputs` are values to run it on; None leaves the choice to who runs it."""

    name: str
    source: str
    file: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, NDArray[Any]] | None = None
