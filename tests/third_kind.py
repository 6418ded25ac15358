"""A made-up third kind of device: what is registered of it, for tests that nothing else has to be edited."""

from __future__ import annotations

import pytest

from compiler.contract import Kind, kinds

NPU = Kind(
    name="npu",
    title="NPU",
    precisions=("int8", "fp32"),
    schedulers=("auto", "sequential", "waves"),
    threads=False,
    lane="queue",
    accelerator=True,
    here="the NPU of the worker that takes the job",
    hardware="an NPU",
    builder="its compiler",
)


def register(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Until the test ends there are three kinds of device."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, NPU))
    return NPU
