"""ONNX Runtime itself, also where `tilewright.session` stands under its name."""

from __future__ import annotations

import sys
from importlib import import_module, util
from types import ModuleType

NAME = "onnxruntime"
OURS = "tilewright.session"
_found: list[ModuleType] = []


def peer() -> ModuleType | None:
    """Its module; None where it is not installed."""
    if _found:
        return _found[0]
    stands = sys.modules.get(NAME)
    is_ours = stands is not None and stands is sys.modules.get(OURS)
    if is_ours:
        del sys.modules[NAME]
    try:
        if util.find_spec(NAME) is None:
            return None
        _found.append(import_module(NAME))
    finally:
        if is_ours and stands is not None:
            sys.modules[NAME] = stands
    return _found[0]
