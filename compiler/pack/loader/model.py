"""A loaded artifact."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.pack.loader.arrays import _check_names, _returned, _shape_of
from compiler.pack.loader.bindings import Binding, _bindings, _check_binding, _described, _listed
from compiler.pack.loader.capacity import _Capacity
from compiler.pack.loader.chunks import _pieces, _portions
from compiler.pack.loader.drawing import _drawn, _random_state
from compiler.pack.loader.errors import ArtifactError, InputError, RunError
from compiler.pack.loader.files import _Files
from compiler.pack.loader.frames import Frame, Stream, _Frames
from compiler.pack.loader.interface import DeviceArray
from compiler.pack.loader.library import _alone, _Library, thread_limit
from compiler.pack.loader.outside import _Outside
from compiler.pack.loader.ports import _Ports
from compiler.pack.loader.probe import _demand_right, _probe_faults
from compiler.pack.loader.program import _Program
from compiler.pack.loader.shown import _as_table, _by_name, _facts, _in_a_line, _in_order
from compiler.pack.loader.specs import Array, _aligned
from compiler.pack.loader.states import Carried, State, _carried_of, _identity
from compiler.pack.loader.strings import _Strings
from compiler.pack.loader.texts import _texts_of
from compiler.pack.loader.timing import _latency, _medians


class Model:
    """A loaded artifact.

    path      a .tw file or a folder with its members; None: where this file lies
    lanes     threads; None: as many as the plan was made for. With fewer than any plan needs one thread does
              everything, so `.lanes` is 1
    verify    whether the library and the weights are compared with their SHA-256 first, and the artifact's probe is
              run, whose results a machine that computes right is known to have; None: weights and probe only if this
              user has not done so since their file changed and the system started
    spin_us   how long an idle lane spins before it sleeps; None: the library's default
    device    which GPU runs a model that was compiled for one: 0 is the first that CUDA_VISIBLE_DEVICES leaves
    plan      which of the model's plans runs, from 1; None: where there are several, the one for a hand-off between
              cores that costs what it does here
    pin       whether each lane but the caller's stays on a core of its own: faster on cores that nobody else uses,
              slower on others
    binding   of a model with several `.bindings`, the one that this is, from 1; None: the first, and `run`, `run_flat`
              and all else that takes inputs go to the one that has their shapes, which is loaded when first needed:
              one made for exactly these, else the one with the least ranges that hold them
    target    of an artifact for several profiles, the one whose program runs, such as `cpu:x86-64-v3`; None: the most
              able one that this processor has. `.target` is which it is
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
        verify: bool | None = None,
        spin_us: int | None = None,
        device: int = 0,
        plan: int | None = None,
        pin: bool = False,
        binding: int | None = None,
        target: str | None = None,
        seed: int | None = None,
        coded: bool = False,
    ) -> None:
        if lanes is not None and lanes < 1:
            raise ValueError(f"lanes is {lanes}. Fix: give 1 or more, or None for what the plan was made for")
        begin = time.perf_counter()
        where = Path(__file__).resolve().parent if path is None else path
        self._has_own_files = not isinstance(where, _Files)  # else of the model that this is another binding of
        self._files = where if isinstance(where, _Files) else _Files(Path(where), verify, target)
        self.path = self._files.path
        try:
            self.manifest = self._files.manifest
            self.target = str(self.manifest["target"])
            self.bindings = _bindings(self.manifest)
            number = 1 if binding is None else binding
            _check_binding(number, self.bindings)
            if coded:
                self.bindings = tuple(one.coded for one in self.bindings)
            self.binding = self.bindings[number - 1]
            self._by_size = sorted(self.bindings, key=lambda one: one.size)
            self.inputs, self.outputs = self.binding.inputs, self.binding.outputs
            outside = _described(self.manifest, self.binding).get("outside")
            self._outside = _Outside(outside, [one.name for one in self.inputs]) if outside and not coded else None
            lanes = 1 if thread_limit() == 1 else lanes
            self._folder = str(self.manifest["bindings"][number - 1]["folder"]) if "bindings" in self.manifest else ""
            self._others: dict[int, Model] = {}
            self._open = functools.partial(
                type(self), self._files, lanes, spin_us=spin_us, device=device, pin=pin, seed=seed, coded=coded
            )
            self._chooses = binding is None and len(self.bindings) > 1
            self.device = device
            self.on_gpu = str(self.manifest["target"]).startswith("cuda")
            self.carried = self._carried(self.binding)
            self._ports = _Ports(self.binding, self.on_gpu, device)
            library = self._open_library(self._files.library(self._folder))
            self._program = _Program(library, self._ports, _random_state(self.binding, seed), self.carried)
            weights = self._files.locate("weights.bin")
            self._program.start(weights, lanes or 0, -1 if spin_us is None else spin_us, plan, pin)
            self._spin_us = spin_us
            self._program.runs_parts = bool(self.manifest.get("stream", {}).get("runs")) and plan is None
            if self._program.runs_parts:
                self._program.parts = self._open_parts()
            self.plan = self._program.running(self.manifest)
            self.lanes = self.plan.lanes if lanes is None or lanes >= self.plan.lanes or self.on_gpu else 1
            way = self._folder, self.plan.number, self.lanes
            ran = _demand_right(self._program, self._files, _described(self.manifest, self.binding), way)
            if ran and self._program.parts is not None:  # no caller's frame follows the probe's, nor is it counted
                self._program.parts.close()
                self._program.parts = self._open_parts()
        except BaseException:
            self.close()
            raise
        self._program.prepare(self._chooses)
        self._last: Model | None = None  # the binding that the last run was passed on to
        self.load_seconds = time.perf_counter() - begin

    def _open_library(self, code: bytes) -> _Library:
        return _Library(code)

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
        made = State(_identity(self.manifest), tuple(carried))
        if path is not None:
            made._restore(path)
        return made

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None = None,
        state: State | None = None,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Outputs by name, for inputs by name.

        Inputs are numpy arrays, anything with `__dlpack__` in host memory, or nested lists. Of a model with one input
        it may stand alone, without its name.

        `out` may give arrays for some or all outputs, which are filled and returned. Strided arrays are fine, row-major
        ones are used in place. A model that runs on a GPU also takes tensors in that GPU's memory (with `__dlpack__` or
        `__cuda_array_interface__`: PyTorch, CuPy, JAX, Numba) for `inputs` and `out`: row-major, and used in place;
        outputs are complete when this returns. Strings are arrays or nested lists of str, and come back as arrays of
        str objects; `out` takes none. Raises InputError when something does not fit, RunError when the model
        is closed or fails.

        With a `state` the inputs that it holds are left out, and so are the outputs that it takes over, unless `out`
        names them (with None for a new array).

        A sequence is a list of arrays, as many as the artifact is made for, and None stands for an optional without a
        value; both may be among the outputs. Of strings that the model changes first (StringNormalizer) it is given
        those before. `inputs` may also be the program's own, `.inputs`, as all other methods take them.

        With a `seed` a model that draws random numbers draws those of the first run of a Model with that seed, whatever
        ran before; runs without one go on with their sequence. Other models take it too, and do the same without it.
        """
        if type(inputs) is not dict:
            inputs = _by_name(inputs, self.inputs)
        if self._outside is not None:
            inputs = self._outside.taken(inputs)
            return self._outside.given(
                self._run_checked(inputs, out, seed) if state is None else self._run_from(state, inputs, out, seed)
            )
        if state is not None:
            return self._run_from(state, inputs, out, seed)
        program = self._program
        if (quick := program.quick) and (found := program.run_quick(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._program.quick):
            found = last._program.run_quick(quick, inputs, out, again=True)
            if found is not None:
                return found
        return self._run_checked(inputs, out, seed)

    def _run_checked(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, seed: int | None
    ) -> dict[str, Any]:
        """As `run`, with everything found fit first."""
        if (chosen := self._asked(inputs)) is not self:
            self._last = chosen
            return chosen.run(inputs, out, seed=seed)
        given = out or {}
        _check_names("output", given, [spec for spec in self.outputs if spec.dtype != "string"])
        strings = self._ports.strings()
        arrays = self._arrays(inputs, strings)
        results = self._ports.results([given.get(spec.name) for spec in self.outputs], arrays)
        results = self._program.call(arrays, results, seed=seed)
        results = self._ports.as_strings(results, strings)
        return {spec.name: _returned(spec, given, result) for spec, result in zip(self.outputs, results, strict=True)}

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What `run` gives for inputs in their order, by name, or in one mapping; of one output the array alone.

        Raises as `run` does.
        """
        found = self.run(_in_order(inputs, named, self.inputs))
        return next(iter(found.values())) if len(found) == 1 else found

    def __repr__(self) -> str:
        return _in_a_line(_facts(self))

    def _repr_html_(self) -> str:
        """For notebooks."""
        return _as_table(_facts(self))

    def _run_from(
        self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, seed: int | None
    ) -> dict[str, Any]:
        """As `run`, from a state and into it."""
        with _alone(state._turn):
            state._demand_of(_identity(self.manifest))
            for model in (self, self._last):
                if model is not None and (found := model._program.run_quick_from(state, inputs, out)) is not None:
                    return found
            held = dict(zip(state.names, state._sides[0], strict=True))
            chosen = self._fitting([held.get(spec.name, inputs.get(spec.name)) for spec in self.inputs], held)
            if chosen is not self:
                self._last = chosen
                if (found := chosen._program.run_quick_from(state, inputs, out)) is not None:
                    return found
            return chosen._program.run_whole_from(state, inputs, out or {}, seed)

    def run_flat(self, inputs: Sequence[Any], out: Sequence[Any] | None = None, seed: int | None = None) -> list[Any]:
        """As `run`, with inputs and outputs in the order of `.inputs` and `.outputs`."""
        program = self._program
        if (quick := program.quick) and (found := program.run_quick_flat(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._program.quick):
            found = last._program.run_quick_flat(quick, inputs, out, again=True)
            if found is not None:
                return found
        if (chosen := self._fitting(inputs)) is not self:
            self._last = chosen
            return chosen.run_flat(inputs, out, seed)
        strings = self._ports.strings()
        flat = self._ports.flat(inputs, out, strings)
        results = self._ports.as_strings(self._program.call(*flat, seed=seed), strings)
        return [result.owner if isinstance(result, DeviceArray) else result for result in results]

    def run_texts(self, texts: Iterable[Any]) -> list[dict[str, Array]]:
        """Outputs by name for each of many texts of unequal lengths, none of them padded (option `ragged`).

        A text is the numbers of its tokens, or a mapping of such lists by the name of the input, all of one length. As
        many go into a run as fit. Each text's outputs are those that it has alone: the rows of its tokens, or its own.
        Raises InputError for a text that does not fit, which it names, and RunError for an artifact without the option.
        """
        packed = _texts_of(self.manifest, self.binding)
        return packed.run(list(texts), self.run_flat)

    def chunks(self, inputs: Mapping[str, Any], seed: int | None = None) -> Iterator[Array]:
        """An output piece by piece (option `chunks`), each as soon as it is there: arrays that make all of it, joined.

        Raises as `run` does, for inputs before the first piece, and RunError for an artifact without the option.
        """
        demanded = _portions(self)
        inputs = inputs if type(inputs) is dict else _by_name(inputs, self.inputs)
        inputs = self._outside.taken(inputs) if self._outside is not None else inputs
        self._asked(inputs)._arrays(inputs)
        return _pieces(self, demanded, inputs, seed)

    def stream(self, frames: Iterable[Mapping[str, Any]], depth: int | None = None) -> Stream:
        """Outputs by name for each of many inputs by name, with several in flight on the model's devices.

        Frames are taken from the iterable while there is room for them and the next result is not there: `depth` are in
        flight at most, None for as many as the parts can hold. Results come in the order of the frames. An input is
        copied when it is taken, so that the iterable may use its arrays again. What is wrong with one frame is raised
        where its result would be, and the next call of `next` goes on. Raises RunError for an artifact for one device.
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
        arrays, results = self._ports.flat([*filled, *inputs[len(filled) :]], None)
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
        with _alone(self._program.lock):
            self._program.opened()
            self._program.check_process()
            if self._program.parts is None:
                self._program.parts = self._open_parts()
            return self._program.parts

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
        arrays, results = self._ports.flat(inputs, out)
        return self._program.again(arrays, results)

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
        return self._program.again_from_state(*self._ports.flat(inputs, None), self._demanded())

    def _carried(self, binding: Binding) -> tuple[Carried, ...]:
        """The states that runs hand on, if the artifact was compiled so (option `carry`, on one device)."""
        return _carried_of(binding, _described(self.manifest, binding))

    def _demanded(self) -> set[str]:
        """Inputs that the model demands something of."""
        return {one["name"] for one in _described(self.manifest, self.binding)["inputs"] if "range" in one}

    def _demand_carried(self) -> None:
        if not self.carried:
            raise RunError(
                "the model was compiled without states for one device. "
                'Fix: compile it with carry, such as {"carry": {"next_h": "h"}}: output next_h becomes input h'
            )

    def at(self, number: int) -> Model:
        """The model at one of its `.bindings`, which counts from 1; it is closed with this one."""
        _check_binding(number, self.bindings)
        if number == self.binding.number:
            return self
        with _alone(self._program.lock):
            self._program.opened()
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
        arrays, _ = self._ports.flat(inputs, None)
        return [np.array(array) for array in _Capacity(self.binding).take(arrays, self._program.state)]

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
        return _drawn(self.binding, _described(self.manifest, self.binding)["inputs"], seed, sizes or {})

    def self_check(self) -> tuple[str, ...]:
        """What of the outputs of the artifact's probe is wrong on this machine, in words; empty where all is right.

        Raises RunError for an artifact without a probe.
        """
        return _probe_faults(self._program, _described(self.manifest, self.binding))

    def poison(self) -> list[Array | None] | None:
        """Fills what the next run may find in memory with bytes of 255, NaN as floats: what no kernel wrote shows then.

        Returns outputs that are filled so, for `out` of `run_flat`; None where its own are, which a run copies.
        """
        return self._program.poison()

    def trace(self, inputs: Mapping[str, Any] | None = None, repeats: int = 30) -> list[tuple[float, float]]:
        """When each task of the running plan begins and ends, in seconds since the run began.

        Medians over `repeats` runs, in the plan's order.

        Reading the clock delays each task by some 50 ns. Raises RunError for a model on a GPU, which does not say it.
        """
        if (chosen := self._asked(inputs)) is not self:
            return chosen.trace(inputs, repeats)
        library = self._program.opened()
        if self.plan.tasks is None:
            raise RunError("this library is too old to be traced. Fix: compile the model again")
        arrays = self._arrays(inputs)
        results = self._ports.results([None] * len(self.outputs), arrays)
        tasks = self.plan.tasks
        begins, ends = ((ctypes.c_double * max(tasks, 1))() for _ in range(2))
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._program.call(arrays, results, library.calls.tw_trace, begins, ends)
            rows.append([*begins[:tasks], *ends[:tasks]])
        medians = _medians(rows)
        return list(zip(medians[:tasks], medians[tasks:], strict=True))

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """For each kernel call: what it is, and its median seconds over `repeats` runs, one lane at a time."""
        if (chosen := self._asked(inputs)) is not self:
            return chosen.profile(inputs, repeats)
        library = self._program.opened()
        arrays = self._arrays(inputs)
        results = self._ports.results([None] * len(self.outputs), arrays)
        calls = self.plan_json()["calls"]
        seconds = (ctypes.c_double * max(len(calls), 1))()
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._program.call(arrays, results, library.calls.tw_profile, seconds)
            rows.append(list(seconds)[: len(calls)])
        medians = _medians(rows)
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
        results = self._ports.results([None] * len(self.outputs), arrays)
        if self.carried:
            run = self._program.again_from_state(arrays, results, self._demanded())
        else:
            run = self._program.again(arrays, results)
        first = run()
        common = {"first_run": first, "load": self.load_seconds, "lanes": self.lanes, "plan": self.plan.number}
        if not self.on_gpu:
            return {**_latency(seconds, run), **common}
        whole = _latency(seconds / 2, run)
        inside = _latency(seconds / 2, self._program.again(*self.resident()))
        return {**inside, **common, "with_copies": whole}

    def close(self) -> None:
        """Frees the instance and its threads; a second call does nothing. Raises RunError while this thread runs it."""
        if hasattr(self, "_program"):
            _alone(self._program.lock)
        for other in getattr(self, "_others", {}).values():
            other.close()
        if hasattr(self, "_program"):
            self._program.close()
        if hasattr(self, "_files") and self._has_own_files:
            self._files.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def _arrays(self, inputs: Mapping[str, Any] | None, strings: _Strings | None = None) -> list[Any]:
        given = self.random_inputs() if inputs is None else inputs
        _check_names("input", given, self.inputs)
        for spec in self.inputs:
            if spec.name not in given:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = strings or self._ports.strings()
        return [self._ports.input(spec, given[spec.name], strings) for spec in self.inputs]
