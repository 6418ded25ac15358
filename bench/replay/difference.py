"""What two outcomes of the same case differ in: by kernel, by plan, by file, by bytes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.replay.outcome import Outcome
from compiler.pack.functions import Sources, gather, kernels_of

SHOWN = 12
"""Lines of a difference that are kept."""
WIDEST = 200
"""Characters of a line that are kept."""
SOURCES = ("source/",)
GENERATED = (".c", ".cu")
VERSIONS = ("toolchain", "compiler_version")
"""Fields of the manifest that a commit may well mean to change: listed apart from the others."""


@dataclass(frozen=True)
class Difference:
    """One thing that differs, by its kind.

    failure   one side has no artifact, or both have none for different reasons
    kernel    a kernel's functions; `name` is the kernel
    moved     a kernel stands in another file, its text unchanged
    source    generated text between functions
    plan      a call, a task, a storage or another field of the plan
    manifest  a field of the manifest, but versions
    versions  toolchain or compiler version
    file      another member of the artifact that is text
    bytes     a member that is not text
    report    what the compiler said beside the artifact
    """

    kind: str
    name: str
    detail: str


def differences(before: Outcome, after: Outcome) -> list[Difference]:
    """Everything that differs; nothing where both failed in the same words."""
    if before.error or after.error:
        return _failures(before, after)
    found = [*_reports(before.report, after.report)]
    if before.digests == after.digests:
        return found
    found += _kernels(_generated(before), _generated(after))
    found += _plans(before.plan, after.plan)
    found += _manifests(before.manifest, after.manifest)
    explained = {*_explained(_generated(before), _generated(after))}
    explained |= {"plan.json"} if before.plan != after.plan else set()
    explained |= {"manifest.json"} if before.manifest != after.manifest else set()
    return [*found, *_members(before, after, explained)]


def _failures(before: Outcome, after: Outcome) -> list[Difference]:
    if before.error == after.error:
        return []
    if before.error and after.error:
        return [Difference("failure", "in other words", diff(before.error, after.error))]
    where, failed = ("before alone", before) if before.error else ("after alone", after)
    return [Difference("failure", where, clipped(f"{failed.trace}{failed.error}".splitlines()[-SHOWN:]))]


def _reports(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Difference("report", name, _values(before.get(name), after.get(name)))


def _generated(outcome: Outcome) -> Sources:
    return gather({name: text for name, text in outcome.texts.items() if _is_generated(name)})


def _is_generated(name: str) -> bool:
    return name.startswith(SOURCES) and name.endswith(GENERATED)


def _kernels(before: Sources, after: Sources) -> Iterator[Difference]:
    """Kernels whose functions differ, then those that moved, then what stands between functions."""
    kernels = kernels_of({*before.functions, *after.functions})
    changed: dict[str, list[str]] = {}
    for function, kernel in kernels.items():
        old, new = before.functions.get(function), after.functions.get(function)
        if old is None:
            changed.setdefault(kernel, []).append(f"{function}: only after, {_lines(new)} lines")
        elif new is None:
            changed.setdefault(kernel, []).append(f"{function}: only before, {_lines(old)} lines")
        elif old != new:
            changed.setdefault(kernel, []).append(f"{function}:\n{diff(old, new)}")
    for kernel, details in changed.items():
        yield Difference("kernel", kernel, "\n".join(details))
    moved: dict[tuple[str, str], list[str]] = {}
    for function, place in before.places.items():
        if function in after.places and after.places[function] != place:
            moved.setdefault((place, after.places[function]), []).append(function)
    for (old_place, new_place), functions in moved.items():
        yield Difference("moved", f"{old_place} -> {new_place}", ", ".join(functions))
    for file in sorted({*before.rests, *after.rests}):
        old, new = before.rests.get(file), after.rests.get(file)
        if old is not None and new is not None and old != new:
            yield Difference("source", file, diff(old, new))


def _explained(before: Sources, after: Sources) -> Iterator[str]:
    """Files of which `_kernels` says something."""
    for function in {**before.functions, **after.functions}:
        old, new = before.places.get(function), after.places.get(function)
        if old != new or before.functions[function] != after.functions[function]:
            yield from filter(None, (old, new))
    for file, rest in before.rests.items():
        if after.rests.get(file) != rest:
            yield file


def _lines(text: str | None) -> int:
    return len((text or "").splitlines())


def _plans(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if not isinstance(old, list) or not isinstance(new, list):
            yield Difference("plan", name, _values(old, new))
            continue
        one = name.removesuffix("s")
        if len(old) != len(new):
            yield Difference("plan", name, f"{len(old)} before, {len(new)} after")
        for at, (first, second) in enumerate(zip(old, new, strict=False)):
            if first != second:
                yield Difference("plan", f"{one} {at}{_family(first)}", _fields(first, second))


def _family(entry: object) -> str:
    return f" ({entry['family']})" if isinstance(entry, dict) and "family" in entry else ""


def _fields(before: object, after: object) -> str:
    """The fields in which two entries of the plan differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return _values(before, after)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(f"{name} {_values(before.get(name), after.get(name))}" for name in names)


def _manifests(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            kind = "versions" if name in VERSIONS else "manifest"
            yield Difference(kind, name, _values(before.get(name), after.get(name)))


def _members(before: Outcome, after: Outcome, explained: Collection[str]) -> Iterator[Difference]:
    """Members that one side lacks, and those that differ and are not `explained` by their parts."""
    for name in sorted({*before.digests, *after.digests}):
        old, new = before.digests.get(name), after.digests.get(name)
        if old == new or (name == "manifest.json" and before.manifest == after.manifest):
            continue
        if old is None or new is None:
            yield Difference("file", name, f"only {'after' if old is None else 'before'}")
        elif name not in before.texts:
            yield Difference("bytes", name, f"SHA-256 {old[:16]} before, {new[:16]} after")
        elif name not in explained:
            yield Difference("file", name, diff(before.texts[name], after.texts[name]) or "differs in ends of lines")


def _values(before: object, after: object) -> str:
    return f"{_short(before)} -> {_short(after)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}... ({len(text)} characters)"


def diff(before: str, after: str) -> str:
    """The first lines of a unified difference, long ones cut."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    return clipped(lines)


def clipped(lines: Sequence[str]) -> str:
    """At most SHOWN lines, of at most WIDEST characters each, and how many more there are."""
    shown = [line if len(line) <= WIDEST else f"{line[:WIDEST]}..." for line in lines[:SHOWN]]
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"({more} more lines)"] if more else [])])
