"""tw_runtime.h as part of a real artifact: lanes, strides, what is refused, instances side by side."""

from __future__ import annotations

import ctypes
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cpu.target import this_machine
from compiler.pack.loader import Model
from compiler.pack.loader.interface import _Tensor
from tests.compiler.conftest import Compiled

Compile = Callable[..., Compiled]
PLANNED = 3
STAYS = "int stayed = run_lane(m, run, lane);"
"""Of a thread that took a lane."""
LONE_CALLER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

static float results[2][4096];

int main(int count, char **given) {
    static float image[3 * 33 * 33];
    static const int64_t in_shape[] = {1, 3, 33, 33}, out_shape[] = {1, CLASSES};
    for (int at = 0; at < 3 * 33 * 33; at++) image[at] = (float)(at % 17) - 8;
    for (int lanes = 0; lanes < 2; lanes++) {
        tw_instance *instance;
        if (tw_create(&(tw_config){.weights_path = given[count - 1], .lanes = lanes, .spin_us = -1}, &instance))
            return puts(tw_last_error()), 1;
        tw_tensor in = {image, TW_CPU, 0, TW_FLOAT, 32, 4, in_shape, NULL};
        tw_tensor out = {results[lanes], TW_CPU, 0, TW_FLOAT, 32, 2, out_shape, NULL};
        for (int run = 0; run < 3; run++)
            if (tw_run(instance, &in, &out)) return puts(tw_last_error()), 1;
    }
    puts(memcmp(results[0], results[1], sizeof results[0]) ? "different" : "alike");
    fflush(stdout);
    _Exit(0);
}
"""
"""Runs a plan of several lanes, of which only the caller's ever runs, and then by one lane."""
DESTROYER = """
#include <stdio.h>
#include <string.h>
#include "model.h"

int main(int count, char **given) {
    static float image[3 * 33 * 33], result[CLASSES], nothing[CLASSES];
    static const int64_t in_shape[] = {1, 3, 33, 33}, out_shape[] = {1, CLASSES};
    for (int at = 0; at < 3 * 33 * 33; at++) image[at] = (float)(at % 17) - 8;
    tw_instance *instance;
    if (tw_create(&(tw_config){.weights_path = given[count - 1]}, &instance)) return puts(tw_last_error()), 1;
    tw_tensor in = {image, TW_CPU, 0, TW_FLOAT, 32, 4, in_shape, NULL};
    tw_tensor out = {result, TW_CPU, 0, TW_FLOAT, 32, 2, out_shape, NULL};
    if (tw_run(instance, &in, &out)) return puts(tw_last_error()), 1;
    if (!memcmp(result, nothing, sizeof result)) return puts("nothing to see"), 1;
    memset(result, 0, sizeof result);
    tw_destroy(instance);
    puts(memcmp(result, nothing, sizeof result) ? "ran again" : "left alone");
    return 0;
}
"""
"""Destroys an instance right after a run and says whether anything was written to the caller's memory since."""


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
        return np.asarray(model.run({"image": image})["logits"])


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


@pytest.mark.parametrize("spin_us", [None, 0])
def test_lanes_that_share_one_core_run_each_task_once(
    network: Compiled, image: np.ndarray, alone: np.ndarray, spin_us: int | None
) -> None:
    """No lane ever runs beside another: each waits for lanes that do not come, and runs their tasks."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with Model(network.artifact, lanes=None, spin_us=spin_us) as model:
            for _ in range(200):
                assert np.array_equal(model.run({"image": image})["logits"], alone)
    finally:
        os.sched_setaffinity(0, cores)


def test_a_lane_whose_thread_never_starts_is_done_without(network: Compiled, tmp_path: Path) -> None:
    """The runtime compiled with lanes that sleep for ever: the caller runs every task of the plan."""
    assert said_by(LONE_CALLER, network, tmp_path, "int stayed = pause();") == "alike"


def test_a_lane_that_wakes_as_its_instance_is_destroyed_runs_nothing(network: Compiled, tmp_path: Path) -> None:
    """The runtime compiled with lanes that lose their core for a while when they have seen that a run began.

    The run ends without them.
    """
    assert said_by(DESTROYER, network, tmp_path, f"usleep(100000); {STAYS}") == "left alone"


def said_by(program: str, network: Compiled, tmp_path: Path, instead: str) -> str:
    """What a caller in C prints, built with the network and its runtime, in which `STAYS` is another line."""
    with zipfile.ZipFile(network.artifact) as archive:
        sources = {
            Path(name).name: archive.read(name).decode() for name in archive.namelist() if name.startswith("source/")
        }
    assert sources["tw_lanes.h"].count(STAYS) == 1
    sources["tw_lanes.h"] = sources["tw_lanes.h"].replace(STAYS, instead)
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    with Model(network.artifact) as model:
        (_, classes) = model.outputs[0].shape
    (tmp_path / "main.c").write_text(program.replace("CLASSES", str(classes)))
    units = [str(tmp_path / name) for name in sources if name.endswith(".c")]
    caller = tmp_path / "caller"
    flags = ("-O1", "-std=gnu11", "-pthread", "-fno-math-errno", "-Wno-psabi")
    lanes = f"-DTW_LANES={this_machine().vector_floats}"
    subprocess.run(
        ["cc", *flags, *this_machine().flags, lanes, *units, str(tmp_path / "main.c"), "-o", str(caller), "-lm"],
        check=True,
    )
    with zipfile.ZipFile(network.artifact) as archive:
        archive.extract("weights.bin", tmp_path)
    said = subprocess.run(
        [str(caller), str(tmp_path / "weights.bin")], check=True, capture_output=True, text=True, timeout=60
    )
    return said.stdout.strip()


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
    library = model._program.opened()
    given = tensor(image, **wrong)
    result = library.calls.tw_run(model._program.instance, ctypes.byref(given), ctypes.byref(tensor(out)))
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
