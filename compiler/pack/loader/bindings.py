"""Shapes that a model runs, and its plan, as the manifest describes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compiler.pack.loader.errors import NoSuchBinding
from compiler.pack.loader.specs import OpenSpec, Size, TensorSpec, _is_open


class Limit(NamedTuple):
    """A number that a run finds in its data, in the program's output `output`: `low` <= number <= `high`.

    Otherwise what the run gives means nothing. `says` is what must hold; of two sizes that must be equal, `sizes` are
    the outputs that hold them.
    """

    says: str
    low: int
    high: int
    output: int
    sizes: tuple[int, ...] = ()


class Binding(NamedTuple):
    """Shapes that a model runs: `number` counts from 1, `dims` are the values of its symbolic dimensions.

    Sizes of outputs may also follow from data. One that leaves dimensions open has their ranges in `dims`, as they were
    asked for, `open` for each of these, and inputs and outputs that are an OpenSpec where they have such an axis. Its
    program takes for each of `open` a scalar (int64) behind the inputs, and gives a scalar for each different number in
    `sizes` behind the outputs; `sizes` has, for each axis of each output, the number of the program's output that holds
    its size, None where it has but one. It also gives a scalar for each of `limits`. `words` are the strings that the
    model holds, each at its number. A model that draws numbers (`random`) takes a state behind the inputs: int64 [2], a
    key and the number of the run.
    """

    number: int
    dims: dict[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    open: tuple[Size, ...] = ()
    sizes: tuple[tuple[int | None, ...], ...] = ()
    words: tuple[str, ...] = ()
    random: bool = False
    limits: tuple[Limit, ...] = ()

    def __str__(self) -> str:
        ranges = {one.name: one for one in self.open}
        shown = [f"{name}={ranges.get(name, value)}" for name, value in self.dims.items()]
        return ", ".join(shown) or "the model's own shapes"

    @property
    def size(self) -> tuple[int, int]:
        """Of several bindings that have the shapes of inputs the one for which this is least is the fastest.

        How many elements its program reads, and how many dimensions are open.
        """
        return sum(math.prod(spec.shape) for spec in self.inputs), len(self.open)

    @property
    def program_inputs(self) -> tuple[TensorSpec, ...]:
        """What the program takes, in order."""
        state = (TensorSpec("random:state", "int64", (2,)),) if self.random else ()
        return (*self.inputs, *state, *(TensorSpec(f"size:{one.name}", "int64", ()) for one in self.open))

    @property
    def program_outputs(self) -> tuple[TensorSpec, ...]:
        """What the program gives, in order."""
        found = {number for axes in self.sizes for number in axes if number is not None}
        found |= {number for limit in self.limits for number in (limit.output, *limit.sizes)}
        return (*self.outputs, *(TensorSpec(f"size:{at}", "int64", ()) for at in range(len(found))))

    @property
    def has_strings(self) -> bool:
        """Whether an input or an output is of strings."""
        return any(spec.dtype == "string" for spec in (*self.inputs, *self.outputs))

    @property
    def coded(self) -> Binding:
        """The same as a C program has it: strings are their numbers, and a state of random numbers is an input."""
        inputs, outputs = (tuple(map(_numbered, specs)) for specs in (self.inputs, self.outputs))
        state = self.program_inputs[len(inputs) : len(inputs) + self.random]
        return self._replace(inputs=(*inputs, *state), outputs=outputs, random=False)

    @property
    def has_sizes(self) -> bool:
        """Whether the program takes sizes, or gives those of its outputs or what must hold."""
        return bool(self.open or self.limits) or any(number is not None for axes in self.sizes for number in axes)

    def misfit(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """Why inputs cannot have these shapes, in order; empty where they can."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if isinstance(spec, OpenSpec):
                if said := spec.misfit(shape):
                    return said
            elif spec.shape != shape:
                return f"input {spec.name!r} has shape {shape}. Fix: give {spec.shape}, or compile for that shape"
        return self._contradiction(shapes)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The size of each open dimension, by name, for inputs that fit."""
        return {name: size for name, (size, _) in self._found(shapes)}

    def _contradiction(self, shapes: Sequence[tuple[int, ...]]) -> str:
        first: dict[str, tuple[int, str]] = {}
        for name, (size, where) in self._found(shapes):
            before, there = first.setdefault(name, (size, where))
            if before != size:
                return (
                    f"dimension {name!r} has two sizes: {before} in {there}, {size} in {where}. "
                    "Fix: give both inputs the same"
                )
        return ""

    def _found(self, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, str]]]:
        """Each open dimension with its size, wherever it is met, and in words where that is."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for at, axis in enumerate(spec.axes):
                if axis is not None:
                    yield axis.name, (shape[at], f"axis {at} of input {spec.name!r}")


def _numbered(spec: TensorSpec) -> TensorSpec:
    """With the numbers of strings for strings."""
    if spec.dtype != "string":
        return spec
    if isinstance(spec, OpenSpec):
        return OpenSpec(spec.name, "int64", spec.shape, spec.axes)
    return TensorSpec(spec.name, "int64", spec.shape)


class PlanSpec(NamedTuple):
    """The plan that runs. `number` counts from 1; `tasks` is None where the library is too old to say.

    `most_handover_s` is what a hand-off between two cores may take for this plan to be the one that is chosen, None
    for any; `handover_s` what it was measured to take when the model was loaded: None where no choice depended on it,
    infinity where two lanes never ran at once.
    """

    number: int
    scheduler: str
    lanes: int
    tasks: int | None
    most_handover_s: float | None
    handover_s: float | None

    def __str__(self) -> str:
        limit = (
            f" where a hand-over takes at most {1e9 * self.most_handover_s:.0f} ns"
            if self.most_handover_s is not None
            else ""
        )
        found = f"; it took {1e9 * self.handover_s:.0f} ns" if self.handover_s is not None else ""
        return f"plan {self.number}: {self.scheduler}, {self.lanes} lanes{limit}{found}"


def _specs(
    described: Sequence[Mapping[str, Any]], axes: Sequence[Sequence[Size | None]] | None = None
) -> tuple[TensorSpec, ...]:
    """Of ports of the manifest; `axes` has the open ones of each."""
    specs = [TensorSpec(port["name"], port["dtype"], tuple(port["shape"])) for port in described]
    if axes is None:
        return tuple(specs)
    pairs = zip(specs, axes, strict=True)
    return tuple(OpenSpec(*spec, tuple(its)) if any(map(_is_open, its)) else spec for spec, its in pairs)


def _binding(number: int, described: Mapping[str, Any]) -> Binding:
    """One that a manifest describes."""
    inputs, outputs, ranges = described["inputs"], described["outputs"], described.get("open")
    words, draws = tuple(described.get("strings", ())), bool(described.get("random"))
    if ranges is None:
        return Binding(number, dict(described["dims"]), _specs(inputs), _specs(outputs), words=words, random=draws)
    sizes = tuple(
        Size(one["name"], one["min"], one["opt"], one["max"], one.get("step", 1)) for one in ranges["dimensions"]
    )
    of_inputs = [[None if number is None else sizes[number] for number in axes] for axes in ranges["inputs"]]
    of_outputs = [
        [None if number is None else Size("", 0, most, most) for number, most in zip(axes, port["shape"], strict=True)]
        for axes, port in zip(ranges["outputs"], outputs, strict=True)
    ]
    numbers = tuple(map(tuple, ranges["outputs"]))
    limits = tuple(
        Limit(one["says"], one["min"], one["max"], one["output"], tuple(one.get("sizes", ())))
        for one in ranges.get("limits", ())
    )
    specs = _specs(inputs, of_inputs), _specs(outputs, of_outputs)
    return Binding(number, dict(described["dims"]), *specs, sizes, numbers, words, draws, limits)


def _bindings(manifest: Mapping[str, Any]) -> tuple[Binding, ...]:
    """Those that a manifest lists; one for an artifact that was compiled for one."""
    listed = manifest.get("bindings") or ({"dims": {}, **manifest},)
    return tuple(_binding(number, one) for number, one in enumerate(listed, 1))


def _check_binding(number: int, bindings: Sequence[Binding]) -> None:
    if not 1 <= number <= len(bindings):
        raise NoSuchBinding(f"the artifact has no binding {number}", f"give 1 to {len(bindings)}")


MOST_LISTED = 8
"""Bindings that a message names."""


def _listed(bindings: Sequence[Binding]) -> str:
    named = " or ".join(f"({one})" for one in bindings[:MOST_LISTED])
    return named + (f" or {len(bindings) - MOST_LISTED} others" if len(bindings) > MOST_LISTED else "")


def _described(manifest: Mapping[str, Any], binding: Binding) -> Mapping[str, Any]:
    """What a manifest says of one of its bindings."""
    listed: Sequence[Mapping[str, Any]] = manifest.get("bindings") or (manifest,)
    return listed[binding.number - 1]
