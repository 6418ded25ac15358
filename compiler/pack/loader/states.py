"""What a sequence of runs hands on."""

from __future__ import annotations

import io
import json
import os
import threading
import weakref
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compiler.pack.loader.arrays import _as_array
from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.errors import InputError, RunError
from compiler.pack.loader.files import _program_of
from compiler.pack.loader.library import _alone
from compiler.pack.loader.quick import _Quick
from compiler.pack.loader.specs import Array, TensorSpec, _aligned


class Carried(NamedTuple):
    """An output that is an input of the next run (option `carry`), and whether both have one memory.

    `axis` is the one along which a cache grows; the length of such caches has the `rows` that a run adds, and the most
    that there is `room` for.
    """

    output: TensorSpec
    input: TensorSpec
    in_place: bool
    axis: int | None = None
    rows: int = 0
    room: int = 0


class State:
    """What a sequence of runs hands on from one to the next, in memory of its own: see `Model.state`.

    `state[name]` is a copy of a tensor that the next run reads, by the name of that input or of the output that made
    it, and `state[name] = array` replaces it. Any Model of the artifact may run from it, at any of its bindings, one
    run at a time. A run that is refused leaves it as it was. Where an exception, such as KeyboardInterrupt, ends a run
    from outside, it is void: all but `reset` raises RunError. Of caches that grow, `len(state)` rows count, and what
    lies behind them is zero.
    """

    def __init__(self, artifact: tuple[str, str], carried: tuple[Carried, ...]) -> None:
        self.carried = carried
        self._artifact = artifact
        first = [_aligned(one.input, np.zeros) for one in carried]
        other = [array if one.in_place else _aligned(one.input) for one, array in zip(carried, first, strict=True)]
        self._sides = (first, other)  # what the next run reads, and beside it what a run writes that needs two memories
        self._swapped = 0  # bit by bit, which tensors lie where at first the other memory was
        self._quick: weakref.WeakKeyDictionary[Any, dict[int, _Quick | None]] = weakref.WeakKeyDictionary()
        self._turn = threading.RLock()
        self._is_void = False
        self._length = next((at for at, one in enumerate(carried) if one.rows), None)

    def __len__(self) -> int:
        """Rows of caches that grow. Raises TypeError without such caches."""
        if self._length is None:
            raise TypeError("the state holds no caches that grow, and has no length")
        return int(self._sides[0][self._length])

    def __bool__(self) -> bool:
        """A state is one, also of no rows."""
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs that it holds."""
        return tuple(one.input.name for one in self.carried)

    @property
    def bytes(self) -> int:
        """The memory that it has."""
        return sum(array.nbytes for array in {id(array): array for side in self._sides for array in side}.values())

    def __getitem__(self, name: str) -> Array:
        with _alone(self._turn):
            return self._held(name)[1].copy()

    def __setitem__(self, name: str, value: Any) -> None:
        with _alone(self._turn):
            spec, array = self._held(name)
            array[...] = _as_array(spec, value)

    def reset(self) -> None:
        """Zeros again, as it began."""
        with _alone(self._turn):
            for array in self._sides[0] if self._is_void else self._counting(self._rows):
                array[...] = 0
            self._is_void = False

    def truncate(self, length: int) -> None:
        """Forgets rows of caches that grow, from `length` on. Raises InputError where there are fewer."""
        with _alone(self._turn):
            self._demand_whole()
            rows = len(self)
            if not 0 <= length <= rows:
                raise InputError(f"the state has {rows} rows, and {length} cannot be kept. Fix: give 0 to {rows}")
            for one, array in zip(self.carried, self._sides[0], strict=True):
                if one.axis is not None:
                    _along(array, one.axis, slice(length, rows))[...] = 0
                elif one.rows:
                    array[...] = length

    def fork(self) -> State:
        """Another one that holds the same; from then on each goes its own way."""
        made = State(self._artifact, self.carried)
        with _alone(self._turn):
            self._demand_whole()
            rows = self._rows
            for own, array in zip(made._counting(rows), self._counting(rows), strict=True):
                own[...] = array
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file that `Model.state` reads, whole or not at all. Raises OSError."""
        with _alone(self._turn):
            self._demand_whole()
            tensors = [array.copy() for array in self._counting(self._rows)]
        described = {"model": self._artifact[0], "tensors": [[*one.input] for one in self.carried]}
        whole = io.BytesIO()
        np.savez(whole, np.array(json.dumps(described)), *tensors)
        beside = f"{os.fspath(path)}.{os.getpid()}.part"
        try:
            with open(beside, "wb") as file:
                file.write(whole.getbuffer())
            os.replace(beside, path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise

    def _restore(self, path: str | os.PathLike[str]) -> None:
        """What was saved to a file. Raises InputError for a file that is none, or of another model."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                described = json.loads(str(saved["arr_0"]))
                model, tensors = described["model"], described["tensors"]
                arrays = [saved[f"arr_{at}"] for at in range(1, len(tensors) + 1)]
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as reason:
            raise InputError(f"{path} holds no state: {reason}. Fix: give a file that State.save wrote") from reason
        own = [[name, dtype, [*shape]] for name, dtype, shape in (one.input for one in self.carried)]
        if model != self._artifact[0] or tensors != own:
            raise InputError(f"{path} holds the state of another model. Fix: load it with the model that made it")
        for one, mine, array in zip(self.carried, self._sides[0], arrays, strict=True):
            part = mine if one.axis is None else _along(mine, one.axis, slice(array.shape[one.axis]))
            part[...] = _as_array(one.input._replace(shape=part.shape), array)

    def _held(self, name: str) -> tuple[TensorSpec, Array]:
        """A tensor, in the memory from which the next run reads it."""
        self._demand_whole()
        for one, array in zip(self.carried, self._sides[0], strict=True):
            if name in (one.input.name, one.output.name):
                return one.input, array
        raise InputError(f"the state holds no {name!r}. Fix: it holds {', '.join(map(repr, self.names))}")

    def _demand_whole(self) -> None:
        if self._is_void:
            raise RunError("a run from this state was interrupted. Fix: reset it, or fork it before such runs")

    @property
    def _rows(self) -> int:
        """Of caches that grow, those that count; 0 without such caches."""
        return 0 if self._length is None else len(self)

    def _counting(self, rows: int) -> list[Array]:
        """The tensors; of caches that grow, so many rows alone."""
        pairs = zip(self.carried, self._sides[0], strict=True)
        return [array if one.axis is None else _along(array, one.axis, slice(rows)) for one, array in pairs]

    def _has_room(self, carried: Sequence[Carried]) -> bool:
        """Whether caches that grow have room for what a run adds, of a binding that carries this."""
        return self._length is None or self._rows + carried[self._length].rows <= carried[self._length].room

    def _demand_room(self, carried: Sequence[Carried]) -> None:
        """Raises InputError where they have none."""
        if self._length is not None and not self._has_room(carried):
            rows, room = carried[self._length].rows, carried[self._length].room
            raise InputError(
                f"the caches hold {len(self)} rows of {room}, and the run adds {rows}. "
                "Fix: truncate or reset the state, or compile for a longer text"
            )

    def _ends(self, carried: Sequence[Carried]) -> tuple[dict[str, Array], dict[str, Array]]:
        """What a run reads, by name of the input, and what it writes, by name of the output.

        `carried` is what the binding carries that runs: what is in place there is written where it is read.
        """
        reads, others = self._sides
        writes = (read if one.in_place else other for one, read, other in zip(carried, reads, others, strict=True))
        return (
            {one.input.name: array for one, array in zip(carried, reads, strict=True)},
            {one.output.name: array for one, array in zip(carried, writes, strict=True)},
        )

    def _swap(self, swaps: int) -> None:
        """A run has ended: what it wrote is what the next one reads. `swaps` has a bit for each that swaps."""
        reads, others = self._sides
        for at in range(swaps.bit_length()):
            if swaps >> at & 1:
                reads[at], others[at] = others[at], reads[at]
        self._swapped ^= swaps
        self._is_void = False

    def _demand_of(self, artifact: tuple[str, str]) -> None:
        """Raises unless a run of this artifact may begin from it."""
        self._demand_whole()
        if self._artifact != artifact:
            raise InputError("the state is of another artifact. Fix: make it by this model's `state`")


def _along(array: Array, axis: int, rows: slice) -> Array:
    """Rows of an array along an axis."""
    part: Array = array[(slice(None),) * axis + (rows,)]
    return part


def _identity(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """What a state is for: the model, whose saved states can be loaded, and the programs that run from it."""
    folders = [str(one["folder"]) for one in manifest.get("bindings", ())] or [""]
    programs = [str(manifest["files"][_program_of(manifest, folder)]["sha256"]) for folder in folders]
    return str(manifest["model_digest"]), " ".join(programs)


def _carried_of(binding: Binding, described: Mapping[str, Any]) -> tuple[Carried, ...]:
    """The states that runs hand on at a binding that the manifest describes so."""
    inputs, outputs = ({spec.name: spec for spec in specs} for specs in (binding.inputs, binding.outputs))
    return tuple(
        Carried(
            outputs[one["output"]],
            inputs[one["input"]],
            bool(one["in_place"]),
            one.get("axis"),
            one.get("rows", 0),
            one.get("room", 0),
        )
        for one in described.get("carried", ())
    )
