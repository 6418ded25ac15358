"""tw_pool.h as part of real artifacts: which threads and memory models of one process have, and when they end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import compile_library, find_toolchain, host_headers
from compiler.devices.cpu.emit.library import runtime_headers
from compiler.devices.cpu.target import this_machine
from compiler.pack.loader import Model, WrongMachine, library, set_threads
from compiler.pack.loader import model as model_module
from compiler.pack.loader.library import thread_limit
from tests.compiler.conftest import Compiled, limit_threads

pytestmark = pytest.mark.usefixtures("new_pool")

LANES = 3
CHILD = """
import os, sys
import numpy as np
from compiler.pack.loader import Model

image = np.ones((1, 3, 33, 33), np.float32)
def bits(model): return model.run({"image": image})["logits"].tobytes()

with Model(sys.argv[1]) as parents:
    right = bits(parents)
    child = os.fork()
    if not child:
        with Model(sys.argv[1]) as one, Model(sys.argv[1]) as other:
            os._exit(0 if bits(one) == bits(other) == right else 1)
    assert bits(parents) == right
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
PIECES = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "tw_pool.h"

#define CALLERS 4
#define TAKEN 3000

/* How many pieces a pool keeps, and the bytes of each; they are filled with 0xff. */
TW_EXPORT int kept(struct pool *pool, long *bytes) {
    int count = 0;
    for (int slot = 0; slot < PIECES; slot++) {
        struct piece *one = atomic_load(&pool->pieces[slot]);
        if (!one) continue;
        bytes[count++] = (long)one->bytes;
        memset((char *)one + PAGE, 255, one->bytes);
    }
    return count;
}

struct caller {
    struct pool *pool;
    int number, wrong;
    pthread_t handle;
};

/* Takes pieces of one to eight pages, writes to both ends of each, and looks whether another has. */
static void *takes(void *argument) {
    struct caller *own = argument;
    struct piece *last = NULL;
    unsigned drawn = 1 + (unsigned)own->number;
    for (int at = 0; at < TAKEN; at++) {
        drawn = drawn * 1664525u + 1013904223u;
        const size_t bytes = (1 + drawn / 65536 % 8) * PAGE;
        struct piece *piece = take_piece(own->pool, bytes, last);
        if (!piece || piece->bytes < bytes || piece->bytes > 8 * PAGE) return own->wrong++, NULL;
        volatile char *begin = (char *)piece + PAGE, *end = begin + bytes - 1;
        *begin = *end = (char)own->number;
        if (at % 64 == 0) sched_yield();
        own->wrong += *begin != own->number || *end != own->number;
        give_piece(own->pool, last = piece);
    }
    return NULL;
}

/* What was wrong where callers take pieces at once; *left: how many are kept then, -1 unless all can be freed. */
TW_EXPORT int hammer(int *left) {
    static struct pool pool;
    struct caller callers[CALLERS];
    long bytes[PIECES];
    int wrong = 0;
    reset_pool(&pool);
    for (int at = 0; at < CALLERS; at++) {
        callers[at] = (struct caller){.pool = &pool, .number = at};
        if (pthread_create(&callers[at].handle, NULL, takes, &callers[at])) return -1;
    }
    for (int at = 0; at < CALLERS; at++) {
        pthread_join(callers[at].handle, NULL);
        wrong += callers[at].wrong;
    }
    *left = kept(&pool, bytes);
    free_pieces(&pool);
    if (kept(&pool, bytes)) *left = -1;
    return wrong;
}

/* 0 where the last piece comes back while it is large enough, and a larger one takes the place of a smaller one. */
TW_EXPORT int one_by_one(void) {
    static struct pool pool;
    long bytes[PIECES];
    reset_pool(&pool);
    struct piece *first = take_piece(&pool, PAGE, NULL), *other = take_piece(&pool, 4 * PAGE, NULL);
    give_piece(&pool, first);
    give_piece(&pool, other);
    struct piece *again = take_piece(&pool, PAGE, other);
    if (again != other) return 1;
    give_piece(&pool, again);
    if ((again = take_piece(&pool, 2 * PAGE, first)) != other) return 2;
    struct piece *larger = take_piece(&pool, 3 * PAGE, first);
    if (larger->bytes != 3 * PAGE || kept(&pool, bytes)) return 3;
    give_piece(&pool, again);
    give_piece(&pool, larger);
    if (kept(&pool, bytes) != 2) return 4;
    free_pieces(&pool);
    return kept(&pool, bytes) ? 5 : 0;
}
"""


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("pieces") / "pieces.so"
    path.write_bytes(
        compile_library(
            {"pieces.c": PIECES}, {**host_headers(), **runtime_headers()}, this_machine(), find_toolchain("")
        )
    )
    return ctypes.CDLL(str(path))


def kept(pieces: ctypes.CDLL) -> list[int]:
    """Bytes of each piece of memory that the process's pool keeps, which are overwritten."""
    _, (pool,) = sys.__dict__[f"_tilewright_pools_{os.getpid()}"]
    found = (ctypes.c_long * 64)()
    count = pieces.kept(ctypes.c_void_p(pool), found)
    return found[:count]


@pytest.fixture(scope="module")
def network(compiled: Callable[..., Compiled]) -> Compiled:
    return compiled("tiny_inception", LANES, split=True)


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((1, 3, 33, 33)).astype(np.float32)


@pytest.fixture(scope="module")
def alone(network: Compiled, image: np.ndarray) -> bytes:
    with Model(network.artifact, lanes=1) as model:
        return bits(model, image)


def bits(model: Model, image: np.ndarray) -> bytes:
    return bytes(model.run({"image": image})["logits"].tobytes())


def threads() -> int:
    """Of this process, once those that were joined have left the system's list too."""
    found = -1
    for _ in range(100):
        before, found = found, len(os.listdir("/proc/self/task"))
        if before == found:
            break
        time.sleep(0.005)
    return found


def wanted(models: int) -> int:
    """Threads beside callers' that so many models of LANES lanes share here."""
    return max(LANES - 1, min(models * (LANES - 1), len(os.sched_getaffinity(0)) - 1))


def test_models_of_a_process_share_threads_which_end_with_the_last(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    models = [Model(network.artifact) for _ in range(6)]
    assert all(bits(model, image) == alone for model in models)
    assert threads() == first + wanted(6)
    for model in models:
        model.close()
    assert threads() == first


def test_threads_that_end_with_one_model_are_replaced_by_the_next_run_of_another(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    with Model(network.artifact) as starts_them:
        other = Model(network.artifact)
        assert bits(starts_them, image) == alone
    assert threads() < first + LANES - 1
    assert bits(other, image) == alone
    assert threads() >= first + LANES - 1
    other.close()
    assert threads() == first


def test_callers_at_once_get_the_bits_of_one_alone_while_models_come_and_go(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()

    def calls(number: int) -> int:
        right = 0
        for turn in range(6):
            with Model(network.artifact, spin_us=(0, 20, 2000)[(number + turn) % 3]) as model:
                right += sum(bits(model, image) == alone for _ in range(8))
        return right

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(calls, range(4))) == [48] * 4
    assert threads() == first


def test_models_called_in_turn_have_the_memory_of_the_largest_and_read_nothing_that_was_there(
    network: Compiled, image: np.ndarray, alone: bytes, pieces: ctypes.CDLL
) -> None:
    models = [Model(network.artifact, lanes=lanes) for lanes in (1, LANES, 1)]
    for model in (*models, *models):
        assert bits(model, image) == alone
        [largest] = kept(pieces)
    assert largest > models[0].manifest["arena_bytes"]
    models[1].close()
    assert kept(pieces) == []
    assert bits(models[0], image) == alone
    assert kept(pieces) < [largest], "what it needs itself"
    for model in models:
        model.close()
    assert kept(pieces) == []


def test_memory_is_one_callers_alone_while_it_has_it(pieces: ctypes.CDLL) -> None:
    left = ctypes.c_int()
    assert pieces.hammer(ctypes.byref(left)) == 0
    assert 1 <= left.value <= 8


def test_memory_comes_back_to_who_had_it_and_grows(pieces: ctypes.CDLL) -> None:
    assert pieces.one_by_one() == 0


def test_a_pinned_model_has_threads_of_its_own(network: Compiled, image: np.ndarray, alone: bytes) -> None:
    first = threads()
    with Model(network.artifact), Model(network.artifact, pin=True) as pinned:
        assert threads() == first + wanted(1) + LANES - 1
        assert bits(pinned, image) == alone
    assert threads() == first


def test_a_library_takes_no_pool_of_another_version_and_none_after_it_began(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    with Model(network.artifact) as model:
        share = model._program.opened().calls.tw_share
        assert share(None, 0) is None, "its instance has threads already"
        opened = library._Library(model._files.library(""))
        share, other = opened.calls.tw_share, (ctypes.c_long * 512)(7)
        own = share(None, 0)
        assert own
        assert share(ctypes.addressof(other), 0) is None
        assert share(own, 2) == own
        assert not any(other[1:]), "left as it is"
        opened.close()
        assert bits(model, image) == alone


def test_the_child_of_a_fork_has_a_pool_of_its_own(network: Compiled) -> None:
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(network.artifact)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, "0\n"), said.stderr


@pytest.mark.parametrize(("limit", "expected"), [(1, 0), (2, 1), (3, 2)])
def test_a_limit_counts_the_callers_thread(
    network: Compiled, image: np.ndarray, alone: bytes, monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    limit_threads(monkeypatch, limit)
    first = threads()
    with Model(network.artifact) as one, Model(network.artifact) as other:
        assert bits(one, image) == bits(other, image) == alone
        assert threads() == first + expected


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch, new_pool: None) -> None:
    """The number of threads is what the variable says, which is not set, whatever control groups there are."""
    monkeypatch.setenv("TILEWRIGHT_THREADS", "")
    monkeypatch.setattr(library, "_own_group_limits", tuple)
    monkeypatch.setattr(sys, f"_tilewright_libraries_{os.getpid()}", (threading.RLock(), weakref.WeakSet()), False)
    for module in (library, model_module):
        monkeypatch.setattr(module, "thread_limit", thread_limit)


@pytest.mark.usefixtures("variable")
def test_the_number_of_threads_is_set_before_the_first_run_and_later(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    set_threads(2)
    with Model(network.artifact) as one, Model(network.artifact) as other:
        for limit, expected in [(2, 1), (1, 0), (3, 2), (2, 1), (None, wanted(2))]:
            set_threads(limit)
            assert threads() <= first + expected, "those that are too many have ended"
            assert bits(one, image) == bits(other, image) == alone
            assert threads() == first + expected
            assert os.environ.get("TILEWRIGHT_THREADS") == (limit and str(limit))
        set_threads(2)
        one.close()
        assert bits(other, image) == alone
        assert threads() == first + 1, "of whichever library"
    assert threads() == first


@pytest.mark.usefixtures("variable")
def test_the_number_of_threads_is_set_while_others_run_load_and_close(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    ended = threading.Event()

    def calls(spin_us: int) -> int:
        wrong = 0
        while not ended.is_set():
            with Model(network.artifact, spin_us=spin_us) as model:
                wrong += sum(bits(model, image) != alone for _ in range(4))
        return wrong

    with ThreadPoolExecutor(3) as callers:
        found = [callers.submit(calls, spin_us) for spin_us in (0, 20, 2000)]
        try:
            for turn in range(40):
                set_threads((1, 3, 2, None)[turn % 4])
                time.sleep(0.002)
        finally:
            ended.set()
        assert [one.result() for one in found] == [0, 0, 0]
    assert threads() == first


@pytest.mark.usefixtures("variable")
def test_what_is_no_number_of_threads_is_refused_and_nothing_changed() -> None:
    set_threads(2)
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(ValueError, match=rf"threads is {wrong!r}. Fix: give 1 or more"):
            set_threads(wrong)  # type: ignore[arg-type]
    assert thread_limit() == 2


@pytest.mark.usefixtures("variable")
def test_a_library_that_is_closed_while_its_threads_are_counted_is_closed_after_that(
    network: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model(network.artifact) as model:
        opened = library._Library(model._files.library(""))

    def set_and_close(threads: int) -> None:
        opened.close()  # as a finaliser may
        assert opened._fd < 0 or os.readlink(f"/proc/self/fd/{opened._fd}"), "open still"
        found.append(threads)

    found: list[int] = []
    monkeypatch.setattr(opened.calls, "tw_set_threads", set_and_close)
    set_threads(3)
    assert found == [3]
    set_threads(2)
    assert found == [3], "it is closed"


def test_the_variable_and_the_control_groups_limit_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def group(path: str, name: str, text: str) -> None:
        (tmp_path / "sys/fs/cgroup" / path).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / path / name).write_text(text)

    monkeypatch.delenv("TILEWRIGHT_THREADS", raising=False)
    assert thread_limit(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/one\n")
    group("jobs/one", "cpu.max", "max 100000\n")
    assert thread_limit(tmp_path) is None
    group("jobs", "cpu.max", "250000 100000\n")
    assert thread_limit(tmp_path) == 3, "of a group that holds the process's own"
    group("jobs/one", "cpu.max", "50000 100000\n")
    assert thread_limit(tmp_path) == 1
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/box\n3:memory:/box\n")
    group("cpu", "cpu.cfs_quota_us", "400000\n")
    group("cpu", "cpu.cfs_period_us", "100000\n")
    group("cpu/box", "cpu.cfs_quota_us", "-1\n")
    group("cpu/box", "cpu.cfs_period_us", "100000\n")
    assert thread_limit(tmp_path) == 4
    monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
    assert thread_limit(tmp_path) == 2
    for wrong in ("0", "-1", "two"):
        monkeypatch.setenv("TILEWRIGHT_THREADS", wrong)
        with pytest.raises(WrongMachine, match=f"TILEWRIGHT_THREADS is '{wrong}'. Fix: set it to a number"):
            thread_limit(tmp_path)


def test_the_control_groups_of_the_process_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def lines_of(path: Path) -> list[str]:
        asked.append(path)
        return []

    monkeypatch.setattr(library, "_lines_of", lines_of)
    library._own_group_limits.cache_clear()
    try:
        monkeypatch.setenv("TILEWRIGHT_THREADS", "3")
        assert thread_limit() == 3
        monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
        assert thread_limit() == 2
        assert asked == [Path("/proc/self/cgroup")]
    finally:
        library._own_group_limits.cache_clear()
