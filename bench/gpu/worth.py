"""`python -m bench.gpu.worth NETWORK...`: what habits of kernels are worth at most, by the model of costs.

Needs no GPU and measures nothing. Of each network, its launches one after another under the tiles of the model: how
many would ask for weights ahead, for how many bytes, how many would load constants early, and what both save by the
model (`compiler.devices.cuda.model`). The probe of `make gpu-check ARGS=first` decides whether they do.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.gpu.subjects import model_file
from bench.problem import problem
from bench.settled import settled
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cuda import model
from compiler.devices.cuda.device import CudaBackend
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.errors import TilewrightError

EARLY = re.compile(r"const int column\w* = first_n")
"""What a kernel that loads constants early says."""


@dataclass(frozen=True)
class Worth:
    """Of one network: launches, seconds of all one after another, and what habits save of them at most."""

    network: str
    launches: int
    sequential_s: float
    asking: int
    asked_bytes: int
    prefetch_s: float
    early: int
    early_s: float

    def __str__(self) -> str:
        return (
            f"| {self.network} | {self.launches} | {1e6 * self.sequential_s:.1f} | {self.asking} | "
            f"{self.asked_bytes / 1e6:.1f} | {1e6 * self.prefetch_s:.1f} | {self.early} | {1e6 * self.early_s:.1f} |"
        )


HEAD = (
    "| network | launches | µs one after another | ask ahead | MB of their weights | at most µs less "
    "| load early | at most µs less |\n|---|---|---|---|---|---|---|---|"
)


def worth(network: str, file: Path, options: CompileOptions) -> Worth:
    """What the habits are worth for a network. Raises TilewrightError."""
    found = settled(Subject(network, "zoo", file), options, ())
    assert isinstance(found.backend, CudaBackend), "the target is a GPU"
    target = found.backend.target
    on = replace(target, prefetch=True, early_constants=True)
    in_cache = found.setting.weights == "cache"
    asking, early, asked_bytes, saved_ns = 0, 0, 0, 0.0
    for call, menu in zip(found.kernels.calls, found.menus, strict=True):
        lowered = lower_cuda("kernel", found.backend.workload_of(found.kernels, call), menu.best.tile, on)
        early += EARLY.search(lowered.text) is not None
        if "tw_prefetch(" in lowered.text:
            size = sum(packing.elements * packing.dtype.bytes for packing in lowered.packings.values())
            asking, asked_bytes = asking + 1, asked_bytes + size
            saved_ns += model.prefetched_ns(size, in_cache, target)
    return Worth(
        network,
        len(found.menus),
        sum(menu.best.cost.seconds for menu in found.menus),
        asking,
        asked_bytes,
        1e-9 * saved_ns,
        early,
        1e-9 * early * model.EARLY_NS,
    )


def main(arguments: list[str]) -> int:
    """Exit status 0; 1, with the reason, where a network could not be compiled."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.worth", description=__doc__)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--target", default="cuda:sm_90", help="as the compiler names it (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print objects instead of a table")
    given = parser.parse_args(arguments)
    options = CompileOptions(target=given.target, precision=given.precision, tuning_budget_s=0.0)
    if not given.json:
        print(HEAD)
    with TemporaryDirectory() as folder:
        for network in given.networks:
            try:
                row = worth(network, model_file(network, Path(folder)), options)
            except TilewrightError as error:
                print(problem(error), file=sys.stderr)
                return 1
            print(json.dumps(vars(row)) if given.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
