"""An artifact's probe: inputs made by rule, and bands that its outputs have on a machine that computes right.

Every number of a band but `values` moves by no more than the element that moves furthest: the least, the greatest and
the means of segments. So outputs that are all `within` of the reference are in their bands, whatever the order of sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.checked import _is_noted, _note, _state
from compiler.pack.loader.drawing import _drawn, _Stable
from compiler.pack.loader.errors import InputError, RunError, WrongMachine
from compiler.pack.loader.files import _PROGRAMS, _Files
from compiler.pack.loader.profiles import _CPUINFO
from compiler.pack.loader.program import _Program
from compiler.pack.loader.specs import Array

_CPUINFO_BYTES = 4096
"""Of /proc/cpuinfo, which hold what it says of the first core: on machines of many it takes milliseconds to read."""
_CPU_KEYS = {"vendor_id", "cpu family", "model", "model name", "stepping", "microcode"}
_CPU_KEYS |= {"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"}
_SEGMENTS = 8
"""Of an output in row-major order, of which a band has the means, at most."""


def _probe_inputs(binding: Binding, described: Sequence[Mapping[str, Any]], probe: Mapping[str, Any]) -> list[Array]:
    """What the program of a binding takes, but for sizes: strings are their numbers, a random state comes last."""
    own = probe["inputs"]
    known = {one["name"]: one for one in described}
    ruled = [{"name": spec.name, **known.get(spec.name, {}), **own.get(spec.name, {})} for spec in binding.coded.inputs]
    seed = probe["seed"]
    return [*_drawn(binding.coded, ruled, seed, probe.get("sizes", {}), _Stable(seed)).values()]


def _places(number: int, size: int, count: int) -> Array:
    """Of output `number`, where the `values` of its band are: all places where there are no more."""
    if size <= count:
        return np.arange(size)
    return _Stable(number).integers(0, size, (count,))


def _measures(values: Array) -> tuple[int, float, float, list[float]]:
    """Of floats in a row: how many are finite; the least and the greatest of these, and their means by segment."""
    finite = np.isfinite(values)
    count = int(finite.sum())
    if not count:
        return 0, 0.0, 0.0, []
    kept = values if count == values.size else values[finite]
    many = min(_SEGMENTS, count)
    ends = [count * at // many for at in range(many + 1)]
    means = [float(kept[first:end].mean(dtype=np.float64)) for first, end in pairwise(ends)]
    return count, float(kept.min()), float(kept.max()), means


def _floats(array: Array, dtype: str) -> Array:
    """An output's elements in a row, as numbers."""
    flat = array.reshape(-1)
    if dtype == "bfloat16":
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat


def _fault(name: str, number: int, band: Mapping[str, Any], array: Array, dtype: str) -> str:
    """The first thing in an output that is not in its band, in words; empty where there is none."""
    flat = _floats(np.ascontiguousarray(array), dtype)
    if flat.size != band["size"]:
        return f"output {name!r} has {flat.size} elements, and {band['size']} are right"
    places = _places(number, flat.size, len(band["values"]))
    taken = [(int(at), flat[at].item(), want) for at, want in zip(places, band["values"], strict=True)]
    if "within" not in band:
        wrong = [f"element {at} is {got}, and {want} is right" for at, got, want in taken if got != want]
        return f"output {name!r}: {wrong[0]}" if len(wrong) > band["unequal"] else ""
    within = band["within"]
    finite, least, most, means = _measures(flat)
    if finite != band.get("finite", flat.size):
        return f"output {name!r} has {flat.size - finite} elements that are NaN or infinite"
    numbers = [("its least element", least, band["least"]), ("its greatest element", most, band["greatest"])]
    numbers += [
        (f"the mean of segment {at} of {len(means)}", *two)
        for at, two in enumerate(zip(means, band["means"], strict=True), 1)
    ]
    numbers += [(f"element {at}", got, want) for at, got, want in taken if want is not None]
    for what, got, want in numbers:
        if not abs(got - want) <= within:
            return f"output {name!r}: {what} is {got:.9g}, and {want:.9g} within {within:.2g} is right"
    return ""


def _probe_faults(program: _Program, described: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong of the outputs of one run of the probe, in words; `described`: the binding in the manifest.

    Raises RunError for an artifact without a probe.
    """
    if "probe" not in described:
        raise RunError("the artifact has no probe. Fix: compile the model again")
    probe, binding = described["probe"], program.binding
    arrays = _probe_inputs(binding, described["inputs"], probe)
    seed = int(arrays.pop()[0]) if binding.random else None
    results = program.ports.results([None] * len(binding.outputs), arrays)
    try:
        found = program.call(arrays, results, seed=seed)
    except (InputError, RunError) as error:
        return (f"the run fails: {error}",)
    bands = probe["outputs"]
    each = [
        _fault(spec.name, number, bands[number], array, spec.dtype)
        for number, (spec, array) in enumerate(zip(binding.coded.outputs, found, strict=True))
        if number < len(bands) and bands[number] is not None
    ]
    return tuple(filter(None, each))


def _processor() -> str:
    """What tells this processor and its microcode from others, as far as the system says it."""
    try:
        with open(_CPUINFO) as file:
            first = file.read(_CPUINFO_BYTES).partition("\n\n")[0]
    except OSError:
        first = ""
    pairs = (line.partition(":")[::2] for line in first.splitlines())
    return ", ".join(f"{key.strip()} {value.strip()}" for key, value in pairs if key.strip() in _CPU_KEYS)


def _demand_right(program: _Program, files: _Files, described: Mapping[str, Any], way: tuple[Any, ...]) -> bool:
    """Runs the probe, if there is one and `verify` asks for it; without that once for each file, machine and `way`.

    Returns whether it ran. Raises WrongMachine, which names the outputs that are wrong.
    """
    if "probe" not in described or files.verify is False:
        return False
    held = files.manifest["files"].items()
    digests = sorted(one["sha256"] for name, one in held if name.endswith((*_PROGRAMS, ".bin")))
    part = repr(("probe", described["probe"], digests, way, _processor()))
    state = None if files.verify else _state(files.locate("weights.bin")[0], part)
    if state is not None and _is_noted(state):
        return False
    if faults := _probe_faults(program, described):
        again = "and in a second run too" if _probe_faults(program, described) else "and not in a second run"
        raise WrongMachine(
            f"this machine computes {files.path} wrong, {again}: {'; '.join(faults)}",
            "run it on another machine: if it is right there, check the memory and the processor of this one; if it is "
            "wrong there too, compile the model again. verify=False loads it without this check",
        )
    if state is not None:
        _note(state)
    return True
