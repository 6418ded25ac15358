"""Dimensions that nobody binds: each gets a range from the least size that the model takes to a usual greatest one.

    a length (see `correct`)      up to 512, most usually 128
    sound                         up to 48000 samples, most usually 16000
    positions of images           up to 640, most usually 224 or the other side
    anything else                 up to 64, most usually what `correct` says

A first dimension with others behind it is a batch, which binding sets to 1, unless its name is that of a length or
counts something (nodes, edges, points, frames): then it is a length, where the model takes it as one. A batch is also
that of a recurrent state. Where a model takes no such size, as a filter longer than a usual length does not, all grow
until it takes them, or else a side of its images is fixed to a usual number: recognisers of text have a height of their
own. Where it cannot be compiled for a range, the dimension is bound to its most usual size.

A decoder that carries its caches has sizes of its own (`texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

from compiler.contract import CompileOptions, DimRange, InputSpec
from compiler.errors import ModelTooLarge, TilewrightError, UnsupportedModel
from compiler.frontend.binding.bind import Bound, separated
from compiler.frontend.binding.correct import (
    BATCH,
    LENGTH,
    SOUND,
    is_batch_of_state,
    is_counted,
    named_by_shapes,
    usual,
)
from compiler.frontend.binding.texts import sizes_of_texts
from compiler.frontend.load import bound_graph
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Input, Model, key_of, quoted
from compiler.frontend.reading.read import ModelFile, read
from compiler.frontend.wrapped import unwrapped
from compiler.ops.operator import Operator

MOST = {LENGTH: 512, SOUND: 48000}
"""The greatest size of a range, by the most usual one."""
MOST_OF_IMAGES, MOST_OTHERWISE = 640, 64
COUNT, MOST_COUNTED = 1024, (16384, 4096, 1024, 256, 64)
"""Of an axis behind others that is no length, side of an image or sound, such as that of raw boxes: the most usual
size, and the greatest ones, of which the first is taken for which memory suffices."""
ROOM = 1 << 26
"""Elements of all values of a model together at its greatest sizes, for such an axis."""
SIDES = (32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 299, 320, 384, 416, 448, 480, 512, 640)
"""That images are scaled to where a network takes one size alone."""
LARGEST = 1 << 16
"""That sizes grow to in search of one that a model takes."""
BEYOND = 4
"""Times the least size, of what had to grow: the greatest one of its range."""


class Taken(Enum):
    """Whether a model can be bound to sizes: with a branch left out that does not take them, or wholly."""

    NOT, PARTLY, WHOLLY = range(3)


def bind_what_is_open(
    model: Path | bytes | ModelFile,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    data: Mapping[str, Path] | None = None,
    limits: Limits | None = None,
) -> tuple[CompileOptions, tuple[str, ...]]:
    """Options with a range for each dimension that those given leave open, and what the user should know of it.

    Options that bind everything, or bind several times, come back as they are, but for the room of caches; so do those
    for texts that share an axis, and for a file that cannot be read, which `load` says best.
    """
    if options.ragged or (isinstance(options.dims, tuple) and not options.carry):
        return options, ()
    limits = limits or Limits()
    try:
        content = read(model, limits, data)
    except TilewrightError:
        return options, ()
    content, plain = unwrapped(content, options)
    found, notices = _bound(content, plain, operators, limits)
    return (options if found is plain else replace(options, dims=found.dims)), notices


def _bound(
    content: Model, options: CompileOptions, operators: Mapping[str, Operator], limits: Limits
) -> tuple[CompileOptions, tuple[str, ...]]:
    """As `bind_what_is_open`, of a model that was read, whose inputs are tensors."""
    if (texts := sizes_of_texts(content, options)) is not None:
        return replace(options, dims=texts[0] if len(texts[0]) > 1 else texts[0][0]), (texts[1],)
    if isinstance(options.dims, tuple):
        return options, ()
    found = _ranges(content.body.inputs, options)
    if not found:
        return options, ()
    takes = partial(_taken, content, options, operators, limits)
    no: UnsupportedModel | None = None
    firsts = _firsts(content.body.inputs)
    others = {name: one for name, one in found.items() if name not in firsts}
    for ranges in _choices(takes, found, others):
        least = _least(takes, ranges)
        grown = {name: _grown(one, least or 1) for name, one in ranges.items()}
        grown = _with_room(content, options, grown, operators, limits)
        try:
            opened = _opened(
                content, options, grown, least or max(one.opt for one in grown.values()), operators, limits
            )
            return _with(options, opened), _notices(opened)
        except UnsupportedModel as why:
            no = no or why
        except TilewrightError:  # options that name what is not there: as given, they are refused for that
            return options, ()
    if not others:
        return options, (f"first dimensions are bound to 1; for a range {no}",)
    sizes = {name: one.opt for name, one in grown.items()}
    bound = ", ".join(f"{quoted(name)} to {size}" for name, size in sizes.items())
    return _with(options, sizes), (f"dimensions that the options leave open were bound: {bound}; for a range {no}",)


def _with_room(
    model: Model,
    options: CompileOptions,
    ranges: dict[str, DimRange],
    operators: Mapping[str, Operator],
    limits: Limits,
) -> dict[str, DimRange]:
    """The ranges with those that count something ending where memory suffices for all values at the greatest sizes."""
    found = ranges
    for most in MOST_COUNTED if any(one.high == MOST_COUNTED[0] for one in ranges.values()) else ():
        found = {
            name: DimRange(one.low, min(one.opt, most), most) if one.high == MOST_COUNTED[0] else one
            for name, one in ranges.items()
        }
        at_most = {name: one.high for name, one in found.items()}
        try:
            _, inferred = bound_graph(model, _with(options, at_most), operators, limits)
        except ModelTooLarge:
            continue
        except TilewrightError:  # sizes that the model takes are found later
            break
        graph = inferred.graph
        if sum(value.type.elements for id, value in graph.values.items() if id not in graph.constants) <= ROOM:
            break
    return found


def _choices(
    takes: Callable[[Mapping[str, int]], Taken], ranges: dict[str, DimRange], others: dict[str, DimRange]
) -> Iterator[dict[str, DimRange]]:
    """The ranges, then those of other than first dimensions, then those with a fixed side: what makes a difference."""
    yield ranges
    if others and others != ranges:
        yield others
    if others and (fixed := _with_a_fixed_side(takes, others)) != others:
        yield fixed


def _opened(
    model: Model,
    options: CompileOptions,
    ranges: Mapping[str, DimRange],
    least: int,
    operators: Mapping[str, Operator],
    limits: Limits,
) -> dict[str, DimRange]:
    """The ranges from the least power of two on, from `least`, for which the model can be compiled.

    Raises UnsupportedModel where there is none, and other errors for options that name what is not there.
    """
    while True:
        found = {name: replace(one, low=min(max(one.low, least), one.opt)) for name, one in ranges.items()}
        try:
            bound, _ = bound_graph(model, _with(options, found).bindings[-1], operators, limits)
            return found | _narrowed(model, bound, found)
        except UnsupportedModel:
            least *= 2
            if least >= max(one.opt for one in ranges.values()):
                raise


def _narrowed(model: Model, bound: Bound, ranges: Mapping[str, DimRange]) -> dict[str, DimRange]:
    """Those of the ranges that the model turned out to take a part of, if that is more than one size."""
    sizes = {
        key_of(entry, axis): size
        for entry in model.body.inputs
        for axis, size in enumerate(bound.open.get(entry.name, ()))
        if size is not None and size.low < size.high and key_of(entry, axis) in ranges
    }
    found = {}
    for name, size in sizes.items():
        low, high = size.low * size.step, size.high * size.step
        found[name] = DimRange(low, min(max(ranges[name].opt, low), high), high)
    return found


def _notices(ranges: Mapping[str, DimRange]) -> tuple[str, ...]:
    listed = ", ".join(
        f"{quoted(name)} {one}, tuned for {one.opt}" for name, one in ranges.items() if not _is_fixed(one)
    )
    example = {name: one.to_json() for name, one in ranges.items() if not _is_fixed(one)}
    sides = ", ".join(f"{quoted(name)} to {one.opt}" for name, one in ranges.items() if one.low == one.high > 1)
    stated = f"dimensions that the options leave open have ranges: {listed}; for others give dims as {example}"
    bound = f"of the usual sides of images the model takes one alone: bound {sides}"
    return (*([stated] if listed else ()), *([bound] if sides else ()))


def _with(options: CompileOptions, dims: Mapping[str, int | DimRange]) -> CompileOptions:
    sizes = {name: one.opt if isinstance(one, DimRange) and _is_fixed(one) else one for name, one in dims.items()}
    return replace(options, dims={**options.binding, **options.open_sizes, **sizes})


def _grown(one: DimRange, least: int) -> DimRange:
    """A range of which the most usual size is no smaller than the least that a model takes."""
    if least <= one.opt or _is_fixed(one):
        return one
    return DimRange(1, least, max(one.high, BEYOND * least))


def _ranges(inputs: Sequence[Input], options: CompileOptions) -> dict[str, DimRange]:
    """By name, the dimensions that options leave open, but for batches."""
    inputs, _ = separated(inputs, options)
    known = {*options.binding, *named_by_shapes(inputs, options.inputs)}
    found: dict[str, DimRange] = {}
    for entry in inputs:
        spec = options.inputs.get(entry.name, InputSpec())
        if entry.shape is None or spec.shape is not None or spec.value is not None:
            continue
        for axis, dim in enumerate(entry.shape):
            name = key_of(entry, axis)
            is_first = axis == 0 and len(entry.shape) >= 2
            if isinstance(dim, int) or name in known or (is_first and not is_counted(dim)):
                continue
            most_usual = LENGTH if is_first else usual(entry.name, entry.shape, axis, inputs)
            if most_usual == BATCH and axis == 0:
                most_usual = min(LENGTH, MOST_OTHERWISE)
            most = MOST_OF_IMAGES if len(entry.shape) >= 4 else MOST.get(most_usual, MOST_OTHERWISE)
            is_batch = is_batch_of_state(entry.shape, axis)
            if most_usual == BATCH and axis > 0 and not is_batch and "batch" not in name.lower():
                most_usual, most = COUNT, MOST_COUNTED[0]
            found.setdefault(name, DimRange(1, 1, 1) if is_batch else DimRange(1, most_usual, max(most, most_usual)))
    return {name: one for name, one in found.items() if is_counted(name) or name not in _firsts(inputs)}


def _firsts(inputs: Sequence[Input]) -> set[str]:
    """Names of first dimensions with others behind them."""
    return {key_of(entry, 0) for entry in inputs if entry.shape is not None and len(entry.shape) >= 2}


def _is_fixed(one: DimRange) -> bool:
    return one.low == one.high


def _taken(
    model: Model,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    limits: Limits,
    sizes: Mapping[str, int],
) -> Taken:
    """Whether the model takes these sizes."""
    try:
        _, found = bound_graph(model, _with(options, sizes), operators, limits)
    except TilewrightError:
        return Taken.NOT
    return Taken.PARTLY if found.is_partial else Taken.WHOLLY


def _least(takes: Callable[[Mapping[str, int]], Taken], ranges: Mapping[str, DimRange]) -> int | None:
    """The least power of two at which the model can be bound when every dimension has it, up to the most usual one.

    If there is none, the least at which all that are smaller have grown to it. One at which a branch is left out
    counts only where no usual size takes all of them.
    """
    most = max(one.opt for one in ranges.values())
    powers = [1 << at for at in range(LARGEST.bit_length())]
    partly: int | None = None
    for size in (*(one for one in powers if one < most), most, *(one for one in powers if one > most)):
        if partly is not None and size > BEYOND * most:
            break
        taken = takes({name: _at(one, size, most) for name, one in ranges.items()})
        if taken is Taken.WHOLLY:
            return size
        if taken is Taken.PARTLY and partly is None:
            partly = size
    return partly


def _at(one: DimRange, size: int, most: int) -> int:
    """What a dimension is where all are to have a size: no more than their most usual one, above `most` no less."""
    if _is_fixed(one):
        return one.opt
    return min(size, one.opt) if size <= most else _grown(one, size).opt


def _with_a_fixed_side(
    takes: Callable[[Mapping[str, int]], Taken], ranges: Mapping[str, DimRange]
) -> dict[str, DimRange]:
    """The ranges with one side of images fixed, so that the model takes the most usual sizes of all others.

    As they are where no such side is found, or none is needed.
    """
    sizes = {name: one.opt for name, one in ranges.items()}
    if takes(sizes) is not Taken.NOT:
        return {**ranges}
    for name, one in ranges.items():
        for side in SIDES if one.high == MOST_OF_IMAGES else ():
            if takes({**sizes, name: side}) is not Taken.NOT:
                return {**ranges, name: DimRange(side, side, side)}
    return {**ranges}
