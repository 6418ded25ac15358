"""The runtime of parts around libraries that take as long as they like, and fail when they are told to."""

from __future__ import annotations

import _ctypes
import ctypes
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.codegen.build import compile_library, find_toolchain, host_headers
from compiler.devices.cpu.emit.stream import emit_stream
from compiler.devices.cpu.target import this_machine
from compiler.ir.plans.lanes import LaneCosts
from compiler.pack.loader import Binding, Frame, RunError, TensorSpec, WrongMachine
from compiler.pack.loader.frames import _Frames, _Seat
from compiler.pack.loader.interface import _point
from compiler.pack.loader.specs import _aligned
from compiler.schedule.parts.dividing import division_of, parts_of
from compiler.schedule.parts.portions import portion
from tests.compiler.schedule.kernel_graphs import chain

SPEC = TensorSpec("x", "float32", (6, 4))
BINDING = Binding(1, {}, (SPEC,), (SPEC,))
POISON = 1000.0
TOOLCHAIN = find_toolchain()
PARTS = 3
STUB = (Path(__file__).parent / "part.c").read_text()


@dataclass
class Built:
    """stream.so and the library of each part, as the files of an artifact that the loader reads."""

    members: dict[str, bytes]
    manifest: dict[str, Any]
    weights: Path
    sources: dict[str, str]

    def read(self, name: str) -> bytes:
        return self.members[name]

    def locate(self, name: str) -> tuple[Path, int]:
        assert name == "weights.bin"
        return self.weights, 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A chain in three parts, the middle one on the second of two devices."""
    return made(tmp_path_factory.mktemp("stream"), [(0, 0b001), (1, 0b010), (0, 0b100)])


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same with the middle stage on both devices, which have frames in turn."""
    return made(tmp_path_factory.mktemp("replicated"), [(0, 0b001), (0, 0b010), (1, 0b010), (0, 0b100)])


def made(folder: Path, stages: list[tuple[int, int]]) -> Built:
    kernels = chain(*["sum"] * PARTS)
    division = division_of(kernels, [[1.0] * PARTS] * 2, LaneCosts())
    parts = parts_of(kernels, ("one", "other"), division, stages, "by hand")
    portions = [portion(kernels, parts, part) for part in parts.parts]
    folders = [f"parts/{part.calls[0]}/" for part in parts.parts]
    made = emit_stream(kernels, parts, portions, [0, 1], folders, this_machine(), TOOLCHAIN)
    members = {"stream.so": made.library}
    for part, into in zip(parts.parts, folders, strict=True):
        source = f"#define PART {part.calls[0]}\n{STUB}"
        library = compile_library({"part.c": source}, host_headers(), this_machine(), TOOLCHAIN)
        members[f"{into}model.so"] = library
    described = {
        "frames": parts.frames,
        "devices": [{"name": name} for name in parts.devices],
        "parts": [{"folder": into} for into in folders],
    }
    weights = folder / "weights.bin"
    weights.write_bytes(b"")
    return Built(members, {"stream": described}, weights, dict(made.sources))


@pytest.fixture
def frames(built: Built) -> Iterator[_Frames]:
    opened = _Frames(built, None, BINDING)  # type: ignore[arg-type]
    yield opened
    opened.close()


def begin(frames: _Frames, first: float, poison: float = 0.0) -> Frame:
    array, result = np.full(SPEC.shape, first, np.float32), _aligned(SPEC)
    array[0, 1] = poison
    seat = frames.seat()
    seat.aim(seat.copied([array]), [result])
    array[:] = np.nan  # it is the caller's again
    return Frame(frames, frames.submit(seat, result), [SPEC], [result])


def expected(first: float) -> float:
    for part in range(PARTS):
        first = 2 * first + part
    return first


@contextmanager
def variable(frames: _Frames, part: int, name: str) -> Iterator[ctypes.c_int]:
    """One of the library that the stream opened for a part, which is given back before the stream closes it."""
    library = ctypes.CDLL(f"/proc/self/fd/{frames._files[part]}")
    yield ctypes.c_int.in_dll(library, name)
    _ctypes.dlclose(library._handle)


def runs(frames: _Frames, part: int) -> int:
    with variable(frames, part, "tw_test_runs") as count:
        return count.value


def test_every_frame_has_its_own_result_however_long_parts_take(frames: _Frames) -> None:
    begun = [begin(frames, float(at)) for at in range(200)]
    for at, frame in enumerate(begun):
        assert frame.result()["x"][5, 3] == expected(float(at))
    ended, seconds = frames.work()
    assert ended == 200
    assert len(seconds) == PARTS
    assert all(spent > 0 for spent in seconds)


def test_what_cannot_start_leaves_no_library_whose_name_is_given_again(built: Built) -> None:
    """They are named by numbers of open files, and the dynamic linker knows libraries by their names."""

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:part.so")

    before = mapped()
    broken = replace(built, members={**built.members, f"parts/{PARTS - 1}/model.so": b"no library"})
    with pytest.raises(WrongMachine, match=f"cannot open the library of part {PARTS - 1}"):
        _Frames(broken, None, BINDING)  # type: ignore[arg-type]
    assert mapped() == before


@pytest.mark.parametrize("part", range(PARTS))
def test_an_error_reaches_the_caller_of_its_frame_alone(frames: _Frames, part: int) -> None:
    begun = [begin(frames, float(at), POISON + part if at % 7 == 3 else 0.0) for at in range(30)]
    for at, frame in reversed([*enumerate(begun)]):
        if at % 7 == 3:
            for _ in range(2):
                with pytest.raises(RunError, match=f"frame {at} failed: poisoned"):
                    frame.result()
        else:
            assert frame.result()["x"][0, 0] == expected(float(at))
    assert runs(frames, PARTS - 1) == (30 if part == PARTS - 1 else 30 - 4), "parts behind a failure skip the frame"


def test_who_submits_too_much_waits_until_a_frame_has_ended(frames: _Frames) -> None:
    with variable(frames, 1, "tw_test_hold") as flag:
        _overfill(frames, flag)


def _overfill(frames: _Frames, flag: ctypes.c_int) -> None:
    flag.value = 1
    begun = [begin(frames, float(at)) for at in range(frames.frames)]
    more: list[Frame] = []
    other = threading.Thread(target=lambda: more.append(begin(frames, 99.0)))
    other.start()
    other.join(0.2)
    assert other.is_alive()
    assert not more
    assert runs(frames, 0) <= 3, "two slots of the edge behind it, and what it is writing"
    flag.value = 0
    other.join()
    assert more[0].result()["x"][0, 0] == expected(99.0)
    assert begun[0].result()["x"][0, 0] == expected(0.0)


def test_replicas_take_turns_keep_frames_apart_and_fail_alone(replicated: Built) -> None:
    opened = _Frames(replicated, None, BINDING)  # type: ignore[arg-type]
    try:
        begun = [begin(opened, float(at), POISON + 1 if at % 5 == 3 else 0.0) for at in range(120)]
        for at, frame in enumerate(begun):
            if at % 5 == 3:
                with pytest.raises(RunError, match=f"frame {at} failed: poisoned"):
                    frame.result()
            else:
                assert frame.result()["x"][5, 3] == expected(float(at))
        ended, seconds = opened.work()
        assert ended == 120
        assert len(seconds) == 4
        assert all(spent > 0 for spent in seconds)
    finally:
        opened.close()


def test_closing_waits_for_frames_in_flight(built: Built) -> None:
    opened = _Frames(built, 0, BINDING)  # type: ignore[arg-type]
    begun = [begin(opened, float(at)) for at in range(5)]
    opened.close()
    assert [frame._results[0][0, 0] for frame in begun] == [expected(float(at)) for at in range(5)]
    with pytest.raises(RunError, match="closed"):
        begin(opened, 1.0)


def test_what_does_not_fit_is_refused_and_nothing_begins(frames: _Frames) -> None:
    wide = TensorSpec("x", "float32", (6, 8))
    array = np.zeros(wide.shape, np.float32)
    for spec, given, says in (
        (wide, array, "input 0 has extent 8 in dimension 1, expected 4"),
        (SPEC, array[:, ::2], "input 0 is not row-major"),
    ):
        seat = _Seat(Binding(1, {}, (spec,), (SPEC,)))
        seat.aim([given], [_aligned(SPEC)])
        kept = _point(seat.taken[0], given)
        with pytest.raises(RunError, match=says):
            frames.submit(seat, kept)
    assert frames.work()[0] == 0
    with pytest.raises(RunError, match="frame 0 was not submitted"):
        frames.wait(0)


def test_idle_devices_sleep_and_wake(frames: _Frames) -> None:
    for at in range(3):
        assert begin(frames, float(at)).result()["x"][0, 0] == expected(float(at))
        time.sleep(0.01)


def test_a_caller_that_waits_is_woken_for_its_frame_alone(built: Built) -> None:
    """Its thread would take a core from a device each time that any part ends."""
    opened = _Frames(built, 0, BINDING)  # type: ignore[arg-type]
    try:
        with variable(opened, 0, "tw_test_hold") as flag:
            flag.value = 1
            begun = [begin(opened, float(at)) for at in range(opened.frames)]
            slept: list[int] = []

            def wait() -> None:
                before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
                opened.wait(begun[-1].number)
                slept.append(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before)

            other = threading.Thread(target=wait)
            other.start()
            other.join(0.05)
            flag.value = 0
        other.join()
        assert slept[0] <= 4, f"woken about {slept[0]} times in {opened.frames * PARTS} ends of parts"
        assert [frame.result()["x"][0, 0] for frame in begun] == [expected(float(at)) for at in range(opened.frames)]
    finally:
        opened.close()


def test_memory_of_frames_is_used_again_once_they_have_ended(frames: _Frames) -> None:
    seats = set()
    for at in range(4 * frames.frames):
        assert begin(frames, float(at)).result()["x"][5, 3] == expected(float(at))
        seats.add(id(frames._flight[-1][1]))
    assert len(seats) <= frames.frames + 1


MAIN = """
#include "stream.h"
#include <stdio.h>
int main(int count, char **given) {
    const char *const *libraries = (const char *const *)(given + 2);
    tw_stream_config config = {.libraries = libraries, .weights_path = given[1], .spin_us = -1, .pin = 1};
    tw_stream *stream;
    if (tw_stream_create(&config, &stream)) return fprintf(stderr, "%s\\n", tw_stream_error()), 3;
    int64_t shape[] = {6, 4};
    static float x[64][24], y[64][24];
    for (int at = 0; at < 64; at++) {
        tw_tensor in = {x[at], TW_CPU, 0, TW_FLOAT, 32, 2, shape, NULL}, out = in;
        out.data = y[at];
        x[at][0] = (float)at;
        if (tw_submit(stream, &in, &out) != at) return 4;
    }
    for (int at = 63; at >= 0; at--) {
        float want = (float)at;
        for (int part = 0; part < 3; part++) want = 2 * want + (float)part;
        if (tw_wait(stream, at) || y[at][0] != want) return 5;
    }
    tw_stream_destroy(stream);
    return 0;
}
"""
RACE = 66


def streamed_in_c(built: Built, folder: Path, runtime: str) -> subprocess.CompletedProcess[str]:
    """A C program with that text for tw_stream.h, under the thread sanitizer."""
    folder.mkdir()
    for name, text in {**built.sources, "tw_stream.h": runtime, "main.c": MAIN}.items():
        (folder / name).write_text(text)
    libraries = []
    sanitizer = ["-fsanitize=thread", "-g", "-O1", "-std=gnu11", "-fPIC", "-pthread"]
    for part, described in enumerate(built.manifest["stream"]["parts"]):
        call = described["folder"].split("/")[1]
        (folder / f"part{part}.c").write_text(f"#define PART {call}\n{STUB}")
        libraries.append(str(folder / f"part{part}.so"))
        command = [TOOLCHAIN.path, *sanitizer, "-shared", f"part{part}.c", "-o", libraries[-1]]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = [TOOLCHAIN.path, *sanitizer, "main.c", "stream.c", "-o", "main", "-ldl", "-lm"]
    if subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode:
        pytest.skip("this machine's compiler has no thread sanitizer")
    environment = {"TSAN_OPTIONS": f"exitcode={RACE} halt_on_error=1"}
    return subprocess.run(
        ["setarch", "-R", "./main", str(built.weights), *libraries],
        cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_parts_touch_no_memory_unordered(replicated: Built, tmp_path: Path) -> None:
    runtime = replicated.sources["tw_stream.h"]
    done = streamed_in_c(replicated, tmp_path / "right", runtime)
    if "unexpected memory mapping" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("the thread sanitizer does not run here")
    assert done.returncode == 0, done.stderr
    slots = "&& atomic_load(&s->parts[after->part].done) <= awaited) return 0;"
    assert slots in runtime
    broken = streamed_in_c(replicated, tmp_path / "broken", runtime.replace(slots, "&& 0) return 0;"))
    assert broken.returncode in (RACE, 5), "without waits for slots and results frames disturb each other"
