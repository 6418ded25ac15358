"""What a user imports (client, command line, artifact loader): knows no other package of this repository.

model = tilewright.load("model.tw")        # run an artifact here
model = tilewright.compile("model.onnx")   # compile here, where the compiler is installed
with tilewright.Client() as client: ...    # compile on a server
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.asynchronous import AsyncClient
    from tilewright.attestation import verify
    from tilewright.batches import Batch
    from tilewright.batching import Batcher
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
    from tilewright.loading import Model, load, set_threads
    from tilewright.local import compile
    from tilewright.pytorch import from_torch
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
    "Batcher",
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
    "from_torch",
    "generate",
    "load",
    "set_threads",
    "verified",
    "verify",
]
_HOMES = {
    "tilewright.asynchronous": ("AsyncClient",),
    "tilewright.attestation": ("verify",),
    "tilewright.batches": ("Batch",),
    "tilewright.batching": ("Batcher",),
    "tilewright.benchmark": ("Benchmark", "Comparison", "Timed"),
    "tilewright.client": ("Client",),
    "tilewright.errors": (
        "BrokenDownload",
        "ClientError",
        "JobFailed",
        "NotGenuine",
        "RequestRefused",
        "ServerUnreachable",
        "UsageError",
        "WaitTimeout",
    ),
    "tilewright.generation.generate": ("generate",),
    "tilewright.loading": ("Model", "load", "set_threads"),
    "tilewright.local": ("compile",),
    "tilewright.pytorch": ("from_torch",),
    "tilewright.session.options": ("SessionOptions",),
    "tilewright.session.session": ("InferenceSession",),
    "tilewright.shares": ("Share",),
    "tilewright.webhooks": ("Webhook", "verified"),
    "tilewright.wire": (
        "ArtifactFile",
        "Inference",
        "Job",
        "JobEvent",
        "Operator",
        "Preflight",
        "StoredModel",
        "Target",
        "TuningRecord",
        "Worker",
    ),
    "tilewright.workloads": ("Workload",),
}
"""The module of each name; it is imported when the name is asked for, so that a command loads what it needs."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from its module (PEP 562). Raises AttributeError."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
