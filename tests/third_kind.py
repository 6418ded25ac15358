"""A made-up third kind of device, for tests that nothing but its registration is needed.

Its record and its `worker.devices.holder.Holder`.

A machine has two DSPs, which run the profiles v1 and v2; its compiler makes code for v3 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from compiler.contract import Kind, kinds
from compiler.errors import TargetUnavailable

DSP = Kind(
    name="dsp",
    title="DSP",
    precisions=("int8", "fp32"),
    schedulers=("auto", "sequential", "waves"),
    threads=False,
    lane="queue",
    accelerator=True,
    here="the DSP of the worker that takes the job",
    package="tests.third_kind",
    holder="tests.third_kind",
    hardware="a DSP",
    builder="its compiler",
)


def register(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Until the test ends there are three kinds of device."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, DSP))
    return DSP


@dataclass(frozen=True)
class Held:
    """One DSP."""

    index: int

    @property
    def device(self) -> str:
        """Its name."""
        return DSP.device(self.index)

    @property
    def targets(self) -> list[str]:
        """What it runs."""
        return profiles()[:2]

    def compiles(self, compiler: str) -> bool:
        """Always."""
        return True

    def facts(self) -> dict[str, Any]:
        """Few."""
        return {"target": self.targets[0], "fingerprint": f"{self.targets[0]}/1", "cores": 1}


def profiles() -> list[str]:
    """Three."""
    return ["dsp:v1", "dsp:v2", "dsp:v3"]


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each."""
    return [{"name": name, "description": "DSPs", "precisions": ["int8"]} for name in profiles()]


def held(index: int) -> Held:
    """One of two."""
    if index > 1:
        raise TargetUnavailable(f"there is no DSP {index}", fix="use dsp:0 or dsp:1")
    return Held(index)


def compilable(compiler: str) -> list[str]:
    """All."""
    return profiles()


def environment(device: str) -> dict[str, str]:
    """By which a job sees its DSP alone, or none."""
    index = DSP.index_of(device)
    return {"VISIBLE_DSPS": "" if index is None else str(index)}


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of who holds one."""
    return ("dsp:v1", "dsp:v1/1") if hardware["device"] == "dsp:0" else None
