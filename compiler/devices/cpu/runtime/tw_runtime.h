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
 *
 * Where there is a choice between plans, the hand-over between the caller's thread and that of lane 1 is measured when an instance is
 * created. Lanes are in tw_lanes.h. Between runs they sleep on a condition variable after spinning for `spin_us`.
 */
#include "tw_host.h"
#include "tw_lanes.h"

struct start {
    tw_instance *instance;
    int lane, core, plays, stays; /* core -1: any; where it does not stay there, it leaves when the play is over */
};

/* A lane's thread: waits for the next run, spinning first because a caller in a loop comes back soon. */
static void *lane_main(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    tw_instance *m = start.instance;
    cpu_set_t allowed;
    int known = !sched_getaffinity(0, sizeof allowed, &allowed);
    pin(start.core);
    if (start.plays) return_strokes(&m->rally);
    if (known && start.core >= 0 && !start.stays) sched_setaffinity(0, sizeof allowed, &allowed);
    atomic_fetch_add(&m->settled, 1);
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
    for (int lane = 0; lane < m->lanes; lane++) await(m, run, lane, tasks_of(m, lane), 0);
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
    const struct operand *operands = m->plan->operands;
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

/* Creating an instance */

/* Threads for the lanes that have none yet, up to `lanes`, on other cores than `beside` if that is one. Where `plays`, they return the caller's
 * strokes first, and then go wherever they like unless they are to stay. */
static int start_lanes(tw_instance *m, int lanes, int beside, int plays, int stay) {
    for (int lane = m->started + 1; lane < lanes; lane++) {
        struct start *start = malloc(sizeof *start);
        if (!start) return fail("out of memory");
        *start = (struct start){m, lane, beside >= 0 ? core_of(lane, beside) : -1, plays, stay};
        int error = pthread_create(&m->threads[lane], NULL, lane_main, start);
        if (error) {
            free(start);
            return fail("cannot start a thread for lane %d: %s", lane, strerror(error));
        }
        m->started++;
    }
    return 0;
}

/* Until every lane's thread is on the core where it stays, or has left the one where it played. */
static void settle(tw_instance *m) {
    while (atomic_load(&m->settled) < m->started) sched_yield();
}

/* The first plan for no more than `lanes` lanes (0: for any number) and such a hand-over; the last where there is none. */
static const struct plan *plan_for(int lanes, double handover_ns) {
    for (const struct plan *plan = plans; plan < plans + PLANS; plan++)
        if ((lanes <= 0 || plan->lanes <= lanes) && handover_ns <= plan->most_handover_ns) return plan;
    return &plans[PLANS - 1];
}

/* The plan and its lanes' threads. */
static int staff(tw_instance *m, const tw_config *config) {
    int here = sched_getcpu();
    if (config->plan < 0 || config->plan > PLANS) return fail("tw_config.plan is %d: give 1 to %d, or 0", config->plan, PLANS);
    if (config->plan) {
        m->plan = &plans[config->plan - 1];
    } else {
        if (PLANS > 1 && LANES > 1 && config->lanes != 1) {
            if (start_lanes(m, 2, here, 1, config->pin)) return -1; /* kept off the caller's core, where a thread may begin */
            m->handover_ns = measure_handover(&m->rally);
            settle(m);
        }
        m->plan = plan_for(config->lanes, m->handover_ns);
    }
    m->lanes = config->lanes <= 0 || config->lanes >= m->plan->lanes ? m->plan->lanes : 1;
    list_streams(m);
    if (start_lanes(m, m->lanes, config->pin ? here : -1, 0, 1)) return -1;
    if (config->pin) settle(m);
    return 0;
}

static int find_memory(tw_instance *m, const tw_config *config) {
    size_t arena = m->plan->arena_bytes, scratch = (size_t)m->lanes * SCRATCH_BYTES;
    m->arena = aligned_alloc(4096, (arena + 4096) / 4096 * 4096);
    m->scratch = aligned_alloc(4096, (scratch + 4096) / 4096 * 4096);
    if (!m->arena || !m->scratch) return fail("out of memory: the model needs %zu bytes", arena + scratch);
    if (map_weights(config, &m->weights)) return -1;
    const struct operand *operands = m->plan->operands;
    for (int at = 0; at < OPERANDS; at++) {
        if (operands[at].space == SPACE_ARENA) m->bound[at] = m->arena + operands[at].offset;
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
#if defined(__aarch64__)
    if (missing) return fail("this CPU lacks %s, which the model was compiled to use: compile it for cpu:aarch64 or this machine", missing);
#else
    if (missing) return fail("this CPU lacks %s, which the model was compiled to use: compile it for cpu:x86-64-v3 or this machine", missing);
#endif
    tw_instance *m = aligned_alloc(64, sizeof *m);
    if (!m) return fail("out of memory");
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wake, NULL);
    m->spin_ns = config->spin_us < 0 ? 2000000L : config->spin_us * 1000L;
    if (staff(m, config) || find_memory(m, config)) {
        tw_destroy(m);
        return -1;
    }
    *instance = m;
    return 0;
}

TW_EXPORT int tw_plan(const tw_instance *m, double *handover_s) {
    *handover_s = 1e-9 * m->handover_ns;
    return (int)(m->plan - plans) + 1;
}

TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    if (bind(m, in, out)) return -1;
    run_all(m);
    unstage(m, out);
    return 0;
}

TW_EXPORT int tw_trace(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *begins, double *ends) {
    if (bind(m, in, out)) return -1;
    struct times times = {begins, ends, now_ns()};
    m->times = &times;
    run_all(m);
    m->times = NULL;
    unstage(m, out);
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
    unstage(m, out);
    return 0;
}
