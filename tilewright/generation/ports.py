"""Which inputs and outputs of a decoder are its tokens, mask, positions, caches and logits, found by their names.

What becomes of a cache in the next step an artifact with states says itself; of others the names say it too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import UsageError
from tilewright.loading import Model, TensorSpec

IDS = ("input_ids", "decoder_input_ids", "ids", "tokens")
MASKS = ("attention_mask", "decoder_attention_mask")
POSITIONS = ("position_ids", "cache_position")
LAST = ("seqlens_k",)
"""The position of the last token."""
TOTAL = ("total_sequence_length", "total_seq_len")
"""How many tokens there are with the new ones."""
LOGITS = ("logits", "lm_logits")
PAST = "past"
"""In the name of a cache that is an input."""
CACHE = "cache"
"""In that of one of which the artifact says what becomes of it."""
PRESENTS = (("past_key_values", "present"), ("past_key_values", "present_key_values"), ("past", "present"))
"""What of that name is another in the output that the cache becomes."""
ALONG = -2
"""The axis of a cache along which its tokens lie: [batch, heads, tokens, width]."""
EXPORT = "export the decoder with its caches as inputs past_key_values.N.key and outputs present.N.key"


@dataclass(frozen=True)
class Cache:
    """An input, and the output that is given to it in the next step.

    past    the input at the binding that takes most sizes
    shape   of the input with room for `capacity` tokens; of one that grows, while it is empty
    grows   whether each step appends to it; else it has its capacity from the beginning
    kept    whether the artifact keeps it in a state
    """

    past: TensorSpec
    present: str
    shape: tuple[int, ...]
    grows: bool
    kept: bool = False


@dataclass(frozen=True)
class Ports:
    """What a decoder takes and gives.

    ids       of the tokens of a step: [1, S] or [S]
    mask      of all tokens so far, None where there is no such input
    room      tokens that the mask has place for; None where it grows with the text
    others    inputs that follow from the position: of each the spec, and which of POSITIONS, LAST and TOTAL it is in
    logits    the name of the output [..., words]
    words     size of the vocabulary
    caches    as many as there are
    steps     for each binding the least and the greatest number of tokens of a step, and what it is a multiple of
    capacity  tokens of a text
    """

    ids: TensorSpec
    mask: TensorSpec | None
    room: int | None
    others: tuple[tuple[TensorSpec, tuple[str, ...]], ...]
    logits: str
    words: int
    caches: tuple[Cache, ...]
    steps: tuple[tuple[int, int, int], ...]
    capacity: int

    def step(self, left: int) -> int:
        """Tokens of the next step, where so many are left: the most that a binding takes, and at least 1."""
        return max(
            min(high, left) - min(high, left) % by for low, high, by in self.steps if min(high, left) >= max(low, by)
        )

    def wider(self, left: int, most: int) -> int | None:
        """The least number of tokens from `left` to `most` that a binding takes; None without one."""
        sizes = (max(low, -(-left // by) * by) for low, _, by in self.steps)
        fit = [size for size, (_, high, _) in zip(sizes, self.steps, strict=True) if size <= min(high, most)]
        return min(fit, default=None)


def ports(model: Model) -> Ports:
    """The ports of a decoder. Raises `UsageError`, with what is missing, for what is none."""
    names = {spec.name: spec for spec in model.inputs}
    ids = next((names[name] for name in IDS if name in names), None)
    if ids is None:
        shown = ", ".join(repr(name) for name in names)
        raise UsageError(
            f"the model has no input of tokens: it takes {shown}",
            fix=f"give a decoder whose input is called {' or '.join(IDS)}",
        )
    if ids.shape[:-1] not in ((), (1,)) and _low(ids, 0) > 1:
        raise UsageError(f"the model takes {ids.shape[0]} texts at once", fix="compile it for a batch of 1")
    every = list(_bindings(model))
    carried = getattr(model, "carried", ())
    lengths = lengths_of(model)
    pairs = {one.input.name: one.output.name for one in carried if one.input.name not in lengths}
    caches = tuple(
        _cache(spec, every, pairs) for spec in model.inputs if spec.name not in lengths and _is_cache(spec.name, pairs)
    )
    if not caches:
        raise UsageError("the model keeps no caches: no input has 'past' in its name", fix=EXPORT)
    known = {ids.name, *MASKS, *(cache.past.name for cache in caches), *lengths, *_NUMBERS}
    if strange := [name for name in names if name not in known]:
        raise UsageError(
            f"it is unknown what inputs {', '.join(map(repr, strange))} are to be given",
            fix="run the model by tilewright.load(...).run, or export a decoder without them",
        )
    mask = next((names[name] for name in MASKS if name in names), None)
    room = None if mask is None or _is_open(every, mask.name, -1) or caches[0].grows else mask.shape[-1]
    logits = _logits(model)
    steps = tuple(sorted({_steps(inputs, ids.name) for inputs, _ in every}))
    _demand_single(steps)
    capacity = min(_capacity(cache, every) for cache in caches)
    others = tuple((names[name], kind) for kind in (POSITIONS, LAST, TOTAL) for name in kind if name in names)
    return Ports(ids, mask, room, others, logits.name, logits.shape[-1], caches, steps, min(capacity, room or capacity))


def lengths_of(model: Model) -> set[str]:
    """Inputs that hold how many rows of caches count, of an artifact to whose states runs append."""
    return {one.input.name for one in getattr(model, "carried", ()) if getattr(one, "rows", 0)}


def exact(model: Model, ports: Ports, count: int) -> Model | None:
    """The model at the binding whose steps have `count` tokens, and that leaves no size open; None without one."""
    for one in getattr(model, "bindings", ()):
        sizes = [_range(spec, axis)[:2] for spec in one.inputs for axis in range(len(spec.shape))]
        if all(low == high for low, high in sizes) and _steps(one.inputs, ports.ids.name)[0] == count:
            return model.at(one.number)
    return None


_NUMBERS = frozenset((*POSITIONS, *LAST, *TOTAL))
_Binding = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]


def _bindings(model: Model) -> Iterator[_Binding]:
    """Inputs and outputs of each binding."""
    for one in getattr(model, "bindings", None) or (model,):
        yield one.inputs, one.outputs


def _range(spec: TensorSpec, axis: int) -> tuple[int, int, int]:
    """The least and the greatest size of an axis, and what it is a multiple of."""
    axes: Sequence[Any] = getattr(spec, "axes", ())
    if axes and axes[axis] is not None:
        return axes[axis].low, axes[axis].high, axes[axis].step
    return spec.shape[axis], spec.shape[axis], 1


def _low(spec: TensorSpec, axis: int) -> int:
    return _range(spec, axis)[0]


def _steps(inputs: Sequence[TensorSpec], ids: str) -> tuple[int, int, int]:
    return next(_range(spec, -1) for spec in inputs if spec.name == ids)


def _is_open(every: Sequence[_Binding], name: str, axis: int) -> bool:
    """Whether an input may have several sizes along an axis."""
    found = {_range(spec, axis)[:2] for inputs, _ in every for spec in inputs if spec.name == name}
    return len(found) > 1 or any(low != high for low, high in found)


def _demand_single(steps: Sequence[tuple[int, int, int]]) -> None:
    """Raises `UsageError` unless a step may have one token."""
    if not any(low <= 1 and by == 1 for low, _, by in steps):
        said = ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high, _ in steps)
        raise UsageError(
            f"a step of the model has {said} tokens, and text comes one by one",
            fix="compile for both lengths, such as --dim sequence_length=1,64",
        )


def _logits(model: Model) -> TensorSpec:
    outputs = {spec.name: spec for spec in model.outputs}
    found = next((outputs[name] for name in LOGITS if name in outputs), None)
    if found is None:
        shown = ", ".join(repr(name) for name in outputs if "present" not in name)
        raise UsageError(
            f"the model gives no logits: beside its caches it gives {shown or 'nothing'}",
            fix=f"export the decoder with an output called {LOGITS[0]}",
        )
    return found


def _is_cache(name: str, pairs: Container[str]) -> bool:
    return name not in _NUMBERS and (PAST in name or (CACHE in name and name in pairs))


def _cache(first: TensorSpec, every: Sequence[_Binding], pairs: Mapping[str, str]) -> Cache:
    """`pairs` are those that the artifact says: by name of an input the output that it is in the next step."""
    name = first.name
    named = [name.replace(old, new) for old, new in PRESENTS if old in name]
    candidates = [pairs[name]] if name in pairs else named
    given = {spec.name for spec in every[0][1]}
    present = next((one for one in candidates if one in given and one != name), None)
    if present is None:
        raise UsageError(f"the model gives no output {candidates[0]!r}, which input {name!r} is to become", fix=EXPORT)
    specs = [(_named(inputs, name), _named(outputs, present)) for inputs, outputs in every]
    if len(first.shape) < 2:
        raise UsageError(f"input {name!r} has shape {list(first.shape)}, and is no cache of tokens", fix=EXPORT)
    grows = _is_open(every, name, ALONG) or any(after.shape != past.shape for past, after in specs)
    past = max((past for past, _ in specs), key=lambda spec: _range(spec, ALONG)[1] - _low(spec, ALONG))
    least = _low(past, ALONG)
    if grows and least:
        raise UsageError(
            f"cache {name!r} has {least} tokens or more, and a text begins with none",
            fix="compile for a range of lengths from 0, such as --dim past_sequence_length=0:1023",
        )
    shape = tuple(_low(past, axis) for axis in range(len(past.shape)))
    return Cache(past, present, shape, grows, kept=name in pairs)


def _named(specs: Sequence[TensorSpec], name: str) -> TensorSpec:
    return next(spec for spec in specs if spec.name == name)


def _capacity(cache: Cache, every: Sequence[_Binding]) -> int:
    """Tokens of a text: where a cache grows, one more than it may have had before the last step."""
    most = max(_range(_named(inputs, cache.past.name), ALONG)[1] for inputs, _ in every)
    return most + 1 if cache.grows else most
