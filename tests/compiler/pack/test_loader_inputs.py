"""Inputs that the loader draws, and elements of small types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from compiler.contract import DemandedRange
from tests.compiler.pack.conftest import Parts


def test_bfloat16_travels_as_its_bits(loader: ModuleType) -> None:
    import ml_dtypes

    spec = loader.TensorSpec("b", "bfloat16", (2,))
    ones = np.ones(2, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(loader._as_array(spec, ones), np.array([0x3F80, 0x3F80], np.uint16))
    assert loader._as_array(spec, ones.view(np.uint16)).dtype == np.uint16


def test_small_types_are_those_of_the_compiler_and_travel_as_codes(loader: ModuleType) -> None:
    from compiler.ir.small import BITS

    assert set(loader._SMALL) == {dtype.numpy.name for dtype in BITS}
    for dtype in BITS:
        spec = loader.TensorSpec("x", dtype.numpy.name, (16,))
        assert (spec.numpy, spec.carrier) == (np.uint8, "uint8")
        codes = (np.arange(16) % (1 << BITS[dtype])).astype(np.uint8)
        assert loader._as_array(spec, codes.view(dtype.numpy)).tolist() == codes.tolist()
        assert loader._as_array(spec, codes).tolist() == codes.tolist()
        drawn = loader._codes(loader.TensorSpec("x", dtype.numpy.name, (4000,)), np.random.default_rng(1))
        assert drawn.max() < 1 << BITS[dtype]
        number = drawn.view(dtype.numpy).astype(np.float32)
        assert np.isfinite(number).all()
        assert len(np.unique(number)) >= (16 if BITS[dtype] >= 8 else (1 << BITS[dtype]) - 1)
        assert (number.min() < 0) == (dtype.is_signed and dtype.numpy.name != "float8_e8m0fnu")


def test_small_integers_in_a_range_are_the_codes_of_its_numbers(loader: ModuleType) -> None:
    import ml_dtypes

    spec = loader.TensorSpec("x", "int4", (4000,))
    drawn = loader._in_range(spec, (-3, 5), np.random.default_rng(1)).view(ml_dtypes.int4).astype(np.int64)
    assert np.unique(drawn).tolist() == list(range(-3, 6))
    floats = loader._in_range(loader.TensorSpec("x", "float8_e5m2", (3,)), (0, 5), np.random.default_rng(1))
    assert (floats.dtype, floats.tolist()) == (np.uint8, [0, 0, 0])


def test_arrays_of_another_byte_order_are_refused_and_not_read_as_they_are(loader: ModuleType) -> None:
    with pytest.raises(loader.InputError, match="is >f4, not float32"):
        loader._as_array(loader.TensorSpec("x", "float32", (2,)), np.ones(2, ">f4"))


def test_random_inputs_are_those_of_the_seed_and_of_the_right_types(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        one, two, other = (model.random_inputs(seed) for seed in (3, 3, 4))
    assert {name: (array.dtype, array.shape) for name, array in one.items()} == {
        "x": (np.float32, (2, 3)),
        "n": (np.int64, ()),
    }
    np.testing.assert_array_equal(one["x"], two["x"])
    assert not np.array_equal(one["x"], other["x"])


def test_random_inputs_lie_in_the_ranges_of_the_manifest(loader: ModuleType, parts: Parts, tmp_path: Path) -> None:
    ranges = (DemandedRange("x", 0.5, None, "a logarithm"), DemandedRange("n", 7, 9, "rows"))
    path = replace(parts, facts=replace(parts.facts, ranges=ranges)).pack(tmp_path / "m.tw").path
    with loader.Model(path) as model:
        drawn = [model.random_inputs(seed) for seed in range(40)]
        assert [one.get("range") for one in model.manifest["inputs"]] == [[0.5, None], [7, 9]]
    assert {int(one["n"]) for one in drawn} == {7, 8, 9}
    assert min(one["x"].min() for one in drawn) > 0.5


RANGES = [
    ("int64", (None, 29), 0, 29),
    ("int32", (None, -300), -555, -300),
    ("int64", (1, None), 1, 256),
    ("uint8", (1, None), 1, 255),
    ("int64", (-5, 24), -5, 24),
    ("bool", (0, 0), 0, 0),
    ("float32", (0, 29), 0, 29),
    ("bfloat16", (0, 3), 0, 3),
    ("float32", (0.25, 0.75), 0.25, 0.75),
    ("float32", (None, -1.0), -9, -1.0),
    ("float64", (0, None), 0, 9),
]


@pytest.mark.parametrize(("dtype", "ends", "least", "most"), RANGES)
def test_numbers_of_every_type_stay_between_both_ends_or_on_one_side(
    loader: ModuleType, dtype: str, ends: tuple[float | None, float | None], least: float, most: float
) -> None:
    spec = loader.TensorSpec("x", dtype, (4000,))
    drawn = loader._in_range(spec, ends, np.random.default_rng(1))
    assert (drawn.dtype, drawn.shape) == (spec.numpy, (4000,))
    real = (drawn.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else drawn
    assert least <= real.min() <= least + 0.05 * (most - least) + 0.2 or None in ends
    assert least <= real.min() <= real.max() <= most
    if (None not in ends and dtype not in ("float32", "float64")) or dtype == "bfloat16":
        assert (real.min(), real.max()) == (least, most)
