/* Lanes of a module for browsers that several threads run: the page's own runs lane 0, and workers run the others.
 *
 * Each thread has an instance of the module, with a stack of its own; memory is shared. A lane's tasks run in order. Two counters of each
 * lane say how many of them have been taken and how many are done, over all runs and modulo 2^32, so that neither is ever set back. A page
 * may not sleep, nor can it tell when a worker comes: a thread whose own lane must wait takes, after some spinning, a task of another one.
 * So a run ends even if no worker is there. Between runs workers spin for a while, and then sleep.
 */
#pragma once
#include <stdatomic.h>
#include "tw_page.h"

#define SPINS_BEFORE_HELP 2000
#define SPINS_BEFORE_SLEEP 200000 /* about a millisecond */
#define LANE_STACK_BYTES (1 << 20)

/* No two of these counters share a cache line. */
static struct {
    _Alignas(64) _Atomic unsigned taken;
    _Alignas(64) _Atomic unsigned done;
} progress[LANES];
static int streams[TASKS + 1], first_of[LANES + 1]; /* tasks of the plan, lane after lane; where each lane's begin */
static _Alignas(64) _Atomic int begun; /* runs */
static _Atomic int asleep;             /* workers */

static void list_lanes(void) {
    int listed = 0;
    for (int lane = 0; lane < LANES; lane++) {
        first_of[lane] = listed;
        for (int at = 0; at < plan->count; at++)
            if (plan->tasks[at].lane == lane) streams[listed++] = at;
    }
    first_of[LANES] = listed;
}

static unsigned tasks_of(int lane) { return first_of[lane + 1] - first_of[lane]; }

/* Tasks that a lane had finished before a run, numbered from 1, began. */
static unsigned before(unsigned run, int lane) { return (run - 1) * tasks_of(lane); }

static int is_done(unsigned run, int lane, unsigned count) {
    return (int)(atomic_load_explicit(&progress[lane].done, memory_order_acquire) - before(run, lane) - count) >= 0;
}

static int is_over(unsigned run) {
    for (int lane = 0; lane < LANES; lane++)
        if (!is_done(run, lane, tasks_of(lane))) return 0;
    return 1;
}

/* Runs the next task of a lane on the scratch of lane `by`; 0 where it must wait, or another thread has taken it. */
static int advance(unsigned run, int lane, int by) {
    unsigned next = atomic_load_explicit(&progress[lane].taken, memory_order_relaxed), at = next - before(run, lane);
    if (at >= tasks_of(lane) || !is_done(run, lane, at)) return 0;
    const int number = streams[first_of[lane] + at];
    const struct task *task = &plan->tasks[number];
    for (int w = 0; w < task->waits; w++) {
        const struct awaited *wait = &plan->waits[task->first_wait + w];
        if (!is_done(run, wait->lane, wait->count)) return 0;
    }
    if (!atomic_compare_exchange_strong_explicit(&progress[lane].taken, &next, next + 1, memory_order_acquire, memory_order_relaxed)) return 0;
    run_task(number, by);
    atomic_store_explicit(&progress[lane].done, next + 1, memory_order_release);
    return 1;
}

static void run_lane(unsigned run, int lane) {
    for (long spins = 0; !is_over(run); spins++) {
        if (advance(run, lane, lane)) spins = 0;
        else if (spins >= SPINS_BEFORE_HELP)
            for (int other = (lane + 1) % LANES; other != lane; other = (other + 1) % LANES)
                if (advance(run, other, lane)) break;
    }
}

/* The end of a stack for the instance of another thread; NULL where there is no memory. */
TW_EXPORT void *tw_stack(void) {
    char *lowest = pages(LANE_STACK_BYTES);
    return lowest ? lowest + LANE_STACK_BYTES : NULL;
}

/* A worker's, which never returns. */
TW_EXPORT void tw_work(int lane) {
    for (int run = 0;;) {
        int spins = 0, now;
        while ((now = atomic_load_explicit(&begun, memory_order_acquire)) == run)
            if (++spins > SPINS_BEFORE_SLEEP) {
                atomic_fetch_add(&asleep, 1);
                __builtin_wasm_memory_atomic_wait32((int *)&begun, run, -1);
                atomic_fetch_sub(&asleep, 1);
            }
        run_lane(run = now, lane);
    }
}

TW_EXPORT void tw_step(void) {
    if (threads == 1) {
        run_alone();
        return;
    }
    if (!atomic_load(&begun)) list_lanes();
    const int run = atomic_fetch_add(&begun, 1) + 1;
    if (atomic_load(&asleep)) __builtin_wasm_memory_atomic_notify((int *)&begun, LANES);
    run_lane(run, 0);
}
