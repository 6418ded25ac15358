"""An output that comes in pieces: windows of what crosses a cut of the model, each run by the program behind it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from compiler.pack.loader.errors import RunError
from compiler.pack.loader.library import _alone
from compiler.pack.loader.specs import Array

_PORTIONS = {-1: "before", -2: "behind"}
"""What is opened beside the bindings, by a number as theirs, of the members of the manifest."""


class _Runs(Protocol):
    """What runs here: a Model."""

    manifest: Any
    inputs: Any

    def run(self, inputs: Any, out: Any = None, state: Any = None, seed: int | None = None) -> dict[str, Any]: ...


class _Cut(NamedTuple):
    """A tensor that crosses the cut: a step of a window moves it by `step` positions of `axis`; None: given whole."""

    name: str
    axis: int | None
    step: int
    shape: tuple[int, ...]

    def steps(self, array: Array) -> int | None:
        """How many steps behind the first window the last one begins, below 0 for less than a window.

        None where no number of steps ends there.
        """
        if self.axis is None:
            return None
        left = array.shape[self.axis] - self.shape[self.axis]
        return None if left % self.step else left // self.step

    def window(self, array: Array, number: int) -> Array:
        """What a window has of it that begins a number of steps behind the first one."""
        if self.axis is None:
            return array
        begin = number * self.step
        return array[(slice(None),) * self.axis + (slice(begin, begin + self.shape[self.axis]),)]


class _Windows(NamedTuple):
    """How an output comes in pieces, as the manifest says it.

    `window` positions of `axis` are given by a window, and move by `step`. Of one that does not begin where the whole
    does the first `margin` are left out.
    """

    output: str
    axis: int
    length: int
    step: int
    window: int
    margin: int
    cuts: tuple[_Cut, ...]

    def last(self, arrays: Mapping[str, Array]) -> int | None:
        """The number of the last window; None where no window fits, or the tensors do not end together."""
        found = {cut.steps(arrays[cut.name]) for cut in self.cuts if cut.axis is not None}
        (last,) = found if len(found) == 1 else (None,)
        return None if last is None or last < 0 else last

    def pieces(self, last: int) -> Iterator[tuple[int, slice]]:
        """Each piece: the number of its window, and where in what that gives it lies."""
        total = self.window + last * self.step
        for begin in range(0, total, self.length):
            number = min(max((begin - self.margin) // self.step, 0), last)
            first = begin - number * self.step
            yield number, slice(first, first + min(self.length, total - begin))


def _windows_of(manifest: Mapping[str, Any]) -> _Windows:
    if "chunks" not in manifest:
        raise RunError(
            "the model was compiled without pieces of an output. "
            'Fix: compile it with chunks, such as {"chunks": {"sound": 8192}}'
        )
    said = manifest["chunks"]
    cuts = tuple(_Cut(one["name"], one["axis"], one["step"], tuple(one["shape"])) for one in said["cuts"])
    return _Windows(**{name: said[name] for name in _Windows._fields[:-1]}, cuts=cuts)


def _portions(model: Any) -> list[Any]:
    """The programs before and behind the cut of a model, loaded when they are first needed; None for one it lacks.

    Raises RunError for a model without pieces of an output.
    """
    _windows_of(model.manifest)
    with _alone(model._program.lock):
        model._program.opened()
        for number, name in _PORTIONS.items():
            if number not in model._others and (described := model.manifest["chunks"].get(name)) is not None:
                own = copy.copy(model._files)
                own.manifest = {**own.manifest, "bindings": [described]}
                model._others[number] = model._open.func(own, *model._open.args[1:], **model._open.keywords)
        return [model._others.get(number) for number in _PORTIONS]


def _pieces(
    whole: _Runs, portions: Sequence[_Runs | None], inputs: Mapping[str, Any], seed: int | None
) -> Iterator[Array]:
    """The pieces of an output of a model, for inputs by name, by the programs before and behind its cut.

    All of it is run where it is shorter than a window.
    """
    windows, (before, behind) = _windows_of(whole.manifest), portions
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in inputs.items()}
    if before is not None:
        arrays |= before.run({spec.name: inputs[spec.name] for spec in before.inputs}, seed=seed)
    last = windows.last(arrays)
    at = (slice(None),) * windows.axis
    if last is None or behind is None:
        found = whole.run(inputs, seed=seed)[windows.output]
        for begin in range(0, found.shape[windows.axis], windows.length):
            yield found[(*at, slice(begin, begin + windows.length))]
        return
    for number, place in windows.pieces(last):
        given = {cut.name: cut.window(arrays[cut.name], number) for cut in windows.cuts}
        yield behind.run(given)[windows.output][(*at, place)]
