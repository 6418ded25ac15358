from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.contract import kinds
from compiler.devices.cpu import target as cpu
from compiler.devices.kinds import profiles
from tests import third_kind
from worker.devices import cpu as cores
from worker.devices import device, gpu, holder, npu, wasm
from worker.devices.device import NO_DEVICE, facts
from worker.devices.holder import Holder
from worker.devices.queues import resolve

HOLDERS: tuple[tuple[str, Holder], ...] = (
    ("cpu", cores),
    ("cuda", gpu),
    ("wasm", wasm),
    ("npu", npu),
    ("dsp", third_kind),
)
"""By kind of device; the type checker holds each module to the protocol."""


def test_a_kinds_record_names_the_module_by_which_a_worker_holds_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    third_kind.register(monkeypatch)
    assert [(kind.name, holder.holder(kind)) for kind in kinds.KINDS] == [*HOLDERS]


def test_a_device_worker_tells_of_its_cores_and_a_builder_has_no_fingerprint() -> None:
    here = cpu.this_machine()
    own, builder = facts(resolve(["cpu"]).held), facts(None)
    assert (own["device"], own["measures"], own["fingerprint"]) == ("cpu", True, here.hardware)
    assert (builder["device"], builder["measures"], builder["fingerprint"]) == (NO_DEVICE, False, "")
    assert own["target"] == builder["target"] == here.name
    assert own["cores"] == builder["cores"] == here.lanes
    families = [family.name for family in kinds.CPU.families]
    named = [profile.name for profile in profiles()]
    cpus = [name for name in named if name.startswith("cpu")]
    assert own["targets"] == [*cpus, *families, *named[len(cpus) :], *npu.profiles()]
    assert json.loads(json.dumps(own)) == own


def test_the_lock_of_a_device_says_which_process_took_it(tmp_path: Path) -> None:
    assert device.holder_of(tmp_path, "cpu") is None
    with device.hold(tmp_path, "cpu") as lock:
        assert lock is not None
        assert device.holder_of(tmp_path, "cpu") == os.getpid()
        with device.hold(tmp_path, "cpu") as second:
            assert second is None
            assert device.holder_of(tmp_path, "cpu") == os.getpid()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    (tmp_path / "cpu.lock").write_text(f"{ended.pid}\n")
    assert device.holder_of(tmp_path, "cpu") is None
    (tmp_path / "cpu.lock").write_text("x")
    assert device.holder_of(tmp_path, "cpu") is None


def test_a_third_kind_of_device_is_told_of_without_further_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    third_kind.register(monkeypatch)
    own = facts(resolve(["dsp:0"]).held)
    assert (own["device"], own["measures"], own["target"], own["fingerprint"]) == ("dsp:0", True, "dsp:v1", "dsp:v1/1")
    assert {"dsp:v3", "cuda:sm_90"} <= set(own["targets"])
    assert device.measures("dsp:v1", own["device"])
    assert not device.measures("dsp:v1", "cpu")
    assert device.measured_as("dsp:v1", own) == ("dsp:v1", "dsp:v1/1")
    assert device.measured_as("tpu", own) is None
    assert holder.environment("dsp:1") == {"CUDA_VISIBLE_DEVICES": "", "VISIBLE_DSPS": "1"}
    assert holder.environment("cpu") == {"CUDA_VISIBLE_DEVICES": "", "VISIBLE_DSPS": ""}


def test_a_builder_of_this_machine_finds_what_was_measured_on_its_cores() -> None:
    here = cpu.this_machine()
    assert device.measured_as("cpu", facts(None)) == (here.name, here.hardware)
    assert device.measured_as("cpu:no-such", facts(None)) is None
