"""Correcting: options under which a model's inputs can be bound, as near as can be to those that were given.

What names nothing in the model is dropped, what contradicts it gives way, and a dimension left open gets a usual
value:

    a name with "batch" in it; N, B, BS as axis 0               1
    a name of a length in time (seq, len, token, time, step)    128
    a name of sound (sample, audio, wave), or the last axis
    of one or two of an input with such a name                  16000
    axis 1 of a recurrent state (layers, batch, features)       1
    axis 1 of four (NCHW)                                       3
    the other axes after the first of four or more              the other ones of that input, else 224
    axis 1 of two or three                                      128
    anything else                                               1

Before these, an axis takes the number that another input of the same rank states for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.contract import CompileOptions, InputSpec
from compiler.frontend.binding.bind import separated
from compiler.frontend.reading.model import Input, key_of

BATCH, LENGTH, SOUND, CHANNELS, PIXELS = 1, 128, 16000, 3, 224
BATCH_NAMES = frozenset(("n", "b", "bs"))
LENGTH_PARTS = ("seq", "len", "token", "time", "step")
SOUND_PARTS = ("sample", "audio", "wave")
COUNTED_PARTS = (*LENGTH_PARTS, "node", "edge", "atom", "point", "vert", "frame")
"""Of the names of a first dimension that is no batch."""
SOUNDS = ("audio", "wave", "speech", "sound", "pcm")
"""Parts of the names of inputs that are sound."""

Shape = tuple[int | str | None, ...]


def correct(inputs: Sequence[Input], options: CompileOptions) -> CompileOptions:
    """The options with every dimension of every input bound; equal to those given where nothing was amiss."""
    symbols = {dim for entry in inputs for dim in entry.shape or () if isinstance(dim, str)}
    inputs, _ = separated(inputs, options)
    dims = {name: value for name, value in options.binding.items() if name in symbols}
    specs = {entry.name: options.inputs[entry.name] for entry in inputs if entry.name in options.inputs}
    known = dict(dims)
    for entry in inputs:
        if entry.name in specs:
            specs[entry.name] = _agreeing(entry, specs[entry.name], known)
            known |= named_by_shapes([entry], specs)
    known |= _open_batches(inputs, known)
    for entry in inputs:
        spec = specs.get(entry.name, InputSpec())
        if spec.shape is not None or (spec.value is not None and entry.shape is None):
            continue
        shape = _usual_rank(entry) if entry.shape is None else entry.shape
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and dim not in known:
                known[dim] = dims[dim] = BATCH if spec.value is not None else usual(entry.name, shape, axis, inputs)
        if entry.shape is None or None in shape[1:] or (len(shape) == 1 and shape[0] is None):
            whole = tuple(_number(entry.name, shape, axis, known, inputs) for axis in range(len(shape)))
            if spec.value is None:
                specs[entry.name] = replace(spec, shape=whole)
    return replace(
        options, inputs=specs, dims=dims | {name: one for name, one in options.open_sizes.items() if name in dims}
    )


def open_inputs(inputs: Sequence[Input], options: CompileOptions) -> frozenset[str]:
    """Names of the inputs of which the options leave a dimension, or the rank, open."""
    inputs, _ = separated(inputs, options)
    specs = {entry.name: options.inputs.get(entry.name, InputSpec()) for entry in inputs}
    known = {**options.binding, **named_by_shapes(inputs, specs), **_open_batches(inputs, options.binding)}

    def is_open(entry: Input) -> bool:
        if specs[entry.name] != InputSpec():
            return False
        if entry.shape is None:
            return True
        unnamed = entry.shape[1:] if len(entry.shape) >= 2 else entry.shape
        return None in unnamed or any(isinstance(dim, str) and dim not in known for dim in entry.shape)

    return frozenset(entry.name for entry in inputs if is_open(entry))


def _agreeing(entry: Input, spec: InputSpec, dims: dict[str, int]) -> InputSpec:
    """The spec without a shape that contradicts the model or a dimension that is given.

    The dimension is given by itself or by an input before. Names of several sizes are `separated` before.
    """
    if spec.shape is None or entry.shape is None:
        return spec
    fits = len(spec.shape) == len(entry.shape) and all(
        given == (dims.get(dim, given) if isinstance(dim, str) else given if dim is None else dim)
        for given, dim in zip(spec.shape, entry.shape, strict=True)
    )
    return spec if fits else replace(spec, shape=None)


def named_by_shapes(inputs: Sequence[Input], specs: Mapping[str, InputSpec]) -> dict[str, int]:
    """What whole shapes bind, by name of a dimension: its own, or `key_of` one without a name."""
    return {
        key_of(entry, axis): given
        for entry in inputs
        if entry.shape is not None
        for axis, given in enumerate((specs.get(entry.name, InputSpec()).shape or ())[: len(entry.shape)])
        if not isinstance(entry.shape[axis], int)
    }


def _open_batches(inputs: Sequence[Input], dims: Mapping[str, int]) -> dict[str, int]:
    """Named first dimensions, which binding sets to 1 by itself."""
    first = {entry.shape[0] for entry in inputs if entry.shape is not None and len(entry.shape) >= 2}
    return {dim: BATCH for dim in first if isinstance(dim, str) and dim not in dims}


def _usual_rank(entry: Input) -> Shape:
    """A shape for an input without one: an image batch for floats, a batch of sequences for integers."""
    is_image = entry.dtype is not None and entry.dtype.is_float
    return (None, None, None, None) if is_image else (None, None)


def _number(input_name: str, shape: Shape, axis: int, known: Mapping[str, int], inputs: Sequence[Input]) -> int:
    dim = shape[axis]
    if isinstance(dim, str):
        return known[dim]
    return usual(input_name, shape, axis, inputs) if dim is None else dim


def usual(input_name: str, shape: Shape, axis: int, inputs: Sequence[Input]) -> int:
    """A usual value for an open dimension of an input, by the table above."""
    dim, rank = shape[axis], len(shape)
    name = dim.lower() if isinstance(dim, str) else ""
    if "batch" in name or (name in BATCH_NAMES and axis == 0):
        return BATCH
    if any(part in name for part in LENGTH_PARTS):
        return LENGTH
    if any(part in name for part in SOUND_PARTS):
        return SOUND
    if rank <= 2 and axis == rank - 1 and any(part in input_name.lower() for part in SOUNDS):
        return SOUND
    if axis == 0:
        return 1
    for other in inputs:
        if other.shape is not None and len(other.shape) == rank and isinstance(stated := other.shape[axis], int):
            return stated
    if is_batch_of_state(shape, axis):
        return BATCH
    if rank >= 4:
        is_last = isinstance(shape[-1], int) and shape[-1] in (1, 3, 4)
        if axis == 1 and not is_last:
            return CHANNELS
        around = [size for size in (shape[1:-1] if is_last else shape[2:]) if isinstance(size, int)]
        return around[0] if around else PIXELS
    return LENGTH if axis == 1 else 1


def is_counted(dim: int | str | None) -> bool:
    """Whether a dimension has a name of what one sample has many of, such as the nodes and edges of a graph."""
    name = dim.lower() if isinstance(dim, str) else ""
    return "batch" not in name and any(part in name for part in COUNTED_PARTS)


def is_batch_of_state(shape: Shape, axis: int) -> bool:
    """Whether an axis without a name is the batch of a recurrent state: layers and features are stated around it."""
    first, middle, last = shape if len(shape) == 3 else (None, None, None)
    return axis == 1 and middle is None and isinstance(first, int) and first > 1 and isinstance(last, int)
