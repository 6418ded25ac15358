"""One binding's program, opened and run."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.pack.loader.arrays import _check_names, _demand_apart, _returned
from compiler.pack.loader.bindings import PlanSpec
from compiler.pack.loader.capacity import _Capacity
from compiler.pack.loader.drawing import _random_state
from compiler.pack.loader.errors import InputError, RunError, WrongMachine
from compiler.pack.loader.frames import _Frames
from compiler.pack.loader.interface import ABI_VERSION, _Config, _point, _tensors
from compiler.pack.loader.library import _alone, _Library
from compiler.pack.loader.ports import _Ports
from compiler.pack.loader.quick import _Fixed, _Quick, _QuickOpen
from compiler.pack.loader.specs import _SMALL, Array, OpenSpec, _aligned, _filled
from compiler.pack.loader.states import Carried, State

POISON = 255
"""A byte of which each float is NaN, and each whole number the largest or -1."""
QUICK_BYTES = 1 << 16
"""Of inputs and outputs together, up to which `run` copies them (about 2 us)."""
QUICK_CAPACITY = 1 << 20
"""The same for open axes at their largest sizes: these are copied in any case. And for runs from a state: finding where
its tensors lie would cost more."""
QUICK_PLACES = 8
"""Of a state, where its tensors may lie in turn, for which a binding keeps what `run` needs."""


class _Program:
    """What a library computes at a binding: an instance of it, that one thread at a time runs.

    state   of a model that draws random numbers, alone in a list
    parts   of an artifact for several devices, once they were opened; `runs_parts`: a run goes through these
    """

    def __init__(self, library: _Library, ports: _Ports, state: list[Array], carried: tuple[Carried, ...]) -> None:
        self.library: _Library | None = library
        self.instance = ctypes.c_void_p()
        binding = self.binding = ports.binding
        self.ports = ports
        self.state = state
        self.carried = carried
        self.parts: _Frames | None = None
        self.runs_parts = False
        self.quick: _Quick | _QuickOpen | None = None
        self.lock = threading.RLock()
        self.process = os.getpid()
        self._in, self._in_shapes = _tensors(binding.program_inputs)
        self._out, self._out_shapes = _tensors(binding.program_outputs)
        self._capacity = _Capacity(binding) if binding.has_sizes else None
        self._swaps = sum(1 << at for at, one in enumerate(carried) if not one.in_place)

    def start(self, weights: tuple[Path, int], lanes: int, spin_us: int, plan: int | None, pin: bool) -> None:
        """Makes the instance. Raises ValueError for a plan that there is not, WrongMachine where it cannot run here."""
        library = self.opened()
        plans = len(library.describe()["plans"]) if library.version == ABI_VERSION else 1
        if plan is not None and not 1 <= plan <= plans:
            raise ValueError(f"plan is {plan}. Fix: give 1 to {plans}, or None for the one that suits this machine")
        path, offset = weights
        config = _Config(os.fsencode(path), offset, lanes, spin_us, self.ports.device, plan or 0, pin)
        if library.calls.tw_create(ctypes.byref(config), ctypes.byref(self.instance)):
            self.instance = ctypes.c_void_p()
            raise WrongMachine(f"the model cannot start: {library.last_error()}", "see the reason above")

    def running(self, manifest: Mapping[str, Any]) -> PlanSpec:
        """The plan that runs."""
        library = self.opened()
        if library.version != ABI_VERSION:
            return PlanSpec(1, str(manifest.get("scheduler", "")), manifest["lanes"], None, None, None)
        handover = ctypes.c_double()
        number = library.calls.tw_plan(self.instance, ctypes.byref(handover))
        chosen = library.describe()["plans"][number - 1]
        limit = None if chosen["most_handover_ns"] is None else 1e-9 * chosen["most_handover_ns"]
        return PlanSpec(number, chosen["scheduler"], chosen["lanes"], chosen["tasks"], limit, handover.value or None)

    def close(self) -> None:
        """Frees the instance, its threads and the library; a second call does nothing."""
        is_own = os.getpid() == self.process
        if self.parts:
            self.parts.close(destroy=is_own)
            self.parts = None
        if self.library and self.instance:
            if is_own:
                self.library.calls.tw_destroy(self.instance)
            self.instance = ctypes.c_void_p()
        if self.library:
            self.library.close()
            self.library = None

    def prepare(self, chooses: bool) -> None:
        """Makes ready what `run` keeps; `chooses`: whether a run may go to another binding."""
        self.quick = self._quick_run(chooses)

    def _quick_run(self, chooses: bool) -> _Quick | _QuickOpen | None:
        """For `run`; None for a model that does more than a call of its library, and for large arrays."""
        binding = self.binding
        ports = (*binding.inputs, *binding.outputs)
        plain = not (self.ports.on_gpu or self.state or self.runs_parts or binding.has_strings)
        if not plain or any(spec.dtype in _SMALL for spec in ports):
            return None
        size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in ports)
        if binding.has_sizes:
            many = size > QUICK_CAPACITY or chooses
            return None if many else _QuickOpen(self.opened(), self.instance, binding)
        return None if size > QUICK_BYTES else _Quick(self.opened(), self.instance, binding)

    def run_quick(
        self,
        quick: _Quick | _QuickOpen,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> dict[str, Any] | None:
        """As `run`; None where something is not as it mostly is, or amiss. `again`: only for the last run's shapes."""
        with _alone(self.lock):
            if self.library is None or os.getpid() != self.process:
                return None
            found = quick.named(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self.library.last_error())
            return found

    def run_quick_flat(
        self, quick: _Quick | _QuickOpen, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool = False
    ) -> list[Any] | None:
        """The same in order."""
        with _alone(self.lock):
            if self.library is None or os.getpid() != self.process:
                return None
            found = quick.flat(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self.library.last_error())
            return found

    def run_quick_from(
        self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """As `_run_quick`, at this binding."""
        if (quick := self._quick_from(state)) is None or not state._has_room(self.carried):
            return None
        state._is_void = True
        try:
            found = self.run_quick(quick, inputs, out)
        except RunError:
            state._is_void = False
            raise
        state._is_void = False
        if found is not None:
            state._swap(self._swaps)
        return found

    def run_whole_from(
        self, state: State, inputs: Mapping[str, Any], given: Mapping[str, Any], seed: int | None = None
    ) -> dict[str, Any]:
        """As `_run_from`, at this binding; outputs are written to those of `given`."""
        reads, writes = state._ends(self.carried)
        takes = [spec for spec in self.binding.inputs if spec.name not in reads]
        _check_names("input that no state holds", inputs, takes)
        _check_names("output", given, [spec for spec in self.binding.outputs if spec.dtype != "string"])
        for spec in takes:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = self.ports.strings()
        arrays = [
            reads[spec.name] if spec.name in reads else self.ports.input(spec, inputs[spec.name], strings)
            for spec in self.binding.inputs
        ]
        asked: dict[str, Any] = {
            spec.name: _aligned(spec) if (array := given[spec.name]) is None else self.ports.output(spec, array, arrays)
            for spec in self.binding.outputs
            if spec.name in writes and spec.name in given
        }
        _demand_apart(asked.items(), arrays)
        results = self.ports.results([given.get(spec.name) for spec in self.binding.outputs], arrays, writes)
        state._demand_room(self.carried)
        state._is_void = True
        try:
            self.call(arrays, results, seed=seed)
        except RunError:
            state._is_void = False
            raise
        state._swap(self._swaps)
        for name, array in asked.items():
            np.copyto(array, writes[name])
        own = zip(self.binding.outputs, self.ports.as_strings(results, strings), strict=True)
        made = {spec.name: asked.get(spec.name, result) for spec, result in own}
        return {
            spec.name: _returned(spec, given, made[spec.name])
            for spec in self.binding.outputs
            if spec.name not in writes or spec.name in asked
        }

    def _quick_from(self, state: State) -> _Quick | None:
        """For runs from a state as it lies now; None where `run` has none either, or for large arrays beside it."""
        known = state._quick.setdefault(self, {})
        if state._swapped not in known:
            if len(known) >= QUICK_PLACES:
                known.clear()
            reads, writes = state._ends(self.carried)
            sides = (self.binding.inputs, reads), (self.binding.outputs, writes)
            beside = [spec for specs, held in sides for spec in specs if spec.name not in held]
            plain = not (self.state or self.binding.has_strings or any(spec.dtype in _SMALL for spec in beside))
            size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in beside)
            quick = plain and size <= QUICK_CAPACITY
            run = _Quick(self.opened(), self.instance, self.binding, reads, writes) if quick else None
            known[state._swapped] = run
        return known[state._swapped]

    def poison(self) -> list[Array | None] | None:
        """As `Model.poison`: arena, scratch and outputs, as far as they are in the host's memory."""
        with _alone(self.lock):
            library = self.opened()
            if hasattr(library.calls, "tw_poison") and library.calls.tw_poison(self.instance, POISON):
                raise RunError(library.last_error())
            if self.quick:
                self.quick.poison(POISON)
                return None
            return [
                None if isinstance(spec, OpenSpec) else _filled(_aligned(spec), POISON) for spec in self.binding.outputs
            ]

    def again_from_state(self, arrays: list[Any], results: list[Any], demanded: Collection[str]) -> Callable[[], float]:
        """As `Model.bind_state`, of arrays that were found fit; the model demands something of inputs `demanded`."""
        carried = {one.input.name: one for one in self.carried}
        outputs = [spec.name for spec in self.binding.outputs]
        back: list[tuple[Array, Array]] = []
        for at, spec in enumerate(self.binding.inputs):
            if spec.name in carried:
                first, arrays[at] = np.array(arrays[at]), _aligned(spec)
                arrays[at][...] = first
                if carried[spec.name].in_place:
                    results[outputs.index(carried[spec.name].output.name)] = arrays[at]
                    if first.nbytes <= QUICK_BYTES or spec.name in demanded:
                        back.append((arrays[at], first))
        run = self.again(arrays, results)

        def once() -> float:
            for array, first in back:
                array[...] = first
            return run()

        return once

    def again(self, arrays: Sequence[Any], results: list[Any]) -> Callable[[], float]:
        """Runs of these, found fit; each call gives its seconds."""
        if self._capacity or self.state or self.runs_parts:
            return lambda: self._timed(self.call, arrays, results)
        fixed = _Fixed(self.opened(), self.instance, self.binding, arrays, results)
        return lambda: self._timed(self._run_fixed, fixed)

    def _run_fixed(self, fixed: _Fixed) -> None:
        with _alone(self.lock):
            library = self.opened()
            self.check_process()
            if fixed.call():
                raise RunError(library.last_error())

    def opened(self) -> _Library:
        if self.library is None:
            raise RunError("the model is closed. Fix: load it again")
        return self.library

    def _timed(self, run: Callable[..., Any], *arguments: Any) -> float:
        begin = time.perf_counter()
        run(*arguments)
        return time.perf_counter() - begin

    def call(
        self, arrays: Sequence[Any], results: list[Any], function: Any = None, *more: Any, seed: int | None = None
    ) -> list[Any]:
        """The outputs of one run, by `tw_run` or by another function of the library that is given `more`.

        With a `seed` it draws what the first run of a model of that seed does.
        """
        with _alone(self.lock):
            self.opened()
            self.check_process()
            if self.ports.is_of_program(arrays, results):
                self._invoke(arrays, results, function, *more)
                return results
            state = self.state if seed is None else _random_state(self.binding, seed, 1)
            if state is self.state and state:
                state[0][1] += 1
            if self._capacity is None:
                self._invoke([*arrays, *state], results, function, *more)
                return results
            self._invoke(self._capacity.take(arrays, state), self._capacity.blank(results), function, *more)
            return self._capacity.results(results, arrays)

    def check_process(self) -> None:
        if os.getpid() != self.process:
            raise RunError("the model was loaded before this process was forked. Fix: load it in this process")

    def _invoke(self, arrays: Sequence[Any], results: Sequence[Any], function: Any, *more: Any) -> None:
        library = self.opened()
        if self.runs_parts and self.parts and function is None:
            self._run_parts(self.parts, arrays, results)
            return
        kept = [_point(tensor, array) for tensor, array in zip(self._in, arrays, strict=False)]
        kept += [_point(tensor, array) for tensor, array in zip(self._out, results, strict=False)]
        if (function or library.calls.tw_run)(self.instance, self._in, self._out, *more):
            raise RunError(library.last_error())

    def _run_parts(self, frames: _Frames, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """One frame by itself; arrays that are not row-major are copied."""
        inside = [array if array.flags.c_contiguous else np.empty_like(array, order="C") for array in results]
        given = [np.asarray(array, order="C") for array in arrays]
        seat = frames.seat()
        seat.aim(given, inside)
        frames.wait(frames.submit(seat, (given, inside)))
        for array, own in zip(results, inside, strict=True):
            if own is not array:
                np.copyto(array, own)
