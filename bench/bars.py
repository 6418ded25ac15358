"""The picture of the README: times of ten networks as bars, drawn from a table of bench/RESULTS.md.

python -m bench bars            draws docs/pictures/bars.svg
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "RESULTS.md"
PICTURE = ROOT / "docs" / "pictures" / "bars.svg"
SECTION = "fp32, one thread"
NETWORKS = (
    *("squeezenet1_1", "resnet18", "resnet50", "inception_v3", "densenet121"),
    *("mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_tiny", "bert_base"),
)
ENGINES = (("Tilewright", "#0b5fb0"), ("ONNX Runtime", "#8b95a1"), ("OpenVINO", "#c4cbd3"))
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 130, 130, 64, 40, 10
TEXT, QUIET, PAGE = "#1b1f24", "#5b6470", "#ffffff"


@dataclass(frozen=True)
class Times:
    """Milliseconds of one inference of a network, by the engines in the order of `ENGINES`.

    ratio  ours over the fastest of the others: the median of the rounds, which is not quite that of the medians
    """

    network: str
    ms: tuple[float, ...]
    ratio: float


def main(arguments: list[str]) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(
        prog="python -m bench bars", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture (default: that of the README)")
    given = parser.parse_args(arguments)
    given.out.write_text(drawn(times(RESULTS.read_text())))
    print(given.out)
    return 0


def times(results: str, networks: Sequence[str] = NETWORKS) -> list[Times]:
    """Those of `networks` from the section's table, the best ratio first. Raises `ValueError` for one that lacks."""
    found = {row.network: row for row in _rows(results)}
    if missing := [name for name in networks if name not in found]:
        raise ValueError(f"the table {SECTION!r} of {RESULTS.name} has no {', '.join(missing)}")
    return sorted((found[name] for name in networks), key=lambda row: row.ratio)


def _rows(results: str) -> Iterator[Times]:
    _, _, rest = results.partition(f"\n## {SECTION}\n")
    section = rest.partition("\n## ")[0]
    for line in section.splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = [re.match(r"\d+(\.\d+)?", cell) for cell in cells[: len(ENGINES) + 1]]
        if len(numbers) > len(ENGINES) and all(numbers):
            *ms, ratio = (float(number[0]) for number in numbers if number)
            yield Times(name.partition(" ")[0], tuple(ms), ratio)


def drawn(rows: Sequence[Times]) -> str:
    """The picture as SVG: of each network a bar for each engine, as long as its part of the slowest one's time."""
    height = TOP + ROW * len(rows) + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(_title(rows))}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{PAGE}"/>',
        _text(12, 22, "One inference in fp32 on one thread, milliseconds: shorter is faster", size=14, weight="bold"),
        *_legend(),
    ]
    for number, row in enumerate(rows):
        parts += _group(row, TOP + ROW * number)
    note = f"{len(rows)} of the networks of bench/RESULTS.md, “{SECTION}”: AMD EPYC (Zen 5), batch 1"
    parts += [_text(12, height - 8, note, colour=QUIET, size=11), "</svg>"]
    return "\n".join(parts) + "\n"


def _title(rows: Sequence[Times]) -> str:
    each = "; ".join(f"{row.network} {row.ratio:.2f}" for row in rows)
    return f"Tilewright's time over that of the faster of ONNX Runtime and OpenVINO: {each}"


def _legend() -> Iterator[str]:
    for number, (name, colour) in enumerate(ENGINES):
        x = LEFT + 120 * number
        yield f'<rect x="{x}" y="36" width="{BAR}" height="{BAR}" fill="{colour}"/>'
        yield _text(x + BAR + 6, 45, name)
    yield _text(WIDTH - 12, 45, "ours / best", colour=QUIET, anchor="end")


def _group(row: Times, y: float) -> Iterator[str]:
    yield _text(LEFT - 10, y + 22, row.network, anchor="end")
    most = max(row.ms)
    for number, ((_, colour), ms) in enumerate(zip(ENGINES, row.ms, strict=True)):
        top, length = y + (BAR + 1) * number + 1, (WIDTH - LEFT - RIGHT) * ms / most
        yield f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>'
        yield _text(LEFT + length + 5, top + BAR - 1, f"{ms:g}", size=10, colour=QUIET)
    yield _text(WIDTH - 12, y + 22, f"{row.ratio:.2f}", anchor="end", weight="bold")


def _text(
    x: float, y: float, text: str, *, colour: str = TEXT, size: int = 12, anchor: str = "start", weight: str = "normal"
) -> str:
    style = f'fill="{colour}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
