from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.contract import QuantizeOptions
from compiler.errors import InputsError, UnboundDimension
from compiler.quantize.network import open_network
from compiler.quantize.samples import Sample, derived, divided, given
from tests.compiler.quantize.models import Drawn, network, samples, saved


def model(folder: Path, *shape: int | str) -> Path:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 3, 4)], "y")
    return saved(d.model({"x": shape}, {"y": (*shape[:-1], 4)}), folder)


def read(path: Path, archive: Path) -> list[Sample]:
    opened, _ = open_network(path)
    return given(opened, {"s.npz": archive}, QuantizeOptions())


def shapes(found: list[Sample]) -> list[tuple[int, ...]]:
    return [sample["x"].shape for sample in found]


def test_an_archive_holds_one_sample_or_several(tmp_path: Path) -> None:
    path = model(tmp_path, 2, 3)
    values = np.arange(24, dtype=np.float32)
    archive = tmp_path / "s.npz"
    for shape, count in (((2, 3), 1), ((4, 2, 3), 4), ((8, 3), 4)):
        found = read(path, samples(archive, x=values[: np.prod(shape)].reshape(shape)))
        assert shapes(found) == [(2, 3)] * count
        assert np.array_equal(np.concatenate([one["x"] for one in found]).ravel(), values[: np.prod(shape)])


def test_an_open_batch_is_one_sample(tmp_path: Path) -> None:
    path = model(tmp_path, "N", 3)
    archive = tmp_path / "s.npz"
    assert shapes(read(path, samples(archive, x=np.zeros((5, 3), np.float32)))) == [(5, 3)]
    assert shapes(read(path, samples(archive, x=np.zeros((4, 2, 3), np.float32)))) == [(2, 3)] * 4


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    path = model(tmp_path, 2, 3)
    archive = tmp_path / "s.npz"
    for arrays in ({"x": np.zeros((2, 5), np.float32)}, {"z": np.zeros((2, 3), np.float32)}):
        with pytest.raises(InputsError, match=r"sample 's.npz' cannot be used"):
            read(path, samples(archive, **arrays))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_without_an_end_are_refused_by_the_inputs_name(value: float, tmp_path: Path) -> None:
    path = model(tmp_path, 2, 3)
    x = np.zeros((4, 2, 3), np.float32)
    x[3, 1, 2] = value
    with pytest.raises(InputsError, match="not finite") as raised:
        read(path, samples(tmp_path / "s.npz", x=x))
    assert "'x'" in raised.value.refusals[0].reason


def test_samples_are_drawn_anew_for_each_seed(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    options = QuantizeOptions(dims={"N": 2}, derived_samples=3)
    found = derived(path, options)
    assert shapes(found) == [(2, 3, 16, 16)] * 3
    assert not np.array_equal(found[0]["x"], found[1]["x"])
    again = derived(path, options)
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(found, again, strict=True))


def test_a_dimension_that_nothing_binds_is_told(tmp_path: Path) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 3, 4)], "y")
    path = saved(d.model({"x": (1, "length", 3)}, {"y": (1, "length", 4)}), tmp_path)
    with pytest.raises(UnboundDimension, match="length"):
        derived(path, QuantizeOptions())


@pytest.mark.parametrize(("count", "out"), [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (32, 8), (33, 8), (100, 8)])
def test_a_quarter_is_held_out_spread_evenly_and_none_of_few(count: int, out: int) -> None:
    every: list[Sample] = [{"x": np.array(number)} for number in range(count)]
    calibrated, held_out = divided(every)
    assert len(held_out) == out
    assert sorted(int(one["x"]) for one in (*calibrated, *held_out)) == list(range(count))
    gaps = np.diff([int(one["x"]) for one in held_out])
    assert len(set(gaps.tolist())) <= 1
