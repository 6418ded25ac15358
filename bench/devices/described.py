"""A published platform, described: what is predicted for it beside what was published. Nothing is run.

The captioner: an LSTM that decodes what a DenseNet saw, on an ARM board with two Edge TPUs. Published (a project of
Academia Sinica on compiler optimisation for deep learning, 2021 to 2024): placed for latency 39 times as fast as the
ARM alone, as a pipeline 55 times, which is 59 frames per second. So the ARM alone takes 55 / 59 s = 932 ms a frame, and
a frame on all devices 932 / 39 = 23.9 ms. The sizes of the network were not published: here they are DenseNet-121 at
224 and the decoder of Vinyals et al. (arXiv 1411.4555), one layer of 512, with the 8791 words that occur five times in
COCO's captions and an end, 20 steps. Every constant of the platform stands in its file with its source. Those of the
devices are fitted to published times of other networks (`bench.devices.published`), none to the results above. Each is
halved and doubled here, so that one sees what hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import report
from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.contract.platform import Platform, open_platform
from compiler.ir.graph import Graph
from compiler.legalise import open_profile
from compiler.platforms.granularity import NAMES as GRANULARITIES
from compiler.platforms.predict import Prediction, load_graph, predict

FOLDER = Path(__file__).parent / "platforms"
NAMES = ("captioner",)
DECODERS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "one layer of 512": {"hidden": 512, "vocabulary": 8792, "layers": 1},
        "two layers of 1024": {"hidden": 1024, "vocabulary": 6000, "layers": 2},
    }
)
PUBLISHED: Mapping[str, float] = MappingProxyType(
    {
        "arm_ms": 55e3 / 59,
        "latency_ms": 55e3 / 59 / 39,
        "latency_times": 39.0,
        "frames_per_second": 59.0,
        "frames_times": 55.0,
    }
)
SAID: Mapping[str, str] = MappingProxyType(
    {
        "arm_ms": "ARM alone, ms",
        "latency_ms": "one frame on all, ms",
        "latency_times": "times the ARM alone",
        "frames_per_second": "pipelined, frames/s",
        "frames_times": "times the ARM alone, pipelined",
    }
)
NEAR = 0.25


def described(arguments: Sequence[str], json: Path | None, markdown: Path | None) -> int:
    """Prints predicted beside published. Exit status 0."""
    section = report.Section("devices", list(arguments), ())
    found = rows()
    if json:
        report.write(json, found)
    text = table(found)
    print(text, end="")
    if markdown:
        section.append(markdown, text)
    return 0


def rows() -> list[dict[str, Any]]:
    """A row for each decoder, and for each assumed constant halved and doubled with the first one."""
    platform = open_platform(FOLDER / "captioner.toml")
    found = []
    for at, (name, sizes) in enumerate(DECODERS.items()):
        graph = captioner(sizes)
        found.append(row(name, graph, platform, tuple(GRANULARITIES)))
        if at == 0:
            found += [row(f"{name}, {said}", graph, other, ("kernel",)) for said, other in varied(platform)]
    return found


def captioner(sizes: Mapping[str, int]) -> Graph:
    """The network as it is placed, with seeded weights."""
    return load_graph(build("densenet_lstm_captioner", 0, **sizes).SerializeToString(), CompileOptions())


def varied(platform: Platform) -> Iterator[tuple[str, Platform]]:
    """The platform with each assumed constant halved and doubled."""
    arm, tpu = platform.devices["arm"], platform.devices["tpu"]
    assert arm.formula is not None
    assert tpu.accelerator is not None
    given = tpu.accelerator
    for said, factor in (("halved", 0.5), ("doubled", 2.0)):
        formulas = {
            "ARM's macs": replace(arm.formula, macs=arm.formula.macs * factor),
            "ARM's elements": replace(arm.formula, elements=arm.formula.elements * factor),
        }
        for name, formula in formulas.items():
            yield (
                f"{name} {said}",
                replace(platform, devices={**platform.devices, "arm": replace(arm, formula=formula)}),
            )
        accelerators = {
            "TPU's operator": replace(given, operator=given.operator * factor),
            "TPU's elements": replace(given, elements=(given.elements or 0.0) * factor),
            "TPU's call": replace(given, call=open_profile(str(given.profile)).cost.call * factor),
        }
        for name, accelerator in accelerators.items():
            yield (
                f"{name} {said}",
                replace(platform, devices={**platform.devices, "tpu": replace(tpu, accelerator=accelerator)}),
            )


def row(name: str, graph: Graph, platform: Platform, among: Sequence[str]) -> dict[str, Any]:
    """What is predicted, by the names of PUBLISHED, and how it is placed."""
    found = predict(graph, platform, FOLDER, "latency", among=among)
    often = found.curve[-1]
    alone = dict(found.alone)["arm"]
    assert alone is not None
    early = found.chosen.timeline.latency_s
    return {
        "name": name,
        "predicted": {
            "arm_ms": 1e3 * alone.latency_s,
            "latency_ms": 1e3 * early,
            "latency_times": alone.latency_s / early,
            "frames_per_second": 1 / often.timeline.period_s,
            "frames_times": alone.period_s / often.timeline.period_s,
        },
        "granularities": _granularities(found),
        "busy_ms": {device: 1e3 * seconds for device, seconds in often.timeline.busy},
        "streamed_mb": sum(often.timeline.streamed) / 1e6,
        "stages": len(often.timeline.stages),
    }


def _granularities(found: Prediction) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for one in found.granularities:
        if one.latency is None or one.throughput is None:
            said[one.name] = one.skipped
        else:
            said[one.name] = [1e3 * one.latency.latency_s, 1 / one.throughput.period_s, one.seconds]
    return said


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Predicted beside published, with the first decoder's variants below."""
    lines = [f"| decoder | {' | '.join(SAID.values())} | within {NEAR:.0%} |", f"|{'---|' * (len(SAID) + 2)}"]
    lines.append(f"| published | {' | '.join(f'{PUBLISHED[key]:.1f}' for key in SAID)} | |")
    for one in found:
        cells = []
        for key in SAID:
            value = one["predicted"][key]
            cells.append(f"{value:.1f} ({value / PUBLISHED[key] - 1:+.0%})")
        near = sum(abs(one["predicted"][key] / PUBLISHED[key] - 1) <= NEAR for key in SAID)
        lines.append(f"| {one['name']} | {' | '.join(cells)} | {near} of {len(SAID)} |")
    lines += ["", "| decoder | granularity | least latency, ms | most frames/s | processor s of the search |"]
    lines.append("|---|---|---|---|---|")
    for one in found:
        for name, said in one["granularities"].items() if len(one["granularities"]) > 1 else ():
            cells = [said, "", ""] if isinstance(said, str) else [f"{value:.2f}" for value in said]
            lines.append(f"| {one['name']} | {name} | {' | '.join(cells)} |")
    first = found[0]
    busy = ", ".join(f"{name} {value:.2f} ms" for name, value in first["busy_ms"].items())
    lines += ["", f"Busy for a frame of the pipeline with {first['name']}: {busy}; {first['stages']} stages."]
    return "\n".join(lines) + "\n"
