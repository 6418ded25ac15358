/* The part of model.c that is the same for every model: instances, their threads, the C interface.
 *
 * model.c defines, before including this file, the tables of the model and of its plans:
 *   PORTS_IN, PORTS_OUT, ports[]         inputs then outputs: dtype, shape, bytes
 *   CALLS, OPERANDS                      kernels that are called, in any plan, and pointers that they are given
 *   PLANS, plans[]                       by rising hand-over, up to which a plan is the best; the last one is for all cores. Of each:
 *       calls[]                          kernel and first operand
 *       operands[]                       space and byte offset of each pointer a kernel is given
 *       tasks[], waits[]                 the plan's tasks in one order that respects every wait
 *       lanes, arena_bytes
 *   LANES, TASKS                         the most that a plan has
 *   WEIGHT_BYTES, SCRATCH_BYTES, cpu_is_missing()
 *   OWN_MEMORY                           where it is: arena and scratch keep what an earlier run left, or begin as zeros
 *
 * Where there is a choice between plans, the hand-over between the caller's thread and that of lane 1 is measured when an instance is
 * created. Lanes are in tw_lanes.h, their threads in tw_pool.h.
 */
#include "tw_host.h"
#include "tw_lanes.h"

#if !defined(OWN_MEMORY)
#define OWN_MEMORY 0
#endif

/* Threads in the place of those that ended with another library; without them the caller does their work. */
static void replace_threads(tw_instance *m) {
    struct pool *pool = m->pool;
    int there = atomic_load_explicit(&pool->threads, memory_order_relaxed), target = atomic_load_explicit(&pool->target, memory_order_relaxed);
    const int wanted = m->lanes > target ? m->lanes - 1 : target;
    if (there >= permitted(pool, wanted)) return;
    pthread_mutex_lock(&pool->mutex);
    start_threads(pool, wanted, -1);
    pthread_mutex_unlock(&pool->mutex);
}

static void run_all(tw_instance *m) {
    int others = m->lanes - 1;
    if (!others) {
        begin_run(m->pool, NULL, 0);
        run_alone(m);
        end_run(m->pool, -1, 0);
        return;
    }
    replace_threads(m);
    long run = atomic_fetch_add(&m->run, 1) + 1;
    int slot = begin_run(m->pool, &m->offer, others);
    atomic_store_explicit(&m->alone, slot < 0 || is_crowded(m->pool, 1), memory_order_relaxed);
    run_lane(m, run, 0);
    for (int lane = 0; lane <= others; lane++) await(m, run, lane, tasks_of(m, lane), 0); /* a thread may be at the last task of lane 0 too */
    end_run(m->pool, slot, others);
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

/* Arena and scratch for a run. */
static int take_memory(tw_instance *m) {
    if (!m->bytes || (OWN_MEMORY && m->piece)) return 0;
    struct piece *piece = take_piece(m->pool, m->bytes, m->piece);
    if (!piece) return fail("out of memory: the model needs %zu bytes", m->bytes);
    if (piece == m->piece) return 0;
    m->piece = piece;
    char *arena = (char *)piece + PAGE;
    m->scratch = arena + m->bytes - (size_t)m->lanes * SCRATCH_BYTES;
    const struct operand *operands = m->plan->operands;
    for (int at = 0; at < OPERANDS; at++)
        if (operands[at].space == SPACE_ARENA) m->bound[at] = arena + operands[at].offset;
    return 0;
}

static void give_memory(tw_instance *m) {
    if (m->bytes && !OWN_MEMORY) give_piece(m->pool, m->piece);
}

static int bind(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    char *memory[PORTS_IN + PORTS_OUT + 1];
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) {
        const tw_tensor *t = at < PORTS_IN ? &in[at] : &out[at - PORTS_IN];
        if (check_tensor(t, &ports[at], at < PORTS_IN ? "input" : "output", at < PORTS_IN ? at : at - PORTS_IN)) return -1;
        if (!(memory[at] = port_memory(m, at, t)) && ports[at].bytes) return fail("out of memory copying a strided tensor of %zu bytes", ports[at].bytes);
        if (at < PORTS_IN && memory[at] != t->data) copy_strided(t, memory[at], 1);
    }
    const struct operand *operands = m->plan->operands;
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_INPUT) m->bound[at] = memory[operands[at].port] + operands[at].offset;
        if (operands[at].space == SPACE_OUTPUT) m->bound[at] = memory[PORTS_IN + operands[at].port] + operands[at].offset;
    }
    return take_memory(m);
}

static void unbind(tw_instance *m, tw_tensor *out) {
    give_memory(m);
    for (int at = 0; at < PORTS_OUT; at++)
        if (!is_row_major(&out[at])) copy_strided(&out[at], m->staging[PORTS_IN + at], 0);
}

/* Creating an instance */

struct player {
    struct rally *rally;
    int core;
};

static void *play(void *argument) {
    const struct player *player = argument;
    pin(player->core);
    return_strokes(player->rally);
    return NULL;
}

/* What a hand-over costs between this thread and one that begins on another core. */
static int measure_plans(tw_instance *m) {
    struct rally rally = {0};
    struct player player = {&rally, core_of(1, sched_getcpu())};
    pthread_t other;
    int error = pthread_create(&other, NULL, play, &player);
    if (error) return fail("cannot start a thread: %s", strerror(error));
    m->handover_ns = measure_handover(&rally);
    pthread_join(other, NULL);
    return 0;
}

/* The first plan for no more than `lanes` lanes (0: for any number) and such a hand-over; the last where there is none. */
static const struct plan *plan_for(int lanes, double handover_ns) {
    for (const struct plan *plan = plans; plan < plans + PLANS; plan++)
        if ((lanes <= 0 || plan->lanes <= lanes) && handover_ns <= plan->most_handover_ns) return plan;
    return &plans[PLANS - 1];
}

static pthread_mutex_t library_mutex = PTHREAD_MUTEX_INITIALIZER; /* for what follows, and while threads of this library end */
static int in_pool; /* instances of this process whose threads are of a pool that others may share */
static _Atomic long library_process; /* that locked it last; 0: none has yet */

/* In the child of a fork a thread that is not there may hold the mutex, and nothing that it guards is the child's. */
static void lock_library(void) {
    long own = this_process(), last = atomic_load(&library_process);
    if (last != own && atomic_compare_exchange_strong(&library_process, &last, own) && last) {
        pthread_mutex_init(&library_mutex, NULL);
        in_pool = 0;
    }
    pthread_mutex_lock(&library_mutex);
}

/* The pool of which an instance has its threads, with as many as it may need. */
static int join_pool(tw_instance *m, int is_pinned) {
    int here = sched_getcpu(), others = m->lanes - 1;
    m->offer.serve = serve;
    m->is_pinned = is_pinned;
    m->process = this_process();
    if (is_pinned) {
        if (!(m->pool = aligned_alloc(64, sizeof *m->pool))) return fail("out of memory");
        atomic_store(&m->pool->limit, 0);
        reset_pool(m->pool);
    } else {
        lock_library();
        m->pool = common_pool;
        if (m->pool->process != m->process) reset_pool(m->pool);
        in_pool++;
        pthread_mutex_unlock(&library_mutex);
    }
    struct pool *pool = m->pool;
    pthread_mutex_lock(&pool->mutex);
    add_lanes(pool, others);
    const int target = atomic_load(&pool->target);
    int error = others ? start_threads(pool, !is_pinned && target > others ? target : others, is_pinned ? here : -1) : 0;
    pthread_mutex_unlock(&pool->mutex);
    while (is_pinned && atomic_load(&pool->placed) < atomic_load(&pool->threads)) sched_yield();
    return error ? fail("cannot start a thread for a lane: %s", strerror(error)) : 0;
}

/* Ends the threads that only this instance has. Of an instance from before a fork there are none. */
static void leave_pool(tw_instance *m) {
    if (m->process != this_process()) return;
    outlast(m->pool, &m->offer);
    pthread_mutex_lock(&m->pool->mutex);
    add_lanes(m->pool, 1 - m->lanes);
    pthread_mutex_unlock(&m->pool->mutex);
    free_pieces(m->pool);
    if (m->is_pinned) {
        end_threads(m->pool, NULL, 0);
        pthread_mutex_destroy(&m->pool->mutex);
        pthread_cond_destroy(&m->pool->wake);
        pthread_mutex_destroy(&m->pool->ending);
        free(m->pool);
        return;
    }
    lock_library();
    if (!--in_pool) end_threads(m->pool, &own_pool, 0);
    pthread_mutex_unlock(&library_mutex);
}

/* The plan and its lanes' threads. */
static int staff(tw_instance *m, const tw_config *config) {
    if (config->plan < 0 || config->plan > PLANS) return fail("tw_config.plan is %d: give 1 to %d, or 0", config->plan, PLANS);
    if (config->plan) {
        m->plan = &plans[config->plan - 1];
    } else {
        if (PLANS > 1 && LANES > 1 && config->lanes != 1 && measure_plans(m)) return -1;
        m->plan = plan_for(config->lanes, m->handover_ns);
    }
    m->lanes = config->lanes <= 0 || config->lanes >= m->plan->lanes ? m->plan->lanes : 1;
    list_streams(m);
    return join_pool(m, config->pin);
}

static int find_memory(tw_instance *m, const tw_config *config) {
    m->bytes = (m->plan->arena_bytes + PAGE - 1) / PAGE * PAGE + (size_t)m->lanes * SCRATCH_BYTES;
    if (take_memory(m)) return -1; /* there is as much, and no run before needs more */
    give_memory(m);
    if (map_weights(config, &m->weights)) return -1;
    const struct operand *operands = m->plan->operands;
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_WEIGHTS) m->bound[at] = (char *)m->weights.data + operands[at].offset;
    }
    return 0;
}

/* The C interface */

TW_EXPORT int tw_abi_version(void) { return TW_ABI_VERSION; }
TW_EXPORT const char *tw_describe(void) { return description; }
TW_EXPORT const char *tw_last_error(void) { return last_error; }

TW_EXPORT void tw_destroy(tw_instance *m) {
    if (!m) return;
    if (m->pool) leave_pool(m);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) free(m->staging[at]);
    unmap_weights(&m->weights);
    if (OWN_MEMORY) free(m->piece);
    free(m);
}

TW_EXPORT int tw_create(const tw_config *config, tw_instance **instance) {
    *instance = NULL;
    const char *missing = cpu_is_missing();
#if defined(__aarch64__)
    if (missing) return fail("this CPU lacks %s, which the model was compiled to use: compile it for cpu:aarch64 or this machine", missing);
#else
    if (missing) return fail("this CPU lacks %s, which the model was compiled to use: compile it for cpu:x86-64-v3 or this machine", missing);
#endif
    tw_instance *m = aligned_alloc(64, sizeof *m);
    if (!m) return fail("out of memory");
    memset(m, 0, sizeof *m);
    m->offer.spin_ns = config->spin_us < 0 ? 2000000L : config->spin_us * 1000L;
    if (staff(m, config) || find_memory(m, config)) {
        tw_destroy(m);
        return -1;
    }
    *instance = m;
    return 0;
}

TW_EXPORT int tw_poison(tw_instance *m, int byte) {
    if (take_memory(m)) return -1;
    if (m->bytes) memset((char *)m->piece + PAGE, byte, m->bytes);
    give_memory(m);
    return 0;
}

TW_EXPORT void *tw_share(void *given, int threads) {
#if defined(__linux__)
    struct pool *pool = given;
    if (pool && pool->version != POOL_VERSION) return NULL;
    lock_library();
    if (in_pool) {
        pool = NULL;
    } else if (!pool && (pool = aligned_alloc(64, sizeof *pool))) {
        atomic_store(&pool->limit, 0);
        reset_pool(pool);
    }
    if (pool) {
        atomic_store(&pool->limit, threads);
        common_pool = pool;
    }
    pthread_mutex_unlock(&library_mutex);
    return pool;
#else
    return (void)given, (void)threads, NULL;
#endif
}

TW_EXPORT int tw_set_threads(int threads) {
    if (threads < 0) return fail("%d threads cannot be at work: give 1 or more, callers included, or 0 for as many as there are cores", threads);
    lock_library();
    struct pool *pool = common_pool;
    if (pool->process != this_process()) reset_pool(pool); /* no instance of this process has it */
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->limit, threads);
    add_lanes(pool, 0);
    pthread_mutex_unlock(&pool->mutex);
    if (threads) end_threads(pool, NULL, threads - 1);
    pthread_mutex_unlock(&library_mutex);
    return 0;
}

TW_EXPORT int tw_plan(const tw_instance *m, double *handover_s) {
    *handover_s = 1e-9 * m->handover_ns;
    return (int)(m->plan - plans) + 1;
}

TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    if (bind(m, in, out)) return -1;
    run_all(m);
    unbind(m, out);
    return 0;
}

TW_EXPORT int tw_trace(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *begins, double *ends) {
    if (bind(m, in, out)) return -1;
    struct times times = {begins, ends, now_ns()};
    m->times = &times;
    run_all(m);
    m->times = NULL;
    unbind(m, out);
    return 0;
}

TW_EXPORT int tw_profile(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *seconds) {
    if (bind(m, in, out)) return -1;
    for (int call = 0; call < CALLS; call++) seconds[call] = 0;
    for (int at = 0; at < m->plan->count; at++) {
        long begin = now_ns();
        run_task(m, at, 0);
        seconds[m->plan->tasks[at].call] += 1e-9 * (double)(now_ns() - begin);
    }
    unbind(m, out);
    return 0;
}
