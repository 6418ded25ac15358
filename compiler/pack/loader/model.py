"""A loaded artifact."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.pack.loader.arrays import _as_array, _check_names, _checked_output, _demand_apart, _returned, _shape_of
from compiler.pack.loader.bindings import Binding, PlanSpec, _bindings, _check_binding, _listed
from compiler.pack.loader.capacity import _Capacity
from compiler.pack.loader.drawing import _codes, _in_range
from compiler.pack.loader.errors import ArtifactError, InputError, RunError, WrongMachine
from compiler.pack.loader.files import _Files
from compiler.pack.loader.frames import Frame, Stream, _Frames
from compiler.pack.loader.gpu import _is_on_gpu, _on_gpu, _overlap
from compiler.pack.loader.interface import ABI_VERSION, DeviceArray, _Config, _point, _tensors
from compiler.pack.loader.library import _alone, _Library
from compiler.pack.loader.quick import _Fixed, _Quick, _QuickOpen
from compiler.pack.loader.specs import _SMALL, Array, OpenSpec, TensorSpec, _aligned
from compiler.pack.loader.states import Carried, State
from compiler.pack.loader.strings import _Strings

QUICK_BYTES = 1 << 16
"""Of inputs and outputs together, up to which `run` copies them (about 2 us)."""
QUICK_CAPACITY = 1 << 20
"""The same for open axes at their largest sizes: these are copied in any case. And for runs from a state: finding where
its tensors lie would cost more."""
QUICK_PLACES = 8
"""Of a state, where its tensors may lie in turn, for which a binding keeps what `run` needs."""


class Model:
    """A loaded artifact.

    path      a .tw file or a folder with its members; None: where this file lies
    lanes     threads; None: as many as the plan was made for. With fewer than any plan needs one thread does
              everything, so `.lanes` is 1
    verify    whether the library and the weights are compared with their SHA-256 first
    spin_us   how long an idle lane spins before it sleeps; None: the library's default
    device    which GPU runs a model that was compiled for one: 0 is the first that CUDA_VISIBLE_DEVICES leaves
    plan      which of the model's plans runs, from 1; None: where there are several, the one for a hand-off between
              cores that costs what it does here
    pin       whether each lane but the caller's stays on a core of its own: faster on cores that nobody else uses,
              slower on others
    binding   of a model with several `.bindings`, the one that this is, from 1; None: the first, and `run`, `run_flat`
              and all else that takes inputs go to the one that has their shapes, which is loaded when first needed:
              one made for exactly these, else the one with the least ranges that hold them

    seed      of a model that draws random numbers, the key of all that it draws, with the number of the run: equal
              seeds draw equal numbers. None: another one each time that a model is loaded
    coded     inputs and outputs are the program's own: strings are their numbers (`Binding.words`), and the state of
              random numbers is an input

    Weights are mapped from the file and shared by all processes that use it; on a GPU each Model has a copy. A Model
    may be used from any thread, one run at a time: `run` waits for the other to end. For runs side by side make several
    Models. It does not survive a fork. Raises ArtifactError, or WrongMachine when this machine cannot run it.
    """

    errors = (ArtifactError, InputError, RunError)
    """What is raised here, for those who have the Model and not this module."""

    def __init__(
        self,
        path: str | os.PathLike[str] | _Files | None = None,
        lanes: int | None = None,
        *,
        verify: bool = True,
        spin_us: int | None = None,
        device: int = 0,
        plan: int | None = None,
        pin: bool = False,
        binding: int | None = None,
        seed: int | None = None,
        coded: bool = False,
    ) -> None:
        self._instance = ctypes.c_void_p()
        self._library: _Library | None = None
        self._parts: _Frames | None = None
        if lanes is not None and lanes < 1:
            raise ValueError(f"lanes is {lanes}. Fix: give 1 or more, or None for what the plan was made for")
        begin = time.perf_counter()
        self._has_own_files = not isinstance(path, _Files)
        if isinstance(path, _Files):  # of the model that this is another binding of
            self._files = path
        else:
            self._files = _Files(Path(path) if path is not None else Path(__file__).resolve().parent, verify)
        self.path = self._files.path
        try:
            self.manifest = self._files.manifest
            self.bindings = _bindings(self.manifest)
            number = 1 if binding is None else binding
            _check_binding(number, self.bindings)
            if coded:
                self.bindings = tuple(one.coded for one in self.bindings)
            self.binding = self.bindings[number - 1]
            self._by_size = sorted(self.bindings, key=lambda one: one.size)
            self.inputs, self.outputs = self.binding.inputs, self.binding.outputs
            self._folder = str(self.manifest["bindings"][number - 1]["folder"]) if "bindings" in self.manifest else ""
            self._others: dict[int, Model] = {}
            self._open = functools.partial(
                type(self), self._files, lanes, spin_us=spin_us, device=device, pin=pin, seed=seed, coded=coded
            )
            self._state = self._first_state(seed)
            self._chooses = binding is None and len(self.bindings) > 1
            self.device = device
            self.on_gpu = str(self.manifest["target"]).startswith("cuda")
            self._library = self._open_library(self._files.read(f"{self._folder}model.so"))
            self._create(lanes or 0, -1 if spin_us is None else spin_us, device, plan, pin)
            self._spin_us = spin_us
            self._runs_parts = bool(self.manifest.get("stream", {}).get("runs")) and plan is None
            if self._runs_parts:
                self._parts = self._open_parts()
            self.plan = self._running()
            planned = self.plan.lanes
            self.lanes = planned if lanes is None or lanes >= planned or self.on_gpu else 1
        except BaseException:
            self.close()
            raise
        self._in, self._in_shapes = _tensors(self.binding.program_inputs)
        self._out, self._out_shapes = _tensors(self.binding.program_outputs)
        self._capacity = _Capacity(self.binding) if self.binding.has_sizes else None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._quick = self._quick_run()
        self.carried = self._carried(self.binding)
        self._swaps = sum(1 << at for at, one in enumerate(self.carried) if not one.in_place)
        self._last: Model | None = None  # the binding that the last run was passed on to
        self.load_seconds = time.perf_counter() - begin

    def _quick_run(self) -> _Quick | _QuickOpen | None:
        """For `run`; None for a model that does more than a call of its library, and for large arrays."""
        binding = self.binding
        ports = (*binding.inputs, *binding.outputs)
        plain = not (self.on_gpu or self._state or self._runs_parts or binding.has_strings)
        if not plain or any(spec.dtype in _SMALL for spec in ports):
            return None
        size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in ports)
        if binding.has_sizes:
            many = size > QUICK_CAPACITY or (self._chooses and len(self.bindings) > 1)
            return None if many else _QuickOpen(self._opened(), self._instance, binding)
        return None if size > QUICK_BYTES else _Quick(self._opened(), self._instance, binding)

    @property
    def _artifact(self) -> tuple[str, str]:
        """What a state is for: the model, whose saved states can be loaded, and the programs that run from it."""
        folders = [str(one["folder"]) for one in self.manifest.get("bindings", ())] or [""]
        programs = [str(self.manifest["files"][f"{folder}model.so"]["sha256"]) for folder in folders]
        return str(self.manifest["model_digest"]), " ".join(programs)

    def _carried(self, binding: Binding) -> tuple[Carried, ...]:
        """The states that runs hand on, if the artifact was compiled so (option `carry`, on one device)."""
        inputs, outputs = ({spec.name: spec for spec in specs} for specs in (binding.inputs, binding.outputs))
        return tuple(
            Carried(outputs[one["output"]], inputs[one["input"]], bool(one["in_place"]))
            for one in self._described(binding).get("carried", ())
        )

    def _first_state(self, seed: int | None) -> list[Array]:
        """What the first run is given, of a model that draws random numbers; the second number counts the runs."""
        if not self.binding.random:
            return []
        key = int.from_bytes(os.urandom(8), "little") if seed is None else seed % 2**64
        return [np.array([key - 2**64 if key >= 2**63 else key, 0], np.int64)]

    def _open_library(self, code: bytes) -> _Library:
        return _Library(code)

    def _create(self, lanes: int, spin_us: int, device: int, plan: int | None, pin: bool) -> None:
        library = self._opened()
        plans = len(library.describe()["plans"]) if library.version == ABI_VERSION else 1
        if plan is not None and not 1 <= plan <= plans:
            raise ValueError(f"plan is {plan}. Fix: give 1 to {plans}, or None for the one that suits this machine")
        path, offset = self._files.locate("weights.bin")
        config = _Config(os.fsencode(path), offset, lanes, spin_us, device, plan or 0, pin)
        if library.calls.tw_create(ctypes.byref(config), ctypes.byref(self._instance)):
            self._instance = ctypes.c_void_p()
            raise WrongMachine(f"the model cannot start: {library.last_error()}", "see the reason above")

    def _running(self) -> PlanSpec:
        library = self._opened()
        if library.version != ABI_VERSION:
            return PlanSpec(1, str(self.manifest.get("scheduler", "")), self.manifest["lanes"], None, None, None)
        handover = ctypes.c_double()
        number = library.calls.tw_plan(self._instance, ctypes.byref(handover))
        chosen = library.describe()["plans"][number - 1]
        limit = None if chosen["most_handover_ns"] is None else 1e-9 * chosen["most_handover_ns"]
        return PlanSpec(number, chosen["scheduler"], chosen["lanes"], chosen["tasks"], limit, handover.value or None)

    def state(self, path: str | os.PathLike[str] | None = None) -> State:
        """A state for `run`: what the model hands on itself (option `carry`), zeros at first, or as it was saved.

        Each has its own memory, and all share the model's weights. It serves all bindings: a tensor has two memories
        where the program of any of them needs two. Raises RunError for an artifact that carries none,
        InputError for a file that is no state of this model.
        """
        self._demand_carried()
        each = zip(*map(self._carried, self.bindings), strict=True)
        in_place = (all(one.in_place for one in same) for same in each)
        carried = (one._replace(in_place=alike) for one, alike in zip(self.carried, in_place, strict=True))
        made = State(self._artifact, tuple(carried))
        if path is not None:
            made._restore(path)
        return made

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None, state: State | None = None
    ) -> dict[str, Any]:
        """Outputs by name, for inputs by name.

        Inputs are numpy arrays, anything with `__dlpack__` in host memory, or nested lists.

        `out` may give arrays for some or all outputs, which are filled and returned. Strided arrays are fine, row-major
        ones are used in place. A model that runs on a GPU also takes tensors in that GPU's memory (with `__dlpack__` or
        `__cuda_array_interface__`: PyTorch, CuPy, JAX, Numba) for `inputs` and `out`: row-major, and used in place;
        outputs are complete when this returns. Strings are arrays or nested lists of str, and come back as arrays of
        str objects; `out` takes none. Raises InputError when something does not fit, RunError when the model
        is closed or fails.

        With a `state` the inputs that it holds are left out, and so are the outputs that it takes over, unless `out`
        names them (with None for a new array).
        """
        if state is not None:
            return self._run_from(state, inputs, out)
        if (quick := self._quick) and (found := self._run_quick(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._quick):
            found = last._run_quick(quick, inputs, out, again=True)
            if found is not None:
                return found
        _check_names("input", inputs, self.inputs)
        if (chosen := self._asked(inputs)) is not self:
            self._last = chosen
            return chosen.run(inputs, out)
        given = out or {}
        _check_names("output", given, [spec for spec in self.outputs if spec.dtype != "string"])
        for spec in self.inputs:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = self._strings()
        arrays = [self._input(spec, inputs[spec.name], strings) for spec in self.inputs]
        results = self._call(arrays, self._results([given.get(spec.name) for spec in self.outputs], arrays))
        results = self._as_strings(results, strings)
        return {spec.name: _returned(spec, given, result) for spec, result in zip(self.outputs, results, strict=True)}

    def _run_quick(
        self,
        quick: _Quick | _QuickOpen,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> dict[str, Any] | None:
        """As `run`; None where something is not as it mostly is, or amiss. `again`: only for the last run's shapes."""
        with _alone(self._lock):
            if self._library is None or os.getpid() != self._process:
                return None
            found = quick.named(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self._library.last_error())
            return found

    def _run_quick_flat(
        self, quick: _Quick | _QuickOpen, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool = False
    ) -> list[Any] | None:
        """The same in order."""
        with _alone(self._lock):
            if self._library is None or os.getpid() != self._process:
                return None
            found = quick.flat(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self._library.last_error())
            return found

    def _run_from(self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        """As `run`, from a state and into it."""
        with _alone(state._turn):
            state._demand_of(self._artifact)
            for model in (self, self._last):
                if model is not None and (found := model._run_quick_from(state, inputs, out)) is not None:
                    return found
            held = dict(zip(state.names, state._sides[0], strict=True))
            chosen = self._fitting([held.get(spec.name, inputs.get(spec.name)) for spec in self.inputs], held)
            if chosen is not self:
                self._last = chosen
                if (found := chosen._run_quick_from(state, inputs, out)) is not None:
                    return found
            return chosen._run_whole_from(state, inputs, out or {})

    def _run_quick_from(
        self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """As `_run_quick`, at this binding."""
        if (quick := self._quick_from(state)) is None:
            return None
        state._is_void = True
        try:
            found = self._run_quick(quick, inputs, out)
        except RunError:
            state._is_void = False
            raise
        state._is_void = False
        if found is not None:
            state._swap(self._swaps)
        return found

    def _run_whole_from(self, state: State, inputs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """As `_run_from`, at this binding; outputs are written to those of `given`."""
        reads, writes = state._ends(self.carried)
        takes = [spec for spec in self.inputs if spec.name not in reads]
        _check_names("input that no state holds", inputs, takes)
        _check_names("output", given, [spec for spec in self.outputs if spec.dtype != "string"])
        for spec in takes:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = self._strings()
        arrays = [
            reads[spec.name] if spec.name in reads else self._input(spec, inputs[spec.name], strings)
            for spec in self.inputs
        ]
        asked: dict[str, Any] = {
            spec.name: _aligned(spec) if (array := given[spec.name]) is None else self._output(spec, array, arrays)
            for spec in self.outputs
            if spec.name in writes and spec.name in given
        }
        _demand_apart(asked.items(), arrays)
        results = self._results([given.get(spec.name) for spec in self.outputs], arrays, writes)
        state._is_void = True
        try:
            self._call(arrays, results)
        except RunError:
            state._is_void = False
            raise
        state._swap(self._swaps)
        for name, array in asked.items():
            np.copyto(array, writes[name])
        own = zip(self.outputs, self._as_strings(results, strings), strict=True)
        made = {spec.name: asked.get(spec.name, result) for spec, result in own}
        return {
            spec.name: _returned(spec, given, made[spec.name])
            for spec in self.outputs
            if spec.name not in writes or spec.name in asked
        }

    def _quick_from(self, state: State) -> _Quick | None:
        """For runs from a state as it lies now; None where `run` has none either, or for large arrays beside it."""
        known = state._quick.setdefault(self, {})
        if state._swapped not in known:
            if len(known) >= QUICK_PLACES:
                known.clear()
            reads, writes = state._ends(self.carried)
            sides = (self.inputs, reads), (self.outputs, writes)
            beside = [spec for specs, held in sides for spec in specs if spec.name not in held]
            plain = not (self._state or self.binding.has_strings or any(spec.dtype in _SMALL for spec in beside))
            size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in beside)
            quick = plain and size <= QUICK_CAPACITY
            run = _Quick(self._opened(), self._instance, self.binding, reads, writes) if quick else None
            known[state._swapped] = run
        return known[state._swapped]

    def run_flat(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """As `run`, with inputs and outputs in the order of `.inputs` and `.outputs`."""
        if (quick := self._quick) and (found := self._run_quick_flat(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._quick):
            found = last._run_quick_flat(quick, inputs, out, again=True)
            if found is not None:
                return found
        if (chosen := self._fitting(inputs)) is not self:
            self._last = chosen
            return chosen.run_flat(inputs, out)
        strings = self._strings()
        results = self._as_strings(self._call(*self._flat(inputs, out, strings)), strings)
        return [result.owner if isinstance(result, DeviceArray) else result for result in results]

    def stream(self, frames: Iterable[Mapping[str, Any]], depth: int | None = None) -> Stream:
        """Outputs by name for each of many inputs by name, with several in flight on the model's devices.

        Frames are taken from the iterable when there is room for them: `depth` are in flight at most, None for as many
        as the parts can hold. Results come in the order of the frames. An input is copied when it is taken, so that the
        iterable may use its arrays again. What is wrong with one frame is raised where its result would be, and the
        next call of `next` goes on. For an artifact that was compiled for several devices; raises RunError for another.
        """
        if depth is not None and depth < 1:
            raise ValueError(f"depth is {depth}. Fix: give 1 or more, or None for as many as the parts can hold")
        return Stream(self.submit, frames, depth or self._streamed().frames)

    def submit(self, inputs: Mapping[str, Any]) -> Frame:
        """Begins an inference on the model's devices, and waits only while as many are in flight as may be.

        A state that the artifact carries (option `carry`) may be left out: it is what the frame submitted before makes,
        zeros in the first one. Where that one failed before it had made it, this one fails too; a state that is given
        is taken. Raises as `run` does, and RunError for an artifact that was not compiled for several devices.
        """
        carried = self._streamed().carried
        _check_names("input", inputs, self.inputs)
        for spec, is_state in zip(self.inputs, carried, strict=True):
            if spec.name not in inputs and not is_state:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        return self.submit_flat([inputs.get(spec.name) for spec in self.inputs])

    def submit_flat(self, inputs: Sequence[Any]) -> Frame:
        """As `submit`, with inputs in the order of `.inputs`; None for a state that is left out."""
        frames = self._streamed()
        arrays: Sequence[Array | None] = inputs
        if frames.fit(inputs):
            results = [_aligned(spec) for spec in self.outputs]
        else:
            arrays, results = self._flat_with_states(inputs, frames.carried)
        seat = frames.seat()
        seat.aim(seat.copied(arrays), results)
        return Frame(frames, frames.submit(seat, results), self.outputs, results)

    def _flat_with_states(
        self, inputs: Sequence[Any], carried: Sequence[bool]
    ) -> tuple[list[Array | None], list[Array]]:
        """Inputs and outputs that are in order, found fit; None for states that are left out."""
        left_out = [value is None and is_state for value, is_state in zip(inputs, carried, strict=False)]
        filled = [
            np.zeros(spec.shape, spec.numpy) if absent else value
            for value, absent, spec in zip(inputs, left_out, self.inputs, strict=False)
        ]
        arrays, results = self._flat([*filled, *inputs[len(filled) :]], None)
        return [None if absent else array for array, absent in zip(arrays, left_out, strict=True)], results

    def occupancy(self) -> tuple[int, list[float]]:
        """How many frames have ended since the parts were first used, and each part's seconds of processor time."""
        return self._streamed().work()

    def delays(self) -> list[float]:
        """Of each device how long other threads kept its own from its core since the parts were first used, in seconds.

        So it is seen how much of the time by the clock is others' work. 0 where the system does not say, and of a
        device that is no core what its thread waits for the host's.
        """
        return self._streamed().delays()

    def _streamed(self) -> _Frames:
        """The parts, opened when they are first needed."""
        with _alone(self._lock):
            self._opened()
            self._check_process()
            if self._parts is None:
                self._parts = self._open_parts()
            return self._parts

    def _open_parts(self) -> _Frames:
        if "stream" not in self.manifest:
            raise RunError(
                "the model was compiled for one device, and has no parts to stream through. "
                'Fix: compile it with devices, such as {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}'
            )
        return _Frames(self._files, self._spin_us, self.binding)

    def bind(self, inputs: Sequence[Any], out: Sequence[Any]) -> Callable[[], float]:
        """A run that is checked once, for loops in which checking would count.

        Each call runs the model and returns its seconds.

        `inputs` and `out` are in the order of `.inputs` and `.outputs`; arrays of the right type are used in place, so
        what is written to an input between two calls is seen by the second: on a GPU if that is complete, or in the
        legacy default stream. A binding that leaves dimensions open may also be given what its program takes and fills
        (`staged`, `resident`), which is then used in place. Strings are read once, here, and an output of strings is
        filled with their numbers (int64). Raises as `run` does.
        """
        if (chosen := self._fitting(inputs)) is not self:
            return chosen.bind(inputs, out)
        arrays, results = self._flat(inputs, out)
        return self._again(arrays, results)

    def bind_state(self, inputs: Sequence[Any]) -> Callable[[], float]:
        """As `bind`, of runs from a state, to measure them: none of it is copied in or out.

        `inputs` are in the order of `.inputs`, with those that a state holds, which begins with copies of them. Each
        run finds the same: what it makes in other memory is left there, and what it writes in place is put back before
        the next one, outside of its seconds, if it is small or the model demands something of it. Larger tensors in
        place go on, such as a cache, of which each run writes the same rows. Raises as `bind` and `state` do.
        """
        if (chosen := self._fitting(inputs)) is not self:
            return chosen.bind_state(inputs)
        self._demand_carried()
        return self._again_from_state(*self._flat(inputs, None))

    def _again_from_state(self, arrays: list[Any], results: list[Any]) -> Callable[[], float]:
        """As `bind_state`, of arrays that were found fit."""
        demanded = {one["name"] for one in self._described()["inputs"] if "range" in one}
        carried = {one.input.name: one for one in self.carried}
        outputs = [spec.name for spec in self.outputs]
        back: list[tuple[Array, Array]] = []
        for at, spec in enumerate(self.inputs):
            if spec.name in carried:
                first, arrays[at] = np.array(arrays[at]), _aligned(spec)
                arrays[at][...] = first
                if carried[spec.name].in_place:
                    results[outputs.index(carried[spec.name].output.name)] = arrays[at]
                    if first.nbytes <= QUICK_BYTES or spec.name in demanded:
                        back.append((arrays[at], first))
        run = self._again(arrays, results)

        def once() -> float:
            for array, first in back:
                array[...] = first
            return run()

        return once

    def _demand_carried(self) -> None:
        if not self.carried:
            raise RunError(
                "the model was compiled without states for one device. "
                'Fix: compile it with carry, such as {"carry": {"next_h": "h"}}: output next_h becomes input h'
            )

    def _again(self, arrays: Sequence[Any], results: list[Any]) -> Callable[[], float]:
        """Runs of these, found fit; each call gives its seconds."""
        if self._capacity or self._state or self._runs_parts:
            return lambda: self._timed(self._call, arrays, results)
        fixed = _Fixed(self._opened(), self._instance, self.binding, arrays, results)
        return lambda: self._timed(self._run_fixed, fixed)

    def _run_fixed(self, fixed: _Fixed) -> None:
        with _alone(self._lock):
            library = self._opened()
            self._check_process()
            if fixed.call():
                raise RunError(library.last_error())

    def at(self, number: int) -> Model:
        """The model at one of its `.bindings`, which counts from 1; it is closed with this one."""
        _check_binding(number, self.bindings)
        if number == self.binding.number:
            return self
        with _alone(self._lock):
            self._opened()
            if number not in self._others:
                self._others[number] = self._open(binding=number)
            return self._others[number]

    def _fitting(self, inputs: Sequence[Any], held: Container[str] = ()) -> Model:
        """The model at the binding that has the shapes of these inputs, of which a state may have `held` some.

        This one where there is no choice, or where something is amiss that it says better. Raises InputError where no
        binding has them.
        """
        if not self._chooses or len(inputs) != len(self.inputs):
            return self
        shapes = [_shape_of(value) for value in inputs]
        if None in shapes:
            return self
        found = [shape or () for shape in shapes]
        for one in self._by_size:
            if not one.misfit(found):
                return self.at(one.number)
        ranged = [one for one in self.bindings if one.open]
        if len(ranged) == 1:
            raise InputError(ranged[0].misfit(found))
        named = zip(self.inputs, shapes, strict=True)
        given = ", ".join(f"{spec.name!r} {list(shape or ())}" for spec, shape in named if spec.name not in held)
        raise InputError(f"no binding of the model has {given}. Fix: give shapes of {_listed(self.bindings)}")

    def _asked(self, inputs: Mapping[str, Any] | None) -> Model:
        """The model at the binding of inputs by name; this one for random ones."""
        if inputs is None or not self._chooses:
            return self
        return self._fitting([inputs.get(spec.name) for spec in self.inputs])

    def staged(self, inputs: Sequence[Any]) -> list[Array]:
        """What the program of a binding that leaves dimensions open takes for inputs, in order.

        These are arrays of their own, zero beyond what was given, and the sizes. Raises InputError as `run` does.
        """
        arrays, _ = self._flat(inputs, None)
        return [np.array(array) for array in _Capacity(self.binding).take(arrays, self._state)]

    def resident(self) -> tuple[list[DeviceArray], list[DeviceArray]]:
        """Inputs and outputs in the memory that a model on a GPU has for them.

        A run from there copies nothing, and finds what the last one left.
        """
        inputs, outputs = (
            [DeviceArray(0, self.device, spec, None) for spec in specs]
            for specs in (self.binding.program_inputs, self.binding.program_outputs)
        )
        return inputs, outputs

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Inputs in the ranges that the manifest states (`range`, of what the model demands something of).

        Where few are legal it states `examples`, of which one is taken, the same place for all inputs.
        Others are standard normal floats, and integers and booleans of 0 and 1. `sizes` are those of dimensions that
        the binding leaves open, by name; their opt where there is none.
        """
        random = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        described = self._described()["inputs"]
        ranges = {one["name"]: one["range"] for one in described if "range" in one}
        examples = {one["name"]: one["examples"] for one in described if "examples" in one}
        for port in self.inputs:
            spec = port.at(sizes or {}) if isinstance(port, OpenSpec) else port
            if spec.dtype == "string":
                known = [*self.binding.words, "another"]
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
                made[spec.name] = (random.standard_normal(spec.shape, np.float32).view(np.uint32) >> 16).astype(
                    np.uint16
                )
            elif spec.numpy.kind == "f":
                made[spec.name] = np.asarray(random.standard_normal(spec.shape)).astype(spec.numpy)
            else:
                made[spec.name] = np.asarray(random.integers(0, 2, spec.shape)).astype(spec.numpy)
        return made

    def _described(self, binding: Binding | None = None) -> Mapping[str, Any]:
        """What the manifest says of a binding, or of this model's."""
        listed: Sequence[Mapping[str, Any]] = self.manifest.get("bindings") or (self.manifest,)
        return listed[(binding or self.binding).number - 1]

    def trace(self, inputs: Mapping[str, Any] | None = None, repeats: int = 30) -> list[tuple[float, float]]:
        """When each task of the running plan begins and ends, in seconds since the run began.

        Medians over `repeats` runs, in the plan's order.

        Reading the clock delays each task by some 50 ns. Raises RunError for a model on a GPU, which does not say it.
        """
        if (chosen := self._asked(inputs)) is not self:
            return chosen.trace(inputs, repeats)
        library = self._opened()
        if self.plan.tasks is None:
            raise RunError("this library is too old to be traced. Fix: compile the model again")
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        tasks = self.plan.tasks
        begins, ends = ((ctypes.c_double * max(tasks, 1))() for _ in range(2))
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._call(arrays, results, library.calls.tw_trace, begins, ends)
            rows.append([*begins[:tasks], *ends[:tasks]])
        medians = [statistics.median(times) for times in zip(*rows[1:], strict=True)]
        return list(zip(medians[:tasks], medians[tasks:], strict=True))

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """For each kernel call: what it is, and its median seconds over `repeats` runs, one lane at a time."""
        if (chosen := self._asked(inputs)) is not self:
            return chosen.profile(inputs, repeats)
        library = self._opened()
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        calls = self.plan_json()["calls"]
        seconds = (ctypes.c_double * max(len(calls), 1))()
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._call(arrays, results, library.calls.tw_profile, seconds)
            rows.append(list(seconds)[: len(calls)])
        medians = [statistics.median(times) for times in zip(*rows[1:], strict=True)]
        whole = sum(medians) or 1.0
        kept = ("family", "sources", "tile", "predicted_s", "predicted_from")
        return [
            {"call": at, **{key: call[key] for key in kept}, "seconds": spent, "share": spent / whole}
            for at, (call, spent) in enumerate(zip(calls, medians, strict=True))
        ]

    def plan_json(self) -> dict[str, Any]:
        """The running plan, of plan.json: its calls with what they are, and its tasks."""
        written = json.loads(self._files.read(f"{self._folder}plan.json"))
        if written.get("number", 1) == self.plan.number:
            return dict(written)
        other = next(one for one in written["others"] if one["number"] == self.plan.number)
        calls = [{**call, **own} for call, own in zip(written["calls"], other["calls"], strict=True)]
        return {**other, "calls": calls}

    def bench(self, seconds: float = 2.0, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Latency of one run, in seconds: every sample and its percentiles, the first run and the loading apart.

        A fifth of `seconds` warms up first. At least ten samples are taken, however long they last. On a GPU inputs and
        outputs stay in its memory; `with_copies` is the latency of runs from and to host memory. Of an artifact with
        states runs are from a state, which begins with what `inputs` say.
        """
        if (chosen := self._asked(inputs)) is not self:
            return chosen.bench(seconds, inputs)
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        run = (self._again_from_state if self.carried else self._again)(arrays, results)
        first = run()
        common = {"first_run": first, "load": self.load_seconds, "lanes": self.lanes, "plan": self.plan.number}
        if not self.on_gpu:
            return {**self._latency(seconds, run), **common}
        whole = self._latency(seconds / 2, run)
        inside = self._latency(seconds / 2, self._again(*self.resident()))
        return {**inside, **common, "with_copies": whole}

    def _latency(self, seconds: float, run: Callable[[], float]) -> dict[str, Any]:
        """Samples and their percentiles, after a fifth of the time for warming up."""
        end = time.perf_counter() + seconds / 5
        while time.perf_counter() < end:
            run()
        samples: list[float] = []
        end = time.perf_counter() + seconds * 4 / 5
        while len(samples) < 10 or time.perf_counter() < end:
            samples.append(run())
        p10, median, p90, p99 = (float(value) for value in np.percentile(samples, (10, 50, 90, 99)))
        return {
            "median": median,
            "min": min(samples),
            "mean": statistics.fmean(samples),
            "p10": p10,
            "p90": p90,
            "p99": p99,
            "runs": len(samples),
            "samples": samples,
        }

    def close(self) -> None:
        """Frees the instance and its threads; a second call does nothing. Raises RunError while this thread runs it."""
        if hasattr(self, "_lock"):
            _alone(self._lock)
        for other in getattr(self, "_others", {}).values():
            other.close()
        is_own = os.getpid() == getattr(self, "_process", os.getpid())
        if self._parts:
            self._parts.close(destroy=is_own)
            self._parts = None
        if self._library and self._instance:
            if is_own:
                self._library.calls.tw_destroy(self._instance)
            self._instance = ctypes.c_void_p()
        if self._library:
            self._library.close()
            self._library = None
        if hasattr(self, "_files") and self._has_own_files:
            self._files.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def _opened(self) -> _Library:
        if self._library is None:
            raise RunError("the model is closed. Fix: load it again")
        return self._library

    def _arrays(self, inputs: Mapping[str, Any] | None) -> list[Any]:
        given = self.random_inputs() if inputs is None else inputs
        _check_names("input", given, self.inputs)
        strings = self._strings()
        return [self._input(spec, given[spec.name], strings) for spec in self.inputs]

    def _strings(self) -> _Strings | None:
        """For one run; None where nothing is of strings."""
        return _Strings(self.binding.words) if self.binding.has_strings else None

    def _as_strings(self, results: list[Any], strings: _Strings | None) -> list[Any]:
        """Results of a run, those of strings as such."""
        if strings is None:
            return results
        specs = zip(self.outputs, results, strict=True)
        return [strings.of(result) if spec.dtype == "string" else result for spec, result in specs]

    def _input(self, spec: TensorSpec, value: Any, strings: _Strings | None = None) -> Array | DeviceArray:
        """An input, found fit."""
        if spec.dtype == "string" and strings is not None:
            return _as_array(spec, strings.numbers(spec, value))
        if self.on_gpu and isinstance(spec, OpenSpec) and _is_on_gpu(value):
            raise InputError(
                f"input {spec.name!r} is in the memory of a GPU, and has axes that are open. Fix: copy it to the host"
            )
        found = _on_gpu(f"input {spec.name!r}", spec, value, self.device) if self.on_gpu else None
        return _as_array(spec, value) if found is None else found

    def _flat(
        self, inputs: Sequence[Any], out: Sequence[Any] | None, strings: _Strings | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs that are in order, found fit."""
        if self._capacity and out is not None and self._is_of_program(inputs, out):
            return self._of_program(inputs, out)
        for kind, given, specs in (("inputs", inputs, self.inputs), ("outputs", out, self.outputs)):
            if given is not None and len(given) != len(specs):
                raise InputError(
                    f"{len(given)} {kind} for {len(specs)}. Fix: give {', '.join(map(str, specs)) or 'none'}"
                )
        strings = strings or self._strings()
        arrays = [self._input(spec, value, strings) for spec, value in zip(self.inputs, inputs, strict=True)]
        return arrays, self._results(list(out) if out is not None else [None] * len(self.outputs), arrays)

    def _is_of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> bool:
        """Whether these are as many as an open binding's program takes and fills: more than the model does."""
        binding = self.binding
        return (len(inputs), len(out)) == (len(binding.program_inputs), len(binding.program_outputs))

    def _of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What an open binding's program itself takes and fills, found fit."""
        takes, fills = (
            [TensorSpec(*spec) for spec in specs]
            for specs in (self.binding.program_inputs, self.binding.program_outputs)
        )
        arrays = [self._input(spec, value) for spec, value in zip(takes, inputs, strict=True)]
        results = [self._output(spec, array, arrays) for spec, array in zip(fills, out, strict=True)]
        _demand_apart([(spec.name, array) for spec, array in zip(fills, results, strict=True)], arrays)
        return arrays, results

    def _results(
        self, given: Sequence[Any], arrays: Sequence[Any], kept: Mapping[str, Array] | None = None
    ) -> list[Any]:
        """The arrays that a run fills: those kept, those given, once they are found fit, and new ones."""
        there = kept or {}
        results: list[Any] = []
        checked: list[tuple[str, Any]] = []
        for spec, array in zip(self.outputs, given, strict=True):
            if spec.name in there:
                results.append(there[spec.name])
            elif array is None or isinstance(spec, OpenSpec):
                results.append(array if self._capacity else _aligned(spec))
            else:
                results.append(self._output(spec, array, arrays))
                checked.append((spec.name, results[-1]))
        _demand_apart(checked, arrays)
        return results

    def _output(self, spec: TensorSpec, array: Any, arrays: Sequence[Any]) -> Array | DeviceArray:
        """A preallocated output, found fit; one in the host's memory may still be shared with an input's."""
        found = _on_gpu(f"output {spec.name!r}", spec, array, self.device) if self.on_gpu else None
        if found is None:
            return _checked_output(spec, array)
        if any(isinstance(one, DeviceArray) and one.address and _overlap(one, found) for one in arrays):
            raise InputError(f"output {spec.name!r} shares memory with an input. Fix: give an array of its own")
        return found

    def _timed(self, run: Callable[..., Any], *arguments: Any) -> float:
        begin = time.perf_counter()
        run(*arguments)
        return time.perf_counter() - begin

    def _call(self, arrays: Sequence[Any], results: list[Any], function: Any = None, *more: Any) -> list[Any]:
        """The outputs of one run, by `tw_run` or by another function of the library that is given `more`."""
        with _alone(self._lock):
            self._opened()
            self._check_process()
            if self._is_of_program(arrays, results):
                self._invoke(arrays, results, function, *more)
                return results
            if self._state:
                self._state[0][1] += 1
            if self._capacity is None:
                self._invoke([*arrays, *self._state], results, function, *more)
                return results
            self._invoke(self._capacity.take(arrays, self._state), self._capacity.blank(results), function, *more)
            return self._capacity.results(results, arrays)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RunError("the model was loaded before this process was forked. Fix: load it in this process")

    def _invoke(self, arrays: Sequence[Any], results: Sequence[Any], function: Any, *more: Any) -> None:
        library = self._opened()
        if self._runs_parts and self._parts and function is None:
            self._run_parts(self._parts, arrays, results)
            return
        kept = [_point(tensor, array) for tensor, array in zip(self._in, arrays, strict=False)]
        kept += [_point(tensor, array) for tensor, array in zip(self._out, results, strict=False)]
        if (function or library.calls.tw_run)(self._instance, self._in, self._out, *more):
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
