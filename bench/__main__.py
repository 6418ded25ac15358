"""`python -m bench COMMAND`: the side-by-side measurements. `python -m bench COMMAND --help` tells more of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bench.demo import race, run
from bench.service import run as load

COMMANDS: Mapping[str, tuple[Callable[[list[str]], int], str]] = MappingProxyType(
    {
        "demo": (
            run.main,
            "compile models over HTTP on a server of its own, and time the artifacts beside ONNX Runtime",
        ),
        "service": (load.main, "what the service bears: states read per second, event streams, transfers, preflights"),
        "race": (race.main, "time one artifact beside ONNX Runtime on the model that it was compiled from"),
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
