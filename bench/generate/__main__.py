"""`python -m bench.generate SHAPE --out model.onnx` writes one decoder: of random weights, or of those of a GGUF file.

What it prints has the options that `tilewright compile` is to be given.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.asked import positive
from bench.generate.codes import Coding
from bench.generate.decoder import PAST, Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.trained import Trained
from bench.generate.weights import Seeded, parts
from tilewright.errors import UsageError

LARGEST = (1 << 31) - 1
"""Bytes of an ONNX file that holds its weights."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for a wrong name, or a file that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m bench.generate", description=__doc__)
    parser.add_argument("shape", nargs="?", choices=SHAPES, help="of random weights")
    parser.add_argument(
        "--weights", type=Path, metavar="FILE.gguf", help="instead of a shape: trained weights (pip install gguf)"
    )
    parser.add_argument("--coding", choices=[*Coding], default=Coding.NBITS4, type=Coding, help="of the matrices")
    parser.add_argument("--attention", choices=[*Attention], default=Attention.GROUPED, type=Attention)
    parser.add_argument("--positions", type=positive, default=8192, help="the longest text (default: %(default)s)")
    parser.add_argument("--level", choices=(0, 4), default=0, type=int, help="accuracy_level of MatMulNBits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file to write (default: SHAPE.onnx)")
    parser.add_argument("--external", action="store_true", help="weights in OUT.data, beside OUT")
    parser.add_argument("--tokenizer", type=Path, metavar="PATH", help="write the GGUF file's tokenizer.json there")
    given = parser.parse_args(arguments)
    if (given.shape is None) is (given.weights is None):
        parser.error("give a shape or --weights, and not both")
    if given.tokenizer and not given.weights:
        parser.error("--tokenizer is that of a GGUF file: give --weights")
    out = given.out or Path(f"{given.weights.stem if given.weights else given.shape}.onnx")
    try:
        weights = Trained(given.weights) if given.weights else Seeded(SHAPES[given.shape], given.seed)
        held = parts(weights, given.coding, at_once=False)
        with ExitStack() as files:
            data = files.enter_context(Path(f"{out}.data").open("wb")) if given.external else None
            model = decoder(held, given.attention, given.positions, given.level, data)
        if given.tokenizer and isinstance(weights, Trained):
            given.tokenizer.write_text(weights.tokenizer())
    except UsageError as error:
        print(f"{error.message}\nFix: {error.fix}", file=sys.stderr)
        return error.exit_status
    if model.ByteSize() > LARGEST:
        print(
            "the model is larger than an ONNX file may be\nFix: choose a coding of fewer bits, or --external",
            file=sys.stderr,
        )
        return 2
    out.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{out}: {out.stat().st_size:,} bytes, {len(model.graph.node)} nodes")
    print(f"tilewright compile {out} --carry auto --dim {PAST}=1024")
    return 0


if __name__ == "__main__":
    sys.exit(main())
