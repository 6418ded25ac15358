"""What needs a GPU, in parts: first; or tests, tune, plans, bench, kernels, which are all.

They stop before their minutes are over and go on where they stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.gpu import parts
from bench.gpu.child import ROOT
from bench.gpu.first import first
from bench.gpu.notebook import Deadline
from bench.gpu.parts import Asked
from bench.gpu.subjects import NETWORKS, PRECISIONS
from bench.gpu.table import markdown
from bench.schedule import table as schedules
from compiler.devices.cuda.measure.driver import gpu_here, refusal

PARTS: Mapping[str, Callable[[Asked], bool]] = MappingProxyType(
    {
        "first": first,
        "tests": parts.tests,
        "tune": parts.tune,
        "plans": parts.plans,
        "bench": parts.bench,
        "kernels": parts.kernels,
    }
)
ALL = ("tests", "tune", "plans", "bench", "kernels")
"""What `first` does these do more of."""
MINUTES = 9.0
OUT = ROOT / "bench" / "results" / "gpu"
SOURCES = (
    "compiler",
    "tests/gpu",
    "tests/cuda_double",
    "bench/gpu",
    "bench/loops",
    "bench/schedule",
    "bench/settled.py",
    "bench/stages.py",
    "bench/zoo",
)
"""What results depend on: where one file differs, a part begins anew."""


def main(arguments: list[str]) -> int:
    """Exit status 0, also where something is left to do.

    1 where a kernel was wrong or a network failed; 2 for wrong arguments.
    """
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--models", default="", metavar="A,B", help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of all parts together (default: %(default)s)")
    parser.add_argument(
        "--budget", type=float, default=60.0, metavar="S", help="for measuring each network (default: %(default)s)"
    )
    parser.add_argument(
        "--autotuned", type=int, default=2, metavar="N", help="networks to autotune in a call (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where everything is kept (default: bench/results/gpu)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON instead of lines")
    given = parser.parse_args(arguments)
    networks = [name for name in given.models.split(",") if name] or list(NETWORKS)
    if unknown := set(networks) - set(NETWORKS):
        parser.error(f"no network {', '.join(sorted(unknown))}; there are {', '.join(NETWORKS)}")
    gpu = gpu_here()
    if gpu is None:
        print(f"no GPU here: {refusal()}. Nothing was checked.")
        return 0
    if not shutil.which("gcc"):
        print(
            "gcc is missing: artifacts need it for their host part, so that networks cannot be compiled; "
            "`tests` does without"
        )
    if not shutil.which("g++"):
        print("g++ is missing: the double cannot run, so that kernels are compared with their definition alone")

    def tell(said: str) -> None:
        if not given.json:
            print(said, flush=True)

    asked = Asked(
        given.out.resolve(),
        digest(),
        gpu.name,
        gpu.fingerprint,
        networks,
        Deadline.after(60 * given.minutes),
        tell,
        given.budget,
        given.autotuned,
        given.precisions.split(","),
    )
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in ALL if name in PARTS] if given.part == "all" else [given.part]
    whole = {name: PARTS[name](asked) for name in chosen}
    found = {name: asked.notebook(name).rows for name in chosen}
    tables = {
        "plans": lambda rows: schedules.markdown([one for row in rows.values() for one in row.get("plans", [row])]),
        "bench": markdown,
        "kernels": markdown,
    }
    for name in (name for name in tables if name in found):
        (asked.out / f"{name}.md").write_text(tables[name](found[name]))
        tell(tables[name](found[name]))
    if given.json:
        print(json.dumps({"whole": whole, **found}, indent=1))
    for name in (name for name, done in whole.items() if not done):
        tell(f"{name} is not done: the same command goes on with it")
    return status(found)


def status(found: Mapping[str, Mapping[str, Any]]) -> int:
    """1 where something is wrong, else 0."""
    rows = [row for part in found.values() for row in part.values()]
    return int(any(not row.get("passed", True) or "problem" in row for row in rows))


def digest() -> str:
    """Of all files in SOURCES."""
    found = hashlib.sha256()
    for source in (ROOT / name for name in SOURCES):
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".jsonl":
                found.update(f"{path.relative_to(ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
