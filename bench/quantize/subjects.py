"""Public models with inputs like those that they were trained for: files of this tree, and digits drawn from glyphs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import version_converter

from bench import public
from bench.report import ROOT

EDGE = 1024
"""Bytes of each end of a file that Magika looks at."""
READ = 4 * EDGE
PADDING = 256
FILES = 400
"""Files that are looked at, at most, evenly spread."""
GLYPHS = (
    "0E 11 13 15 19 11 0E",
    "04 0C 04 04 04 04 0E",
    "0E 11 01 02 04 08 1F",
    "1F 02 04 02 01 11 0E",
    "02 06 0A 12 1F 02 02",
    "1F 10 1E 01 01 11 0E",
    "06 08 10 1E 11 11 0E",
    "1F 01 02 04 08 08 08",
    "0E 11 11 0E 11 11 0E",
    "0E 11 11 0F 01 02 0C",
)
"""The ten digits on 5 x 7 points: a byte for each row."""


@dataclass(frozen=True)
class Deciding:
    """A model, the inputs that it decides on, and how to write it with scales for each channel (opset 13)."""

    name: str
    input: str
    inputs: Callable[[], np.ndarray]
    """One sample along the first axis, of the shape that the model takes."""
    calibrated: int
    """Samples that ranges are taken from; decisions are compared on the others."""

    def file(self, folder: Path) -> Path:
        """The model, converted where its opset is too old. Raises `PublicModelError`."""
        source = public.fetch(self.name)
        model = onnx.load(source)
        if max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx")) >= 13:
            return source
        target = folder / f"{self.name}.onnx"
        onnx.save(version_converter.convert_version(model, 13), target)
        return target


def files() -> np.ndarray:
    """Both ends of files of this tree, and of the Python packages that run this, as Magika takes them."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    places = [ROOT / name for name in listed.decode().split("\0") if name]
    packages = Path(np.__file__).parents[1]
    places += sorted(one for one in packages.rglob("*") if one.is_file())
    contents = [place.read_bytes() for place in places[:: max(1, len(places) // FILES)] if place.stat().st_size > 64]
    return np.stack([ends(content) for content in contents])


def ends(content: bytes) -> np.ndarray:
    """The first and last bytes of a file without the white space around it; 256 where there are none."""
    first, last = content[:READ].lstrip()[:EDGE], content[-READ:].rstrip()[-EDGE:]
    made = np.full(2 * EDGE, PADDING, np.int32)
    made[: len(first)] = list(first)
    made[2 * EDGE - len(last) :] = list(last)
    return made


def digits(count: int = 400, seed: int = 0) -> np.ndarray:
    """Digits in 28 x 28 points: glyphs of random size, place, slant, width of the pen and strength, from 0 to 255."""
    random = np.random.default_rng(seed)
    return np.stack([_digit(number % 10, random) for number in range(count)]).astype(np.float32)


def _digit(number: int, random: np.random.Generator) -> np.ndarray:
    rows = [int(row, 16) for row in GLYPHS[number].split()]
    points = [(x, y) for y, row in enumerate(rows) for x in range(5) if row >> (4 - x) & 1]
    size, slant, pen = random.uniform(2.5, 3.0), random.uniform(-0.25, 0.25), random.uniform(1.1, 1.6)
    left, top = 14 + random.uniform(-1.5, 1.5, 2)
    ys, xs = np.mgrid[:28, :28]
    drawn = np.zeros((28, 28))
    for x, y in points:
        at_y = top + (y - 3) * size
        at_x = left + (x - 2) * size - (y - 3) * slant * size
        drawn = np.maximum(drawn, np.exp(-((((ys - at_y) ** 2 + (xs - at_x) ** 2) / (2 * pen**2)) ** 2)))
    return np.asarray(255 * drawn * random.uniform(0.8, 1.0))[None]


SUBJECTS: Sequence[Deciding] = (
    Deciding("magika", "bytes", files, 32),
    Deciding("mnist_conv", "Input3", digits, 32),
)
