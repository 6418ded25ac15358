/* The part of model.c that is the same for every model: instances, lanes, the C interface.
 *
 * model.c defines, before including this file, the tables of the plan:
 *   PORTS_IN, PORTS_OUT, ports[]         inputs then outputs: dtype, shape, bytes
 *   CALLS, calls[]                       kernel, first operand, number of operands
 *   OPERANDS, operands[]                 space and byte offset of each pointer a kernel is given
 *   TASKS, tasks[], WAITS, waits[]       the plan's tasks in one order that respects every wait
 *   LANES, ARENA_BYTES, WEIGHT_BYTES, SCRATCH_BYTES, cpu_is_missing()
 *
 * A lane's tasks run in order. Two counters of each lane say how many of them have been claimed and how many are done, over all
 * runs, so that neither is ever set back. A task that must wait names a lane and a count; waiting is spinning on that lane's counter,
 * for a while, then yielding the core. A lane that does not come (its core was given to another process, or it is only waking up)
 * is helped: whoever waits for it claims its next task and runs it. So each task runs once, on its lane or on one that waits
 * for it. Between runs lanes sleep on a condition variable after spinning for `spin_us`.
 */
#include "tw_host.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define SPINS_BEFORE_HELP 256 /* some microseconds: more than a lane that runs needs to see that it may go on */
#define SPINS_BETWEEN_HELPS 16 /* to look at what a lane has claimed takes the cache line from it */
#define SPINS_BEFORE_YIELD 4096

/* No two lanes' counters share a cache line, nor those that its own thread writes with those that others wait for. */
struct lane {
    _Atomic long done; /* tasks that are finished */
    char apart[56];
    _Atomic long claimed; /* tasks that some thread has taken: at most one more than are done */
    _Atomic int away;     /* its last task was run by another: nobody waits long for it before helping again */
    char apart_too[48];
};

struct tw_instance {
    struct lane progress[LANES];
    int streams[TASKS + 1]; /* tasks, lane after lane, each in its lane's order */
    int first[LANES + 1];   /* where each lane's begin */
    _Atomic long run;     /* number of the current run; lanes start when it rises */
    _Atomic int stopping;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Atomic int asleep;
    pthread_t threads[LANES];
    int started;
    int lanes;
    long spin_ns;
    char *arena;
    char *scratch; /* LANES pieces */
    char *staging[PORTS_IN + PORTS_OUT];
    struct weights weights;
    void *bound[OPERANDS + 1];
};

struct start {
    tw_instance *instance;
    int lane;
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void run_task(tw_instance *m, const struct task *task, int scratch_of) {
    const struct call *call = &calls[task->call];
    call->kernel(m->bound + call->first_operand, m->scratch + (size_t)scratch_of * SCRATCH_BYTES, task->first, task->last);
}

static long tasks_of(const tw_instance *m, int lane) { return m->first[lane + 1] - m->first[lane]; }

/* Tasks that a lane had finished before a run (numbered from 1) began. */
static long before(const tw_instance *m, long run, int lane) { return (run - 1) * tasks_of(m, lane); }

static int is_done(tw_instance *m, long run, int lane, long count) {
    return atomic_load_explicit(&m->progress[lane].done, memory_order_acquire) >= before(m, run, lane) + count;
}

/* Runs a lane's task `at`, which is its next one and may begin, on the scratch of lane `by`; 0 if another thread has taken it. */
static int claim(tw_instance *m, long run, int lane, long at, int by) {
    struct lane *progress = &m->progress[lane];
    long next = before(m, run, lane) + at;
    if (!atomic_compare_exchange_strong_explicit(&progress->claimed, &next, next + 1, memory_order_acquire, memory_order_relaxed)) return 0;
    run_task(m, &tasks[m->streams[m->first[lane] + at]], by);
    atomic_store_explicit(&progress->away, lane != by, memory_order_relaxed);
    atomic_store_explicit(&progress->done, before(m, run, lane) + at + 1, memory_order_release);
    return 1;
}

/* Runs the next task of a lane that does not come, or of one that this lane waits for; 0 where nothing can be done. */
static int help(tw_instance *m, long run, int lane, int by, int depth) {
    long at = atomic_load_explicit(&m->progress[lane].claimed, memory_order_relaxed) - before(m, run, lane);
    if (depth == LANES || at < 0 || at >= tasks_of(m, lane) || !is_done(m, run, lane, at)) return 0;
    const struct task *task = &tasks[m->streams[m->first[lane] + at]];
    for (int w = 0; w < task->waits; w++) {
        const struct wait *wait = &waits[task->first_wait + w];
        if (!is_done(m, run, wait->lane, wait->count)) return help(m, run, wait->lane, by, depth + 1);
    }
    return claim(m, run, lane, at, by);
}

/* Until a lane has finished `count` tasks of this run. */
static void await(tw_instance *m, long run, int lane, long count, int by) {
    long patience = SPINS_BEFORE_HELP;
    for (long spins = 1; !is_done(m, run, lane, count); spins++) {
        if (spins == SPINS_BETWEEN_HELPS && atomic_load_explicit(&m->progress[lane].away, memory_order_relaxed)) patience = 0;
        if (spins >= patience && spins % SPINS_BETWEEN_HELPS == 0 && help(m, run, lane, by, 0)) continue;
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

static void run_lane(tw_instance *m, long run, int lane) {
    for (long at = 0; at < tasks_of(m, lane); at++) {
        long claimed = atomic_load_explicit(&m->progress[lane].claimed, memory_order_relaxed) - before(m, run, lane);
        if (claimed > at) { /* others were faster */
            at = claimed - 1;
            continue;
        }
        const struct task *task = &tasks[m->streams[m->first[lane] + at]];
        for (int w = 0; w < task->waits; w++) await(m, run, waits[task->first_wait + w].lane, waits[task->first_wait + w].count, lane);
        await(m, run, lane, at, lane);
        claim(m, run, lane, at, lane);
    }
}

/* One thread runs every task in plan order: for one lane, and where fewer threads were asked for than the plan has lanes. */
static void run_alone(tw_instance *m) {
    for (int at = 0; at < TASKS; at++) run_task(m, &tasks[at], 0);
}

/* A lane's thread: waits for the next run, spinning first because a caller in a loop comes back soon. */
static void *lane_main(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    tw_instance *m = start.instance;
    for (long next = 1;; next++) {
        long give_up = now_ns() + m->spin_ns;
        for (long spins = 0; atomic_load_explicit(&m->run, memory_order_acquire) < next; spins++) {
            relax();
            if (spins % 64 == 63 && now_ns() > give_up) {
                pthread_mutex_lock(&m->mutex);
                atomic_fetch_add(&m->asleep, 1);
                while (atomic_load(&m->run) < next) pthread_cond_wait(&m->wake, &m->mutex);
                atomic_fetch_sub(&m->asleep, 1);
                pthread_mutex_unlock(&m->mutex);
            }
        }
        next = atomic_load(&m->run); /* runs that ended without this lane are over */
        if (atomic_load(&m->stopping)) return NULL; /* asked after that: the run with which an instance ends is none */
        run_lane(m, next, start.lane);
    }
}

static void wake_lanes(tw_instance *m) {
    atomic_fetch_add(&m->run, 1);
    if (atomic_load(&m->asleep)) {
        pthread_mutex_lock(&m->mutex);
        pthread_cond_broadcast(&m->wake);
        pthread_mutex_unlock(&m->mutex);
    }
}

static void run_all(tw_instance *m) {
    if (m->lanes == 1) {
        run_alone(m);
        return;
    }
    wake_lanes(m);
    long run = atomic_load(&m->run);
    run_lane(m, run, 0);
    for (int lane = 0; lane < LANES; lane++) await(m, run, lane, tasks_of(m, lane), 0);
}

/* Tensors */

static int check_tensor(const tw_tensor *t, const struct port *port, const char *kind, int at) {
    if (t->device_type != TW_CPU) return fail("%s %d is not in CPU memory (device type %d): copy it to the host", kind, at, t->device_type);
    if (check_form(t, port, kind, at)) return -1;
    return !t->data && port->bytes ? fail("%s %d has no data", kind, at) : 0;
}

/* The memory a port is read from or written to in this run: the caller's own when it is row-major, else staging. */
static char *port_memory(tw_instance *m, int at, const tw_tensor *t) {
    if (is_row_major(t)) return t->data;
    if (!m->staging[at] && !(m->staging[at] = malloc(ports[at].bytes ? ports[at].bytes : 1))) return NULL;
    return m->staging[at];
}

static int bind(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    char *memory[PORTS_IN + PORTS_OUT + 1];
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) {
        const tw_tensor *t = at < PORTS_IN ? &in[at] : &out[at - PORTS_IN];
        if (check_tensor(t, &ports[at], at < PORTS_IN ? "input" : "output", at < PORTS_IN ? at : at - PORTS_IN)) return -1;
        if (!(memory[at] = port_memory(m, at, t)) && ports[at].bytes) return fail("out of memory copying a strided tensor of %zu bytes", ports[at].bytes);
        if (at < PORTS_IN && memory[at] != t->data) copy_strided(t, memory[at], 1);
    }
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_INPUT) m->bound[at] = memory[operands[at].port] + operands[at].offset;
        if (operands[at].space == SPACE_OUTPUT) m->bound[at] = memory[PORTS_IN + operands[at].port] + operands[at].offset;
    }
    return 0;
}

static void unstage(tw_instance *m, tw_tensor *out) {
    for (int at = 0; at < PORTS_OUT; at++)
        if (!is_row_major(&out[at])) copy_strided(&out[at], m->staging[PORTS_IN + at], 0);
}

static void list_streams(tw_instance *m) {
    int listed = 0;
    for (int lane = 0; lane < LANES; lane++) {
        m->first[lane] = listed;
        for (int at = 0; at < TASKS; at++)
            if (tasks[at].lane == lane) m->streams[listed++] = at;
    }
    m->first[LANES] = listed;
}

static int start_lanes(tw_instance *m) {
    for (int lane = 1; lane < LANES; lane++) {
        struct start *start = malloc(sizeof *start);
        if (!start) return fail("out of memory");
        *start = (struct start){m, lane};
        int error = pthread_create(&m->threads[lane], NULL, lane_main, start);
        if (error) {
            free(start);
            return fail("cannot start a thread for lane %d: %s", lane, strerror(error));
        }
        m->started++;
    }
    return 0;
}

/* The C interface */

TW_EXPORT int tw_abi_version(void) { return TW_ABI_VERSION; }
TW_EXPORT const char *tw_describe(void) { return description; }
TW_EXPORT const char *tw_last_error(void) { return last_error; }

TW_EXPORT void tw_destroy(tw_instance *m) {
    if (!m) return;
    if (m->started) {
        atomic_store(&m->stopping, 1);
        wake_lanes(m);
        for (int lane = 1; lane <= m->started; lane++) pthread_join(m->threads[lane], NULL);
    }
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) free(m->staging[at]);
    unmap_weights(&m->weights);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->wake);
    free(m->arena);
    free(m->scratch);
    free(m);
}

TW_EXPORT int tw_create(const tw_config *config, tw_instance **instance) {
    *instance = NULL;
    const char *missing = cpu_is_missing();
    if (missing) return fail("this CPU lacks %s, which the model was compiled to use: compile it for cpu:x86-64-v3 or this machine", missing);
    tw_instance *m = aligned_alloc(64, (sizeof *m + 63) / 64 * 64);
    if (!m) return fail("out of memory");
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wake, NULL);
    list_streams(m);
    m->lanes = config->lanes <= 0 || config->lanes >= LANES ? LANES : 1;
    m->spin_ns = config->spin_us < 0 ? 2000000L : config->spin_us * 1000L;
    m->arena = aligned_alloc(4096, (ARENA_BYTES + 4096) / 4096 * 4096);
    m->scratch = aligned_alloc(4096, ((size_t)LANES * SCRATCH_BYTES + 4096) / 4096 * 4096);
    if (!m->arena || !m->scratch) {
        tw_destroy(m);
        return fail("out of memory: the model needs %zu bytes", (size_t)ARENA_BYTES + (size_t)LANES * SCRATCH_BYTES);
    }
    if (map_weights(config, &m->weights)) {
        tw_destroy(m);
        return -1;
    }
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_ARENA) m->bound[at] = m->arena + operands[at].offset;
        if (operands[at].space == SPACE_WEIGHTS) m->bound[at] = (char *)m->weights.data + operands[at].offset;
    }
    if (m->lanes > 1 && start_lanes(m)) {
        tw_destroy(m);
        return -1;
    }
    *instance = m;
    return 0;
}

TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    if (bind(m, in, out)) return -1;
    run_all(m);
    unstage(m, out);
    return 0;
}

TW_EXPORT int tw_profile(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *seconds) {
    if (bind(m, in, out)) return -1;
    for (int call = 0; call < CALLS; call++) seconds[call] = 0;
    for (int at = 0; at < TASKS; at++) {
        long begin = now_ns();
        run_task(m, &tasks[at], 0);
        seconds[tasks[at].call] += 1e-9 * (double)(now_ns() - begin);
    }
    unstage(m, out);
    return 0;
}
