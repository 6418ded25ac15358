"""Networks on a CPU and a device of another kind that is not here: each alone and both, predicted. Nothing is run.

Beside an Ethos-U stands a core whose times are modelled; cycles are Vela's estimates of what it compiles, int8. Beside
a GPU stand this machine's cores, both in fp32 by the models of costs alone, copies as assumed for PCIe 4.0: the double
of CUDA, on which such artifacts are proved, says nothing of time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import report
from bench.zoo import build
from compiler.accelerate.chips import CHIPS, chip_of
from compiler.accelerate.choosing import Asked, estimated_loads, picked, proposed
from compiler.accelerate.compile import ranges_of
from compiler.accelerate.pipelining import Loads
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions, QuantizeOptions, kinds
from compiler.contract.devices import HOST, MODELLED_CORES
from compiler.devices.cuda.target import TRANSFERS
from compiler.devices.kinds import kind_of, propose, resolve
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ir.plans.lanes import NOTHING
from compiler.ops import OPERATORS
from compiler.quantize import quantize
from compiler.quantize.network import open_network
from compiler.quantize.samples import derived
from compiler.rewrite import rewrite
from compiler.schedule.parts.dividing import (
    division_of,
    one_device,
    overlapped,
    pipeline,
    placed,
    replicas,
    seconds_of,
    stages_of,
    with_queues,
)

NETWORKS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "densenet_lstm_captioner": {},
        "nasnet_a_mobile": {},
        "resnext50_32x4d": {},
        "ensemble": {},
        "yolov3_tiny": {},
    }
)
"""With the options that they are built with."""

FEW = 4
"""Parts that a table shows one by one."""
HEAD = (
    "network",
    "{0} /s",
    "{1} /s",
    "both /s",
    "speeds added /s",
    "of that",
    "times the better",
    "busy",
    "one alone ms",
    "one on both ms",
    "operators or kernels of the parts",
    "found by",
    "processor s",
)


def predicted(
    arguments: Sequence[str], devices: Sequence[str], names: Sequence[str], json: Path | None, markdown: Path | None
) -> int:
    """Prints a row for each network. Exit status 0."""
    section = report.Section("devices", list(arguments), ())
    rows, lines = [], table_head(devices)
    print(*lines, sep="\n", flush=True)
    for name in names or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, devices, Path(folder)))
        lines.append(table_row(rows[-1]))
        print(lines[-1], flush=True)
        if json:
            report.write(json, rows)
    if markdown:
        section.append(markdown, "\n".join(lines) + "\n")
    return 0


def can_predict(devices: Sequence[str]) -> bool:
    """Whether this is a CPU whose times are known and a device of another kind by its profile, in this order."""
    if len(devices) != 2:
        return False
    cpu, other = devices
    kind = kinds.find(other)
    if kind is None:
        return False
    if kind.whole:
        return cpu in MODELLED_CORES and other in {chip.target for chip in CHIPS}
    return cpu == HOST and kind.accelerator and other in {target.name for target in kind_of(other).profiles}


def table_head(devices: Sequence[str]) -> list[str]:
    """Two lines."""
    return [f"| {' | '.join(HEAD).format(*devices)} |", f"|{len(HEAD) * '---|'}"]


def table_row(found: Mapping[str, Any]) -> str:
    """A line; an accelerator that lacks operators has *, and its speed is not added, since the CPU's share is in it.

    Speeds added are no bound where one device is better at some operators and the other at others.
    """
    cpu_s, other_s = found["alone_s"]
    period_s, latency_s = found["period_s"], found["latency_s"]
    added_s = 1 / (1 / cpu_s + 1 / other_s)
    cells = [
        found["network"],
        f"{1 / cpu_s:.1f}",
        f"{1 / other_s:.1f}{'' if found['is_alone'] else '*'}",
        f"{1 / period_s:.1f}",
        f"{1 / added_s:.1f}" if found["is_alone"] else "",
        f"{added_s / period_s:.2f}" if found["is_alone"] else "",
        f"{min(cpu_s, other_s) / period_s:.2f}",
        ", ".join(f"{share:.0%}" for share in found["busy"]),
        f"{1e3 * min(cpu_s, other_s):.3f}",
        f"{1e3 * latency_s:.3f}",
        _parts(found["parts"]),
        found["scheduler"],
        f"{found['processor_s']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _parts(parts: Sequence[tuple[int, int]]) -> str:
    """Of each part how many and on which device, 0 the CPU; of many parts together."""
    if len(parts) <= FEW:
        return " + ".join(f"{count} on {'other' if device else 'cpu'}" for device, count in parts)
    own = [sum(count for device, count in parts if bool(device) == other) for other in (False, True)]
    return f"{len(parts)} parts: {own[0]} on cpu, {own[1]} on other"


def row(name: str, devices: Sequence[str], folder: Path) -> dict[str, Any]:
    """What is predicted of a network of the zoo on a CPU and another device.

    `alone_s` are seconds of an inference on each; `period_s` from one end to the next through both, and `latency_s` of
    one by itself where it is placed for that; `busy` the devices' shares of the period. Raises UnsupportedModel.
    """
    begin = time.process_time()
    file = folder / f"{name}.onnx"
    file.write_bytes(build(name, **NETWORKS.get(name, {})).SerializeToString(deterministic=True))
    found = on_gpu(file, devices) if devices[1].startswith("cuda") else on_npu(file, devices, folder)
    return {"network": name, "devices": [*devices], **found, "processor_s": time.process_time() - begin}


def on_npu(file: Path, devices: Sequence[str], folder: Path) -> dict[str, Any]:
    """Of a core that is modelled and an accelerator, by `compiler.accelerate`, on one drawn sample."""
    core, chip = devices[0], chip_of(devices[1])
    options = QuantizeOptions(activations="int8", outputs=True, derived_samples=1, attention=False)
    _, given = open_network(file)
    made = folder / "int8.onnx"
    quantize(file, made, options, {})
    _, network = open_network(made)
    asked = Asked(
        given, network, ranges_of(network, made, options, derived(file, options)), chip, core, "", "throughput"
    )
    found, _ = proposed(asked)
    known: dict[str, Loads] = {}
    for name, one in found.items():
        if (loads := estimated_loads(one, core)) is not None:
            known[name] = loads
    often, _ = picked(known, "throughput")
    early, _ = picked(known, "latency")
    whole = {name: one for name, one in known.items() if not found[name].uses_accelerator}
    both = [one for name, one in known.items() if found[name].uses_accelerator]
    if not whole or not both:
        raise UnsupportedModel("one of the devices cannot have the model", fix="compile it for the other one")
    loads, cpu_s = known[often], min(one.latency_s for one in whole.values())
    first = next(iter(both))
    return {
        "alone_s": [cpu_s, first.latency_s],
        "is_alone": first.cpu_s == 0.0,
        "period_s": loads.period_s,
        "latency_s": known[early].latency_s,
        "busy": [*loads.busy],
        "parts": [(int(one.accelerated), len(one.nodes)) for one in found[often].segments],
        "scheduler": often,
    }


def on_gpu(file: Path, devices: Sequence[str]) -> dict[str, Any]:
    """Of this machine's cores and a GPU by name, each kernel under its best tile by the models of costs."""
    kernels = fuse(rewrite(load(file, CompileOptions(), OPERATORS).graph).graph).kernels
    targets = [resolve(name) for name in devices]
    seconds = [
        [propose(workload_of(kernels, call), target, target.lanes)[0].seconds for call in kernels.calls]
        for target in targets
    ]
    division = division_of(kernels, seconds, NOTHING, [None, TRANSFERS])
    ways = (replicas, pipeline, one_device, overlapped)
    often = min((way(kernels, devices, division) for way in ways), key=lambda one: one.period_s)
    early = min((way(kernels, devices, division) for way in (placed, one_device)), key=lambda one: one.predicted_s)
    loads = [0.0 for _ in often.devices]
    queued = with_queues(division) if len(often.devices) > len(devices) else division
    for part, own in zip(often.parts, seconds_of(queued, stages_of(often)), strict=True):
        loads[part.device] += part.turns.share * own
    return {
        "alone_s": [division.part_s(at, division.whole) for at in range(2)],
        "is_alone": True,
        "period_s": often.period_s,
        "latency_s": early.predicted_s,
        "busy": [one / often.period_s for one in loads[:2]],
        "parts": [(part.device, len(part.calls)) for part in often.parts],
        "scheduler": often.scheduler,
    }
