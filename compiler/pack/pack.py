"""Program -> Artifact: every file of it made, hashed, and written as one archive."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from compiler.contract.systems import system_of
from compiler.encodings.aside import Octets
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.knowledge.replay import MEMBER as REPLAY
from compiler.pack.archive import replace_last, write_archive
from compiler.pack.browser import MODULE, for_browsers, glue
from compiler.pack.chart.events import trace_events
from compiler.pack.chart.wording import escaped
from compiler.pack.elements import section
from compiler.pack.example import example_c
from compiler.pack.facts import Facts
from compiler.pack.graphs import graph_json
from compiler.pack.joining import loader_source
from compiler.pack.manifest import files_json, manifest, plan_json, rejected_json, to_bytes
from compiler.pack.picture import plan_svg
from compiler.pack.report import report_html
from compiler.pack.timeline import schedule_of

MANIFEST, REPORT = "manifest.json", "report.html"
HEADER, STATE_HEADER = "model.h", "state.h"
WEIGHTS = "weights.bin"
QUANTISED = "model.int8.onnx"
"""The model that was compiled, where it was quantised before."""
_SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MAIN = "from loader import main\n\nraise SystemExit(main())\n"
"""Lets `python model.tw` run the loader that lies beside it in the archive."""


@dataclass(frozen=True)
class PackedArtifact:
    """The file that was written: where, and the manifest inside it."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def bytes(self) -> int:
        """Of the file."""
        return self.path.stat().st_size

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file, which is read for it."""
        return digest_of(self.path)

    def moved_to(self, path: Path) -> PackedArtifact:
        """The same file under another name, which it takes over."""
        os.replace(self.path, path)
        return PackedArtifact(path, self.manifest)


def pack(
    program: Program,
    plan: Plan,
    kernels: KernelGraph,
    records: Sequence[Record],
    facts: Facts,
    path: Path,
    *,
    others: Sequence[Plan] = (),
    log: str | None = None,
) -> PackedArtifact:
    """Writes the artifact to `path`, whole or not at all; equal arguments give equal bytes.

    Of the plans in the program `plan` is the one that was chosen for the cores as they were; pictures and costs are of
    it, what the `others` consist of is in plan.json. `log` is what a replay needs. `program.sources` must hold model.h.
    Raises VerifyError when the parts do not fit each other, MachineError when the file cannot be written.
    """
    _verify(program, plan, kernels, facts)
    if any(len(other.tiles) != len(kernels.calls) for other in others):
        raise VerifyError("another plan is of another kernel graph")
    in_browsers = for_browsers(program.machine)
    used = sorted(set(map(_line, records)))
    measurements = [Record.from_json(json.loads(line)) for line in used]
    text = {
        **(glue() if in_browsers else {HEADER: program.sources[HEADER]}),
        **({STATE_HEADER: program.sources[STATE_HEADER]} if facts.carried else {}),
        "loader.py": loader_source(),
        "__main__.py": _MAIN,
        **({} if in_browsers else {"example.c": example_c(program, facts.open)}),
        "records.jsonl": "".join(f"{line}\n" for line in used),
        **({} if log is None else {REPLAY: log}),
        "plan.svg": plan_svg(kernels, plan, facts),
        REPORT: report_html(program, plan, kernels, measurements, facts, others),
        **{f"chart/{name}": source for name, source in _chart().items()},
        **{f"source/{name}": source for name, source in sorted(program.sources.items())},
    }
    members = {
        "plan.json": to_bytes(plan_json(program, plan, kernels, facts, others)),
        "trace.json": to_bytes(trace_events(schedule_of(kernels, plan, facts)), indent=None),
        **{
            f"plans/{one.number}.json": to_bytes(rejected_json(one, kernels, facts), indent=None)
            for one in facts.rejected
        },
        **({"graph.json": to_bytes(graph_json(facts.graphs, kernels), indent=None)} if facts.graphs else {}),
        **{name: content.encode() for name, content in text.items()},
        (MODULE if in_browsers else system_of(program.system).library): program.library,
        WEIGHTS: program.weights,
        **({QUANTISED: facts.quantised.content} if facts.quantised else {}),
    }
    described = manifest(program, plan, facts, members)
    return _packed(path, members, described)


def _packed(path: Path, members: Mapping[str, Octets], described: Mapping[str, Any]) -> PackedArtifact:
    """Written with the manifest last, which may still have to say what running the artifact shows."""
    write_archive(path, {**members, MANIFEST: to_bytes(described)}, mapped=(WEIGHTS,))
    return PackedArtifact(path, described)


def packed_with_probe(packed: PackedArtifact, probe: Mapping[str, Any]) -> PackedArtifact:
    """The artifact with a probe in its manifest. Raises MachineError when the file cannot be written."""
    described = {**packed.manifest, "probe": dict(probe)}
    replace_last(packed.path, MANIFEST, to_bytes(described))
    return PackedArtifact(packed.path, described)


def packed_unverified(packed: PackedArtifact, unshown: Sequence[str]) -> PackedArtifact:
    """The artifact written anew: its manifest and its report say that nothing shows its outputs `unshown`.

    Raises MachineError when the file cannot be written.
    """
    with zipfile.ZipFile(packed.path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != MANIFEST}
    names = ", ".join(f"<code>{escaped(name)}</code>" for name in unshown)
    said = section("Proof", "", f"<p><b>Not verified: nothing shows that {names} is what the model says.</b></p>")
    members[REPORT] = members[REPORT].replace(b"\n</body>", f"\n{said}\n</body>".encode())
    described = {**packed.manifest, "verified": False, "unshown": list(unshown), "files": files_json(members)}
    return _packed(packed.path, members, described)


def _verify(program: Program, plan: Plan, kernels: KernelGraph, facts: Facts) -> None:
    counts = {len(kernels.calls), len(plan.tiles), len(facts.costs)}
    if len(counts) != 1:
        raise VerifyError(f"{len(kernels.calls)} calls, {len(plan.tiles)} tiles and {len(facts.costs)} costs")
    if (len(program.inputs), len(program.outputs)) != (len(kernels.inputs), len(kernels.outputs)):
        raise VerifyError("the program and the kernel graph differ in their inputs or outputs")
    if HEADER not in program.sources:
        raise VerifyError(f"the program's sources lack {HEADER}")
    for name in program.sources:
        if not _SOURCE_NAME.fullmatch(name):
            raise VerifyError(f"{name!r} cannot be the name of a source file")


def _chart() -> dict[str, str]:
    """The package that draws plan.svg, for pictures of what is measured elsewhere."""
    found = {one.name: one for one in files("compiler.pack.chart").iterdir() if one.name.endswith(".py")}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), sort_keys=True, separators=(",", ":"))


def digest_of(path: Path) -> str:
    """The SHA-256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
