"""Artifacts of one model, each for one binding of its dimensions -> one artifact that runs them all.

The first binding's files lie where those of an artifact with one binding do, so that whatever reads one of those reads
this one too; the files of each other binding lie in a folder of its own. Weights, loader and records are there once.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions
from compiler.encodings.aside import Octets
from compiler.pack.archive import write_archive
from compiler.pack.manifest import files_json, to_bytes
from compiler.pack.pack import MANIFEST, QUANTISED, WEIGHTS, PackedArtifact, digest_of

RECORDS = "records.jsonl"
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
OF_SOME = (SAMPLES, "carried", "open", "strings", "random", "outside", "verified", UNSHOWN)
"""What it says of those alone that were judged on some (and of the whole), that hand on states, that leave dimensions
open, that take or give strings, that draw random numbers, and of which nothing shows some outputs (and of the
whole)."""
SHARED = ("loader.py", "__main__.py", "chart/", QUANTISED)
"""Files that are the same for each binding."""


@dataclass(frozen=True)
class Part:
    """An artifact for one binding: its dimensions as options give them, its manifest, and its files but the weights."""

    dims: Mapping[str, Any]
    manifest: Mapping[str, Any]
    members: Mapping[str, bytes]

    @staticmethod
    def of(path: Path, dims: Mapping[str, Any]) -> Part:
        """What lies at `path`."""
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != WEIGHTS}
        return Part(dims, json.loads(members.pop(MANIFEST)), members)


def folder_of(number: int) -> str:
    """Where the files of a binding lie, counted from 1: the prefix of their names."""
    return "" if number == 1 else f"bindings/{number}/"


def join(parts: Sequence[Part], weights: Octets, options: CompileOptions, path: Path) -> PackedArtifact:
    """Writes one artifact to `path`, whole or not at all; equal arguments give equal bytes.

    weights  the one file that every part's program was made for: that of the last one, which begins with each other's

    Raises MachineError when the file cannot be written.
    """
    records = sorted({line for part in parts for line in part.members[RECORDS].splitlines(keepends=True)})
    members: dict[str, Octets] = {**parts[0].members, RECORDS: b"".join(records)}
    for number, part in enumerate(parts[1:], 2):
        own = {name: content for name, content in part.members.items() if not name.startswith((*SHARED, RECORDS))}
        members |= {folder_of(number) + name: content for name, content in own.items()}
    members[WEIGHTS] = weights
    samples = [digest for part in parts for digest in part.manifest.get(SAMPLES, ())]
    unshown = [*dict.fromkeys(name for part in parts for name in part.manifest.get(UNSHOWN, ()))]
    described = {
        **parts[0].manifest,
        "options": options.artifact_json(),
        "weight_bytes": len(weights),
        **({SAMPLES: samples} if samples else {}),
        **({"verified": False, UNSHOWN: unshown} if unshown else {}),
        "bindings": [_described(number, part) for number, part in enumerate(parts, 1)],
        "files": files_json(members),
    }
    write_archive(path, {MANIFEST: to_bytes(described), **members}, mapped=(WEIGHTS,))
    return PackedArtifact(path, path.stat().st_size, digest_of(path), described)


def _described(number: int, part: Part) -> dict[str, Any]:
    """What the manifest says of a binding."""
    keys = [*OF_A_BINDING, *(key for key in OF_SOME if key in part.manifest)]
    return {"dims": dict(part.dims), "folder": folder_of(number), **{key: part.manifest[key] for key in keys}}
