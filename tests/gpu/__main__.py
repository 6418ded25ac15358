"""`python -m tests.gpu FAMILY...`: kernel families on this machine's GPU, beside the definition and the double.

Needs no pytest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler.devices.cuda.target import CudaTarget
from tests.cuda_double.double import Device, Mode, compile_kernels, compiler_there
from tests.gpu import intrinsics, kernels
from tests.gpu.device import GpuDevice, NoGpu, open_driver, target_here
from tests.gpu.family import Family, judge


def on_gpu(family: Family) -> Device:
    """The GPU with a family's kernels."""
    return GpuDevice(source=family.source)


def on_double(family: Family) -> Device:
    """The double with a family's kernels."""
    return Device(compile_kernels(family.source, kernels=family.kernels), Mode())


def names(target: CudaTarget) -> list[str]:
    """Of all families that a target has what they use, as far as that is known before kernels are generated."""
    return [*(family.name for family in intrinsics.FAMILIES if family.runs_on(target)), *kernels.names()]


def families(target: CudaTarget, asked: Sequence[str]) -> Iterator[Family]:
    """Those asked for."""
    yield from (family for family in intrinsics.FAMILIES if family.name in asked)
    yield from (family for family in kernels.families(target, asked) if family.runs_on(target))


def main(arguments: list[str]) -> int:
    """Exit status 0 where all agree, 1 where one does not, 2 without a GPU or for an unknown family."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("family", nargs="*", help="of --list (default: all)")
    parser.add_argument("--list", action="store_true", help="print the families of this GPU as a JSON list")
    parser.add_argument("--json", type=Path, help="write the verdicts here")
    parser.add_argument("--alone", action="store_true", help="without the double")
    given = parser.parse_args(arguments)
    try:
        target = target_here(open_driver())
    except NoGpu as reason:
        print(f"no GPU here: {reason}", file=sys.stderr)
        return 2
    if given.list:
        print(json.dumps(names(target)))
        return 0
    if unknown := set(given.family) - set(names(target)):
        parser.error(f"this GPU has no family {', '.join(sorted(unknown))}; see --list")
    double = on_double if compiler_there() and not given.alone else None
    verdicts = []
    for family in families(target, given.family or names(target)):
        verdicts.append(judge(family, on_gpu, double))
        print(verdicts[-1], flush=True)
        if given.json:
            given.json.write_text(json.dumps([verdict.to_json() for verdict in verdicts], indent=2))
    return 0 if all(verdict.passed for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
