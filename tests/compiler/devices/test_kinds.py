from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from compiler.devices.cpu import target as cpu
from compiler.devices.cpu.kind import KIND as OF_CPUS
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.target import Gpu
from compiler.devices.kinds import kind_of, profiles, resolve
from compiler.errors import TargetUnavailable
from tests import third_kind

GPU = Gpu("CUDA double", (8, 6), 4, 1 << 20, 1 << 30, 1.5, "cuda:sm_86/print")


def test_every_profile_has_a_name_of_its_own_and_is_found_by_it() -> None:
    assert len({profile.name for profile in profiles()}) == len(profiles())
    for profile in profiles():
        assert resolve(profile.name).name == profile.name


def test_a_kind_alone_is_what_this_machine_has_of_it() -> None:
    assert resolve("cpu") == cpu.this_machine()
    here = cuda.resolve("cuda", GPU)
    assert here == cuda.resolve("cuda:sm_86", GPU)
    assert (here.hardware, here.is_here) == ("cuda:sm_86/print", True)
    assert not cuda.resolve("cuda:sm_90", GPU).is_here


@pytest.mark.parametrize(
    ("name", "gpu", "said"),
    [
        ("cuda", None, "there is none"),
        ("cuda", replace(GPU, capability=(7, 0)), "compute capability 7.0"),
        ("cuda:sm_70", None, "'cuda:sm_70' is unknown"),
        ("cpu:sm_90", None, "'cpu:sm_90' is unknown"),
    ],
)
def test_a_name_that_stands_for_nothing_here_is_refused_with_those_that_do(
    name: str, gpu: Gpu | None, said: str
) -> None:
    with pytest.raises(TargetUnavailable, match=said) as caught:
        cuda.resolve(name, gpu) if gpu else resolve(name)
    assert name.partition(":")[0] + ":" in caught.value.fix


def test_a_third_kind_is_found_where_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetUnavailable, match="'dsp:v1' is unknown"):
        kind_of("dsp:v1")
    package = ModuleType("tests.third_kind.kind")
    package.KIND = replace(OF_CPUS, profiles=(replace(cpu.PROFILES[0], name="dsp:v1"),))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    third_kind.register(monkeypatch)
    assert kind_of("dsp:v1") is package.KIND
    assert profiles()[-1].name == "dsp:v1"


def test_a_job_for_one_kind_of_device_does_not_load_the_others() -> None:
    program = """
import sys
import compiler.pipeline
from compiler.devices.kinds import kind_of
kind_of("cpu:x86-64-v3")
print(*(name for name in sys.modules if name.startswith("compiler.devices.cuda")))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
