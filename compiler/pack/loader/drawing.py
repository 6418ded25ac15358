"""Random inputs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.specs import _SMALL, Array, OpenSpec, TensorSpec


class _Stable:
    """Draws that are the same bits everywhere, by the names of numpy's generators, of which it needs no more.

    numpy guarantees PCG64's words, and not what its generators make of them. All that is made here is exact.
    """

    def __init__(self, *seed: int) -> None:
        self._source = np.random.PCG64(seed)

    def _raw(self, shape: int | Sequence[int]) -> Array:
        size = shape if isinstance(shape, int) else math.prod(shape)
        return np.asarray(self._source.random_raw(size), np.uint64).reshape(shape)

    def integers(self, low: int, high: int, shape: int | Sequence[int], endpoint: bool = False) -> Array:
        """Whole numbers in 64 bits."""
        words, many = self._raw(shape), int(high) - int(low) + endpoint
        kept = words if many >= 1 << 64 else words % np.uint64(many)
        with np.errstate(over="ignore"):
            return np.asarray(kept.astype(np.int64) + np.int64(low))

    def standard_normal(self, shape: Sequence[int], dtype: Any = np.float64) -> Array:
        """Sums of four even parts of a word: nearly normal, with a spread of 1.15."""
        words = self._raw(shape)
        parts = [(words >> np.uint64(16 * at) & np.uint64(0xFFFF)).astype(np.int64) for at in range(4)]
        return np.asarray((sum(parts) - np.int64(131070)) * 2.0**-15).astype(dtype)

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Array:
        """Even in a range."""
        return np.asarray(low + (high - low) * ((self._raw(shape) >> np.uint64(11)) * 2.0**-53))


_Draws = np.random.Generator | _Stable


def _codes(spec: TensorSpec, random: _Draws) -> Array:
    """Elements of a small type, as their codes."""
    first, end, sign = _SMALL[spec.dtype]
    codes = np.asarray(random.integers(first, end, spec.shape))
    return np.asarray(np.where(random.integers(0, 2, spec.shape) & (codes != 0), codes | sign, codes)).astype(np.uint8)


def _in_range(spec: TensorSpec, ends: Sequence[float | None], random: _Draws) -> Array:
    """Numbers between two ends, both included, None where there is no bound; whole ones where there are two."""
    low, high = ends
    if spec.dtype in _SMALL and "int" not in spec.dtype:
        return np.zeros(spec.shape, np.uint8)  # the code of 0, the one number that is known without a table
    if spec.dtype in _SMALL:
        _, codes, _ = _SMALL[spec.dtype]
        first, last = (-codes if low is None else math.ceil(low)), (codes if high is None else math.floor(high))
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True) % codes).astype(np.uint8)
    if spec.dtype != "bfloat16" and spec.numpy.kind != "f":
        first, last = _whole_ends(spec, low, high)
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True)).astype(spec.numpy)
    if low is None or high is None:
        away = np.abs(np.asarray(random.standard_normal(spec.shape))) + 0.1
        drawn = away + low if low is not None else (high or 0) - away
    elif math.ceil(low) < math.floor(high):
        drawn = np.asarray(random.integers(math.ceil(low), math.floor(high), spec.shape, endpoint=True))
    else:
        drawn = np.asarray(random.uniform(low, high, spec.shape))
    if spec.dtype == "bfloat16":
        bits = np.asarray(drawn.astype(np.float32)).view(np.uint32)
        return np.asarray(bits >> 16).astype(np.uint16)
    return np.asarray(drawn.astype(spec.numpy))


def _whole_ends(spec: TensorSpec, low: float | None, high: float | None) -> tuple[int, int]:
    """The least and the greatest integer; a byte's worth of them, not negative if possible, where an end is missing."""
    most = 1 if spec.dtype == "bool" else int(np.iinfo(spec.numpy).max)
    if low is None:
        low = 0 if high is None or high >= 0 else high - 255
    if high is None:
        low = max(low, 0)
        high = max(low, 0) + 255
    return math.ceil(low), math.floor(min(high, most, 2**63 - 1))


def _drawn(
    binding: Binding,
    described: Sequence[Mapping[str, Any]],
    seed: int,
    sizes: Mapping[str, int],
    random: _Draws | None = None,
) -> dict[str, Array]:
    """Inputs of a binding that the manifest describes so: see `Model.random_inputs`."""
    random = random or np.random.default_rng(seed)
    made: dict[str, Array] = {}
    ranges = {one["name"]: one["range"] for one in described if "range" in one}
    examples = {one["name"]: one["examples"] for one in described if "examples" in one}
    for port in binding.inputs:
        spec = port.at(sizes) if isinstance(port, OpenSpec) else port
        if spec.dtype == "string":
            known = [*binding.words, "another"]
            drawn = [known[at] for at in random.integers(0, len(known), math.prod(spec.shape))]
            made[spec.name] = np.array(drawn, object).reshape(spec.shape)
        elif spec.name in examples:
            one = examples[spec.name][seed % len(examples[spec.name])]
            made[spec.name] = np.array(one, spec.numpy).reshape(spec.shape)
        elif spec.name in ranges:
            made[spec.name] = _in_range(spec, ranges[spec.name], random)
        elif spec.dtype in _SMALL:
            made[spec.name] = _codes(spec, random)
        elif spec.dtype == "bfloat16":
            bits = np.asarray(random.standard_normal(spec.shape, np.float32)).view(np.uint32)
            made[spec.name] = np.asarray(bits >> 16).astype(np.uint16)
        elif spec.numpy.kind == "f":
            made[spec.name] = np.asarray(random.standard_normal(spec.shape)).astype(spec.numpy)
        else:
            made[spec.name] = np.asarray(random.integers(0, 2, spec.shape)).astype(spec.numpy)
    return made


def _random_state(binding: Binding, seed: int | None, run: int = 0) -> list[Array]:
    """What a run is given, of a model that draws random numbers; the second number counts the runs from 1."""
    if not binding.random:
        return []
    key = int.from_bytes(os.urandom(8), "little") if seed is None else seed % 2**64
    return [np.array([key - 2**64 if key >= 2**63 else key, run], np.int64)]
