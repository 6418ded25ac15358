"""`python -m bench.gpu.probe`: what of this machine's GPU decides how kernels begin, measured once.

What launches cost, whether one split of L1 and shared memory is better, and each habit of
`compiler.devices.cuda.measure.switches`. The records are added to a file, where compilations find them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.devices.cuda.measure import launches
from compiler.devices.cuda.measure.driver import gpu_here
from compiler.devices.cuda.measure.launches import known_launches, measure_launches
from compiler.devices.cuda.measure.splits import EACH, ONCE, known_split, measure_splits
from compiler.devices.cuda.measure.switches import SWITCHES, known_switch, measure_switches
from compiler.devices.cuda.target import resolve
from compiler.errors import TilewrightError
from compiler.ir.machine import Record


def main(arguments: list[str]) -> int:
    """Exit status 0 where everything was measured, 1 where the GPU or NVRTC refused something."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.probe", description=__doc__)
    parser.add_argument("--records", type=Path, required=True, help="earlier measurements, to which new ones are added")
    parser.add_argument("--json", type=Path, required=True, help="where to write what was found")
    given = parser.parse_args(arguments)
    try:
        target = resolve("cuda", gpu_here())
    except TilewrightError as error:
        print(f"{error.message}: {error.fix}", file=sys.stderr)
        return 1
    found = [*measure_splits(target), *measure_launches(target), *measure_switches(target)]
    given.records.parent.mkdir(parents=True, exist_ok=True)
    with given.records.open("a") as kept:
        kept.writelines(json.dumps(record.to_json()) + "\n" for record in found)
    rows = {"one_split": _row(found, EACH, ONCE, known_split(found, target))}
    for switch in SWITCHES:
        rows[switch.field] = _row(found, switch.fact(False), switch.fact(True), known_switch(found, target, switch))
    costs = known_launches(found, target)
    given.json.write_text(json.dumps({**rows, "launches": costs}) + "\n")
    print(launches.describe(costs))
    for name, row in rows.items():
        print(describe(name, row))
    return int(not costs or any(row["on"] is None for row in rows.values()))


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
