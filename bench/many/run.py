"""`python -m bench many`: many models in one process beside the same in ONNX Runtime, two threads each.

All models are loaded. Of the first three the time in turn is taken over the sum of their times when each is called
again and again; of the first four, called at once by a thread each, the slowest call of a hundred over its fair share,
which is the time alone by the number of callers. Memory is what the process holds (proportional set) more after it
loaded and ran them all. The call of a model of two nodes is all overhead. Each engine has a process of its own, which
rests while the other's is measured.

Two figures say what a better engine could reach. The time in turn is also taken over the sum of times alone where the
caller reads as much memory before each call as the other two models have weights: caches are as cold then as in turn,
but for those of the other threads' cores. And the four are called at once as models of one thread each, which share
nothing but the cores that the system gives them: over the same fair share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import onnx
from rich.console import Console

from bench import subjects
from bench.ending import ended
from bench.many.child import THREADS
from bench.report import write
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request
from tilewright.arrays import write_npz

ENGINES = ("tilewright", "onnxruntime")
NETWORKS = (
    *(
        "shufflenet_v2",
        "resnet18",
        "mobilenet_v2",
        "squeezenet1_1",
        "mobilenet_v3_large",
        "efficientnet_b0",
        "vit_tiny",
    ),
    *("tiny_cnn", "tiny_inception", "tiny_mobile", "tiny_transformer", "tiny_detector", "tiny_lstm", "tiny_llama"),
    *("tiny_unet", "tiny_lstm_cells"),
)
TWO_NODES = "two_nodes"
REST_S = 0.02
"""Before an engine's turn: the other one's threads stop spinning."""


@dataclass(frozen=True)
class Row:
    """What many models cost in one engine.

    in_turn, in_turn_cpu   time of three in turn, wall and processor, over the sum of their times alone
    in_turn_cold           wall, over the sum of their times alone with cold caches
    p99_over_share         of calls at once, over the time alone by the number of callers
    p99_single             the same of models that run on their callers' threads alone
    call_us                of a model of two nodes
    models_mib, held_mib   sizes of the models' files, and what the process holds more than before, by what it is
    made_mib, arena_mib    of ours: constants made at load, the largest arena
    """

    engine: str
    alone_ms: float
    in_turn: float
    in_turn_cpu: float
    in_turn_cold: float
    p99_over_share: float
    p99_single: float
    call_us: float
    models_mib: float
    held_mib: dict[str, float]
    made_mib: float
    arena_mib: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for what cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m bench many", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"(default: {', '.join(NETWORKS)})")
    parser.add_argument("--rounds", type=int, default=15, help="(default 15)")
    parser.add_argument("--folder", type=Path, help="keeps models and artifacts; those that lie there are taken")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    given = parser.parse_args(arguments)
    names = given.models or [*NETWORKS]
    console = Console()

    def measure() -> int:
        for name in names:
            subjects.check(name)
        with nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            folder.mkdir(parents=True, exist_ok=True)
            for name in (*names, TWO_NODES):
                prepare(name, folder)
            rows = measured(folder, names, given.rounds)
        if given.json:
            write(given.json, [asdict(row) for row in rows])
        console.print(table(rows), soft_wrap=True)
        return 0

    return ended(measure, parser, console)


def prepare(name: str, folder: Path) -> None:
    """The model, its artifact and inputs, unless they are there."""
    artifact, model = folder / f"{name}.tw", folder / f"{name}.onnx"
    if artifact.exists():
        return
    options: dict[str, Any] = {"threads": THREADS, "compare": [], "tuning_budget_s": 0.0}
    if name == TWO_NODES:
        model.write_bytes(two_nodes())
    else:
        subject = subjects.subject(name, folder)
        model.write_bytes(subject.file.read_bytes())
        options |= subject.options
    compile_model(Request(model, artifact, CompileOptions.from_json(options)))
    with Model(artifact) as opened:
        write_npz(folder / f"{name}.npz", opened.random_inputs())


def two_nodes() -> bytes:
    """relu(x + x) of four floats."""
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xz"]
    nodes = [onnx.helper.make_node("Add", ["x", "x"], ["y"]), onnx.helper.make_node("Relu", ["y"], ["z"])]
    graph = onnx.helper.make_graph(nodes, TWO_NODES, ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 20)]
    return bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def measured(folder: Path, names: Sequence[str], rounds: int) -> list[Row]:
    """A row for each engine, which take turns."""
    command = [sys.executable, "-m", "bench.many.child", str(folder)]
    children = []
    found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    try:
        for engine in ENGINES:
            words = [*command, engine, *names, TWO_NODES]
            children.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        loaded = [_answer(child) for child in children]
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                found[ENGINES[at]].append(_ask(children[at]))
    finally:
        for child in children:
            child.communicate()
    size = sum((folder / f"{name}.onnx").stat().st_size for name in names) / 2**20
    return [_row(engine, found[engine], size, one) for engine, one in zip(ENGINES, loaded, strict=True)]


def _answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout
    return dict(json.loads(child.stdout.readline()))


def _ask(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdin
    time.sleep(REST_S)
    child.stdin.write("round\n")
    child.stdin.flush()
    return _answer(child)


def _row(engine: str, rounds: Sequence[Mapping[str, Any]], models_mib: float, loaded: Mapping[str, Any]) -> Row:
    return Row(
        engine,
        1e3 * median(one["alone_s"] for one in rounds),
        median(one["in_turn_s"] / one["alone_s"] for one in rounds),
        fmean(one["in_turn_cpu_s"] for one in rounds) / fmean(one["alone_cpu_s"] for one in rounds),
        median(one["in_turn_s"] / one["cold_s"] for one in rounds),
        _p99([one for each in rounds for one in each["over_share"]]),
        _p99([one for each in rounds for one in each["over_share_single"]]),
        1e6 * median(one["short_s"] for one in rounds),
        models_mib,
        loaded["held_mib"],
        loaded["made_mib"],
        loaded["arena_mib"],
    )


def _p99(found: Sequence[float]) -> float:
    return sorted(found)[min(len(found) - 1, len(found) * 99 // 100)]


def table(rows: Sequence[Row]) -> str:
    """As a page of results shows it."""
    lines = [
        "| engine | three alone ms | in turn over alone | processor time | over alone, cold "
        "| p99 of four over fair share | on one thread each | call of two nodes us | models MiB | memory MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        turns = (row.in_turn, row.in_turn_cpu, row.in_turn_cold, row.p99_over_share, row.p99_single)
        ratios = (f"{value:.3f}" for value in turns)
        sizes = (f"{value:.1f}" for value in (row.call_us, row.models_mib, sum(row.held_mib.values())))
        lines.append(f"| {' | '.join((row.engine, f'{row.alone_ms:.2f}', *ratios, *sizes))} |")
    ours = rows[0]
    known = {"weights mapped": ours.held_mib["weights"], "made at load": ours.made_mib, "one arena": ours.arena_mib}
    known["libraries"] = ours.held_mib["libraries"]
    known["else"] = sum(ours.held_mib.values()) - sum(known.values())
    parts = ", ".join(f"{what} {value:.1f}" for what, value in known.items())
    lines.append(f"\nMiB of ours: {parts}.")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
