"""Kernels and layers as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from bench.kernels.row import Kernel, Row
from bench.kernels.sample import Sampled

MOST_LOST = 10


def by_group(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """A line for each kernel of ours, and a line with the sums.

    The layers of the peers stand beside the first kernel of their group.
    """
    peers_us = [f"{peer} us" for peer in peers]
    head = (
        "what",
        "our kernel",
        "algorithm and tile",
        "GFLOP",
        "us",
        "GFLOP/s",
        "of peak",
        "share",
        *peers_us,
        "lost us",
    )
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        theirs = [f"{row.peers[peer]:.1f}" if row.peers[peer] else "-" for peer in peers]
        lost = "-" if row.lost_us is None else f"{row.lost_us:+.1f}"
        beside = [f"{row.share:.1%}", *theirs, lost]
        first, *others = row.kernels or (None,)
        lines.append(_line([row.what, *_kernel(first), *beside]))
        lines += [_line(["", *_kernel(kernel), *[""] * len(beside)]) for kernel in others]
    sums = [f"{sum(row.peers[peer] for row in rows):.1f}" for peer in peers]
    ours = sum(row.us for row in rows)
    lines.append(_line(["all", "", "", "", f"{ours:.1f}", "", "", "", *sums, ""]))
    return "\n".join(lines) + "\n"


def most_lost(rows: Sequence[Row]) -> str:
    """Where the fastest peer is most ahead, the largest loss first; empty where it is nowhere."""
    behind = sorted((row for row in rows if (row.lost_us or 0) > 0), key=lambda row: -(row.lost_us or 0))
    lines = [
        f"- {row.lost_us:.1f} us: {row.what} ({row.us:.1f} us against {row.best_us:.1f})" for row in behind[:MOST_LOST]
    ]
    return "Lost most to the fastest peer:\n\n" + "\n".join(lines) + "\n" if lines else ""


def of_samples(samples: Sequence[Sampled], peers: Sequence[str]) -> str:
    """A line for each sample kernel: the whole run of its model, then the kernel alone."""
    whole = ("kernel", "GFLOP", *(f"{name} us" for name in ("ours", *peers)), "ours / best")
    alone = (*(f"{name} alone" for name in ("ours", *peers)), "GFLOP/s", "of peak", "algorithm and tile")
    lines = [_line((*whole, *alone)), _line(["---"] * len((*whole, *alone)))]
    for one in samples:
        ratio = one.ratio
        times = [f"{spread.median:.1f} ({spread.p10:.1f}..{spread.p90:.1f})" for spread in one.us.values()]
        inner = [f"{us:.1f}" for us in one.alone_us.values()]
        judged = "-" if ratio is None else f"{ratio.value:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"
        rate = (f"{one.gflops:.1f}", f"{one.of_peak:.0%}", one.tile)
        lines.append(_line([one.what, f"{one.gflop:.4g}", *times, judged, *inner, *rate]))
    return "\n".join(lines) + "\n"


def _kernel(kernel: Kernel | None) -> list[str]:
    if kernel is None:
        return ["none needed", "", "", "0.0", "", ""]
    if kernel.gflop is None or kernel.of_peak is None:
        return [kernel.family, kernel.tile, "-", f"{kernel.us:.1f}", "-", "-"]
    rate = 1e6 * kernel.gflop / kernel.us
    return [
        kernel.family,
        kernel.tile,
        f"{kernel.gflop:.4g}",
        f"{kernel.us:.1f}",
        f"{rate:.1f}",
        f"{kernel.of_peak:.0%}",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
