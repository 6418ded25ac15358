"""An artifact for one device and the programs of parts -> one artifact for several devices.

The files of the one device lie where they always do, so that whatever reads an artifact reads this one too. Each part
has a folder, stream.so runs them as one, weights and loader are there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions
from compiler.encodings.aside import Octets
from compiler.ir.plans.parts import Parts
from compiler.ir.program import Program, StreamProgram
from compiler.pack.archive import write_archive
from compiler.pack.devices_section import Streamed, devices_section
from compiler.pack.join import RECORDS, Part
from compiler.pack.manifest import files_json, to_bytes
from compiler.pack.pack import MANIFEST, WEIGHTS, PackedArtifact

STREAM, HEADER, REPORT = "stream.so", "stream.h", "report.html"


def folders_of(parts: Parts, targets: Sequence[str]) -> list[str]:
    """Where the files of each part lie: the prefix of their names. Replicas for one target have one program."""
    programs = [(part.calls, targets[part.device]) for part in parts.parts]
    return [f"parts/{programs.index(one) + 1}/" for one in programs]


@dataclass(frozen=True)
class Divided:
    """What several devices run: parts with the program of each, what runs them as one, and how good they are.

    runs     whether a single inference goes through the parts; else through the program of one device
    targets  of each device
    """

    parts: Parts
    programs: Sequence[Program]
    stream: StreamProgram
    targets: Sequence[str]
    runs: bool
    streamed: Streamed


def pack_divided(
    alone: Part, divided: Divided, records: Sequence[str], weights: Octets, options: CompileOptions, path: Path
) -> PackedArtifact:
    """Writes the artifact to `path`, whole or not at all; equal arguments give equal bytes.

    `alone` is for one device, `weights` the file that every program was made for, `records` lines beside those of
    `alone`. Raises MachineError when the file cannot be written.
    """
    members = {**alone.members}
    lines = {*members[RECORDS].decode().splitlines(), *records}
    members[RECORDS] = "".join(f"{line}\n" for line in sorted(lines)).encode()
    section = devices_section(divided.parts, divided.streamed, options.named_states)
    members[REPORT] = members[REPORT].replace(b"\n</body>", f"\n{section}\n</body>".encode())
    for folder, program in zip(folders_of(divided.parts, divided.targets), divided.programs, strict=True):
        members[f"{folder}model.so"] = program.library
        for name, text in sorted(program.sources.items()):
            if members.get(f"source/{name}") != text.encode():  # the runtime is there once
                members[f"{folder}source/{name}"] = text.encode()
    members[STREAM], members[HEADER] = divided.stream.library, divided.stream.sources[HEADER].encode()
    members |= {f"source/{name}": text.encode() for name, text in sorted(divided.stream.sources.items())}
    whole: dict[str, Octets] = {**members, WEIGHTS: weights}
    described = {
        **alone.manifest,
        "options": options.artifact_json(),
        "weight_bytes": len(weights),
        "stream": stream_json(divided, options.named_states),
        "files": files_json(whole),
    }
    write_archive(path, {MANIFEST: to_bytes(described), **whole}, mapped=(WEIGHTS,))
    return PackedArtifact(path, described)


def stream_json(divided: Divided, carried: Mapping[str, str]) -> Mapping[str, Any]:
    """What the manifest says of parts, for loaders and people; outputs `carried` are those inputs of the next frame."""
    parts = divided.parts
    return {
        "scheduler": parts.scheduler,
        "devices": [
            {"name": name, "target": target} for name, target in zip(parts.devices, divided.targets, strict=True)
        ],
        "runs": divided.runs,
        "frames": parts.frames,
        "predicted_s": parts.predicted_s,
        "period_s": parts.period_s,
        "parts": [
            {
                "folder": folder,
                "device": part.device,
                "calls": list(part.calls),
                "after": [{"part": one.part, "frames": one.frames} for one in part.after],
                "every": part.turns.every,
                "turns": list(part.turns.own),
            }
            for folder, part in zip(folders_of(parts, divided.targets), parts.parts, strict=True)
        ],
        "edges": [{"bytes": edge.bytes, "slots": edge.slots} for edge in parts.edges],
        **({"carried": [{"output": out, "input": into} for out, into in carried.items()]} if carried else {}),
    }
