"""`python -m bench.gpu.probe NAME`: one thing about this machine's GPU that only it can say.

habits        what launches cost, and which habits of kernels gain (`compiler.devices.cuda.measure`)
costs         a hand-over between resident blocks; a KiB of code that is cold
accumulators  how far sums of products with many terms drift, under each algorithm

What the compiler can use of it is added to a file of records, where compilations find it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.gpu.half_hour.drift import drifts, told_drifts
from compiler.devices.cuda.measure import costs, launches
from compiler.devices.cuda.measure.costs import COSTS, known_costs
from compiler.devices.cuda.measure.driver import gpu_here
from compiler.devices.cuda.measure.launches import known_launches, measure_launches
from compiler.devices.cuda.measure.splits import EACH, ONCE, known_split, measure_splits
from compiler.devices.cuda.measure.switches import SWITCHES, known_switch, measure_switches
from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.errors import TilewrightError
from compiler.ir.machine import Record

Found = tuple[list[Record], dict[str, Any], list[str], bool]
"""Records, what a row holds, lines for people, and whether everything was answered."""


def habits(target: CudaTarget) -> Found:
    """What decides how kernels begin."""
    found = [*measure_splits(target), *measure_launches(target), *measure_switches(target)]
    rows = {"one_split": _row(found, EACH, ONCE, known_split(found, target))}
    for switch in SWITCHES:
        rows[switch.field] = _row(found, switch.fact(False), switch.fact(True), known_switch(found, target, switch))
    cost = known_launches(found, target)
    said = [launches.describe(cost), *(describe(name, row) for name, row in rows.items())]
    l2 = {"driver": target.l2_bytes, "profile": resolve(target.name).l2_bytes}
    said.append(f"L2: {l2['driver'] / 2**20:.0f} MiB by the driver, {l2['profile'] / 2**20:.0f} by the profile")
    whole = bool(cost) and all(row["on"] is not None for row in rows.values())
    return found, {**rows, "launches": cost, "l2_bytes": l2}, said, whole


def single_costs(target: CudaTarget) -> Found:
    """What predictions of persistent kernels, and of networks with much code, rest on."""
    found = measure_switches(target, [cost.probe for cost in COSTS])
    known = known_costs(found, target)
    expected = {cost.field: getattr(resolve(target.name), cost.field) for cost in COSTS}
    return found, {"costs": known, "expected": expected}, [costs.describe(known)], len(known) == len(COSTS)


def accumulators(target: CudaTarget) -> Found:
    """Whether the double's model of how tensor cores add is this GPU's."""
    found = drifts(target)
    return [], {"drifts": found}, told_drifts(found), all(row["drift"] is not None for row in found)


PROBES: Mapping[str, Callable[[CudaTarget], Found]] = MappingProxyType(
    {"habits": habits, "costs": single_costs, "accumulators": accumulators}
)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 where everything was answered, 1 where the GPU or NVRTC refused something."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.probe", description=__doc__)
    parser.add_argument("name", choices=PROBES)
    parser.add_argument("--records", type=Path, required=True, help="earlier measurements, to which new ones are added")
    parser.add_argument("--json", type=Path, required=True, help="where to write what was found")
    given = parser.parse_args(arguments)
    try:
        target = resolve("cuda", gpu_here())
    except TilewrightError as error:
        print(f"{error.message}: {error.fix}", file=sys.stderr)
        return 1
    found, row, said, whole = PROBES[given.name](target)
    given.records.parent.mkdir(parents=True, exist_ok=True)
    with given.records.open("a") as kept:
        kept.writelines(json.dumps(record.to_json()) + "\n" for record in found)
    given.json.write_text(json.dumps(row) + "\n")
    print("\n".join(said))
    return int(not whole)


def _row(found: list[Record], off: str, on: str, better: bool | None) -> dict[str, float | bool | None]:
    """Seconds of a launch without a habit and with it, and whether it is taken up."""
    seconds = {record.workload: record.seconds for record in found}
    return {"without_s": seconds.get(off), "with_s": seconds.get(on), "on": better}


def describe(name: str, row: dict[str, float | bool | None]) -> str:
    """One line for people."""
    without, within = row["without_s"], row["with_s"]
    if row["on"] is None or without is None or within is None:
        return f"{name}: the GPU or NVRTC did not take its kernels"
    verdict = "on" if row["on"] else "off"
    return f"{name}: {1e6 * within:.3f} µs a launch with it, {1e6 * without:.3f} without: {verdict}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
