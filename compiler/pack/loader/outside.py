"""What callers give and get in another form than a program: sequences, optionals, and strings that steps make."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.errors import InputError
from compiler.pack.loader.specs import Array


class _Outside:
    """As the manifest describes it (`outside`); `takes` are the names of the program's inputs."""

    def __init__(self, described: Mapping[str, Any], takes: Sequence[str]) -> None:
        self._steps: Sequence[Mapping[str, Any]] = described.get("steps", ())
        self._sequences: Mapping[str, int] = described.get("sequences", {})
        self._absent: Sequence[str] = described.get("absent", ())
        self._returned: Mapping[str, int] = described.get("returned", {})
        self._missing: Sequence[str] = described.get("missing", ())
        self._takes = frozenset(takes)
        self._only_steps = {name for step in self._steps for name in _read(step)} - self._takes

    def taken(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of the program, of which callers may have given some as they are. Raises InputError."""
        found = dict(inputs)
        for name in self._absent:
            if found.pop(name, None) is not None:
                raise InputError(
                    f"input {name!r} is an optional that the artifact is made without. "
                    "Fix: leave it out, or compile with its shape in the options"
                )
        for name, count in self._sequences.items():
            if name in found:
                found |= _elements(name, found.pop(name), count)
        for step in self._needed(found):
            found |= _carried_out(step, found)
        return {name: value for name, value in found.items() if name not in self._only_steps}

    def _needed(self, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The steps for inputs of the program that are not there yet."""
        wanted = self._takes - found.keys()
        steps = []
        for step in reversed(self._steps):
            if not wanted.isdisjoint(step["outputs"]):
                steps.append(step)
                wanted |= {*_read(step)} - found.keys()
        return steps[::-1]

    def given(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs as callers get them: lists for sequences, None for optionals without a value."""
        found = dict(outputs)
        for name, count in self._returned.items():
            names = [f"{name}.{at}" for at in range(count)]
            if all(one in found for one in names):
                found[name] = [found.pop(one) for one in names]
        return found | dict.fromkeys(self._missing)


def _elements(name: str, value: Any, count: int) -> dict[str, Any]:
    """The elements of a sequence as inputs by name."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        what = f"a list of {len(value)}" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
        raise InputError(
            f"input {name!r} is a sequence of {count} tensors, not {what}. "
            f"Fix: give a list of {count} arrays, or compile for another count"
        )
    return {f"{name}.{at}": one for at, one in enumerate(value)}


def _read(step: Mapping[str, Any]) -> list[str]:
    """Names of what a step reads."""
    return [one for one in step["inputs"] if isinstance(one, str)]


def _carried_out(step: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a step by name. Raises InputError for an input that is missing."""
    for name in _read(step):
        if name not in found:
            raise InputError(f"input {name!r} is missing. Fix: give it as an array of str")
    given = [_texts(one, found) for one in step["inputs"]]
    results = _OPERATORS[step["op"]](given, step["attrs"])
    return {name: one for name, one in zip(step["outputs"], results, strict=True) if name}


def _texts(one: Any, found: Mapping[str, Any]) -> Array:
    """What a step reads, as an array of str objects. Raises InputError for what is none."""
    if not isinstance(one, str):
        return _objects(one["strings"], tuple(one["shape"]))
    array = np.asarray(found[one])
    if not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise InputError(f"input {one!r} is no array of strings. Fix: give it as an array of str")
    return _objects([item.decode() if isinstance(item, bytes) else str(item) for item in array.flat], array.shape)


def _objects(items: Sequence[str], shape: tuple[int, ...]) -> Array:
    """Strings as an array of objects."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def _concatenated(given: Sequence[Array], attrs: Mapping[str, Any]) -> list[Array]:
    """StringConcat. Raises InputError for shapes that do not broadcast."""
    try:
        first, second = np.broadcast_arrays(*given)
    except ValueError:
        raise InputError(f"strings of shapes {given[0].shape} and {given[1].shape} are put side by side") from None
    return [_objects([one + other for one, other in zip(first.flat, second.flat, strict=True)], first.shape)]


def _split(given: Sequence[Array], attrs: Mapping[str, Any]) -> list[Array]:
    """StringSplit: as str.split, with the empty string behind the parts of elements that have fewer than the most."""
    parts = [one.split(attrs.get("delimiter") or None, attrs.get("maxsplit", -1)) for one in given[0].flat]
    counts = np.array([len(one) for one in parts], np.int64).reshape(given[0].shape)
    most = max(map(len, parts), default=0)
    filled = [item for one in parts for item in (*one, *[""] * (most - len(one)))]
    return [_objects(filled, (*given[0].shape, most)), counts]


def _normalized(given: Sequence[Array], attrs: Mapping[str, Any]) -> list[Array]:
    """StringNormalizer as ONNX's reference: accents are stripped, stop words are words between blanks."""
    action, is_case_sensitive = attrs.get("case_change_action", "NONE"), attrs.get("is_case_sensitive", 0)
    changed: Callable[[str], str] = {"LOWER": str.lower, "UPPER": str.upper}.get(action, str)
    stops = {one if is_case_sensitive else changed(one) for one in attrs.get("stopwords", ())}

    def without_stops(text: str) -> str:
        return " ".join(word for word in text.split(" ") if word not in stops) if stops else text

    items = map(_without_accents, given[0].flat)
    if is_case_sensitive:
        kept = [changed(without_stops(item)) for item in items]
    else:
        kept = [without_stops(changed(item)) for item in items]
    kept = [item for item in kept if item] or [""]
    return [_objects(kept, (*given[0].shape[:-1], len(kept)))]


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def _matched(given: Sequence[Array], attrs: Mapping[str, Any]) -> list[Array]:
    """RegexFullMatch: classes such as \\w are those of ASCII, as RE2 has them."""
    pattern = re.compile(attrs["pattern"], re.ASCII)
    found = [pattern.fullmatch(item) is not None for item in given[0].flat]
    return [np.array(found, np.bool_).reshape(given[0].shape)]


_OPERATORS: Mapping[str, Callable[[Sequence[Array], Mapping[str, Any]], list[Array]]] = {
    "RegexFullMatch": _matched,
    "StringConcat": _concatenated,
    "StringNormalizer": _normalized,
    "StringSplit": _split,
}
