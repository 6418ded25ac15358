/* Lanes: how the tasks of a plan are run by several threads.
 *
 * model.c defines, before including this file, the tables of the plans (see tw_runtime.h).
 *
 * A lane's tasks run in order. Two counters of each lane say how many of them have been claimed and how many are done, over all
 * runs, so that neither is ever set back. A task that must wait names a lane and a count; waiting is spinning on that lane's counter,
 * for a while, then yielding the core. A lane that does not come (its core was given to another process, or it is only waking up)
 * is helped: whoever waits for it claims its next task and runs it. So each task runs once, on its lane or on one that waits
 * for it. The caller's thread is lane 0; the others are of a pool (tw_pool.h), and one at a time is at a lane.
 *
 * What costs time is a cache line that two cores want. So each thread remembers how far it has seen every lane come, and asks again only
 * for what it has not seen; and a thread tells how far it has come after a task that some other lane waits for, and before it waits itself.
 */
#pragma once
#include "tw_pool.h"

#define SPINS_BEFORE_HELP 256 /* some microseconds: more than a lane that runs needs to see that it may go on */
#define SPINS_BETWEEN_HELPS 16 /* to look at what a lane has claimed takes the cache line from it */

/* No two of these share a cache line. */
struct lane {
    _Alignas(64) _Atomic long done; /* tasks that are finished: written by whoever ran the last one, which nobody follows before it is */
    _Alignas(64) _Atomic long claimed; /* tasks that some thread has taken: at most one more than are finished */
    _Alignas(64) _Atomic int away; /* its last task was run by another: nobody waits long for it before helping again. Seldom changes */
    _Alignas(64) long seen[LANES]; /* its own thread's: tasks of each lane of which it knows that they are finished */
    _Atomic long seat; /* twice the last run for which a thread came to it and stayed; odd: it is there */
};

/* Where the time of each task goes, in seconds since the run began. */
struct times {
    double *begins, *ends;
    long started_ns;
};

struct tw_instance {
    struct offer offer;
    struct lane progress[LANES];
    const struct plan *plan;
    int streams[TASKS + 1]; /* tasks of the plan, lane after lane, each in its lane's order */
    int first[LANES + 1];   /* where each lane's begin */
    char awaited[TASKS + 1]; /* of each task of `streams`, whether another lane waits for it, or the end of the run */
    _Alignas(64) _Atomic long run; /* number of the current run */
    _Atomic int alone; /* its caller expects no thread, and helps at once */
    int lanes;
    struct pool *pool;
    long process; /* that created it */
    int is_pinned; /* its pool is its own, and each thread has one lane */
    size_t bytes;  /* of arena and scratch, whole pages each */
    struct piece *piece; /* that the last run had, or this one has: both lie in it */
    char *scratch;       /* of each lane */
    char *staging[PORTS_IN + PORTS_OUT];
    struct weights weights;
    void *bound[OPERANDS + 1];
    struct times *times; /* of the current run; NULL: nobody wants to know */
    double handover_ns;  /* as it was measured; 0: it was not */
};

static double seconds_of(const tw_instance *m) { return 1e-9 * (double)(now_ns() - m->times->started_ns); }

static void run_task(tw_instance *m, int at, int scratch_of) {
    const struct task *task = &m->plan->tasks[at];
    const struct call *call = &m->plan->calls[task->call];
    if (m->times) m->times->begins[at] = seconds_of(m);
    call->kernel(m->bound + call->first_operand, m->scratch + (size_t)scratch_of * SCRATCH_BYTES, task->first, task->last);
    if (m->times) m->times->ends[at] = seconds_of(m);
}

static long tasks_of(const tw_instance *m, int lane) { return m->first[lane + 1] - m->first[lane]; }

/* Tasks that a lane had finished before a run (numbered from 1) began. */
static long before(const tw_instance *m, long run, int lane) { return (run - 1) * tasks_of(m, lane); }

/* Whether a lane has finished `count` tasks of this run, as far as the thread of lane `by` can know. */
static int is_done(tw_instance *m, long run, int lane, long count, int by) {
    long needed = before(m, run, lane) + count;
    long *seen = &m->progress[by].seen[lane];
    if (*seen >= needed) return 1;
    long done = atomic_load_explicit(&m->progress[lane].done, memory_order_acquire);
    if (done > *seen) *seen = done;
    return done >= needed;
}

/* Lets the others see how far a lane has come, by its own thread. Nobody else writes it until they do. */
static void tell(tw_instance *m, int lane) {
    struct lane *own = &m->progress[lane];
    if (atomic_load_explicit(&own->done, memory_order_relaxed) < own->seen[lane])
        atomic_store_explicit(&own->done, own->seen[lane], memory_order_release);
}

/* Runs a lane's task `at`, which is its next one and may begin, on the scratch of lane `by`; 0 if another thread has taken it. */
static int claim(tw_instance *m, long run, int lane, long at, int by) {
    struct lane *progress = &m->progress[lane];
    long next = before(m, run, lane) + at;
    if (!atomic_compare_exchange_strong_explicit(&progress->claimed, &next, next + 1, memory_order_acquire, memory_order_relaxed)) return 0;
    run_task(m, m->streams[m->first[lane] + at], by);
    if (atomic_load_explicit(&progress->away, memory_order_relaxed) != (lane != by))
        atomic_store_explicit(&progress->away, lane != by, memory_order_relaxed);
    m->progress[by].seen[lane] = next + 1;
    if (lane != by || m->awaited[m->first[lane] + at]) atomic_store_explicit(&progress->done, next + 1, memory_order_release);
    return 1;
}

/* Runs the next task of a lane that does not come, or of one that this lane waits for; 0 where nothing can be done. */
static int help(tw_instance *m, long run, int lane, int by, int depth) {
    long at = atomic_load_explicit(&m->progress[lane].claimed, memory_order_relaxed) - before(m, run, lane);
    if (depth == LANES || at < 0 || at >= tasks_of(m, lane) || !is_done(m, run, lane, at, by)) return 0;
    const struct task *task = &m->plan->tasks[m->streams[m->first[lane] + at]];
    for (int w = 0; w < task->waits; w++) {
        const struct awaited *wait = &m->plan->waits[task->first_wait + w];
        if (!is_done(m, run, wait->lane, wait->count, by)) return help(m, run, wait->lane, by, depth + 1);
    }
    return claim(m, run, lane, at, by);
}

/* Until a lane has finished `count` tasks of this run. */
static void await(tw_instance *m, long run, int lane, long count, int by) {
    long patience = atomic_load_explicit(&m->alone, memory_order_relaxed) ? 0 : SPINS_BEFORE_HELP;
    for (long spins = 0; !is_done(m, run, lane, count, by); spins++) {
        if (spins == 0) tell(m, by);
        if (spins == SPINS_BETWEEN_HELPS && atomic_load_explicit(&m->progress[lane].away, memory_order_relaxed)) patience = 0;
        if (spins >= patience && spins % SPINS_BETWEEN_HELPS == 0 && help(m, run, lane, by, 0)) {
            tell(m, by); /* its own next task may have been what had to be run */
            continue;
        }
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

/* The tasks of a lane that nobody else runs; 0 where a thread left the others, because callers need its core. */
static int run_lane(tw_instance *m, long run, int lane) {
    for (long at = 0; at < tasks_of(m, lane); at++) {
        if (lane && is_crowded(m->pool, 0)) {
            tell(m, lane);
            atomic_store_explicit(&m->alone, 1, memory_order_relaxed);
            return 0;
        }
        long claimed = atomic_load_explicit(&m->progress[lane].claimed, memory_order_relaxed) - before(m, run, lane);
        if (claimed > at) { /* others were faster */
            at = claimed - 1;
            continue;
        }
        const struct task *task = &m->plan->tasks[m->streams[m->first[lane] + at]];
        const struct awaited *waits = &m->plan->waits[task->first_wait];
        for (int w = 0; w < task->waits; w++) await(m, run, waits[w].lane, waits[w].count, lane);
        await(m, run, lane, at, lane);
        claim(m, run, lane, at, lane);
    }
    return 1;
}

/* Works on those lanes of the current run to which no thread came yet, first on that of the thread's number; 0 where there was none. */
static int serve(struct offer *offer, int thread) {
    tw_instance *m = (tw_instance *)offer;
    int served = 0, others = m->lanes - 1;
    for (int tried = 0; tried < (m->is_pinned ? 1 : others); tried++) {
        int lane = 1 + (thread + tried) % others;
        _Atomic long *seat = &m->progress[lane].seat;
        long run = atomic_load_explicit(&m->run, memory_order_acquire), last = atomic_load_explicit(seat, memory_order_relaxed);
        if (last % 2 || last / 2 >= run) continue;
        if (!atomic_compare_exchange_strong_explicit(seat, &last, 2 * run + 1, memory_order_acquire, memory_order_relaxed)) continue;
        if (atomic_load_explicit(&m->alone, memory_order_relaxed)) atomic_store_explicit(&m->alone, 0, memory_order_relaxed);
        int stayed = run_lane(m, run, lane);
        atomic_store_explicit(seat, 2 * (stayed ? run : run - 1), memory_order_release);
        served = 1;
    }
    return served;
}

/* One thread runs every task in plan order: for one lane, and where fewer threads were asked for than the plan has lanes. */
static void run_alone(tw_instance *m) {
    for (int at = 0; at < m->plan->count; at++) run_task(m, at, 0);
}

/* The streams of the lanes, and which of their tasks somebody waits for. */
static void list_streams(tw_instance *m) {
    const struct plan *plan = m->plan;
    int listed = 0;
    for (int lane = 0; lane < LANES; lane++) {
        m->first[lane] = listed;
        for (int at = 0; at < plan->count; at++)
            if (plan->tasks[at].lane == lane) m->streams[listed++] = at;
        if (listed > m->first[lane]) m->awaited[listed - 1] = 1;
    }
    m->first[LANES] = listed;
    for (int at = 0; at < plan->count; at++)
        for (int w = 0; w < plan->tasks[at].waits; w++) {
            const struct awaited *wait = &plan->waits[plan->tasks[at].first_wait + w];
            if (wait->count) m->awaited[m->first[wait->lane] + wait->count - 1] = 1;
        }
}
