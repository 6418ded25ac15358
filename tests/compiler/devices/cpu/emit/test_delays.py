"""Whether plans, and the runtime that carries them out, are right in any order of events.

Every task is delayed at random, and races are looked for.

A plan is right if its bits are those of one lane however long each task takes. What a lost wait would leave in memory
is the result of the run before, so each run has another input than the one before.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.pack.loader import Model
from tests.compiler.devices.cpu.runtimes import NETWORKS, TARGET, Workshop, inputs_of, plans_of, without_a_wait

pytestmark = pytest.mark.usefixtures("host_as_shipped")

LANES = (2, 3, 4)
SEEDS = 16
SEEDS_FOR_A_BUG = 400
KERNEL = "    call->kernel("
DELAYED = """
    delay(2 * at);
    call->kernel("""
RUN_TASK = "static void run_task("
DELAYS = """
TW_EXPORT unsigned delay_seed; /* 0: none */

/* Of eight events one lasts long enough for the other lanes to finish several tasks, two for some kernels,
   one gives the core away. */
static void delay(unsigned long event) {
    unsigned long drawn = (event + 1) * 0x9E3779B97F4A7C15UL ^ delay_seed * 0xC2B2AE3D27D4EB4FUL;
    drawn = (drawn ^ drawn >> 29) * 0xBF58476D1CE4E5B9UL;
    drawn = (drawn ^ drawn >> 32) % 8;
    if (!delay_seed) return;
    if (drawn == 0) usleep(100);
    if (drawn == 1) sched_yield();
    for (long begin = now_ns(); drawn > 5 && now_ns() < begin + 10000;) relax();
}

static void run_task("""


@pytest.fixture(scope="module", params=list(NETWORKS))
def workshop(request: pytest.FixtureRequest) -> Workshop:
    return Workshop(NETWORKS[request.param]())


def delayed(workshop: Workshop) -> Workshop:
    """Programs in which each task is delayed before and after it runs, by a time that follows from `delay_seed`."""
    after = "    if (m->times) m->times->ends[at]"
    changes = [(RUN_TASK, DELAYS), (KERNEL, DELAYED), (after, f"    delay(2 * at + 1);\n{after}")]
    return Workshop(workshop.kernels, {"tw_lanes.h": changes}, workshop.objects, workshop.known)


class Trial:
    """One of the plans of a program, opened, on two inputs in turn."""

    def __init__(self, workshop: Workshop, folder: Path, number: int | None = None) -> None:
        self.model = Model(folder, verify=False, plan=number)
        self.inputs = [inputs_of(workshop.kernels, seed) for seed in (1, 2)]
        self.seed = ctypes.c_uint.in_dll(self.model._program.opened().calls, "delay_seed")

    def bits(self, seed: int) -> bytes:
        """Of the outputs for the input whose turn it is under this seed."""
        self.seed.value = seed
        return b"".join(np.asarray(out).tobytes() for out in self.model.run_flat(self.inputs[seed % 2]))


@contextmanager
def trial(workshop: Workshop, folder: Path, number: int | None = None) -> Iterator[Trial]:
    one = Trial(workshop, folder, number)
    with one.model:
        yield one


def expected(workshop: Workshop, folder: Path) -> list[bytes]:
    """For each of the inputs, by a plan of one lane."""
    with trial(workshop, workshop.folder(plans_of(workshop.kernels, 1)[:1], folder)) as one:
        return [one.bits(0), one.bits(1)]


def together(plans: Sequence[Plan]) -> list[Plan]:
    """As plans of one program, of which each can be asked for."""
    *most, last = plans
    return [*(replace(plan, most_handover_s=1e-9 * at) for at, plan in enumerate(most)), last]


def waits_for_bytes(kernels: KernelGraph, plan: Plan) -> bool:
    """Whether it lacks waits that it would need if each task touched all of its operands."""
    try:
        plan.verify(kernels)
    except VerifyError:
        return True
    return False


@contextmanager
def on_one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def test_every_plan_gives_the_bits_of_one_lane_however_long_its_tasks_take(workshop: Workshop, tmp_path: Path) -> None:
    slow = delayed(workshop)
    right = expected(slow, tmp_path / "alone")
    found = [{plan.scheduler: plan for plan in plans_of(workshop.kernels, lanes)} for lanes in LANES]
    plans = [plan for by_scheduler in found for plan in by_scheduler.values()]
    assert all(len(by_scheduler) > 2 for by_scheduler in found)
    assert any(waits_for_bytes(workshop.kernels, plan) for plan in plans)
    folder = slow.folder(together(plans), tmp_path / "plans")
    for number, plan in enumerate(plans, 1):
        with trial(slow, folder, number) as one:
            assert one.model.lanes == plan.lanes
            for seed in range(1, SEEDS + 1):
                assert one.bits(seed) == right[seed % 2], f"{plan.scheduler}, {plan.lanes} lanes, seed {seed}:\n{plan}"


def test_lanes_that_share_a_core_give_these_bits_too(workshop: Workshop, tmp_path: Path) -> None:
    slow = delayed(workshop)
    right = expected(slow, tmp_path / "alone")
    folder = slow.folder(plans_of(workshop.kernels, 3)[-1:], tmp_path / "plan")
    with on_one_core(), trial(slow, folder) as one:
        for seed in range(1, SEEDS + 1):
            assert one.bits(seed) == right[seed % 2]


def test_a_plan_that_lacks_a_wait_is_found_out(workshop: Workshop, tmp_path: Path) -> None:
    """Each of the last waits that the plan cannot do without.

    They hold back what is computed from more than one lane's results.
    """
    slow = delayed(workshop)
    right = expected(slow, tmp_path / "alone")
    broken = without_a_wait(workshop.kernels, plans_of(workshop.kernels, 2)[-1])[-2:]
    assert broken
    folder = slow.folder(together(broken), tmp_path / "plans")
    for number, plan in enumerate(broken, 1):
        with trial(slow, folder, number) as one:
            assert any(one.bits(seed) != right[seed % 2] for seed in range(1, SEEDS_FOR_A_BUG)), str(plan)


CALLER = """
#include <stdio.h>
#include "model.h"

int main(int count, char **given) {
    static float image[IMAGE], result[RESULT];
    static const int64_t in_shape[] = {IN_SHAPE}, out_shape[] = {OUT_SHAPE};
    tw_instance *instance;
    if (tw_create(&(tw_config){.weights_path = given[count - 1], .spin_us = 100}, &instance))
        return puts(tw_last_error()), 1;
    tw_tensor in = {image, TW_CPU, 0, TW_FLOAT, 32, IN_RANK, in_shape, NULL};
    tw_tensor out = {result, TW_CPU, 0, TW_FLOAT, 32, OUT_RANK, out_shape, NULL};
    static double begins[1000], ends[1000];
    for (int run = 0; run < 20; run++)
        if (run % 4 ? tw_run(instance, &in, &out) : tw_trace(instance, &in, &out, begins, ends))
            return puts(tw_last_error()), 1;
    tw_destroy(instance);
    puts("done");
    return 0;
}
"""
CALLERS = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "model.h"

static const char *weights;

static void *call(void *number) {
    static float images[3][IMAGE], results[3][RESULT];
    static const int64_t in_shape[] = {IN_SHAPE}, out_shape[] = {OUT_SHAPE};
    const long own = (long)number;
    tw_tensor in = {images[own], TW_CPU, 0, TW_FLOAT, 32, IN_RANK, in_shape, NULL};
    tw_tensor out = {results[own], TW_CPU, 0, TW_FLOAT, 32, OUT_RANK, out_shape, NULL};
    for (int turn = 0; turn < 3; turn++) {
        tw_instance *instance;
        tw_config config = {.weights_path = weights, .spin_us = 50 * turn};
        if (tw_create(&config, &instance)) return (void *)tw_last_error();
        for (int run = 0; run < 60; run++)
            if (tw_run(instance, &in, &out)) return (void *)tw_last_error();
        tw_destroy(instance);
    }
    return NULL;
}

int main(int count, char **given) {
    pthread_t callers[3];
    void *error = NULL;
    weights = given[count - 1];
    for (long at = 0; at < 3; at++) pthread_create(&callers[at], NULL, call, (void *)at);
    for (int turn = 0; turn < 60; turn++) {
        if (tw_set_threads((turn + 2) % 4)) return puts(tw_last_error()), 1;
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    if (!tw_set_threads(-1) || !strstr(tw_last_error(), "-1 threads cannot be at work: give 1 or more")) return 1;
    for (long at = 0; at < 3 && !error; at++) pthread_join(callers[at], &error);
    puts(error ? error : "done");
    return 0;
}
"""
"""Callers at once, more than cores, whose instances share threads and come and go, and so do threads."""
FORKS = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"

static const char *weights;
static _Atomic int ended;

static int once(void) {
    static _Thread_local float image[IMAGE], result[RESULT];
    static const int64_t in_shape[] = {IN_SHAPE}, out_shape[] = {OUT_SHAPE};
    tw_instance *instance;
    tw_config config = {.weights_path = weights, .spin_us = 20};
    tw_tensor in = {image, TW_CPU, 0, TW_FLOAT, 32, IN_RANK, in_shape, NULL};
    tw_tensor out = {result, TW_CPU, 0, TW_FLOAT, 32, OUT_RANK, out_shape, NULL};
    if (tw_create(&config, &instance) || tw_run(instance, &in, &out)) return 1;
    tw_destroy(instance);
    return 0;
}

static void *again(void *number) {
    int failed = 0;
    while (!ended) failed |= once() || tw_set_threads(2 + (number != NULL));
    return failed ? number : NULL;
}

int main(int count, char **given) {
    pthread_t callers[2];
    weights = given[count - 1];
    for (long at = 0; at < 2; at++) pthread_create(&callers[at], NULL, again, (void *)at);
    for (int fork_number = 0; fork_number < 40; fork_number++) {
        int status = 0;
        pid_t child = fork();
        if (!child) {
            alarm(20);
            _exit(once() || tw_set_threads(1));
        }
        if (waitpid(child, &status, 0) != child || status)
            return printf("child %d: status %d\\n", fork_number, status), 1;
    }
    ended = 1;
    for (int at = 0; at < 2; at++) pthread_join(callers[at], NULL);
    puts("done");
    return 0;
}
"""
"""Children of a process in which other threads make instances, run and end them."""
RACE = 66
HELP = "#define SPINS_BEFORE_HELP 256"


def with_sanitizer(
    workshop: Workshop,
    plan: Plan,
    folder: Path,
    caller: str = CALLER,
    tool: Sequence[str] = ("-fsanitize=thread",),
) -> subprocess.CompletedProcess[str]:
    """A caller in C, which finds races by happens-before: those that did not come true this time too.

    Skips where the `tool` does not work.
    """
    folder.mkdir()
    sources, weights = workshop.sources([plan])
    kernels = workshop.kernels
    types = [kernels.buffers[id].type for id in (*kernels.inputs, *kernels.outputs)]
    text = caller
    for name, type in zip(("IN", "OUT"), types, strict=True):
        text = text.replace(f"{name}_SHAPE", ", ".join(map(str, type.dims))).replace(f"{name}_RANK", str(type.rank))
        text = text.replace({"IN": "IMAGE", "OUT": "RESULT"}[name], str(type.elements))
    for name, content in {**sources, "main.c": text}.items():
        (folder / name).write_text(content)
    (folder / "weights.bin").write_bytes(weights)
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    compiler = [
        find_toolchain().path,
        *tool,
        "-O1",
        "-g",
        "-std=gnu11",
        "-fno-math-errno",
        "-Wno-psabi",
        "-pthread",
    ]
    alone = ["setarch", "-R"]
    made = subprocess.run([*compiler, "empty.c", "-o", "empty"], cwd=folder, capture_output=True, check=False)
    if made.returncode or subprocess.run([*alone, "./empty"], cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("this machine's compiler has no thread sanitizer that runs")
    units = sorted(name for name in sources if name.endswith(".c"))
    flags = (*TARGET.flags, f"-DTW_LANES={TARGET.vector_floats}")
    subprocess.run([*compiler, *flags, *units, "main.c", "-o", "caller", "-lm"], cwd=folder, check=True)
    options = {**os.environ, "TSAN_OPTIONS": f"exitcode={RACE} halt_on_error=1"}
    command = [*alone, "./caller", "weights.bin"]
    return subprocess.run(command, cwd=folder, env=options, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("lanes", [2, 4])
def test_no_two_lanes_touch_memory_unordered(lanes: int, tmp_path: Path) -> None:
    """Each lane runs its own tasks: where one thread runs what is another's, it cannot race with itself.

    The tool looks at no vectors of more than 16 bytes; what the first wait of the plan guards is also read in smaller
    pieces.
    """
    workshop = Workshop(NETWORKS["branchy"](), {"tw_lanes.h": [(HELP, "#define SPINS_BEFORE_HELP (1L << 60)")]})
    plan = plans_of(workshop.kernels, lanes)[-1]
    done = with_sanitizer(workshop, plan, tmp_path / "plan")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]
    broken = without_a_wait(workshop.kernels, plan)[0]
    assert with_sanitizer(workshop, broken, tmp_path / "broken").returncode == RACE


def test_callers_that_share_threads_touch_no_memory_unordered(tmp_path: Path) -> None:
    workshop = Workshop(NETWORKS["branchy"]())
    plan = plans_of(workshop.kernels, 2)[-1]
    done = with_sanitizer(workshop, plan, tmp_path / "plan", CALLERS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]


def test_the_child_of_a_fork_waits_for_no_thread_that_it_does_not_have(tmp_path: Path) -> None:
    """Whatever the parent's threads were at."""
    workshop = Workshop(NETWORKS["branchy"]())
    plan = plans_of(workshop.kernels, 2)[-1]
    done = with_sanitizer(workshop, plan, tmp_path / "plan", FORKS, tool=())
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]
