"""Kernels of networks under many tiles, each measured twice: what the cost model is judged by."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import onnx
from rich.console import Console

from bench.asked import CACHE, positive
from bench.dataset.collect import Asked, collect
from bench.dataset.judge import table
from bench.drawn.layers import FAMILIES, drawn
from bench.ending import ended
from bench.light import LIGHT, light
from bench.subject import Subject
from bench.subjects import check, subject
from compiler.contract import CompileOptions
from compiler.devices.cpu.device import CpuBackend, cpu_backend
from compiler.errors import TargetUnavailable


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments, 1 for what the compiler refuses."""
    parser = argparse.ArgumentParser(prog="python -m bench dataset", description=__doc__)
    models = "networks, .onnx files, models of the onnx package (light_resnet50), drawn layers (convolution-3)"
    parser.add_argument("models", nargs="+", metavar="MODEL", help=models)
    parser.add_argument("--target", default="cpu", help="a profile that this machine runs (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=CACHE / "tiles.jsonl", help="is appended to (default: %(default)s)")
    parser.add_argument(
        "--kernels", type=positive, default=12, help="of each model, the dearest (default: %(default)s)"
    )
    parser.add_argument("--favourites", type=positive, default=7, help="of the cost model (default: %(default)s)")
    parser.add_argument("--others", type=positive, default=6, help="tiles that are drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn (default: %(default)s)")
    given = parser.parse_args(arguments)
    console = Console()

    def measure() -> int:
        for name in given.models:
            if not (name in dict(LIGHT) or name.rpartition("-")[0] in FAMILIES):
                check(name)
        backend, _ = cpu_backend(CompileOptions(target=given.target), os.environ).with_rates((), measure=True)
        if not backend.target.is_here:
            raise TargetUnavailable(f"{given.target} does not run here", fix="name a profile of this machine")
        asked = Asked(given.kernels, given.favourites, given.others, given.seed)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        known = {row["workload"] for row in read(given.out) if row["target"] == backend.target.name}
        with given.out.open("a") as out:
            _write(out, machine(backend))
            for name in given.models:
                began, count = time.monotonic(), 0
                for workload, rows in collect(_subject(name), backend, asked, known):
                    _write(out, {"workload": rows[0].workload, "text": str(workload)})
                    for row in rows:
                        _write(out, row.to_json())
                    known.add(rows[0].workload)
                    count += len(rows)
                console.print(f"{name}: {count} tiles in {time.monotonic() - began:.0f} s")
        console.print(table(read(given.out)), soft_wrap=True, end="")
        return 0

    return ended(measure, parser, console)


def machine(backend: CpuBackend) -> Mapping[str, Any]:
    """The line that tells of the machine: sizes of caches in bytes, measured rates (`Rates`), the C compiler."""
    target = backend.target
    return {
        "hardware": target.hardware,
        "target": target.name,
        "caches": [target.l1_bytes, target.l2_bytes, target.l3_bytes],
        "rates": asdict(target.rates),
        "compiler": backend.toolchain.version,
    }


def read(path: Path) -> list[Mapping[str, Any]]:
    """The rows of tiles in a file; none where there is no file."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return [row for row in map(json.loads, lines) if "first_s" in row]


def _write(out: TextIO, row: Mapping[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def _subject(name: str) -> Subject:
    """A network, a file, a light model or a drawn layer."""
    folder = CACHE / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    family, _, number = name.rpartition("-")
    file = folder / f"{name}.onnx"
    if family in FAMILIES:
        file.write_bytes(drawn(family, int(number)))
    elif name in dict(LIGHT):
        onnx.save(light(name), file)
    else:
        return subject(name, folder)
    return Subject(name, "drawn", file)
