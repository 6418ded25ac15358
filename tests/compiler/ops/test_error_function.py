from __future__ import annotations

import math

import numpy as np

from compiler.ops.error_function import erf
from tests.device_arrays.stand_in import uploaded

VALUES = np.concatenate([np.linspace(-7, 7, 4001), np.logspace(-300, 0, 500), [0.46875, 4.0, 6.0, np.inf, -np.inf]])


def test_the_rational_functions_are_the_c_librarys() -> None:
    wanted = np.array([math.erf(value) for value in VALUES])
    found = erf(VALUES)
    assert np.abs(found - wanted).max() < 3e-16
    assert (np.abs(found - wanted) <= 5e-16 * np.abs(wanted)).all()


def test_a_number_that_is_none_stays_so_and_signs_of_zero_too() -> None:
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert np.signbit(erf(np.array([0.0, -0.0]))).tolist() == [False, True]


def test_arrays_of_other_modules_have_the_same_as_numpys() -> None:
    x = np.array([0.3, -2.5], np.float32)
    exact = np.array([math.erf(value) for value in x.tolist()])
    assert np.array_equal(erf(x), exact.astype(np.float32))
    assert np.array_equal(erf(uploaded(x)).get(), exact.astype(np.float32))  # type: ignore[attr-defined, arg-type]
