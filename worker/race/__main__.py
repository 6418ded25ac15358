"""`python -m worker.race MODEL.onnx ARTIFACT.tw`: race an artifact with its model on other runtimes, here."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from compiler.contract.races import PEERS
from compiler.errors import TilewrightError
from compiler.pack.loader import ArtifactError
from worker.race import peers
from worker.race.race import ROUNDS, race

SECONDS = 120.0
"""Of a race that somebody waits for."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 with a line for each peer, 1 where the artifact does not run here, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m worker.race", description=__doc__)
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("artifact", type=Path, help="the .tw file that was compiled from it")
    parser.add_argument(
        "--peer", action="append", choices=[*PEERS], help="repeatable; default: those that are installed"
    )
    parser.add_argument("--threads", type=int, help="of each; default: those of the artifact's plan")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    wanted = given.peer or peers.installed()
    try:
        found = race(given.model, given.artifact, wanted, threads=given.threads, rounds=given.rounds, seconds=SECONDS)
    except (ArtifactError, TilewrightError, OSError) as error:
        print(f"{given.artifact}: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        print("\n".join(one.said for one in found) or "no peer is installed: pip install onnxruntime")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
