"""What one compilation left: the parts of its artifact by name, or the error that it ended with; how that is kept."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BINARY = (".so", ".bin", ".cubin")
"""Members of which the digest is kept and not the content."""
SUMMARY = "outcome.json"
FACTS = ("nodes", "kernels_before_fusion", "kernels", "records_reused", "notices")
"""Of the report: what must be equal too and is not in the artifact."""


@dataclass(frozen=True)
class Outcome:
    """`error` is empty where there is an artifact.

    trace    the frames of a crash, which are not compared: they name lines of the compiler
    digests  SHA-256 of each member of the artifact
    texts    the content of the members that are text
    report   what the compiler said beside it
    seconds  of the compilation, as it was when it was run; not compared
    """

    error: str = ""
    trace: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def plan(self) -> dict[str, Any]:
        """What plan.json holds."""
        plan: dict[str, Any] = json.loads(self.texts["plan.json"])
        return plan

    @property
    def manifest(self) -> dict[str, Any]:
        """What manifest.json holds, but the digests of the other members."""
        manifest: dict[str, Any] = json.loads(self.texts["manifest.json"])
        manifest.pop("files", None)
        return manifest

    def save(self, file: Path) -> None:
        """Writes it to a file, which appears whole."""
        draft = file.with_name(f".{file.name}.{id(self)}.part")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in self.texts.items():
                archive.writestr(name, text)
            kept = {name: getattr(self, name) for name in ("error", "trace", "digests", "report", "seconds")}
            archive.writestr(SUMMARY, json.dumps(kept))
        draft.replace(file)

    @staticmethod
    def load(file: Path) -> Outcome:
        """What `save` wrote."""
        with zipfile.ZipFile(file) as archive:
            kept = json.loads(archive.read(SUMMARY))
            texts = {name: archive.read(name).decode() for name in archive.namelist() if name != SUMMARY}
        return Outcome(texts=texts, **kept)


def of_artifact(artifact: Path, report: Mapping[str, Any], seconds: float) -> Outcome:
    """The outcome of a compilation that wrote an artifact and said `report` (its JSON)."""
    digests: dict[str, str] = {}
    texts: dict[str, str] = {}
    with zipfile.ZipFile(artifact) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                digests[name] = hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
            if not name.endswith(BINARY):
                texts[name] = archive.read(name).decode()
    said = {name: report.get(name) for name in FACTS}
    return Outcome(digests=digests, texts=texts, report=said, seconds=seconds)
