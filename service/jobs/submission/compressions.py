"""Accept compressions: a model becomes one whose weights have a form that saves time or memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.contract import CompressOptions
from service.db.models import JobKind
from service.jobs.submission.model_changes import ModelChange, change


@dataclass(frozen=True)
class Compression(ModelChange):
    """What a request asks for."""

    kind: ClassVar[JobKind] = JobKind.COMPRESSION
    options: CompressOptions

    @property
    def queue(self) -> str:
        """The device class whose times count."""
        return self.options.target


compress = change
"""Make the job's row, durably."""
