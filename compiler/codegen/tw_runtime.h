/* The part of model.c that is the same for every model: instances, lanes, the C interface.
 *
 * model.c defines, before including this file, the tables of the plan:
 *   PORTS_IN, PORTS_OUT, ports[]         inputs then outputs: dtype, shape, bytes
 *   CALLS, calls[]                       kernel, first operand, number of operands
 *   OPERANDS, operands[]                 space and byte offset of each pointer a kernel is given
 *   TASKS, tasks[], WAITS, waits[]       the plan's tasks in one order that respects every wait
 *   LANES, ARENA_BYTES, WEIGHT_BYTES, SCRATCH_BYTES, cpu_is_missing()
 *
 * A run publishes, for each lane, how many of its tasks are done. A task that must wait names a lane and a count; waiting is
 * spinning on that counter, for a while, then yielding the core. Between runs lanes sleep on a condition variable after
 * spinning for `spin_us`.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TW_EXPORT __attribute__((visibility("default")))
#define SPINS_BEFORE_YIELD 4096

static __thread char last_error[512];

static int fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return -1;
}

struct lane {
    _Atomic long done; /* tasks of this run that are finished */
    char apart[56];    /* no two lanes' counters share a cache line */
};

struct tw_instance {
    struct lane progress[LANES];
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
    const char *weights;
    void *mapping;
    size_t mapping_bytes;
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

static void await(tw_instance *m, const struct wait *wait) {
    for (long spins = 0; atomic_load_explicit(&m->progress[wait->lane].done, memory_order_acquire) < wait->count; spins++) {
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

static void run_lane(tw_instance *m, int lane) {
    long done = 0;
    for (int at = 0; at < TASKS; at++) {
        const struct task *task = &tasks[at];
        if (task->lane != lane) continue;
        for (int w = 0; w < task->waits; w++) await(m, &waits[task->first_wait + w]);
        run_task(m, task, lane);
        atomic_store_explicit(&m->progress[lane].done, ++done, memory_order_release);
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
        if (atomic_load(&m->stopping)) return NULL;
        run_lane(m, start.lane);
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

static long tasks_of(int lane) {
    long count = 0;
    for (int at = 0; at < TASKS; at++) count += tasks[at].lane == lane;
    return count;
}

static void run_all(tw_instance *m) {
    if (m->lanes == 1) {
        run_alone(m);
        return;
    }
    for (int lane = 0; lane < LANES; lane++) atomic_store_explicit(&m->progress[lane].done, 0, memory_order_relaxed);
    wake_lanes(m);
    run_lane(m, 0);
    for (int lane = 1; lane < LANES; lane++) await(m, &(struct wait){lane, tasks_of(lane)});
}

/* Tensors */

static int is_row_major(const tw_tensor *t) {
    int64_t expected = 1;
    if (!t->strides) return 1;
    for (int axis = t->ndim - 1; axis >= 0; axis--) {
        if (t->shape[axis] != 1 && t->strides[axis] != expected) return 0;
        expected *= t->shape[axis];
    }
    return 1;
}

/* Copies between a strided tensor and dense memory; `pack` says which way. */
static void copy_strided(const tw_tensor *t, char *dense, int pack) {
    int64_t index[16] = {0};
    size_t width = (size_t)t->bits / 8;
    int64_t total = 1;
    for (int axis = 0; axis < t->ndim; axis++) total *= t->shape[axis];
    for (int64_t at = 0; at < total; at++) {
        int64_t offset = 0;
        for (int axis = 0; axis < t->ndim; axis++) offset += index[axis] * t->strides[axis];
        char *strided = (char *)t->data + offset * (int64_t)width;
        memcpy(pack ? dense + (size_t)at * width : strided, pack ? strided : dense + (size_t)at * width, width);
        for (int axis = t->ndim - 1; axis >= 0 && ++index[axis] == t->shape[axis]; axis--) index[axis] = 0;
    }
}

static int check_tensor(const tw_tensor *t, const struct port *port, const char *kind, int at) {
    if (t->device_type != TW_CPU) return fail("%s %d is not in CPU memory (device type %d): copy it to the host", kind, at, t->device_type);
    if (t->code != port->code || t->bits != port->bits)
        return fail("%s %d has element type code %d with %d bits, expected code %d with %d bits", kind, at, t->code, t->bits, port->code, port->bits);
    if (t->ndim != port->ndim) return fail("%s %d has %d dimensions, expected %d", kind, at, t->ndim, port->ndim);
    for (int axis = 0; axis < port->ndim; axis++)
        if (t->shape[axis] != port->shape[axis])
            return fail("%s %d has extent %lld in dimension %d, expected %lld", kind, at, (long long)t->shape[axis], axis, (long long)port->shape[axis]);
    if (t->strides && t->ndim > 16) return fail("%s %d has strides and %d dimensions: pass it row-major", kind, at, t->ndim);
    if (!t->data && port->bytes) return fail("%s %d has no data", kind, at);
    return 0;
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

/* Weights are mapped, so that processes share one copy. */
static int map_weights(tw_instance *m, const tw_config *config) {
    if (!WEIGHT_BYTES) return 0;
    if (!config->weights_path) return fail("tw_config.weights_path is missing: give weights.bin, or the .tw with weights_offset");
    int file = open(config->weights_path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return fail("cannot open the weights file %.300s: %s", config->weights_path, strerror(errno));
    struct stat facts;
    if (fstat(file, &facts) || facts.st_size < config->weights_offset + (int64_t)WEIGHT_BYTES) {
        close(file);
        return fail("the weights file %.300s is too short: it needs %lld bytes", config->weights_path, (long long)(config->weights_offset + (int64_t)WEIGHT_BYTES));
    }
    long page = sysconf(_SC_PAGESIZE);
    int64_t begin = config->weights_offset / page * page;
    m->mapping_bytes = (size_t)(config->weights_offset - begin) + WEIGHT_BYTES;
    m->mapping = mmap(NULL, m->mapping_bytes, PROT_READ, MAP_SHARED, file, begin);
    close(file);
    if (m->mapping == MAP_FAILED) {
        m->mapping = NULL;
        return fail("cannot map the weights file %.300s: %s", config->weights_path, strerror(errno));
    }
    m->weights = (const char *)m->mapping + (config->weights_offset - begin);
    if ((uintptr_t)m->weights % 64) return fail("tw_config.weights_offset is %lld: it must be a multiple of 64", (long long)config->weights_offset);
    return 0;
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
    if (m->mapping) munmap(m->mapping, m->mapping_bytes);
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
    m->lanes = config->lanes <= 0 || config->lanes >= LANES ? LANES : 1;
    m->spin_ns = config->spin_us < 0 ? 2000000L : config->spin_us * 1000L;
    m->arena = aligned_alloc(4096, (ARENA_BYTES + 4096) / 4096 * 4096);
    m->scratch = aligned_alloc(4096, ((size_t)LANES * SCRATCH_BYTES + 4096) / 4096 * 4096);
    if (!m->arena || !m->scratch) {
        tw_destroy(m);
        return fail("out of memory: the model needs %zu bytes", (size_t)ARENA_BYTES + (size_t)LANES * SCRATCH_BYTES);
    }
    if (map_weights(m, config)) {
        tw_destroy(m);
        return -1;
    }
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_ARENA) m->bound[at] = m->arena + operands[at].offset;
        if (operands[at].space == SPACE_WEIGHTS) m->bound[at] = (char *)m->weights + operands[at].offset;
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
