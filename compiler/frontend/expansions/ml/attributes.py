"""Attributes of ai.onnx.ml operators, which no schema has checked: read as what they must be, or refused."""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.strings import text_array
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported

AGAIN = "export the model again"


def numbers(site: Site, name: str, dtype: np.dtype | type = np.float32) -> np.ndarray:
    """A list of numbers, a tensor of them, or none. Raises Unsupported for anything else."""
    value = site.call.attrs.get(name, ())
    if isinstance(value, tuple) and not all(isinstance(item, int | float) for item in value):
        raise Unsupported(f"attribute {name!r} holds no numbers", AGAIN)
    if not isinstance(value, tuple | np.ndarray):
        raise Unsupported(f"attribute {name!r} is no list of numbers", AGAIN)
    return np.asarray(value).reshape(-1).astype(dtype)


def number(site: Site, name: str, default: float) -> float:
    """One number."""
    value = site.call.attrs.get(name, default)
    if not isinstance(value, int | float):
        raise Unsupported(f"attribute {name!r} is no number", AGAIN)
    return value


def word(site: Site, name: str, default: str, *allowed: str) -> str:
    """One of some words."""
    value = site.call.attrs.get(name, default)
    if value not in allowed:
        raise Unsupported(f"attribute {name!r} is {value!r:.60}", f"use {', '.join(allowed)}")
    return str(value)


def words(site: Site, name: str) -> tuple[str, ...]:
    """A list of words, or none."""
    value = site.call.attrs.get(name, ())
    if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
        raise Unsupported(f"attribute {name!r} holds no words", AGAIN)
    return tuple(str(item) for item in value)


def labels(site: Site, of_numbers: str, of_words: str = "classlabels_strings") -> np.ndarray:
    """The labels of classes: strings, or else whole numbers. Raises Unsupported for fewer than two."""
    found = words(site, of_words)
    array = text_array(found) if found else numbers(site, of_numbers, np.int64)
    demand(len(array) > 1, f"it has {len(array)} labels")
    return array


def columns(kind: TensorType) -> int:
    """The extent of the last axis, which must be known; 1 where there is no axis. Raises Unsupported."""
    last = kind.shape[-1] if kind.rank else 1
    if not isinstance(last, int):
        raise Unsupported(f"the features of {kind} are not counted", "bind that dimension to a number")
    return last


def demand(condition: bool, reason: str) -> None:
    """Raises Unsupported unless the attributes fit together."""
    if not condition:
        raise Unsupported(reason, AGAIN)
