"""What is said of an artifact that was raced with the model as it came on another runtime."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PEERS = MappingProxyType({"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"})
"""The runtimes that artifacts can be raced with: the name of each as the option `compare` takes it, and its own."""


@dataclass(frozen=True)
class PeerReport:
    """One race; None, and 0 rounds, where there was none.

    peer        one of PEERS
    version     of the peer's distribution; empty where it is not installed
    threads     of the artifact, and of the peer
    ours_s      seconds of one run of the artifact: the median of the rounds' medians
    theirs_s    the same of the peer
    ratio       how many times as fast the artifact is: the peer's seconds over the artifact's, round by round
    low, high   the interval that holds the ratio with 95 %; None where there were too few rounds
    rounds      in which both took a turn
    difference  the largest of the outputs, relative to the largest value of each of the peer's; None where values are
                not finite in one of them alone
    said        all of that in one sentence, or why there was no race
    """

    peer: str
    said: str
    version: str = ""
    threads: int = 0
    ours_s: float | None = None
    theirs_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    difference: float | None = None

    @property
    def title(self) -> str:
        """The peer's own name."""
        return PEERS[self.peer]


def said_of(peer: str, ours_s: float, theirs_s: float, found: Any, rounds: int) -> str:
    """`1.08 ms; ONNX Runtime 1.66 ms: 1.54 times as fast (1.49 to 1.58)`.

    found  ratio, low and high, as `PeerReport` has them
    """
    both = f"{duration(ours_s)}; {PEERS[peer]} {duration(theirs_s)}"
    if found.low is None or found.high is None:
        many = f"{rounds} round{'s' if rounds > 1 else ''}"
        return f"{both}: {found.ratio:.2f} times as fast in {many}, which are too few to be sure"
    interval = f"{found.low:.2f} to {found.high:.2f}"
    if found.low <= 1 <= found.high:
        return f"{both}: cannot tell which is faster ({interval} times as fast)"
    return f"{both}: {found.ratio:.2f} times as fast ({interval})"


def duration(seconds: float) -> str:
    """In milliseconds, or in microseconds below one: with three digits, or all that stand before the point."""
    unit, scale = ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    value = scale * seconds
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f} {unit}"
