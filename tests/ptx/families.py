"""Families of kernels as `gpu-check` has them, at sizes that an interpreter runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.devices.cuda.target import resolve
from tests.gpu import intrinsics, kernels
from tests.gpu.family import Family
from tests.ptx.device import PtxDevice

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_120")
NETWORKS = ("tiny_inception", "tiny_transformer", "tiny_mobile", "tiny_lstm")
MOST_POINTS = 2**17


@dataclass(frozen=True)
class Judged:
    """What came of a family: trials that ran, and what was wrong of which."""

    name: str
    trials: int
    wrong: tuple[str, ...]


def judge(family: Family, architecture: str, races: bool = True) -> Judged:
    """Every trial of a family on the interpreter, each in fresh memory."""
    wrong = []
    with PtxDevice(family.source, architecture, races) as device:
        for trial in family.trials:
            device.forget()
            try:
                outcomes = trial.run(device.as_device)
            except Exception as error:
                wrong.append(f"{family.name}: {trial.name}: {error!r}"[:1000])
                continue
            wrong += [
                f"{family.name}: {trial.name}: error {one.error:.3g}, granted {one.tolerance:g}"
                for one in outcomes
                if not one.error <= one.tolerance
            ]
            assert outcomes, trial.name
    return Judged(family.name, len(family.trials), tuple(wrong))


def of_instructions(architecture: str) -> Iterator[Judged]:
    """Families of single instructions that an architecture has."""
    target = resolve(f"cuda:{architecture}")
    for family in intrinsics.FAMILIES:
        if family.runs_on(target):
            yield judge(family, target.architecture)


def of_algorithms(architecture: str, precision: str, subjects: int, algorithms: Sequence[str] = ()) -> Iterator[Judged]:
    """Every algorithm, or some, in a precision, on some kernels of small networks each."""
    target = resolve(f"cuda:{architecture}")
    asked = [
        name
        for name in kernels.names()
        if name.endswith(f" {precision}") and (not algorithms or name.rpartition(" ")[0] in algorithms)
    ]
    with small(subjects):
        for family in kernels.families(target, asked):
            if family.trials and family.runs_on(target):
                yield judge(family, target.architecture)


@contextmanager
def small(subjects: int) -> Iterator[None]:
    """Kernels of small networks alone, and so many of each algorithm."""
    before = kernels.NETWORKS, kernels.MOST_POINTS, kernels.SUBJECTS
    kernels._workloads.cache_clear()
    kernels.NETWORKS = tuple((name, {}) for name in NETWORKS)
    kernels.MOST_POINTS, kernels.SUBJECTS = MOST_POINTS, subjects
    try:
        yield
    finally:
        kernels.NETWORKS, kernels.MOST_POINTS, kernels.SUBJECTS = before
        kernels._workloads.cache_clear()
