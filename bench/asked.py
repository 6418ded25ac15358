"""Arguments that the measuring commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from bench.engines.catalogue import peers
from compiler.contract import CompileOptions

CACHE = Path("build/bench")
PRECISIONS = ("fp32", "bf16", "int8")


def of_subjects(
    parser: argparse.ArgumentParser, arguments: Sequence[str], names: Sequence[str], rounds: int
) -> argparse.Namespace:
    """Arguments of a command that has a set of models of its own, with `models`, those that are asked for.

    A name that is none of `names` ends the process as other wrong arguments do.
    """
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning for each artifact (default: 0)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"inferences of each (default: {rounds})")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    if unknown := set(given.models) - set(names):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    given.models = given.models or [*names]
    return given


def add_common(parser: argparse.ArgumentParser) -> None:
    """Peers, precision, tuning, cache and where the figures go."""
    parser.add_argument(
        "--peers",
        default="onnxruntime,openvino",
        help=f"with commas between, of: {', '.join(peers())} (default: %(default)s)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="of arithmetic (default: fp32); int8: networks are quantised first, and all engines run the same QDQ file",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        default=CompileOptions().tuning_budget_s,
        help="seconds of tuning for each compilation (default: %(default)g)",
    )
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder of artifacts and tuning records (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the tables there too")


def seconds(text: str) -> float:
    """A number of seconds from 0 on."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return number


def positive(text: str) -> int:
    """A whole number from 1 on."""
    (number,) = positive_numbers(text)
    return number


def positive_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers from 1 on, with commas between."""
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not of numbers from 1 on, such as 1,2")
    return numbers
