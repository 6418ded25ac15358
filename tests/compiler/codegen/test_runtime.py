"""tw_runtime.h as part of a real artifact: lanes, strides, what is refused, instances side by side."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from compiler.pack.loader import Model, _Tensor
from tests.compiler.conftest import Compiled

Compile = Callable[..., Compiled]
PLANNED = 3


@pytest.fixture(scope="module")
def network(compiled: Compile) -> Compiled:
    """A network whose plan splits its kernels over more lanes than a small machine has cores."""
    one = compiled("tiny_inception", PLANNED, split=True)
    assert one.report.threads == PLANNED
    return one


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((1, 3, 33, 33)).astype(np.float32)


@pytest.fixture(scope="module")
def alone(network: Compiled, image: np.ndarray) -> np.ndarray:
    with Model(network.artifact, lanes=1) as model:
        return model.run({"image": image})["logits"]


@pytest.fixture
def model(network: Compiled) -> Iterator[Model]:
    with Model(network.artifact, lanes=1) as opened:
        yield opened


@pytest.mark.parametrize("lanes", [None, 1, 2, 3, 64])
@pytest.mark.parametrize("spin_us", [None, 0])
def test_any_number_of_lanes_gives_the_same_bits_run_after_run(
    network: Compiled, image: np.ndarray, alone: np.ndarray, lanes: int | None, spin_us: int | None
) -> None:
    with Model(network.artifact, lanes=lanes, spin_us=spin_us) as model:
        for _ in range(20):
            assert np.array_equal(model.run({"image": image})["logits"], alone)


def test_strided_inputs_and_outputs_are_copied(model: Model, image: np.ndarray, alone: np.ndarray) -> None:
    turned = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    spaced = np.zeros((1, 3, 33, 66), np.float32)[..., ::2]
    spaced[...] = image
    backwards = np.ascontiguousarray(image[..., ::-1])[..., ::-1]
    broadcast = np.broadcast_to(image[:, :1], image.shape)
    for given in (turned, spaced, backwards):
        assert not given.flags.c_contiguous
        assert np.array_equal(model.run({"image": given})["logits"], alone)
    flat = model.run({"image": np.ascontiguousarray(broadcast)})["logits"]
    assert np.array_equal(model.run({"image": broadcast})["logits"], flat)
    wide = np.full((1, 30), np.nan, np.float32)
    model.run({"image": image}, out={"logits": wide[:, 1::3]})
    assert np.array_equal(wide[:, 1::3], alone)
    assert np.isnan(wide[:, ::3]).all()


def tensor(array: np.ndarray, **wrong: object) -> _Tensor:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    made = _Tensor(array.ctypes.data, 1, 0, 2, 32, array.ndim, shape, None)  # device CPU; float32 in DLPack's numbers
    for name, value in wrong.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"device_type": 2}, "input 0 is not in CPU memory"),
        ({"code": 0}, "input 0 has element type code 0 with 32 bits, expected code 2 with 32 bits"),
        ({"bits": 64}, "with 64 bits"),
        ({"ndim": 3}, "input 0 has 3 dimensions, expected 4"),
        ({"shape": (ctypes.c_int64 * 4)(1, 3, 33, 32)}, "extent 32 in dimension 3, expected 33"),
        ({"data": None}, "input 0 has no data"),
    ],
)
def test_the_c_interface_refuses_what_does_not_fit(
    model: Model, image: np.ndarray, wrong: dict[str, object], reason: str
) -> None:
    out = np.zeros((1, 10), np.float32)
    library = model._opened()
    given = tensor(image, **wrong)
    result = library.calls.tw_run(model._instance, ctypes.byref(given), ctypes.byref(tensor(out)))
    assert result == -1
    assert reason in library.last_error()
    assert not out.any()


def test_the_loader_refuses_wrong_shapes_and_types(model: Model, image: np.ndarray) -> None:
    for given in (image[..., :-1], image[0], image.astype(np.complex64)):
        with pytest.raises(ValueError):
            model.run({"image": given})


def test_two_instances_in_two_threads_do_not_disturb_each_other(network: Compiled) -> None:
    random = np.random.default_rng(9)
    images = [random.standard_normal((1, 3, 33, 33)).astype(np.float32) for _ in range(2)]

    def runs(number: int, lanes: int) -> list[np.ndarray]:
        with Model(network.artifact, lanes=lanes) as model:
            return [model.run({"image": images[number]})["logits"].copy() for _ in range(15)]

    with ThreadPoolExecutor(2) as pool:
        together = [future.result() for future in [pool.submit(runs, 0, PLANNED), pool.submit(runs, 1, PLANNED)]]
    for number, results in enumerate(together):
        expected = runs(number, 1)[0]
        assert all(np.array_equal(result, expected) for result in results)


def test_instances_come_and_go_with_lanes_asleep(network: Compiled, image: np.ndarray, alone: np.ndarray) -> None:
    for _ in range(10):
        with Model(network.artifact, spin_us=0):
            pass
        with Model(network.artifact, spin_us=0) as model:
            assert np.array_equal(model.run({"image": image})["logits"], alone)


def test_a_profile_has_a_time_for_each_call(network: Compiled, image: np.ndarray) -> None:
    with Model(network.artifact) as model:
        profile = model.profile({"image": image}, repeats=2)
        assert len(profile) == network.report.kernels
        assert all(entry["seconds"] >= 0 for entry in profile)
        assert sum(entry["seconds"] for entry in profile) > 0
