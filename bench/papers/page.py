"""docs/papers.md from what is stored: claims with our figures (claims.json), and predictions (predicted.json)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import ROOT
from bench.schedule.headlines import CORES, EARLY, GPUS, NETWORKS, RTX3090, STAGES, V100, WITHOUT
from compiler.devices.cuda.target import CudaTarget

FOLDER = Path(__file__).parent
CLAIMS, PREDICTED = FOLDER / "claims.json", FOLDER / "predicted.json"
PAGE = ROOT / "docs" / "papers.md"
FIELDS = ("published", "hardware", "here", "how", "command", "gap")
"""Of a claim, beside its `section`; `how` is `measured`, with the date and the machine, or `predicted`."""
HEAD = ("published", "on", "here", "how", "command", "gap and reason")
IOS_MS: Mapping[str, tuple[float, ...]] = {
    "inception_v3": (6.51, 5.70, 4.88, 5.21, 4.95, 4.03),
    "randwire_large": (8.49, 8.42, 6.86, 8.33, 5.26, 6.02),
    "nasnet_a_large": (22.95, 21.29, 26.87, 24.66, 14.67, 16.04),
    "squeezenet1_0": (0.86, 0.82, 0.90, 0.80, 0.75, 0.73),
}
"""IOS (Ding et al., MLSys 2021), on a V100, fp32, batch 1: one after another, TASO, TVM with cuDNN, TensorRT, AutoTVM,
IOS."""
RAMMER_MS: Mapping[str, tuple[float, ...]] = {"nasnet_a_mobile": (3.07, 14.81, 27.45, 2.82, 4.96, 2.12)}
"""Rammer (Ma et al., OSDI 2020), figure 13 by its artifact, on a V100, fp32, batch 1, 224 x 224: its operators one
after another, TensorFlow 1.15, XLA, TVM 0.7, TensorRT 7, Rammer."""

Row = Mapping[str, Any]


def page(claims: Sequence[Row], gpus: Sequence[Row], cores: Sequence[Row]) -> str:
    """The whole page. Raises KeyError where a claim lacks a field, or names what was not predicted."""
    rows = {(row["gpu"], row["model"]): row for row in gpus}
    parts = [ABOVE, *SAID]
    for section in dict.fromkeys(claim["section"] for claim in claims):
        said = [_claim(claim, rows) for claim in claims if claim["section"] == section]
        parts += [f"## {section}", _table(HEAD, said, "---")]
    parts += ["## GPU headlines, network by network", BESIDE]
    for gpu in GPUS:
        if there := [rows[gpu.product, name] for name in NETWORKS if (gpu.product, name) in rows]:
            parts += _of_gpu(gpu, there)
    for text, work, peers, published in (
        (IOS_SAID, "IOS", ("TASO", "TVM, cuDNN", "TensorRT 7", "AutoTVM"), IOS_MS),
        (RAMMER_SAID, "Rammer", ("TensorFlow", "XLA", "TVM", "TensorRT 7"), RAMMER_MS),
    ):
        if of_work := {name: rows[V100.product, name] for name in published if (V100.product, name) in rows}:
            parts += [text, _beside(work, peers, published, of_work)]
    if cores:
        parts += ["## More cores, simulated", ON_MORE, _on_cores(cores)]
    days = sorted({row["date"] for row in (*gpus, *cores)})
    parts.append(
        f"Predicted on {' and '.join(days)} by `python -m bench papers`: a quarter of an hour of processor time."
    )
    return "\n\n".join(_filled(part) for part in parts) + "\n"


def stored() -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Claims and predictions, of `gpus` and `cores`, as they lie here."""
    return json.loads(CLAIMS.read_text()), json.loads(PREDICTED.read_text())


def _claim(claim: Row, rows: Mapping[tuple[str, str], Row]) -> list[str]:
    cells = {name: claim[name] for name in FIELDS}
    for place, asked in claim.get("ratios", {}).items():
        gpu = next(one.product for one in GPUS if one.name == asked["gpu"])
        ratios = [
            f"{TITLES[name]} {_ratio(rows[gpu, name], asked['over'], asked['by']):.2f}" for name in asked["models"]
        ]
        cells["here"] = cells["here"].replace(f"[{place}]", ", ".join(ratios))
    if cells["command"]:
        cells["command"] = f"`{cells['command']}`"
    return [cells[name] for name in FIELDS]


def _of_gpu(gpu: CudaTarget, there: Sequence[Row]) -> Iterator[str]:
    about = "`cuda:rtx3090`" if gpu is RTX3090 else "facts for predictions alone"
    yield f"**{gpu.product}** ({about}), fp32, batch 1, milliseconds:"
    head = ("", "launches", "waited for", "ahead", "one graph", *map(_short, WITHOUT), "best")
    names = ("waited", "ahead", "graph", *WITHOUT, "best")
    times = [[_ms(row["ms"][name]) for name in names] for row in there]
    titles = [[TITLES[row["model"]], str(row["launches"])] for row in there]
    yield _table(head, [[*title, *ms] for title, ms in zip(titles, times, strict=True)], "---:")
    yield "Times as fast as one operator after another; the last two over one graph:"
    head = ("", "best, over waited for", "over ahead", "over one graph", "early_start", "stages")
    yield _table(head, [[title, *_gains(row)] for (title, _), row in zip(titles, there, strict=True)], "---:")


def _gains(row: Row) -> list[str]:
    over = [_ratio(row, name, "best") for name in ("waited", "ahead", "graph")]
    return [f"{ratio:.2f}" for ratio in (*over, *(_ratio(row, "graph", name) for name in ("early_start", "stages")))]


def _beside(work: str, peers: Sequence[str], published: Mapping[str, Sequence[float]], rows: Mapping[str, Row]) -> str:
    """What a work published, its sequential time first and its own last, beside what we predict."""
    lines = [
        [
            TITLES[name],
            *(f"{ms:.2f}" for ms in published[name]),
            f"{published[name][0] / published[name][-1]:.2f}",
            *(_ms(row["ms"][which]) for which in ("ahead", "best")),
            f"{_ratio(row, 'ahead', 'best'):.2f}",
        ]
        for name, row in rows.items()
    ]
    head = ("", "sequential", *peers, work, f"{work} gains", "ours ahead", "ours best", "ours gains")
    return _table(head, lines, "---:")


def _on_cores(rows: Sequence[Row]) -> str:
    lines = []
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row["ms"] for row in rows if row["model"] == name]
        in_turn = [ms["in turn"] for ms in own]
        blank = [""] * (len(CORES) - len(own))
        lines.append([TITLES[name], "in turn, ms", *map(_ms, in_turn), *blank])
        lines.append(["", "over one core", *(f"{in_turn[0] / least:.1f}" for least in in_turn), *blank])
        for scheduler in (EARLY, STAGES):
            lines.append(["", scheduler, *(f"{ms['in turn'] / ms[scheduler]:.2f}" for ms in own), *blank])
    return _table(("", "cores", *map(str, CORES)), lines, "---:")


def _ratio(row: Row, over: str, by: str) -> float:
    return float(row["ms"][over] / row["ms"][by])


def _short(name: str) -> str:
    scheduler, without, rules = name.partition(" without ")
    return f"without {rules}" if without else scheduler


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|---|{'|'.join([align] * (len(head) - 1))}|", *lines[1:]])


def _filled(part: str) -> str:
    """Prose in lines that fit; tables and headings as they are."""
    if part.startswith(("|", "#")):
        return part
    return textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False)


TITLES: Mapping[str, str] = {
    "squeezenet1_0": "SqueezeNet 1.0",
    "inception_v3": "Inception V3",
    "resnext50_32x4d": "ResNeXt-50",
    "ensemble": "ensemble of three",
    "nasnet_a_mobile": "NASNet-A mobile",
    "nasnet_a_large": "NASNet-A large",
    "randwire_large": "RandWire",
}

ABOVE = "# What the works behind it claim, and what is had here"
SAID = (
    "Tilewright takes up works on operator scheduling, on compilation for accelerators with few operators, and on "
    "compressed models. This page puts their headlines beside ours: what was published and on which hardware, "
    "what we have, and how it was got. *Measured* is on CPUs, by the command, on the day and the machine that are "
    "given; *predicted* is by a model of the device, and nothing was run. No kernel has met a GPU yet, so no row "
    "compares with a figure from a GPU. Losses stand with the rest in [the results](../bench/RESULTS.md).",
    "`python -m bench papers` writes this page: it predicts anew what is predicted for GPUs, and takes the rest, "
    "which the commands beside it get anew, from `bench/papers/claims.json`.",
)
BESIDE = (
    "By the model of costs, of the kernels that we would run. *One operator after another* is one stream of "
    "launches, of which there are three, and gains hang on which is meant: the host *waits for* each launch (6.2 "
    "us a launch more than a graph), launches *ahead* (0.4 us), or has put all into *one graph*; NVIDIA [measured "
    "that](https://developer.nvidia.com/blog/cuda-graphs/) on a V100. Schedules are graphs. `early_start` and "
    "`stages` are with all [rules](scheduling.md#rules), then without those that are named; where the sequential "
    "graph is predicted to be faster, that stands there."
)
ON_MORE = (
    "What kernels side by side gain over the same kernels in turn, each of which is split over all cores, by the "
    "model of costs for a Neoverse V1 (64 cores in a Graviton 3); hand-overs as between cores far from each "
    "other, measured on a machine of two: 300 ns. Contention for memory is not in the model, so that figures of "
    "many cores are bounds from above. With measured kernels, predicted over measured time of whole plans was 0.96 "
    "to 1.06 on one core of a Zen 5 (2026-11-28), and on two 0.96 to 1.14, up to 1.37 where cores had moved apart "
    "since (2026-11-22); of kernels that were never measured it errs by more: two cores of a Zen 5 gained 1.36 on "
    "NASNet-A mobile (2026-11-22), where 1.08 stands here."
)
IOS_SAID = (
    "Beside IOS (MLSys 2021, V100, fp32, batch 1), its figures as published, in milliseconds. What differs: its "
    "kernels are cuDNN's and were run, ours are of the model, which lets them reach up to half of the V100's peak "
    "where cuDNN reached a ninth, so that ratios say more than milliseconds; it synchronises the host after each "
    "stage of several groups, ours are one graph; its SqueezeNet has a complex bypass, its Inception V3 no "
    "classifier, and its RandWire is another draw."
)
RAMMER_SAID = (
    "Beside Rammer (OSDI 2020, V100, fp32, batch 1), in milliseconds, by [the data of its figure "
    "13](https://github.com/microsoft/nnfusion/tree/osdi20_artifact/artifacts). Of its other networks AlexNet gained "
    "nothing (1.00), NASNet on images of 32 x 32 1.71, ResNeXt-29 on such 2.36 and ResNeXt-101 5.56, whose 32 or 64 "
    "groups are written as branches there: here [a rule](rules.md) makes them one grouped convolution, as in the "
    "ResNeXt-50 above."
)
