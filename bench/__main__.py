"""`python -m bench COMMAND`: the side-by-side measurements. `python -m bench COMMAND --help` tells more of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bench.demo import run as demo
from bench.kernels import run as kernels
from bench.models import run as models
from bench.race import run as race
from bench.schedule import run as schedule
from bench.search import run as search
from bench.service import run as load

COMMANDS: Mapping[str, tuple[Callable[[list[str]], int], str]] = MappingProxyType(
    {
        "models": (
            models.main,
            "whole models beside peers: latency, ratio to the best, error, part of the machine's peak",
        ),
        "kernels": (
            kernels.main,
            "each kernel of a model beside the peers' layers for the same nodes; ten sample kernels",
        ),
        "search": (search.main, "the tile search against trying every tile, on ten kernels"),
        "schedule": (
            schedule.main,
            "every schedule of a model beside its sequential one: predicted, measured, hand-overs, search time",
        ),
        "race": (race.main, "time one artifact beside peers that run the model it was compiled from"),
        "demo": (
            demo.main,
            "compile models over HTTP on a server of its own, and time the artifacts beside ONNX Runtime",
        ),
        "service": (load.main, "what the service bears: states read per second, event streams, transfers, preflights"),
    }
)


def main(arguments: list[str]) -> int:
    """Exit status of the command; 2 when there is none of that name."""
    name, *rest = arguments or ["--help"]
    if name in COMMANDS:
        return COMMANDS[name][0](rest)
    print(f"{__doc__}\n", *(f"  {known:8} {about}" for known, (_, about) in COMMANDS.items()), sep="\n")
    return 0 if name in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
