"""Latency of one artifact beside peers that run the model it was compiled from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tilewright
from bench.asked import positive
from bench.engines.catalogue import OURS, chosen
from bench.race.cores import probe
from bench.race.outputs import largest_difference
from bench.race.race import ROUNDS, Contender, Race, race
from compiler.errors import TilewrightError
from tilewright.arrays import read_npz
from tilewright.errors import ClientError


def main(arguments: list[str]) -> int:
    """`python -m bench race MODEL.onnx ARTIFACT.tw`. Exit status 1 when an engine fails, 2 for what cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m bench race", description=__doc__)
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("artifact", type=Path, help="the .tw file that was compiled from it")
    parser.add_argument("--peers", default="onnxruntime", help="with commas between (default: onnxruntime)")
    parser.add_argument("--threads", type=int, help="of each engine (default: what the plan was made for)")
    parser.add_argument("--input", type=Path, help="an .npz with the inputs by name (default: random)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        peers = chosen(given.peers)
        with tilewright.load(given.artifact) as loaded:
            inputs = read_npz(given.input) if given.input else loaded.random_inputs()
            threads = given.threads or loaded.manifest["lanes"]
        contenders = [Contender(OURS, given.artifact), *(Contender(peer, given.model) for peer in peers)]
        with probe() as cores:
            result = race(contenders, inputs, threads, cores, rounds=given.rounds)
    except ClientError as error:
        print(f"{error.message}\nFix: {error.fix}", file=sys.stderr)
        return error.exit_status
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(to_json(result, peers)) if given.json else describe(result, peers))
    return 0


def to_json(result: Race, peers: Sequence[str]) -> dict[str, Any]:
    """Plain JSON. `ratio` is ours over the peer's: below 1 ours is faster."""
    return {
        "threads": result.threads,
        "rounds": len(result.medians(OURS)),
        "discarded": result.discarded,
        "calm": result.calm,
        "state": result.state,
        "handover_ns": result.handover_ns,
        "ours_ms": asdict(result.ms(OURS)),
        "peers": {
            peer: {
                "ms": asdict(result.ms(peer)),
                "ratio": asdict(result.ratio(OURS, peer)),
                "difference": largest_difference(result.outputs[OURS], result.outputs[peer]),
            }
            for peer in peers
        },
    }


def describe(result: Race, peers: Sequence[str]) -> str:
    """A line for each engine, for people."""
    ours = result.ms(OURS)
    lines = [f"{result.threads} threads: {ours.median:.3f} ms (p10 {ours.p10:.3f}, p90 {ours.p90:.3f})"]
    for peer in peers:
        theirs, ratio = result.ms(peer), result.ratio(OURS, peer)
        difference = largest_difference(result.outputs[OURS], result.outputs[peer])
        lines.append(
            f"{peer} {theirs.median:.3f} ms (p10 {theirs.p10:.3f}, p90 {theirs.p90:.3f}), ours over theirs "
            f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), outputs differ by {difference:.1e}"
        )
    return "\n".join(lines)
