from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cpu import target as cpu
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.target import Gpu
from compiler.devices.kinds import PROFILES, resolve
from compiler.errors import TargetUnavailable

GPU = Gpu("CUDA double", (8, 6), 4, 1 << 20, 1 << 30, 1.5, "cuda:sm_86/print")


def test_every_profile_has_a_name_of_its_own_and_is_found_by_it() -> None:
    assert len({profile.name for profile in PROFILES}) == len(PROFILES)
    for profile in PROFILES:
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
