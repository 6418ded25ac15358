"""Exponentials for weights that are rounded to bytes, against float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import PROFILES, runs_here
from tests.compiler.devices.cpu.library import loaded

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
SOURCE = """#include "tw_kernel.h"
#include "tw_integer.h"
#include "tw_near.h"
__attribute__((visibility("default"))) void map(const float *x, float *y, long n) {
    for (long i = 0; i < n; i += TW_LANES) tw_store(y + i, tw_exp_near(tw_load(x + i)));
}"""


@pytest.mark.parametrize("width", TARGETS)
def test_exponentials_are_as_near_as_the_header_says(width: int) -> None:
    target = TARGETS[width]
    library = loaded(build_library({"map.c": SOURCE}, target, find_toolchain(machine=target.machine)))
    x = np.concatenate([-np.geomspace(1e-30, 87, 4080), np.zeros(16)]).astype(np.float32)
    beyond = np.array([-87.5, -1e4, -3e38, -np.inf] * 4, np.float32)
    nothing = np.full(16, np.nan, np.float32)
    y, least, none = (_mapped(library, array) for array in (x, beyond, nothing))
    wide = x.astype(np.float64)
    assert (np.abs(y / np.exp(wide) - 1) <= 2e-7 - 7e-8 * wide).all()
    assert (y[-16:] == 1).all()
    assert (least == y[np.argmin(x)]).all()
    assert np.finfo(np.float32).tiny < least[0] < 2e-38
    assert np.isnan(none).all()


def _mapped(library: ctypes.CDLL, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    library.map(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
    return y
