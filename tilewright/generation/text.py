"""What a decoder is given and gives, step by step, and the caches that it is handed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.generation.ports import LAST, POSITIONS, Ports, exact, lengths_of
from tilewright.loading import Model, TensorSpec

Arrays = dict[str, NDArray[Any]]
STEP = 3
"""What a step costs beside its tokens, in tokens: 2 of a decoder 1,024 wide, whose step of 64 takes 24 times as long as
one of 1; 4 of SmolLM2-135M, 576 wide, with 10 to 14."""


class Grown:
    """Caches that grow: what a step gives is what the next one takes."""

    rewinds = False
    """Whether a step may write over a later one."""

    def __init__(self, model: Model, ports: Ports) -> None:
        self._model, self._ports = model, ports
        self.clear()

    def clear(self) -> None:
        """As at the beginning."""
        self._held = {one.past.name: np.zeros(one.shape, one.past.numpy) for one in self._ports.caches}

    def step(self, numbers: Mapping[str, NDArray[Any]], begin: int) -> NDArray[Any]:
        """The logits of a step from place `begin` of the text on; `numbers` are all its inputs but the caches."""
        found = self._model.run({**numbers, **self._held})
        self._held = {one.past.name: found[one.present] for one in self._ports.caches}
        return found[self._ports.logits]


@dataclass(frozen=True)
class _Bound:
    """A step of one size on arrays that stay where they are."""

    run: Callable[[], float]
    numbers: Mapping[str, NDArray[Any]]
    logits: NDArray[Any]


class Kept:
    """Caches of one capacity, in two sets of arrays that each step exchanges.

    Steps are bound to them, so that nothing is allocated or checked twice: with 60 caches that took 1.8 ms of a step.
    """

    rewinds = True

    def __init__(self, model: Model, ports: Ports) -> None:
        self._model, self._ports = model, ports
        self._sets = [[np.zeros(one.shape, one.past.numpy) for one in ports.caches] for _ in range(2)]
        self._turn = 0
        self._bound: dict[tuple[int, int], _Bound | None] = {}

    def clear(self) -> None:
        """Nothing: what lies behind the text does not count."""

    def step(self, numbers: Mapping[str, NDArray[Any]], begin: int) -> NDArray[Any]:
        """As that of `Grown`."""
        count = numbers[self._ports.ids.name].size
        if (count, self._turn) not in self._bound:
            self._bound[count, self._turn] = self._bind(count, numbers)
        bound = self._bound[count, self._turn]
        pasts, presents = self._sets[self._turn], self._sets[1 - self._turn]
        self._turn = 1 - self._turn
        caches = self._ports.caches
        if bound is None:
            given = {one.past.name: array for one, array in zip(caches, pasts, strict=True)}
            filled = {one.present: array for one, array in zip(caches, presents, strict=True)}
            return self._model.run({**numbers, **given}, filled)[self._ports.logits]
        for name, array in bound.numbers.items():
            array[...] = numbers[name]
        bound.run()
        return bound.logits

    def _bind(self, count: int, numbers: Mapping[str, NDArray[Any]]) -> _Bound | None:
        """None where no binding has exactly this size."""
        found = exact(self._model, self._ports, count)
        if found is None:
            return None
        pasts, presents = self._sets[self._turn], self._sets[1 - self._turn]
        own = {name: array.copy() for name, array in numbers.items()}
        taken = {**own, **{one.past.name: array for one, array in zip(self._ports.caches, pasts, strict=True)}}
        filled = {spec.name: np.zeros(spec.shape, spec.numpy) for spec in found.outputs if self._is_small(spec)}
        filled |= {one.present: array for one, array in zip(self._ports.caches, presents, strict=True)}
        run = found.bind([taken[spec.name] for spec in found.inputs], [filled[spec.name] for spec in found.outputs])
        return _Bound(run, own, filled[self._ports.logits])

    def _is_small(self, spec: TensorSpec) -> bool:
        return all(spec.name != one.present for one in self._ports.caches)


class Stateful:
    """Caches that the artifact keeps in a state: each step runs from it, and is given none and gives none."""

    rewinds = True

    def __init__(self, model: Model, ports: Ports) -> None:
        self._model, self._ports = model, ports
        self._state = model.state()
        self._grows = bool(lengths_of(model))
        self._sizes: dict[int, Model] = {}

    def clear(self) -> None:
        """As at the beginning, also after a step that was interrupted."""
        self._state.reset()

    def step(self, numbers: Mapping[str, NDArray[Any]], begin: int) -> NDArray[Any]:
        """As that of `Grown`."""
        count = numbers[self._ports.ids.name].size
        if count not in self._sizes:
            self._sizes[count] = exact(self._model, self._ports, count) or self._model
        if self._grows and len(self._state) != begin:
            self._state.truncate(begin)
        return self._sizes[count].run(numbers, state=self._state)[self._ports.logits]


def _caches(model: Model, ports: Ports) -> Grown | Kept | Stateful:
    if all(one.kept for one in ports.caches):
        return Stateful(model, ports)
    return (Grown if any(one.grows for one in ports.caches) else Kept)(model, ports)


class Text:
    """A text that a decoder reads and goes on with: `length` tokens of it are in the caches."""

    def __init__(self, model: Model, ports: Ports) -> None:
        self._ports = ports
        self._caches = _caches(model, ports)
        self._ids: list[int] = []
        self.length = 0

    def read(self, ids: Sequence[int]) -> NDArray[Any]:
        """Reads tokens after those that were read before; the logits [words] of the one that follows.

        In steps of as many tokens as the model takes at once; where it costs less than small ones would, tokens before
        those that are left are read again with them, if caches allow it. There must be at least one, and room for all.
        The next step writes over the logits. Raises one of the model's `errors`.
        """
        begin = self.length
        self._ids[begin:] = ids
        end = len(self._ids)
        logits = np.empty(0)
        while begin < end:
            count = self._ports.step(end - begin)
            again = self._again(end, end - begin)
            if again and again + STEP < self._small(end, end - begin):
                begin, count = end - again, again
            logits = self._caches.step(self._numbers(begin, self._ids[begin : begin + count]), begin)
            begin += count
            self.length = begin
        last: NDArray[Any] = logits.reshape(-1, logits.shape[-1])[-1]
        return last

    def _again(self, end: int, left: int) -> int | None:
        """Tokens of a step that reads the last `left` ones, with some before them; None without one."""
        return self._ports.wider(left, end) if self._caches.rewinds else None

    def _cost(self, end: int, left: int) -> int:
        """Of reading the last `left` tokens, in tokens."""
        if not left:
            return 0
        small, again = self._small(end, left), self._again(end, left)
        return small if again is None else min(small, again + STEP)

    def _small(self, end: int, left: int) -> int:
        """The same where the next step reads no token again."""
        count = self._ports.step(left)
        return left // count * (count + STEP) + self._cost(end, left % count)

    def rewind(self, length: int) -> None:
        """Forgets tokens from `length` on. Raises ValueError for a cache that grows, unless all are forgotten."""
        if not 0 <= length <= self.length or (length and not self._caches.rewinds):
            raise ValueError(f"a text of {self.length} tokens cannot be taken back to {length}")
        if not length:
            self._caches.clear()
        self.length = length

    def _numbers(self, begin: int, ids: Sequence[int]) -> Arrays:
        """Tokens, mask and positions of a step whose first token has the place `begin`."""
        ports, after = self._ports, begin + len(ids)
        given = {ports.ids.name: _as(ports.ids, np.array(ids))}
        if ports.mask is not None:
            mask = np.zeros((1, ports.room or after), ports.mask.numpy)
            mask[0, :after] = 1
            given[ports.mask.name] = mask
        for spec, kind in ports.others:
            if kind is POSITIONS:
                given[spec.name] = _as(spec, np.arange(begin, after))
            else:
                given[spec.name] = _as(spec, np.array([after - 1 if kind is LAST else after]))
        return given


def _as(spec: TensorSpec, numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers in a row, of the type and rank of an input."""
    rank = len(spec.shape)
    shape = (1,) * (rank - 1) + (-1,) if rank else ()
    return numbers.astype(spec.numpy).reshape(shape)
