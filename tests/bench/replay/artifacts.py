"""Outcomes made by hand, and a compiler that writes small artifacts and counts its runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.replay.outcome import BINARY, Outcome
from bench.replay.side import Side, digest_of

KERNELS = """\
#include "tw_kernel.h"

/* Four at a time. */
static inline void k0_conv_4(const float *x, float *y) {
    y[0] = x[0];
}

void k0_conv(void *const *p, char *scratch, long begin, long end) {
    k0_conv_4(p[0], p[1]);
}

void k1_softmax(void *const *p, char *scratch, long begin, long end) {
    int k = 0;

    k++;
}
"""
PLAN: Mapping[str, Any] = {
    "scheduler": "sequential",
    "calls": [{"family": "Conv", "tile": "4x4", "tiles": 2}, {"family": "Softmax", "tile": "1", "tiles": 1}],
    "tasks": [{"call": 0, "lane": 0}, {"call": 1, "lane": 0}],
}
MANIFEST: Mapping[str, Any] = {"toolchain": "gcc 12", "lanes": 1, "files": {}}
MEMBERS: Mapping[str, str] = {
    "manifest.json": json.dumps(MANIFEST),
    "plan.json": json.dumps(PLAN),
    "records.jsonl": "",
    "source/kernels_0.c": KERNELS,
    "source/tw_kernel.h": "#pragma once\n",
    "model.so": "machine code",
    "weights.bin": "weights",
}
COMPILER = """\
import argparse, json, sys, zipfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("model")
for name in ("target", "precision", "options", "records", "out"):
    parser.add_argument("--" + name)
parser.add_argument("--json", action="store_true")
given = parser.parse_args()
tree = Path(__file__).parents[1]
with (tree / "runs").open("a") as runs:
    runs.write(json.dumps(vars(given)) + "\\n")
if (tree / "refuses").exists():
    print(f"{given.model}: refused in {tree}", file=sys.stderr)
    raise SystemExit(1)
with zipfile.ZipFile(given.out, "w") as archive:
    for name, text in json.loads((tree / "members.json").read_text()).items():
        archive.writestr(name, text)
print(json.dumps({"kernels": 2, "phase_seconds": {}}))
"""


def outcome(**changed: str) -> Outcome:
    """An outcome of MEMBERS, some with other content: `plan_json` is plan.json, `source__k_c` is source/k.c."""
    members = {**MEMBERS, **{_member(name): text for name, text in changed.items()}}
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in members.items()}
    texts = {name: text for name, text in members.items() if not name.endswith(BINARY)}
    return Outcome(digests=digests, texts=texts, report={"kernels": 2})


def _member(name: str) -> str:
    path, _, suffix = name.replace("__", "/").rpartition("_")
    return f"{path}.{suffix}"


def side(folder: Path, members: Mapping[str, str] = MEMBERS, comment: str = "") -> Side:
    """A compiler in `folder` that writes `members` for every model; compilers with another comment are others."""
    package = folder / "compiler"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(f"# {comment}\n{COMPILER}")
    (folder / "members.json").write_text(json.dumps(members))
    return Side(folder.name, folder, digest_of(package))


def runs(of: Side) -> list[dict[str, Any]]:
    """The arguments of each run so far."""
    file = of.tree / "runs"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
