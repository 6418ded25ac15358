"""A decoder in a few lines of numpy that has an artifact's interface, and checks what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Size(NamedTuple):
    name: str
    low: int
    opt: int
    high: int
    step: int = 1


@dataclass(frozen=True)
class Spec:
    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[Size | None, ...] = ()

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)


@dataclass(frozen=True)
class Binding:
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    number: int = 1


class Refused(ValueError):
    pass


@dataclass
class Summing:
    """The token after a text is the sum of its tokens, each times its place from 1, and its length squared.

    All modulo the number of words.

    Its cache holds the tokens; `taken` are the numbers of tokens of the steps so far.
    """

    bindings: Sequence[Binding]
    words: int = 11
    taken: list[int] = field(default_factory=list)
    main: int = 1
    errors = (Refused,)

    @property
    def inputs(self) -> tuple[Spec, ...]:
        return self.bindings[self.main - 1].inputs

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return self.bindings[self.main - 1].outputs

    def at(self, number: int) -> Summing:
        return replace(self, main=number)

    def bind(self, inputs: Sequence[Any], out: Sequence[Any]) -> Callable[[], float]:
        for specs, arrays in ((self.inputs, inputs), (self.outputs, out)):
            assert [one.shape for one in specs] == [array.shape for array in arrays]
        given = {spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)}
        filled = {spec.name: array for spec, array in zip(self.outputs, out, strict=True)}

        def run() -> float:
            filled["logits"][...] = self.run(given, filled)["logits"][:, -1:]
            return 0.0

        return run

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, NDArray[Any]] | None = None) -> dict[str, NDArray[Any]]:
        assert set(inputs) == {spec.name for spec in self.inputs}
        for spec in self.inputs:
            assert inputs[spec.name].dtype == spec.numpy
            assert inputs[spec.name].ndim == len(spec.shape)
        ids, past = inputs["input_ids"].reshape(-1), inputs["past_key_values.0.key"]
        count = len(ids)
        self.taken.append(count)
        present = (out or {}).get("present.0.key")
        if present is None:
            before = past.shape[2]
            present = np.concatenate([past, np.zeros((1, 1, count, 1), past.dtype)], 2)
        else:
            assert not np.shares_memory(present, past)
            present[...] = past
            before = self.begins(inputs, count)
        self.check(inputs, before, count)
        present[0, 0, before : before + count, 0] = ids
        seen = present[0, 0, : before + count, 0]
        token = (int(seen @ np.arange(1, before + count + 1)) + len(seen) ** 2) % self.words
        logits = np.zeros((1, count, self.words), np.float32)
        logits[0, -1, token] = 1
        return {"logits": logits, "present.0.key": present}

    @staticmethod
    def begins(inputs: Mapping[str, Any], count: int) -> int:
        """The place of the first new token, by whatever says it."""
        if "position_ids" in inputs:
            return int(inputs["position_ids"].reshape(-1)[0])
        if "seqlens_k" in inputs:
            return int(inputs["seqlens_k"][0]) + 1 - count
        return int(inputs["attention_mask"].sum()) - count

    @staticmethod
    def check(inputs: Mapping[str, Any], before: int, count: int) -> None:
        """That all inputs say the same."""
        after = before + count
        if "attention_mask" in inputs:
            mask = inputs["attention_mask"]
            assert mask[0].tolist() == [1] * after + [0] * (mask.shape[1] - after)
        for name in ("position_ids", "cache_position"):
            if name in inputs:
                assert inputs[name].reshape(-1).tolist() == list(range(before, after))
        if "seqlens_k" in inputs:
            assert inputs["seqlens_k"].tolist() == [after - 1]
        if "total_sequence_length" in inputs:
            assert inputs["total_sequence_length"] == after


@dataclass(frozen=True)
class Pair:
    output: Spec
    input: Spec


@dataclass
class Memory:
    """A state of `Keeping`; `is_void` as an interrupted run leaves it."""

    cache: NDArray[Any]
    is_void: bool = False

    def reset(self) -> None:
        self.cache = np.zeros_like(self.cache)
        self.is_void = False


@dataclass
class Keeping(Summing):
    """The same, which keeps its cache in states: it must not be given it then."""

    states: list[Memory] = field(default_factory=list)

    @property
    def carried(self) -> tuple[Pair, ...]:
        return (Pair(FILLED, KEPT),)

    def state(self) -> Memory:
        self.states.append(Memory(np.zeros(KEPT.shape, KEPT.dtype)))
        return self.states[-1]

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, NDArray[Any]] | None = None,
        state: Memory | None = None,
    ) -> dict[str, NDArray[Any]]:
        if state is None:
            return super().run(inputs, out)
        assert out is None
        assert KEPT.name not in inputs
        if state.is_void:
            raise Refused("interrupted")
        filled = np.zeros_like(state.cache)
        found = super().run({**inputs, KEPT.name: state.cache}, {FILLED.name: filled})
        state.cache = filled
        return {"logits": found["logits"]}


def following(ids: Sequence[int], count: int, words: int = 11) -> list[int]:
    """What `Summing` generates."""
    text = list(ids)
    for _ in range(count):
        text.append((sum(place * token for place, token in enumerate(text, 1)) + len(text) ** 2) % words)
    return text[len(ids) :]


LOGITS = Spec("logits", "float32", (1, 1, 11))
KEPT = Spec("past_key_values.0.key", "float32", (1, 1, 12, 1))
FILLED = Spec("present.0.key", "float32", (1, 1, 12, 1))
OUTPUTS = (LOGITS, FILLED)


def fixed(*steps: int, others: Sequence[Spec] = (Spec("attention_mask", "int64", (1, 12)),)) -> Summing:
    """Caches of 12 tokens, a binding for each number of tokens of a step."""
    return Summing(
        [
            Binding((Spec("input_ids", "int64", (1, step)), *(longer(one, step) for one in others), KEPT), OUTPUTS, at)
            for at, step in enumerate(steps, 1)
        ]
    )


def longer(spec: Spec, step: int) -> Spec:
    """Positions, of as many tokens as a step has."""
    return replace(spec, shape=(*spec.shape[:-1], step)) if spec.name in ("position_ids", "cache_position") else spec


def growing(low: int = 0, high: int = 11) -> Summing:
    """Steps of 1 to 4 tokens, caches that grow."""
    more, past = Size("seq", 1, 1, 4), Size("past", low, low, high)
    ids = Spec("input_ids", "int64", (1, 4), (None, more))
    mask = Spec("attention_mask", "int64", (1, high + 4), (None, Size("total", 1, 1, high + 4)))
    cache = Spec("past_key_values.0.key", "float32", (1, 1, high, 1), (None, None, past, None))
    return Summing([Binding((ids, mask, cache), (LOGITS, Spec("present.0.key", "float32", (1, 1, high + 4, 1))))])
