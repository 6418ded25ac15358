"""What a decoder is given and gives, step by step, and the caches that it is handed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.generation.ports import LAST, POSITIONS, Ports
from tilewright.loading import Model, TensorSpec

Arrays = dict[str, NDArray[Any]]


class Fed:
    """Caches that are fed and read back: what a step gives is what the next one takes.

    Caches of one capacity lie in two sets of arrays, which each step exchanges, so that none is allocated.
    """

    def __init__(self, ports: Ports) -> None:
        self._names = [(cache.past.name, cache.present) for cache in ports.caches]
        self._given = {cache.past.name: np.zeros(cache.shape, cache.past.numpy) for cache in ports.caches}
        self._empty = dict(self._given)
        self._filled = {
            cache.present: np.zeros(cache.shape, cache.past.numpy) for cache in ports.caches if not cache.grows
        }
        self.rewinds = not any(cache.grows for cache in ports.caches)
        """Whether a step may write over a later one."""

    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """What the next step takes, by name."""
        return self._given

    def outputs(self) -> Arrays:
        """Arrays that the next step fills, by name; none of a cache that grows."""
        return self._filled

    def advance(self, given: Mapping[str, NDArray[Any]]) -> None:
        """After a step, what it gave."""
        before = self._given
        self._given = {past: given[present] for past, present in self._names}
        self._filled = {present: before[past] for past, present in self._names if present in self._filled}

    def clear(self) -> None:
        """As at the beginning."""
        if not self.rewinds:
            self._given = dict(self._empty)


class Text:
    """A text that a decoder reads and goes on with: `length` tokens of it are in the caches."""

    def __init__(self, model: Model, ports: Ports) -> None:
        self._model, self._ports = model, ports
        self._caches = Fed(ports)
        self.length = 0

    def read(self, ids: Sequence[int]) -> NDArray[Any]:
        """Reads tokens after those that were read before; the logits [words] of the one that follows.

        In steps of as many tokens as the model takes at once. There must be at least one, and room for all. Raises one
        of the model's `errors`.
        """
        done = 0
        logits = np.empty(0)
        while done < len(ids):
            count = self._ports.step(len(ids) - done)
            logits = self._step(ids[done : done + count])
            done += count
        return logits

    def rewind(self, length: int) -> None:
        """Forgets tokens from `length` on. Raises ValueError for a cache that grows, unless all are forgotten."""
        if not 0 <= length <= self.length or (length and not self._caches.rewinds):
            raise ValueError(f"a text of {self.length} tokens cannot be taken back to {length}")
        if not length:
            self._caches.clear()
        self.length = length

    def _step(self, ids: Sequence[int]) -> NDArray[Any]:
        found = self._model.run({**self._numbers(ids), **self._caches.inputs()}, self._caches.outputs() or None)
        self._caches.advance(found)
        self.length += len(ids)
        logits = found[self._ports.logits]
        last: NDArray[Any] = logits.reshape(-1, logits.shape[-1])[-1]
        return last

    def _numbers(self, ids: Sequence[int]) -> Arrays:
        """Tokens, mask and positions of a step."""
        ports, after = self._ports, self.length + len(ids)
        given = {ports.ids.name: _as(ports.ids, np.array(ids))}
        if ports.mask is not None:
            mask = np.zeros((1, ports.room or after), ports.mask.numpy)
            mask[0, :after] = 1
            given[ports.mask.name] = mask
        for spec, kind in ports.others:
            if kind is POSITIONS:
                given[spec.name] = _as(spec, np.arange(self.length, after))
            else:
                given[spec.name] = _as(spec, np.array([after - 1 if kind is LAST else after]))
        return given


def _as(spec: TensorSpec, numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers in a row, of the type and rank of an input."""
    rank = len(spec.shape)
    shape = (1,) * (rank - 1) + (-1,) if rank else ()
    return numbers.astype(spec.numpy).reshape(shape)
