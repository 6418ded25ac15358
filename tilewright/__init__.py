"""What a user imports (client, command line, artifact loader): knows no other package of this repository.

model = tilewright.load("model.tw")        # run an artifact here
with tilewright.Client() as client: ...    # compile on a server
"""

from __future__ import annotations

from tilewright.client import Client
from tilewright.errors import (
    BrokenDownload,
    ClientError,
    JobFailed,
    RequestRefused,
    ServerUnreachable,
    UsageError,
)
from tilewright.loading import Model, load
from tilewright.wire import Job, JobEvent

__all__ = [
    "BrokenDownload",
    "Client",
    "ClientError",
    "Job",
    "JobEvent",
    "JobFailed",
    "Model",
    "RequestRefused",
    "ServerUnreachable",
    "UsageError",
    "load",
]
