"""A session with the calls of ONNX Runtime's, and the names that programs take from its module beside it.

import tilewright.session as onnxruntime   # in a program of yours
tilewright.session.stand_in()              # for programs of others that are imported from then on
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from tilewright.session import session as _session
from tilewright.session.binding import IOBinding, OrtValue
from tilewright.session.options import SessionOptions
from tilewright.session.peer import NAME, peer
from tilewright.session.ports import ModelMetadata, NodeArg
from tilewright.session.session import HOST, OURS, InferenceSession, InvalidArgument

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "get_device",
    "stand_in",
]


class GraphOptimizationLevel(IntEnum):
    """How far ONNX Runtime rewrites a model; without effect here."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether ONNX Runtime runs operators side by side; without effect here."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class RunOptions:
    """Options of a run, any of which may be set; without effect."""

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Taken, without effect."""


def get_available_providers() -> list[str]:
    """Those that a session may be given."""
    return [OURS, HOST]


get_all_providers = get_available_providers


def get_device() -> str:
    """Always `CPU`."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Taken, without effect."""


set_default_logger_verbosity = set_seed = set_default_logger_severity


def disable_telemetry_events() -> None:
    """There are none."""


enable_telemetry_events = disable_telemetry_events


def stand_in(options: Mapping[str, Any] | None = None) -> None:
    """`import onnxruntime` gives this module from now on, in modules that are imported later.

    `options`: compile options of all sessions, beside their own; what ONNX Runtime has and this module has not is its.
    """
    _session.defaults.clear()
    _session.defaults.update(options or {})
    peer()  # so that its modules are there, such as onnxruntime.capi
    sys.modules[NAME] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    """ONNX Runtime's, for all other names. Raises AttributeError."""
    theirs = None if name.startswith("__") and name != "__version__" else peer()
    if hasattr(theirs, name):
        return getattr(theirs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r:.100}")
