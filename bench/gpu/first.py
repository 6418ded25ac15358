"""`first`: what the first half hour on a machine with a GPU is for, the most worth first.

What the machine is; what only probes can say of it; single instructions, and every family of kernels in fp16, beside
its definition, several at a time; then networks by the model's tiles, each on another way through the product, which
agree with the reference or fail, and run many times with the same bits; then families in the other precisions. What
was found is a page that a person reads in a minute (`first.md`). The other parts compare more, and take longer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from bench.gpu.child import Ended
from bench.gpu.half_hour.cases import CASES
from bench.gpu.half_hour.summary import summary
from bench.gpu.notebook import Notebook, Row
from bench.gpu.parts import (
    COMPILING_S,
    FAMILY_S,
    Asked,
    artifact_of,
    compiled,
    families_of,
    told_compilation,
    verdict_of,
)
from bench.gpu.subjects import NETWORKS
from compiler.devices.cuda import nvrtc
from compiler.errors import ToolchainMissing

WORTH = ("fp16", "fp32", "tf32", "bf16")
"""Precisions of families, in the order in which they are tried. Before them stand those of single instructions, which
the double has from the manual: what they get wrong every kernel gets wrong."""
ALGORITHMS = (
    "mma",
    "wgmma",
    "loops",
    "window",
    "separable",
    "attention",
    "gemv",
    "quantised_mma",
    "quantised_wgmma",
    "excitation",
    "transpose",
    "sparse",
    "sparse_wgmma",
    "sparse_mma",
)
"""Tried first in each precision: most of the time of networks is theirs. Each stands for those whose names it begins
too, unless a longer one does."""
SPARE = 2
"""Cores left for the driver and for this process."""
LEAST_S = 10.0
"""Less is not worth beginning a family for."""
PROBES = ("habits", "costs", "accumulators")
"""Of `bench.gpu.probe`, by what their answers decide: how kernels begin, which plan is taken, nothing yet."""
PROBE_S = 90.0
"""For the few launches of a probe; NVRTC and the driver take most of it."""
REPEATING_S = 30.0
"""For running a network many times; a fast one needs a tenth of it."""
OPENING_S = 30.0
"""Added for opening it, for its kernels one by one, and for a slow start of the driver."""
SAYING_S = 20.0
"""For a program to say its version."""
PROGRAMS = (("nvidia-smi",), ("gcc", "--version"), ("g++", "--version"), ("nvcc", "--version"))


def first(asked: Asked) -> bool:
    """Facts, probes, families, networks, further families. Returns whether none is left."""
    notes = asked.notebook("first")
    if "facts" not in notes.rows:
        notes.put("facts", facts(asked))
        asked.tell(f"{asked.product}: {notes.rows['facts']['nvrtc']}, {notes.rows['facts']['cores']} cores")
    try:
        return all(probe(asked, notes, name) for name in PROBES) and _tried_all(asked, notes)
    finally:
        page = summary(notes.rows, CASES)
        (asked.out / "first.md").write_text(page)
        asked.tell(page)


def _tried_all(asked: Asked, notes: Notebook) -> bool:
    listed = families_of(asked, notes)
    if listed is None:
        return False
    names = in_order(listed)
    early = [name for name in names if name.rpartition(" ")[2] not in WORTH[1:]]
    late = [name for name in names if name not in early]
    return families(asked, notes, early) and networks(asked, notes) and families(asked, notes, late)


def facts(asked: Asked) -> Row:
    """What the machine is: GPU, NVRTC, Python, and what its programs say of themselves (absent: "")."""
    try:
        compiler = f"NVRTC {'.'.join(map(str, nvrtc.version()))} ({nvrtc.library_path() or 'from the system'})"
    except ToolchainMissing as error:
        compiler = f"{error.message}: {error.fix}"
    return {
        "gpu": asked.product,
        "hardware": asked.hardware,
        "nvrtc": compiler,
        "python": sys.version,
        "cores": os.cpu_count() or 1,
        "programs": {command[0]: _said(command) for command in PROGRAMS},
    }


def _said(command: Sequence[str]) -> str:
    if not shutil.which(command[0]):
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SAYING_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr)[:4000]


def probe(asked: Asked, notes: Notebook, name: str) -> bool:
    """What only the GPU can say: kept in a row, and where compilations find it. False where the time is over."""
    key = f"probe {name}"
    if key in notes.rows:
        return True
    if not asked.has(LEAST_S):
        return False
    file, limit = asked.out / "probe.json", asked.seconds(PROBE_S)
    file.unlink(missing_ok=True)
    where = ["--records", str(asked.out / "records.jsonl"), "--json", str(file)]
    ended = asked.run("bench.gpu.probe", [name, *where], limit)
    if ended.status is None and limit < PROBE_S:
        return False
    if file.exists() and ended.status in (0, 1):
        failed = [] if ended.status == 0 else ["the GPU or NVRTC did not take all of it"]
        notes.put(key, {"passed": ended.status == 0, "failed": failed, "found": json.loads(file.read_text())})
    else:
        notes.put(key, {"passed": False, "failed": [f"the probe did not end well: {ended.said[-600:]}"]})
    asked.tell(ended.output.strip() or notes.rows[key]["failed"][0])
    return True


def in_order(names: Sequence[str]) -> list[str]:
    """Families by worth: single instructions, then precision by precision the algorithms that matter most."""

    def worth(name: str) -> tuple[int, int]:
        algorithm, _, precision = name.rpartition(" ")
        if precision not in WORTH:
            return -1, 0
        able = [one for one in ALGORITHMS if algorithm == one or algorithm.startswith(f"{one}_")]
        return WORTH.index(precision), ALGORITHMS.index(max(able, key=len)) if able else len(ALGORITHMS)

    return sorted(names, key=worth)


def families(asked: Asked, notes: Notebook, names: Sequence[str]) -> bool:
    """Each family beside its definition alone, in a process of its own, as many at a time as there are cores."""
    left = [name for name in names if name not in notes.rows]
    for name, row, ended in _tried(asked, left):
        if row is not None:
            notes.put(name, row)
            asked.tell(ended.output.strip() or f"{name}: {row['failed'][0]}")
    return all(name in notes.rows for name in left)


def _tried(asked: Asked, names: Sequence[str]) -> Iterator[tuple[str, Row | None, Ended]]:
    """Families as they end, with their verdicts; None for those that the time of this call did not suffice for."""

    def tried(at: int) -> tuple[str, Row | None, Ended]:
        if not asked.has(LEAST_S):
            return names[at], None, Ended(None, "", "")
        limit, file = asked.seconds(FAMILY_S), asked.out / f"verdict-{at}.json"
        file.unlink(missing_ok=True)
        ended = asked.run("tests.gpu", [names[at], "--json", str(file), "--alone"], limit)
        row = verdict_of(file, ended, limit)
        Path(file).unlink(missing_ok=True)
        return names[at], row, ended

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - SPARE)) as pool:
        for future in as_completed([pool.submit(tried, at) for at in range(len(names))]):
            yield future.result()


def networks(asked: Asked, notes: Notebook) -> bool:
    """Networks under the tiles of the model, each compared with the reference on the GPU, then run many times."""
    for case in (one for one in CASES if one.base in asked.networks or one.base not in NETWORKS):
        if case.key in notes.rows:
            continue
        if not asked.has(COMPILING_S):
            return False
        row = compiled(asked, case.network, case.precision, 0.0, key=case.key, options=case.options)
        if row is None:
            return False
        if "problem" not in row:
            again = repeated(asked, artifact_of(asked, case.key))
            if again is None:
                return False
            row |= again
        notes.put(case.key, row)
        asked.tell(f"{case.key}: {told_compilation(row)}{told_repeated(row)}")
    return True


def repeated(asked: Asked, artifact: Path) -> Row | None:
    """Whether many runs give the same bits, with latency and the slowest kernels; None where the time is over."""
    if not asked.has(LEAST_S):
        return None
    file, limit = asked.out / "repeated.json", asked.seconds(REPEATING_S + OPENING_S)
    file.unlink(missing_ok=True)
    running = max(1.0, limit - OPENING_S)
    ended = asked.run("bench.gpu.repeated", [str(artifact), "--seconds", f"{running:.0f}", "--json", str(file)], limit)
    if ended.status is None and limit < REPEATING_S + OPENING_S:
        return None
    if not file.exists():
        return {"passed": False, "failed": [f"many runs did not end well: {ended.said[-600:]}"]}
    found: Row = json.loads(file.read_text())
    file.unlink()
    wrong = [f"runs {found['differing']} of {found['runs']} gave other bits than the first"] * bool(found["differing"])
    return {"passed": not wrong, "failed": wrong, "repeated": found}


def told_repeated(row: Row) -> str:
    """What is added to a compilation's line."""
    if row.get("failed"):
        return f"; FAILED: {row['failed'][0]}"
    if "repeated" not in row:
        return ""
    found = row["repeated"]
    return f"; {found['runs']} runs with the same bits, {found['with_copies_us']['median']:.1f} µs each with copies"
