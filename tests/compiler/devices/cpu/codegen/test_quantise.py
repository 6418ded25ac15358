"""Vectors of floats rounded to short integers: at ties, at both ends, beyond them, and of what is no number."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, case_of, check
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
F32 = DType.F32
TIES = np.concatenate([np.arange(start, start + 6, 0.5) for start in (-131, -3, 124, 252, 32765, 65533)])
BEYOND = np.array([np.inf, -np.inf, np.nan, 1e10, -1e10, 3e38, -3e38, 1e-45, -0.0])
NUMBERS = np.concatenate([TIES, -TIES, np.nextafter(TIES.astype(np.float32), np.float32(0)), BEYOND]).astype(np.float32)


def rounding(dtype: DType, zero: int, scale: float = 1.0) -> Case:
    """NUMBERS quantised, in one kernel."""
    s = Sketch(0, F32)
    graph = s.graph(s("QuantizeLinear", s.x(NUMBERS.size, dtype=F32), s.c(scale, F32), s.c(zero, dtype)))
    return case_of(graph, NUMBERS)


def cases() -> list[Case]:
    found = []
    for dtype in (DType.U8, DType.I8, DType.U16, DType.I16):
        limits = np.iinfo(dtype.numpy)
        found += [rounding(dtype, zero) for zero in (int(limits.min), 0, 3, int(limits.max))]
    return [*found, rounding(DType.U8, 128, 0.7)]


@pytest.mark.parametrize("width", TARGETS)
def test_they_become_what_their_definition_says(width: int) -> None:
    check(cases(), TARGETS[width], "-O1")


def test_a_quantisation_of_scale_1_divides_nothing_and_rounds_in_one_step() -> None:
    case = rounding(DType.I8, 3)
    text = lower("k0_rounding", case.workload, case.tile, TARGETS[max(TARGETS)]).text
    assert "tw_quantised(v_1, -128, 127, 3)" in text
    assert " / " not in text.partition("{")[2]
    assert "tw_round" not in text
    assert " / " in lower("k0_rounding", rounding(DType.I8, 3, 0.7).workload, case.tile, TARGETS[max(TARGETS)]).text


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8])
def test_a_zero_point_that_is_data_is_added_as_an_integer(dtype: DType) -> None:
    s = Sketch(0, F32)
    graph = s.graph(s("QuantizeLinear", s.x(NUMBERS.size, dtype=F32), s.c(1.0, F32), s.x(dtype=dtype)))
    case = case_of(graph, NUMBERS, np.asarray(3, dtype.numpy))
    assert "tw_quantised(" in lower("k0_rounding", case.workload, case.tile, TARGETS[max(TARGETS)]).text
    check([case], TARGETS[max(TARGETS)], "-O1")
