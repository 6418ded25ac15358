"""Families of kernels and how one is judged.

On a device, beside the definition, and beside the double where that can run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.devices.cuda.target import CudaTarget
from tests.cuda_double.double import Device

Open = Callable[["Family"], AbstractContextManager[Device]]
"""A device with a family's source loaded."""


@dataclass(frozen=True)
class Outcome:
    """What a kernel computed and what it means; `tolerance` is a relative norm, 0 where every bit is decided."""

    computed: np.ndarray
    expected: np.ndarray
    tolerance: float = 0.0

    @property
    def error(self) -> float:
        """Relative norm of the difference; for a tolerance of 0 the part of the elements whose bits differ."""
        return distance(self.computed, self.expected, exact=not self.tolerance)


@dataclass(frozen=True)
class Trial:
    """One launch or a few, on fixed inputs."""

    name: str
    run: Callable[[Device], Sequence[Outcome]]


@dataclass(frozen=True)
class Family:
    """Kernels of one CUDA source. `kernels` names them where macros make them.

    `needs` is the least architecture that has what they use: `sm_80`, `sm_90`, or `sm_90a`, which is only itself.
    """

    name: str
    source: str
    trials: tuple[Trial, ...]
    kernels: tuple[str, ...] = ()
    needs: str = "sm_80"

    def runs_on(self, target: CudaTarget) -> bool:
        """Whether a target has what the kernels use."""
        if self.needs.endswith("a"):
            return target.architecture == self.needs
        return target.capability >= (int(self.needs[3]), int(self.needs[4]))


@dataclass
class Verdict:
    """What came of a family.

    `failed` says which trials and why; `same_bits` counts results that were the double's to the last bit.
    """

    family: str
    trials: int = 0
    failed: list[str] = field(default_factory=list)
    worst: float = 0.0
    """Largest error of an outcome over its tolerance."""
    compared: int = 0
    """Results compared with the double's."""
    same_bits: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "passed": self.passed}

    def __str__(self) -> str:
        beside = f", {self.same_bits} of {self.compared} bit for bit the double's" if self.compared else ""
        if not self.trials and self.passed:
            return f"{self.family}: nothing to try"
        reported = f"{self.trials} trials, worst {self.worst:.2f} of the tolerance{beside}, {self.seconds:.1f} s"
        if self.failed:
            return f"{self.family}: FAILED {len(self.failed)} of {reported}\n  " + "\n  ".join(self.failed)
        return f"{self.family}: passed, {reported}"


def judge(family: Family, device: Open, double: Open | None = None) -> Verdict:
    """Runs all trials on a device, then on the double, and compares.

    An error of the device ends the family: its context is lost.
    """
    began = time.monotonic()
    verdict = Verdict(family.name)
    if not family.trials:
        return verdict
    computed = _on(family, device, verdict)
    if double is not None and verdict.passed:
        aside = Verdict(family.name)
        _compare(computed, _on(family, double, aside), verdict)
        verdict.failed += [f"on the double: {said}" for said in aside.failed]
    verdict.seconds = round(time.monotonic() - began, 2)
    return verdict


def _on(family: Family, open_device: Open, verdict: Verdict) -> dict[str, Sequence[Outcome]]:
    """Outcomes by trial, judged by the definition."""
    outcomes: dict[str, Sequence[Outcome]] = {}
    try:
        with open_device(family) as device:
            for trial in family.trials:
                verdict.trials += 1
                outcomes[trial.name] = trial.run(device)
                for outcome in outcomes[trial.name]:
                    ratio = outcome.error / outcome.tolerance if outcome.tolerance else outcome.error
                    verdict.worst = max(verdict.worst, ratio)
                    if not outcome.error <= outcome.tolerance:
                        verdict.failed.append(f"{trial.name}: error {outcome.error:.3g}, granted {outcome.tolerance:g}")
    except Exception as error:
        verdict.failed.append(f"{next(reversed(outcomes), 'loading')} was the last that ended: {error!r}"[:2000])
    return outcomes


def _compare(one: dict[str, Sequence[Outcome]], other: dict[str, Sequence[Outcome]], verdict: Verdict) -> None:
    """The device's results beside the double's.

    Within twice the tolerance of each other, and how many to the last bit.
    """
    for name, outcomes in other.items():
        for mine, its in zip(one[name], outcomes, strict=True):
            verdict.compared += 1
            verdict.same_bits += distance(mine.computed, its.computed, exact=True) == 0
            apart = distance(mine.computed, its.computed, exact=not mine.tolerance)
            if not apart <= 2 * mine.tolerance:
                verdict.failed.append(
                    f"{name}: device and double are {apart:.3g} apart, granted {2 * mine.tolerance:g}"
                )


def distance(one: np.ndarray, other: np.ndarray, *, exact: bool) -> float:
    """Relative norm of the difference, infinite where either is not finite and they differ.

    `exact`: the part of the bytes that differ.
    """
    if exact:
        left, right = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
        return float(np.mean(left != right)) if left.size else 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    norm = float(np.linalg.norm(b[finite]))
    return float(np.linalg.norm(a[finite] - b[finite])) / (norm or 1.0)
