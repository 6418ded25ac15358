"""What a job asks for, in a word that its child knows too; the service's name for it is `JobKind`.

`tuning` is none of a job's: kernels of another worker's compilation are measured.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["compile", "benchmark", "inference", "quantization", "compression", "minimisation", "tuning"]

READING: tuple[Kind, ...] = ("compile", "quantization", "compression", "minimisation")
"""Those that read a model; the others run what was made of one."""
