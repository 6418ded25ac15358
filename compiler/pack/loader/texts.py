"""Texts of unequal lengths, laid one behind the other for a run and taken apart after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.pack.loader.bindings import Binding, _described
from compiler.pack.loader.errors import InputError, RunError
from compiler.pack.loader.specs import Array, TensorSpec


class _Texts(NamedTuple):
    """How a model takes texts: `inputs` have their tokens, `offsets` the places where they begin.

    `longest` is a text's most tokens, `tokens` those of a run and `most` its texts. `ones` are inputs that the model
    has no more. `by_tokens` says of each of `outputs` whether it has a row for each token. `ranges` has the least and
    the greatest number of an input's token, where there are such, by its name.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    offsets: TensorSpec
    longest: int
    tokens: int
    most: int
    ones: tuple[str, ...]
    by_tokens: tuple[bool, ...]
    ranges: Mapping[str, Sequence[float | None]]

    def run(self, texts: Sequence[Any], run_flat: Callable[[Sequence[Array]], Sequence[Array]]) -> list[dict[str, Any]]:
        """What `run_flat` gives for each text, by name."""
        found: list[dict[str, Any]] = []
        for given in self.packed([self.read(text, at) for at, text in enumerate(texts)]):
            found += self.apart(run_flat(given), given[-1])
        return found

    def read(self, text: Any, at: int) -> list[Array]:
        """A text's tokens for each input. Raises InputError for one that does not fit."""
        if not isinstance(text, Mapping):
            if len(self.inputs) != 1:
                names = ", ".join(repr(spec.name) for spec in self.inputs)
                raise InputError(f"text {at} has no names, and the model takes {names}. Fix: give a mapping")
            text = {self.inputs[0].name: text}
        if unknown := [name for name in text if name not in {*self.ones, *(spec.name for spec in self.inputs)}]:
            raise InputError(f"text {at} has {unknown[0]!r}, which the model does not take. Fix: leave it out")
        if absent := [spec.name for spec in self.inputs if spec.name not in text]:
            raise InputError(f"text {at} has no {absent[0]!r}. Fix: give it, a number for each token")
        found = [self._line(spec, text[spec.name], at) for spec in self.inputs]
        length = len(found[0])
        if other := next((len(line) for line in found if len(line) != length), None):
            raise InputError(f"text {at} has {length} and {other} tokens. Fix: give each input as many")
        for name in self.ones:
            mask = np.asarray(text.get(name, ()))
            if mask.size and not (mask.size == length and mask.all()):
                raise InputError(f"text {at} has zeros in {name!r}. Fix: leave out the tokens that do not count")
        return found

    def _line(self, spec: TensorSpec, tokens: Any, at: int) -> Array:
        line = np.asarray(tokens)
        line = line[0] if line.ndim == 2 and len(line) == 1 else line
        if line.ndim != 1 or not (line.size and np.can_cast(line.dtype, spec.numpy, "same_kind")):
            said = f"{line.dtype} {list(line.shape)}" if line.size else "no tokens"
            raise InputError(f"text {at} has {said} for {spec.name!r}. Fix: give a list of {spec.dtype}")
        if line.size > self.longest:
            raise InputError(
                f"text {at} has {line.size} tokens. Fix: give at most {self.longest}, or compile for longer texts"
            )
        low, high = self.ranges.get(spec.name, (None, None))
        if (low is not None and line.min() < low) or (high is not None and line.max() > high):
            raise InputError(
                f"text {at} has {spec.name!r} from {line.min()} to {line.max()}. Fix: give {low} to {high}"
            )
        return line

    def packed(self, texts: Sequence[Sequence[Array]]) -> Iterator[list[Array]]:
        """What runs take for texts, in order: as many in each as fit."""
        group: list[Sequence[Array]] = []
        tokens = 0
        for text in texts:
            if group and (len(group) == self.most or tokens + len(text[0]) > self.tokens):
                yield self.joined(group)
                group, tokens = [], 0
            group.append(text)
            tokens += len(text[0])
        if group:
            yield self.joined(group)

    def joined(self, texts: Sequence[Sequence[Array]]) -> list[Array]:
        """What one run takes for texts that fit into it."""
        lines = zip(self.inputs, zip(*texts, strict=True), strict=True)
        offsets = np.cumsum([0, *(len(text[0]) for text in texts)], dtype=np.int64)
        return [*(np.concatenate(each, dtype=spec.numpy, casting="same_kind") for spec, each in lines), offsets]

    def apart(self, results: Sequence[Array], offsets: Array) -> list[dict[str, Any]]:
        """The outputs of each text of a run, by name."""
        named = [*zip(self.outputs, results, self.by_tokens, strict=True)]
        pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [
            {spec.name: whole[first:past] if is_token else whole[at] for spec, whole, is_token in named}
            for at, (first, past) in enumerate(pairs)
        ]


def _texts_of(manifest: Mapping[str, Any], binding: Binding) -> _Texts:
    """Of an artifact that takes texts. Raises RunError for another one."""
    ports = _described(manifest, binding)
    described = ports.get("open", {}).get("texts")
    if described is None:
        raise RunError(
            "the model was compiled for texts of equal lengths. "
            'Fix: compile it with ragged, such as {"ragged": {"input_ids": 1, "attention_mask": 1}}'
        )
    *inputs, offsets = binding.inputs
    sizes = inputs[0].shape[0], offsets.shape[0] - 1
    ones, by_tokens = (tuple(described[name]) for name in ("ones", "by_tokens"))
    ranges = {one["name"]: one["range"] for one in ports["inputs"] if "range" in one}
    return _Texts(tuple(inputs), binding.outputs, offsets, described["longest"], *sizes, ones, by_tokens, ranges)
