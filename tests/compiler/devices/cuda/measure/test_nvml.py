from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler.devices.cuda.measure.nvml import Clock, Facts, count, sensors
from tests.compiler.devices.cuda.measure.fake_nvml import install


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes NVML answer as told."""

    def make(**changed: Any) -> Path:
        folder = install(tmp_path / "nvml", **changed)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        return folder

    return make


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    sys.modules.pop("pynvml", None)


def test_facts_and_clocks_are_told(nvml: Callable[..., Path]) -> None:
    folder = nvml()
    with sensors(0) as found:
        assert found is not None
        assert found.facts() == Facts(
            device="NVIDIA H200",
            uuid="GPU-0",
            bus="00000000:1B:00.0",
            capability="9.0",
            memory_bytes=150 << 30,
            multiprocessor_mhz=1980,
            memory_mhz=3201,
            driver="580.95.05",
        )
        assert found.clock() == Clock(1980, 3201, (), 31, 76.5)
    assert (folder / "calls").read_text().split() == ["init", "shutdown"]
    assert count() == 1


def test_a_device_is_found_by_its_bus(nvml: Callable[..., Path]) -> None:
    nvml()
    with sensors("0000:1b:00.0") as found:
        assert found is not None
    with sensors(1) as found:
        assert found is None


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0, ()), (1, ()), (2, ()), (4, ("power cap",)), (0x20 | 0x80 | 1, ("heat", "power brake")), (0x100, ())],
)
def test_only_what_slows_work_counts_as_throttling(
    nvml: Callable[..., Path], reasons: int, throttled: tuple[str, ...]
) -> None:
    nvml(throttle=reasons)
    with sensors(0) as found:
        assert found is not None
        assert found.clock().throttled == throttled


def test_what_a_device_does_not_tell_is_none(nvml: Callable[..., Path]) -> None:
    nvml(power=None, throttle=None, sm_clock=None, temperature=None, memory=None, uuid=None)
    with sensors(0) as found:
        assert found is not None
        assert found.clock() == Clock(None, 3201, (), None, None)
        assert (found.facts().memory_bytes, found.facts().uuid) == (0, "")


def test_without_a_management_library_or_its_module_nothing_is_known(
    nvml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(init=None)
    with sensors(0) as found:
        assert found is None
    assert count() == 0
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    with sensors(0) as found:
        assert found is None
    assert count() == 0
