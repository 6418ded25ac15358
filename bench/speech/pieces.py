"""`python -m bench.speech.pieces`: sound in pieces beside all of it at once, from one artifact, one thread.

The voice is `bench.zoo.voice`: 64 tokens are 65,536 samples, 3.0 seconds at 22,050 a second.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.turns import taken_in_turns
from bench.zoo.voice import WORDS, voice
from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.request import Request


@dataclass(frozen=True)
class Row:
    """Medians, in seconds of processor time: of all sound at once, until its first piece, and of all pieces.

    distance  of the pieces from the sound at once, relative to its largest value
    """

    length: int
    whole: float
    first: float
    pieces: float
    distance: float

    def __str__(self) -> str:
        ratios = f"{self.first / self.whole:.3f} | {self.pieces / self.whole:.3f}"
        return f"| {self.length} | {1e3 * self.whole:.2f} | {ratios} | {self.distance:.1e} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.speech.pieces", description=__doc__)
    parser.add_argument("--tokens", type=int, default=64, help="of the text: 1,024 samples each (default: 64)")
    parser.add_argument("--width", type=int, default=32, help="channels before the first layer (default: 32)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192], help="of a piece (default: 8192)")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning for each artifact (default: 0)")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: 15)")
    given = parser.parse_args(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print("| samples of a piece | ms at once | first piece over that | all pieces over that | distance |")
    print("|---|---|---|---|---|")
    for length in given.lengths:
        print(measured(given, length), flush=True)
    return 0


def measured(given: argparse.Namespace, length: int) -> Row:
    """One length of pieces."""
    with tempfile.TemporaryDirectory(prefix="tilewright-pieces-") as folder:
        file, artifact = Path(folder) / "voice.onnx", Path(folder) / "voice.tw"
        file.write_bytes(voice(given.tokens, given.width).SerializeToString())
        options = CompileOptions(chunks={"sound": length}, tuning_budget_s=given.budget, threads=1)
        compile_model(Request(file, artifact, options))
        inputs = {"ids": np.random.default_rng(0).integers(0, WORDS, (1, given.tokens))}
        with Model(artifact) as model:
            whole, pieces = model.run(inputs)["sound"], np.concatenate([*model.chunks(inputs)], 2)
            ways = (
                lambda: model.run(inputs),
                lambda: next(model.chunks(inputs)),
                lambda: sum(piece.size for piece in model.chunks(inputs)),
            )
            at_once, first, all_pieces = map(median, taken_in_turns(ways, given.rounds))
    far = float(np.abs(whole - pieces).max() / np.abs(whole).max())
    return Row(length, at_once, first, all_pieces, far)


if __name__ == "__main__":
    raise SystemExit(main())
