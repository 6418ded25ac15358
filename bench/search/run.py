"""How near the tile search comes to trying every tile, and with how few of them."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.asked import CACHE
from bench.search.compare import Compared, compare
from bench.search.samples import SAMPLES, legal, workload
from compiler.contract import CompileOptions
from compiler.devices.cpu.device import cpu_backend
from compiler.ir.machine import Setting


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments."""
    names = [sample.name for sample in SAMPLES]
    parser = argparse.ArgumentParser(prog="python -m bench search", description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    if unknown := set(given.kernels) - set(names):
        parser.error(f"no such kernel: {', '.join(sorted(unknown))}")
    section = report.Section("search", arguments, ())
    rows = []
    for sample in SAMPLES:
        if sample.name in (given.kernels or names):
            rows.append(_compared(sample.name))
            print(_line(rows[-1]), flush=True)
    text = _table(rows)
    print(f"\n{text}", end="")
    if given.json:
        report.write(given.json, [row.to_json() for row in rows])
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def _compared(name: str) -> Compared:
    (sample,) = (one for one in SAMPLES if one.name == name)
    backend, _ = cpu_backend(CompileOptions(), os.environ).with_rates((), measure=True)
    machine = backend.cores(0, setting=Setting("cache", backend.toolchain.version))
    assert machine is not None, "this machine's own target runs here"
    found = workload(sample, CACHE / "networks")
    proposals, tiles = legal(found, backend.target)
    return compare(name, found, proposals, tiles, machine)


def _table(rows: Sequence[Compared]) -> str:
    head = (
        "| kernel | legal tiles | measured by the search | best us "
        "| found / best | untuned / found | rank correlation |"
    )
    means = [
        _mean([row.found_s / row.best_s for row in rows]),
        _mean([row.untuned_s / row.found_s for row in rows]),
    ]
    share = sum(row.trials for row in rows) / sum(row.legal for row in rows)
    lines = [head, "|---|---|---|---|---|---|---|", *map(_line, rows)]
    lines.append(f"| all | | {100 * share:.1f}% | | {means[0]:.3f} | {means[1]:.2f} | |")
    return "\n".join(lines) + "\n"


def _line(row: Compared) -> str:
    share = f"{row.trials} ({100 * row.trials / row.legal:.1f}%)"
    ratios = f"{row.found_s / row.best_s:.3f} | {row.untuned_s / row.found_s:.2f}"
    return f"| {row.name} | {row.legal} | {share} | {1e6 * row.best_s:.1f} | {ratios} | {row.ranks:.2f} |"


def _mean(ratios: Sequence[float]) -> float:
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
