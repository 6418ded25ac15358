"""Models on several unequal cores: each core alone, both as a pipeline, the bound that no division passes.

Every program is kept on its cores. Blocks of the cores alone and of the pipeline take turns, so that what else the
machine does meets all of them; a figure is the median of its blocks. Beside wall time stands processor time: of a core
alone that of one inference, of the pipeline that of the device with most of it, the caller's thread among it where it
has no core of its own; other programs on a shared machine change these little. Beside an inference by itself through
the parts stands the same without the time for which others kept its threads from their cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import lcm
from pathlib import Path
from statistics import median
from typing import Any

from bench import report
from bench.devices import published
from bench.devices.described import NAMES, described
from bench.devices.predicted import NETWORKS, can_predict, predicted
from bench.subject import Subject
from bench.subjects import check, subject
from bench.zoo import NoSuchNetwork, entry
from compiler.contract import CompileOptions, CompileReport
from compiler.contract.devices import EXAMPLE, named_devices
from compiler.errors import OptionsError
from compiler.knowledge.kinds import STREAM
from compiler.measure.streaming import stream
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from compiler.schedule.parts.dividing import busiest_s
from compiler.steps.dividing.proof import by_itself
from tilewright.errors import UsageError

DEFAULT = ("squeezenet1_1", "mobilenet_v2", "resnet18")
AWAY = "of zoo networks on two devices that are not here: cpu:cortex-a53,npu:ethos-u65-256 or cpu,cuda:sm_90"
BLOCK_S = 0.5
BLOCKS = 7
Block = Callable[[], tuple[float, float]]
"""Seconds of one inference, over a block of them: by the clock, and of a processor."""


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench devices", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"(default: {', '.join(DEFAULT)})")
    parser.add_argument("--devices", default=",".join(EXAMPLE), help="(default: %(default)s)")
    parser.add_argument("--objective", default="throughput", choices=("latency", "throughput"))
    parser.add_argument(
        "--carry", action="append", default=[], metavar="OUTPUT=INPUT", help="a state from inference to inference"
    )
    parser.add_argument("--budget", type=float, default=24.0, metavar="S", help="to tune in (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of each (default: %(default)s)")
    parser.add_argument("--platform", metavar="NAME", help=f"predict on a described platform: {', '.join(NAMES)}")
    parser.add_argument(
        "--fit", action="store_true", help="fit a platform's constants to published times; nothing runs"
    )
    parser.add_argument("--predicted", action="store_true", help=f"(default of MODEL: {', '.join(NETWORKS)}) {AWAY}")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    if given.fit:
        print(published.table(published.CORAL, published.fitted()), end="")
        return 0
    if given.platform is not None:
        if given.platform not in NAMES or given.models:
            parser.error(f"--platform takes one of {', '.join(NAMES)}, and its model is part of it")
        return described(arguments, given.json, given.markdown)
    devices = given.devices.split(",")
    if given.predicted:
        if not can_predict(devices):
            parser.error(f"--predicted is {AWAY}")
        try:
            for name in given.models:
                entry(name)
        except NoSuchNetwork as error:
            parser.error(str(error))
        return predicted(arguments, devices, given.models, given.json, given.markdown)
    try:
        named_devices(devices)
        for name in given.models:
            check(name)
    except (OptionsError, UsageError, NoSuchNetwork) as error:
        parser.error(str(error))
    carry = {made: into for made, _, into in (said.partition("=") for said in given.carry)}
    asked = {"devices": devices, "objective": given.objective, "carry": carry}
    section = report.Section("devices", arguments, ())
    rows, streams = [], list[Mapping[str, Any]]()
    for name in given.models or DEFAULT:
        with tempfile.TemporaryDirectory() as folder:
            one = subject(name, Path(folder))
            rows.append(measured(one, asked, given.budget, given.blocks, Path(folder), streams))
        if given.json:
            report.write(given.json, rows)
    text = table(rows)
    print(text, end="")
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def measured(
    one: Subject,
    asked: Mapping[str, Any],
    budget_s: float,
    blocks: int,
    folder: Path,
    streams: list[Mapping[str, Any]],
) -> dict[str, Any]:
    """A row: seconds of an inference on each device alone, between ends of streamed ones, by the artifact's run.

    `asked` are options: the devices, the objective, what is carried. `streams` are records of how earlier models were
    divided, as a worker has them; this one's are added.
    """
    devices = asked["devices"]
    shared, report = _compiled(one, folder / "shared.tw", budget_s, earlier=streams, **asked)
    records = folder / "records.jsonl"
    alone = []
    for device, name in zip(named_devices(devices), devices, strict=True):
        path, _ = _compiled(one, folder / f"core{device.core}.tw", budget_s, records, target=device.target, threads=1)
        alone.append((name, device.core, path))
    assert report.devices is not None
    with ExitStack() as opened:
        turns: dict[str, Block] = {}
        for name, core, path in alone:
            model = opened.enter_context(Model(path))
            turns[name] = _runs(model, core)
        model = opened.enter_context(Model(shared))
        turns["streamed"] = _streamed(model, [*devices])
        turns["by itself"] = _submitted(model)
        turns["run"] = _runs(model, None if report.devices.scheduler == "placement" else alone[0][1])
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
        for block in turns.values():
            block()
        for _ in range(blocks):
            for name, block in turns.items():
                taken[name].append(block())
    seconds = {name: median(clock for clock, _ in each) for name, each in taken.items()}
    processor = {name: median(own for _, own in each) for name, each in taken.items()}
    return {
        "model": one.name,
        "devices": [*devices],
        "scheduler": report.devices.scheduler,
        "parts": [part.kernels for part in report.devices.parts],
        "busy": [part.busy for part in report.devices.parts],
        "alone_s": {name: seconds[name] for name in devices},
        "predicted_alone_s": list(report.devices.alone_s),
        "streamed_s": seconds["streamed"],
        "predicted_s": report.devices.predicted_period_s,
        "latency_s": seconds["by itself"],
        "predicted_latency_s": report.devices.predicted_latency_s,
        "run_s": seconds["run"],
        "bound_s": 1 / sum(1 / seconds[name] for name in devices),
        "processor_s": processor,
        "processor_bound_s": 1 / sum(1 / processor[name] for name in devices),
        "blocks": taken,
    }


def _compiled(
    one: Subject,
    path: Path,
    budget_s: float,
    records: Path | None = None,
    earlier: list[Mapping[str, Any]] | None = None,
    **options: Any,
) -> tuple[Path, CompileReport]:
    """With records of what was measured before, which are kept beside the artifact; those of streams in `earlier`."""
    streams = [] if earlier is None else earlier
    kept = path.with_name("records.jsonl")
    known = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []

    def keep(event: Any) -> None:
        if event.kind == "record":
            known.append(dict(event.data))

    asked = CompileOptions.from_json({**one.options, "tuning_budget_s": budget_s, **options})
    found = compile_model(Request(one.file, path, asked), Host([*streams, *(known if records else ())], keep))
    streams += [record for record in known if record["kind"] == STREAM.name]
    kept.write_text("".join(f"{json.dumps(record)}\n" for record in known))
    return path, found


@contextmanager
def _on(core: int | None) -> Iterator[None]:
    """The calling thread on one of the cores that it may use; None: where it is."""
    allowed = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {sorted(allowed)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _runs(model: Model, core: int | None) -> Block:
    run = model.bind(*_arrays(model))

    def block() -> tuple[float, float]:
        with _on(core):
            run()
            end, own = time.perf_counter() + BLOCK_S, time.thread_time()
            samples = []
            while time.perf_counter() < end:
                samples.append(run())
            own = (time.thread_time() - own) / len(samples)
        return median(samples), own

    return block


def _arrays(model: Model) -> tuple[list[Any], list[Any]]:
    inputs = model.random_inputs()
    outputs = model.run(inputs)
    return [inputs[spec.name] for spec in model.inputs], [outputs[spec.name] for spec in model.outputs]


def _streamed(model: Model, devices: Sequence[str]) -> Block:
    inputs: Mapping[str, Any] = model.random_inputs()
    on = [int(part["device"]) for part in model.manifest["stream"]["parts"]]

    def block() -> tuple[float, float]:
        found = stream(model, inputs, BLOCK_S)
        busy = [0.0] * len(devices)
        for device, work in zip(on, found.work_s, strict=True):
            busy[device] += work / found.frames
        caller_s = found.caller_s / found.frames if len(os.sched_getaffinity(0)) <= len(devices) else None
        return found.period_s, busiest_s(
            busy, caller_s, [at for at, name in enumerate(devices) if name.startswith("cpu")]
        )

    return block


def _submitted(model: Model) -> Block:
    """Of an inference by itself through all parts, from its submission to its result: at the turn of the slowest.

    Its second figure is without what others took of the cores.
    """
    given = model.random_inputs()
    turns = lcm(*(int(part["every"]) for part in model.manifest["stream"]["parts"]))

    def block() -> tuple[float, float]:
        found = by_itself(model, given, turns, BLOCK_S)
        return found.seconds, found.clear_s

    return block


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Inferences per second: each device, streamed, the bound; and what was predicted."""
    names = rows[0]["devices"]
    head = ["model", *(f"{name} /s" for name in names), "streamed /s", "predicted /s", "bound /s", "of the bound"]
    head += ["times the faster", "by processor time: of the bound", "times the faster", "parts", "one run ms"]
    head += ["predicted over measured period", "the same by processor time", "by itself ms", "predicted ms"]
    head += ["predicted over measured, by itself", "the same without others' time"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        alone = [row["alone_s"][name] for name in names]
        cells = [
            row["model"],
            *(f"{1 / seconds:.1f}" for seconds in alone),
            f"{1 / row['streamed_s']:.1f}",
            f"{1 / row['predicted_s']:.1f}",
            f"{1 / row['bound_s']:.1f}",
            f"{row['bound_s'] / row['streamed_s']:.2f}",
            f"{min(alone) / row['streamed_s']:.2f}",
            f"{row['processor_bound_s'] / row['processor_s']['streamed']:.2f}",
            f"{min(row['processor_s'][name] for name in names) / row['processor_s']['streamed']:.2f}",
            "+".join(map(str, row["parts"])),
            f"{1e3 * row['run_s']:.2f}",
            f"{row['predicted_s'] / row['streamed_s']:.2f}",
            f"{row['predicted_s'] / row['processor_s']['streamed']:.2f}",
            f"{1e3 * row['latency_s']:.2f}",
            f"{1e3 * row['predicted_latency_s']:.2f}",
            f"{row['predicted_latency_s'] / row['latency_s']:.2f}",
            f"{row['predicted_latency_s'] / row['processor_s']['by itself']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
