"""What a tree makes of drawn models: run by a process of the tree's own, or out of the cache."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.drawn.layers import Model
from bench.replay.compiling import Kept, NotThatCompiler, environment, hashed, surroundings
from bench.replay.kernels.lowering import FOUND, WRONG_COMPILER, Found
from bench.replay.side import Side, content_at
from tilewright.errors import UsageError

PROGRAM = "bench/replay/kernels/lowering.py"


@dataclass(frozen=True)
class Generator:
    """A compiler, and the program that asks it for kernels."""

    side: Side
    program: Path

    @staticmethod
    def at(side: Side, commit: str | None, root: Path) -> Generator:
        """With the program of its commit, that of the working tree where it has none."""
        program = side.tree / Path(PROGRAM).name
        content = content_at(commit, PROGRAM, root) if commit else None
        program.write_bytes((root / PROGRAM).read_bytes() if content is None else content)
        return Generator(side, program)

    def texts(self, models: Sequence[Model], folder: Path, kept: Kept) -> Texts:
        """The kernels of models, for which `folder` holds files meanwhile.

        Raises NotThatCompiler, and UsageError where the program ends with an error.
        """
        asked = [[one.name, one.inner, one.asked, hashlib.sha256(one.data).hexdigest()] for one in models]
        made_by = hashlib.sha256(self.program.read_bytes()).hexdigest()
        made = kept.place("kernels") / f"{hashed([surroundings(), self.side.digest, made_by, asked])}.zip"
        if not made.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for one in models:
                (folder / f"{one.name}.onnx").write_bytes(one.data)
            (folder / "asked.json").write_text(json.dumps([one[:3] for one in asked]))
            command = [sys.executable, "-P", str(self.program), str(self.side.tree), str(folder), str(made)]
            ended = subprocess.run(
                command, cwd=folder, env=environment(self.side, None), capture_output=True, text=True, check=False
            )
            if ended.returncode == WRONG_COMPILER:
                raise NotThatCompiler(ended.stderr.strip())
            if ended.returncode:
                raise UsageError(
                    f"kernels of {self.side.name} could not be generated:\n{ended.stderr.strip()}",
                    fix=f"make {PROGRAM} follow the compiler's modules",
                )
        return Texts(made)


@dataclass
class Texts:
    """Kernels and proposals by name, as they lie in a zip."""

    path: Path
    found: Mapping[str, Found] = field(init=False)

    def __post_init__(self) -> None:
        with zipfile.ZipFile(self.path) as archive:
            self.found = {one["name"]: Found(**one) for one in json.loads(archive.read(FOUND))}

    def text(self, name: str) -> str:
        """What was generated under a name."""
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name).decode()


def shards(models: Sequence[Model], count: int) -> Iterator[Sequence[Model]]:
    """Models dealt out."""
    return (models[at::count] for at in range(min(count, len(models))))
