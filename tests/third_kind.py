"""A made-up third kind of device, for tests that nothing but its registration is needed: its record and its `worker.holder.Holder`.

A machine has two NPUs, which run the profiles v1 and v2; its compiler makes code for v3 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from compiler.contract import Kind, kinds
from compiler.errors import TargetUnavailable

NPU = Kind(
    name="npu",
    title="NPU",
    precisions=("int8", "fp32"),
    schedulers=("auto", "sequential", "waves"),
    threads=False,
    lane="queue",
    accelerator=True,
    here="the NPU of the worker that takes the job",
    package="tests.third_kind",
    holder="tests.third_kind",
    hardware="an NPU",
    builder="its compiler",
)


def register(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Until the test ends there are three kinds of device."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, NPU))
    return NPU


@dataclass(frozen=True)
class Held:
    """One NPU."""

    index: int

    @property
    def device(self) -> str:
        """Its name."""
        return NPU.device(self.index)

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
    return ["npu:v1", "npu:v2", "npu:v3"]


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each."""
    return [{"name": name, "description": "NPUs", "precisions": ["int8"]} for name in profiles()]


def held(index: int) -> Held:
    """One of two."""
    if index > 1:
        raise TargetUnavailable(f"there is no NPU {index}", fix="use npu:0 or npu:1")
    return Held(index)


def compilable(compiler: str) -> list[str]:
    """All."""
    return profiles()


def environment(device: str) -> dict[str, str]:
    """By which a job sees its NPU alone, or none."""
    index = NPU.index_of(device)
    return {"VISIBLE_NPUS": "" if index is None else str(index)}


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of who holds one."""
    return ("npu:v1", "npu:v1/1") if hardware["device"] == "npu:0" else None
