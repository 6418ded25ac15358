"""What a user imports (client, command line, artifact loader): knows no other package of this repository.

model = tilewright.load("model.tw")        # run an artifact here
model = tilewright.compile("model.onnx")   # compile here, where the compiler is installed
with tilewright.Client() as client: ...    # compile on a server
"""

from __future__ import annotations

from tilewright.asynchronous import AsyncClient
from tilewright.attestation import verify
from tilewright.batches import Batch
from tilewright.benchmark import Benchmark, Comparison, Timed
from tilewright.client import Client
from tilewright.errors import (
    BrokenDownload,
    ClientError,
    JobFailed,
    NotGenuine,
    RequestRefused,
    ServerUnreachable,
    UsageError,
    WaitTimeout,
)
from tilewright.generation.generate import generate
from tilewright.loading import Model, load
from tilewright.local import compile
from tilewright.session.options import SessionOptions
from tilewright.session.session import InferenceSession
from tilewright.shares import Share
from tilewright.webhooks import Webhook, verified
from tilewright.wire import (
    ArtifactFile,
    Inference,
    Job,
    JobEvent,
    Operator,
    Preflight,
    StoredModel,
    Target,
    TuningRecord,
    Worker,
)
from tilewright.workloads import Workload

__all__ = [
    "ArtifactFile",
    "AsyncClient",
    "Batch",
    "Benchmark",
    "BrokenDownload",
    "Client",
    "ClientError",
    "Comparison",
    "Inference",
    "InferenceSession",
    "Job",
    "JobEvent",
    "JobFailed",
    "Model",
    "NotGenuine",
    "Operator",
    "Preflight",
    "RequestRefused",
    "ServerUnreachable",
    "SessionOptions",
    "Share",
    "StoredModel",
    "Target",
    "Timed",
    "TuningRecord",
    "UsageError",
    "WaitTimeout",
    "Webhook",
    "Worker",
    "Workload",
    "compile",
    "generate",
    "load",
    "verified",
    "verify",
]
