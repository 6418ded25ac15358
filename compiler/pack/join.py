"""Artifacts of one model, each for one profile and one binding of its dimensions -> one artifact that runs them all.

The first one's files lie where those of an artifact with one program do, so that whatever reads one of those reads this
one too; the files of each other lie in a folder of its own. Weights, loader and records are there once. The manifest
describes each profile as if the artifact were made for it alone, and the loader takes the first that the processor has.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, kinds
from compiler.encodings.aside import Octets
from compiler.pack.archive import write_archive
from compiler.pack.manifest import files_json, to_bytes
from compiler.pack.pack import MANIFEST, QUANTISED, WEIGHTS, PackedArtifact

RECORDS = "records.jsonl"
OF_A_PROFILE = ("target", "hardware", "requires", "toolchain")
"""What it says of each profile, where there are several."""
OF_A_BINDING = (
    "inputs",
    "outputs",
    "scheduler",
    "lanes",
    "calls",
    "arena_bytes",
    "predicted_s",
)
"""What the manifest says of each binding."""
SAMPLES, UNSHOWN = "samples", "unshown"
OF_SOME = (SAMPLES, "carried", "open", "strings", "random", "outside", "verified", UNSHOWN, "probe")
"""What it says of those alone that were judged on some (and of the whole), that hand on states, that leave dimensions
open, that take or give strings, that draw random numbers, of which nothing shows some outputs (and of the whole), and
that have a probe."""
CHUNKS = "chunks"
"""What it says of an output that comes in pieces, and the folder of the programs for that."""
SHARED = ("loader.py", "__main__.py", "chart/", QUANTISED)
"""Files that are the same for each binding."""


@dataclass(frozen=True)
class Part:
    """An artifact with one program: dimensions as options give them, its manifest, and its files but the weights."""

    dims: Mapping[str, Any]
    manifest: Mapping[str, Any]
    members: Mapping[str, bytes]

    @property
    def profile(self) -> str:
        """The target that it is for."""
        return str(self.manifest["target"])

    @staticmethod
    def of(path: Path, dims: Mapping[str, Any]) -> Part:
        """What lies at `path`."""
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != WEIGHTS}
        return Part(dims, json.loads(members.pop(MANIFEST)), members)


@dataclass(frozen=True)
class Chunks:
    """What an artifact has to give an output in pieces.

    facts     what the loader is to know, as JSON
    portions  programs by name: `before` the cut, if anything is, and `behind` it, for a window
    """

    facts: Mapping[str, Any]
    portions: Mapping[str, Part]

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        described = {name: _described(part, f"{CHUNKS}/{name}/") for name, part in self.portions.items()}
        return {**self.facts, **described}


def folder_of(profile: str, number: int) -> str:
    """Where the files of a binding lie, counted from 1: the prefix of their names. `profile`: "" for the first."""
    own = f"profiles/{profile.partition(':')[2]}/" if profile else ""
    return own if number == 1 else f"{own}bindings/{number}/"


def _by_profile(parts: Sequence[Part]) -> list[list[tuple[Part, str]]]:
    """The parts of each profile, which stand one after the other, each with its folder."""
    groups = [[*own] for _, own in groupby(parts, key=lambda part: part.profile)]
    return [
        [(part, folder_of(part.profile if place else "", number)) for number, part in enumerate(own, 1)]
        for place, own in enumerate(groups)
    ]


def join(
    parts: Sequence[Part], weights: Octets, options: CompileOptions, path: Path, chunks: Chunks | None = None
) -> PackedArtifact:
    """Writes one artifact to `path`, whole or not at all; equal arguments give equal bytes.

    weights  the one file that every part's program was made for: that of the last one, which begins with each other's
    chunks   programs of portions of the model, by which an output comes in pieces

    Raises MachineError when the file cannot be written.
    """
    portions = chunks.portions if chunks else {}
    records = sorted(
        {line for part in (*parts, *portions.values()) for line in part.members[RECORDS].splitlines(keepends=True)}
    )
    members: dict[str, Octets] = {**parts[0].members, RECORDS: b"".join(records)}
    groups = _by_profile(parts)
    others = [pair for group in groups for pair in group][1:]
    for part, folder in (*others, *((part, f"{CHUNKS}/{name}/") for name, part in portions.items())):
        own = {name: content for name, content in part.members.items() if not name.startswith((*SHARED, RECORDS))}
        members |= {folder + name: content for name, content in own.items()}
    members[WEIGHTS] = weights
    samples = dict.fromkeys(digest for part in parts for digest in part.manifest.get(SAMPLES, ()))
    described = {
        **parts[0].manifest,
        "options": options.artifact_json(),
        "weight_bytes": len(weights),
        **({SAMPLES: [*samples]} if samples else {}),
        **_unshown(parts),
        **(_of_bindings(groups[0]) if len(parts) > 1 else {}),
        **({CHUNKS: chunks.to_json()} if chunks else {}),
        **(_of_profiles(groups, options) if len(groups) > 1 else {}),
        "files": files_json(members),
    }
    write_archive(path, {MANIFEST: to_bytes(described), **members}, mapped=(WEIGHTS,))
    return PackedArtifact(path, described)


def _unshown(parts: Iterable[Part]) -> dict[str, Any]:
    """What the manifest says of outputs of which nothing shows that they are right."""
    unshown = [*dict.fromkeys(name for part in parts for name in part.manifest.get(UNSHOWN, ()))]
    return {"verified": False, UNSHOWN: unshown} if unshown else {}


def _of_bindings(group: Sequence[tuple[Part, str]]) -> dict[str, Any]:
    """What it says of the bindings of one profile."""
    return {"bindings": [_described(part, folder) for part, folder in group]}


def _of_profiles(groups: Sequence[Sequence[tuple[Part, str]]], options: CompileOptions) -> dict[str, Any]:
    """What it says of several profiles, the most able first, and of all of them."""
    each = []
    for group in groups:
        first = group[0][0].manifest
        keys = [key for key in (*OF_A_PROFILE, *OF_A_BINDING, *OF_SOME) if key in first and key != SAMPLES]
        own = {key: first[key] for key in keys}
        each.append({**own, **_unshown(part for part, _ in group), **_of_bindings(group)})
    family = kinds.family(options.target)
    assert family is not None, "only such targets have several profiles"
    each.sort(key=lambda one: family.profiles.index(one["target"]))
    return {"target": options.target, "requires": each[-1]["requires"], "profiles": each}


def _described(part: Part, folder: str) -> dict[str, Any]:
    """What the manifest says of a binding."""
    keys = [*OF_A_BINDING, *(key for key in OF_SOME if key in part.manifest)]
    return {"dims": dict(part.dims), "folder": folder, **{key: part.manifest[key] for key in keys}}
