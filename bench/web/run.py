"""Networks in Node.js, as artifacts for browsers and by onnxruntime-web, in turns.

`npm install onnxruntime-web` in a folder of yours, which `--npm` names. Ours is compiled as it is without measuring:
tiles are the cost model's. Of one thread times are of the processor, else by the clock, in one process of Node.js for
each network.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from bench import report
from bench.race.spread import geometric_mean
from bench.subjects import subject
from compiler.contract import CompileOptions
from compiler.devices.cpu.emulation.node import asked_for, installed
from compiler.devices.cpu.wasm.target import PROFILES, SIMD128, resolve
from compiler.errors import TilewrightError
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from tilewright.errors import UsageError
from tilewright.exports import browser_folder

NETWORKS = ("squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2", "efficientnet_b0", "resnet18")
ROUNDS = 15
PEER_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
OUR_FILES = ("model.wasm", "model.js", "manifest.json")


@dataclass(frozen=True)
class Row:
    """Milliseconds of one run in each round; `error` is the greatest difference of an output, of its largest value."""

    name: str
    ours: Sequence[float]
    peer: Sequence[float]
    error: float
    bytes: int

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where one could not be compiled or raced, which is said; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench web", description=__doc__)
    parser.add_argument("names", nargs="*", default=NETWORKS, help="networks or .onnx files (default: light ones)")
    parser.add_argument("--npm", type=Path, required=True, metavar="DIR", help="where onnxruntime-web is installed")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of turns (default: {ROUNDS})")
    parser.add_argument("--threads", type=int, default=1, help="of both (default: 1)")
    targets = [one.name for one in PROFILES]
    parser.add_argument("--target", choices=targets, default=SIMD128.name, help="of ours (default: %(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    peer = given.npm / "node_modules" / "onnxruntime-web"
    if not peer.is_dir():
        parser.error(f"{peer} is not there: run npm install onnxruntime-web in {given.npm}")
    section = report.Section("web", arguments, ())
    version = json.loads((peer / "package.json").read_text())["version"]
    rows = []
    for name in given.names:
        try:
            rows.append(measured(name, given.npm, given.rounds, given.threads, given.target))
        except (UsageError, TilewrightError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    if not rows:
        return 1
    text = table(rows, version, packed_bytes(peer / "dist", PEER_FILES))
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return int(len(rows) < len(given.names))


def measured(name: str, npm: Path, rounds: int, threads: int = 1, target: str = SIMD128.name) -> Row:
    """Compiles a network and races it. Raises UsageError without Node.js, and for a race that fails."""
    node = installed()
    if node is None:
        raise UsageError("there is no Node.js", fix="apt-get install nodejs")
    with tempfile.TemporaryDirectory(prefix="tw-web-") as folder:
        place = Path(folder)
        chosen = subject(name, place)
        artifact = place / "model.tw"
        options = CompileOptions.from_json(
            {**chosen.options, "target": target, "tuning_budget_s": 0, "threads": threads}
        )
        compile_model(Request(chosen.file, artifact, options, None, {}), Host(()))
        page = browser_folder(artifact, place / "page")
        script = place / "race.mjs"
        script.write_text((files("bench.web") / "race.mjs").read_text("utf-8"))
        path, version = node
        race = [str(script), str(page), str(chosen.file), str(npm), str(rounds), str(threads)]
        command = [path, *asked_for(resolve(target), version), *race]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(done.stderr.strip()[-500:], fix="look at what Node.js says")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return Row(chosen.name, found["ours"], found["peer"], found["error"], packed_bytes(page, OUR_FILES))


def packed_bytes(folder: Path, names: Sequence[str]) -> int:
    """Of files as a web server sends them: gzipped."""
    return sum(len(gzip.compress((folder / name).read_bytes(), 9)) for name in names)


def table(rows: Sequence[Row], version: str, peer_bytes: int) -> str:
    """In Markdown, with the geometric mean of the ratios."""
    mean = geometric_mean([row.ratio for row in rows])
    lines = [
        f"| network | ours ms | onnxruntime-web {version} ms | ratio | difference | engine and glue, kB gzipped |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {row.name} | {statistics.median(row.ours):.1f} | {statistics.median(row.peer):.1f} | {row.ratio:.2f} "
            f"| {row.error:.0e} | {row.bytes / 1e3:.0f} |"
            for row in rows
        ),
        f"| geometric mean | | | {mean:.2f} | | theirs: {peer_bytes / 1e3:.0f} |",
    ]
    return "\n".join(lines) + "\n"
