"""onnx's conformance suite of single operators: what it collects takes seconds, and is kept."""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.kept import kept


@functools.cache
def collected() -> tuple[Any, ...]:
    """Its cases with their models and data, as `onnx.backend.test.case` makes them; nobody may change them."""
    path = kept(f"conformance of onnx {onnx.__version__} with numpy {np.__version__}", ".pickle", _collect)
    return tuple(pickle.loads(path.read_bytes()))


def _collect(path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(pickle.dumps(collect_testcases("")))
