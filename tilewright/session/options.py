"""`SessionOptions` with the names of ONNX Runtime's: what has an effect, what is ignored, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import UsageError

IGNORED: Mapping[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "execution_mode": None,
    "execution_order": None,
    "graph_optimization_level": None,
    "inter_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "use_deterministic_compute": False,
}
"""By name with its default: what says how ONNX Runtime is to do its work, and changes no result."""
REFUSED: Mapping[str, Any] = {"enable_profiling": False, "optimized_model_filepath": "", "profile_file_prefix": ""}
"""By name with its default: what asks for something that a session of ours does not give."""
FIX = "leave it out: the session knows intra_op_num_threads and add_free_dimension_override_by_name"


class SessionOptions:
    """How a session runs.

    intra_op_num_threads  threads of a run; 0: every core

    Attributes of IGNORED may be set and have no effect. Another value than the default of one of REFUSED raises
    `UsageError`, and so do functions that change the model; an attribute that ONNX Runtime does not have raises
    AttributeError.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self._dims: dict[str, int] = {}
        self._entries: dict[str, str] = {}
        for name, default in {**IGNORED, **REFUSED}.items():
            object.__setattr__(self, name, default)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in REFUSED and value != REFUSED[name]:
            raise UsageError(f"the session option {name} is not supported", fix=FIX)
        if name == "intra_op_num_threads" and (not isinstance(value, int) or value < 0):
            raise UsageError(f"intra_op_num_threads is {value!r:.80}", fix="give the number of threads, or 0")
        if not name.startswith("_") and name != "intra_op_num_threads" and name not in {**IGNORED, **REFUSED}:
            raise AttributeError(f"there is no session option {name!r:.80}")
        object.__setattr__(self, name, value)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """A symbolic dimension has this size: the model is compiled for it."""
        self._dims[name] = size

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, to be asked for again; it has no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """What was added. Raises RuntimeError for another key, as ONNX Runtime does."""
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def register_custom_ops_library(self, path: str) -> None:
        """Raises `UsageError`."""
        raise UsageError(
            "libraries of operators are not supported", fix="see `tilewright operators` for those that are"
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """Raises `UsageError`."""
        raise UsageError("weights beside the model are not supported", fix="save them in the model")

    add_external_initializers = add_initializer


def compile_options(given: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The compile options that session options, also ONNX Runtime's own, amount to; those of `more` go first."""
    threads, dims = getattr(given, "intra_op_num_threads", 0), given_dims(given)
    return {**({"threads": threads} if threads else {}), **({"dims": dims} if dims else {}), **more}


def given_dims(given: Any) -> dict[str, int]:
    """The sizes of symbolic dimensions that session options fix; ONNX Runtime's own do not tell theirs."""
    return dict(getattr(given, "_dims", {}))


def refuse_unsupported(given: Any) -> None:
    """Raises `UsageError` where session options of another library ask for what is not supported."""
    for name, default in REFUSED.items():
        if name != "profile_file_prefix" and getattr(given, name, default) != default:
            raise UsageError(f"the session option {name} is not supported", fix=FIX)
