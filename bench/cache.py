"""What measurements keep in a folder, so that a second run compiles and measures nothing again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bench.engines.driver import Arrays
from bench.subject import Subject
from compiler.contract import CompileOptions, Event
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.pipeline import compile_model
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from compiler.request import Host, Request
from tilewright.arrays import read_npz, write_npz

SEED = 0
"""Of the inputs that all engines run on."""
SHORT = 16
"""Digits of a hash in a file's name."""


@dataclass(frozen=True)
class Compiled:
    """An artifact and the report of its compilation, which may have been in an earlier run."""

    artifact: Path
    report: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Wall seconds of the compilation."""
        return float(sum(self.report["phase_seconds"].values()))


@dataclass(frozen=True)
class Expected:
    """Inputs by name, and what the float64 reference makes of them."""

    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True)
class Cache:
    """A folder with models, artifacts, tuning records, references and what peers compile."""

    folder: Path

    def place(self, kind: str) -> Path:
        """The folder for files of one kind, made where it is not there."""
        place = self.folder / kind
        place.mkdir(parents=True, exist_ok=True)
        return place

    def compiled(
        self, subject: Subject, options: CompileOptions, observe: Callable[[Event], None] = lambda event: None
    ) -> Compiled:
        """The artifact of a model: the one in the cache, or else a new one.

        One from the cache is used where model, options and the compiler's own sources are unchanged. A model is known
        by the bytes of its ONNX file. Every tuning record ever written here is offered to the compiler. Raises what
        `compile_model` raises.
        """
        key = options.cache_key(_digest_of(subject.file))[:SHORT]
        made_by = _sources_digest()[:SHORT]
        artifact = self.place("artifacts") / f"{subject.name}-{key}-{made_by}.tw"
        receipt = artifact.with_suffix(".json")
        if artifact.exists() and receipt.exists():
            return Compiled(artifact, json.loads(receipt.read_text()))
        for outdated in artifact.parent.glob(f"{subject.name}-{key}-*"):
            outdated.unlink()
        known = self.records()
        with self._records.open("a", buffering=1) as kept:

            def keep(event: Event) -> None:
                if event.kind == "record":
                    kept.write(json.dumps(dict(event.data)) + "\n")
                observe(event)

            report = compile_model(Request(subject.file, artifact, options), Host(known, keep)).to_json()
        receipt.write_text(json.dumps(report, indent=2) + "\n")
        return Compiled(artifact, json.loads(receipt.read_text()))

    @property
    def _records(self) -> Path:
        return self.folder / "records.jsonl"

    def records(self) -> list[dict[str, Any]]:
        """Every tuning record ever written here."""
        if not self._records.exists():
            return []
        return [json.loads(line) for line in self._records.read_text().splitlines()]

    def expected(self, subject: Subject, options: CompileOptions) -> Expected:
        """Inputs of a model, and its outputs in float64.

        The inputs are those of the subject, or random ones that fit what the model does with them.

        Raises what the front end raises.
        """
        key = hashlib.sha256(f"{_digest_of(subject.file)} {options.to_json()['inputs']} {SEED}".encode()).hexdigest()
        given, wanted = (
            self.place("references") / f"{subject.name}-{key[:SHORT]}.{what}.npz" for what in ("inputs", "outputs")
        )
        if not wanted.exists():
            inputs, outputs = _reference(subject, options)
            write_npz(given, inputs)
            draft = wanted.with_suffix(".part")
            write_npz(draft, outputs)
            draft.replace(wanted)
        return Expected(read_npz(given), read_npz(wanted))


def _reference(subject: Subject, options: CompileOptions) -> tuple[Arrays, Arrays]:
    graph = load(subject.file, options, OPERATORS).graph
    names = {value: graph.values[value].name or f"%{value}" for value in (*graph.inputs, *graph.outputs)}
    drawn = sample_inputs(graph, SEED)
    if subject.inputs is not None:
        drawn = {value: np.asarray(subject.inputs[names[value]]) for value in graph.inputs}
    computed = evaluate_graph(graph, drawn, OPERATORS)
    return (
        {names[value]: drawn[value] for value in graph.inputs},
        {names[value]: computed[value] for value in graph.outputs},
    )


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _sources_digest() -> str:
    """The digest of all files that the compiler consists of."""
    root = Path(str(files("compiler")))
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
