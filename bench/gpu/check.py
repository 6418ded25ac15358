"""The entry point of `python -m bench gpu`.

What is missing on a machine is reported before anything is imported that needs it.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence

DRIVER = "libcuda.so.1"
NEEDED = ("numpy", "onnx", "pydantic")
"""By the compiler and the tests; the measurements also need torch, and XLA's need jax."""


def main(arguments: list[str]) -> int:
    """Exit status of `bench.gpu.run`; 0 without a driver, 1 where a package is missing."""
    if not {"-h", "--help"} & set(arguments):
        if reason := missing_driver():
            print(f"no GPU here: no NVIDIA driver on this machine: {reason}. Nothing was checked.")
            return 0
        if missing := missing_packages():
            print(
                f"this Python lacks {', '.join(missing)}; give another one as `make gpu-check GPU_PYTHON=...`, or "
                "bring them in a folder on PYTHONPATH (docs/gpu-check.md)"
            )
            return 1
    from bench.gpu.run import main as run

    return run(arguments)


def missing_driver() -> str:
    """Why there is no driver; empty where there is one."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError as reason:
        return str(reason)
    return ""


def missing_packages() -> Sequence[str]:
    """Those of NEEDED that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]
