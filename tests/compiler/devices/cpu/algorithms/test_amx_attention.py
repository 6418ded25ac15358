"""Attention by AMX tiles: both products are rounded to bf16, nothing else is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.amx_attention import amx_attention_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget
from tests.compiler.devices.cpu.algorithms.test_amx import HERE, WITH_TILES
from tests.compiler.devices.cpu.algorithms.test_attention import cases
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.devices.cpu.wide import in_float64


def drawn(count: int) -> list[Case]:
    """Cases under each of their tiles."""
    return [
        replace(case, tile=option.tile)
        for case in draws(cases(WITH_TILES), count)
        for option in amx_attention_tiles(case.workload, WITH_TILES, 1 + len(case.cuts))
    ]


@pytest.mark.parametrize("target", HERE)
def test_attention_is_off_by_the_rounding_of_its_operands(target: CpuTarget) -> None:
    found = drawn(6)
    assert {case.tile.extent("block", "m") for case in found} == {16, 32}
    library = Library.of(found, target, optimise="-O1")
    for number, case in enumerate(found):
        (got,), (want,) = library.run(number, case), in_float64(case.kernel, case.inputs)
        scale = float(np.abs(want).max())
        description = f"{case}\n{library.lowered[number].text}"
        np.testing.assert_allclose(got, want, rtol=0, atol=8 * BF16_STEP * scale, err_msg=description)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_targets_without_tiles_are_offered_none(profile: CpuTarget) -> None:
    case = draws(cases(WITH_TILES), 1)[0]
    assert bool(amx_attention_tiles(case.workload, profile, 1)) == profile.has_tiles
