"""Networks legalised for accelerators, by exact rules, sigmoid forms and sums of ReLUs: share, errors, estimates."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bench import report
from bench.edge import compiled, subjects
from compiler.contract import CompileOptions, LegaliseOptions
from compiler.errors import BudgetMissed
from compiler.frontend import load
from compiler.legalise import Legalised, legalised_graph, open_profile
from compiler.ops import OPERATORS

PROFILES = ("edgetpu", "relu-conv-add")
ACTIVATIONS = ("HardSwish", "SiLU", "Gelu", "Mish", "Softplus")
NETWORKS: Mapping[str, tuple[Callable[[str], bytes], tuple[str, ...]]] = MappingProxyType(
    {
        "mobilenet": (subjects.mobilenet, ACTIVATIONS),
        "unet": (subjects.unet, ("HardSwish", "Mish")),
        "transformer": (subjects.transformer, ("Gelu",)),
    }
)
FORMS = ("exact", "auto", "sums 2", "sums 4", "sums 8", "sums 16")
PUBLISHED = 4.44
"""On ARM and Edge TPU, the average of the published conversion of unsupported operators."""
CPU = "cortex-a53"


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench edge", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    parser.add_argument("--vela", action="store_true", help="compile for Ethos-U instead: cycles by Arm's compiler")
    parser.add_argument("--formats", action="store_true", help="the same, as TFLite and as TOSA beside each other")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.networks if name not in NETWORKS]:
        parser.error(f"there is no network {unknown[0]!r}; there are {', '.join(NETWORKS)}")
    section = report.Section("edge", arguments, ())
    if given.vela or given.formats:
        table = (compiled.FORMATS_HEAD, compiled.formats) if given.formats else (compiled.HEAD, compiled.rows)
        text = by_vela(given.networks or [*NETWORKS], *table)
        if given.markdown:
            section.append(given.markdown, text)
        return 0
    lines = ["| accelerator, network | form | on it | hand-overs | sampled error | proved | ms (A53) | times |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    best: dict[str, list[float]] = {name: [] for name in PROFILES}
    print(*lines, sep="\n", flush=True)
    for profile in PROFILES:
        for network in given.networks or NETWORKS:
            for activation in NETWORKS[network][1]:
                rows, gain = measured(profile, network, activation)
                best[profile].append(gain)
                lines += rows
                print(*rows, sep="\n", flush=True)
    for name, gains in best.items():
        mean = math.exp(sum(map(math.log, gains)) / len(gains))
        lines.append(
            f"\n{name}: the fastest form within 5 % sampled error is {mean:.2f} times the unconverted model in the "
            f"geometric mean of {len(gains)}, by the formula; published beside it, measured: {PUBLISHED}."
        )
        print(lines[-1])
    if given.markdown:
        section.append(given.markdown, "\n".join(lines) + "\n")
    return 0


def by_vela(networks: Sequence[str], head: str, rows: Callable[[str, Callable[[], bytes]], list[str]]) -> str:
    """A table of networks compiled for Ethos-U, printed network by network."""
    lines = [head]
    print(head, flush=True)
    for network in networks:
        build, activations = NETWORKS[network]
        for activation in activations:
            found = rows(f"{network}, {activation}", partial(build, activation))
            lines += found
            print(*found, sep="\n", flush=True)
    return "\n".join(lines) + "\n"


def measured(profile: str, network: str, activation: str) -> tuple[list[str], float]:
    """A row for each form, and how many times faster the fastest is whose sampled error is within 5 percent."""
    graph = load(NETWORKS[network][0](activation), CompileOptions(), OPERATORS).graph
    random = np.random.default_rng(1)
    samples = [{value: random.normal(size=graph.type(value).dims) for value in graph.inputs} for _ in range(2)]
    rows, gain, base = [], 1.0, math.nan
    for form in FORMS:
        kind, _, terms = form.partition(" ")
        method = {"exact": "exact", "auto": "auto", "sums": "sums"}[kind]
        options = LegaliseOptions.from_json(
            {"profile": profile, "terms": int(terms or 16), "method": method, "fixed": kind == "sums"}
        )
        try:
            found = legalised_graph(graph, open_profile(profile), options, samples)
        except BudgetMissed as missed:
            rows.append(f"| | {form} | refused: {missed.message} | | | | | |")
            continue
        if form == "exact":
            base = found.before.seconds(CPU)
            share, hand = 100 * found.before.share, found.before.handovers
            title = f"{profile}, {network}, {activation}"
            rows.append(f"| {title} | unconverted | {share:.0f} % | {hand} | 0 | 0 | {1e3 * base:.2f} | 1 |")
        times = base / found.after.seconds(CPU)
        error = found.relative(found.sampled)
        if error <= 0.05:
            gain = max(gain, times)
        rows.append(_row(form, found, error, times))
    return rows, gain


def _row(form: str, found: Legalised, error: float, times: float) -> str:
    proved = found.relative(found.proved)
    said = "no bound" if math.isinf(proved) else f"{proved:.2g}"
    seconds, share = found.after.seconds(CPU), 100 * found.after.share
    shown = f"{found.after.handovers} | {error:.2g} | {said} | {1e3 * seconds:.2f} | {times:.2f} |"
    return f"| | {form} | {share:.0f} % | {shown}"
