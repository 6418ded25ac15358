"""What a user imports (client, command line, artifact loader): knows no other package of this repository.

model = tilewright.load("model.tw")        # run an artifact here
with tilewright.Client() as client: ...    # compile on a server
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tilewright.client import Client
from tilewright.errors import (
    BrokenDownload,
    ClientError,
    JobFailed,
    RequestRefused,
    ServerUnreachable,
    UsageError,
)
from tilewright.wire import Job, JobEvent

if TYPE_CHECKING:
    from tilewright.loader import Model

__all__ = [
    "BrokenDownload",
    "Client",
    "ClientError",
    "Job",
    "JobEvent",
    "JobFailed",
    "RequestRefused",
    "ServerUnreachable",
    "UsageError",
    "load",
]


def load(path: str | os.PathLike[str]) -> Model:
    """The model in the artifact `path`, ready to run. Raises what `tilewright.loader.Model` raises."""
    from tilewright.loader import Model

    return Model(path)
