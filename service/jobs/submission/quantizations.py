"""Accept quantizations: a model becomes one in 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.contract import QuantizeOptions
from service.db.models import JobKind
from service.jobs.submission.model_changes import ModelChange, change


@dataclass(frozen=True)
class Quantization(ModelChange):
    """What a request asks for."""

    kind: ClassVar[JobKind] = JobKind.QUANTIZATION
    options: QuantizeOptions


quantize = change
"""Make the job's row, durably."""
