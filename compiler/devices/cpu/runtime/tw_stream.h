/* The part of stream.c that is the same for every model: frames that go from part to part, each device a thread.
 *
 * stream.c defines, before including this file:
 *   PORTS_IN, PORTS_OUT, ports[]   the model's inputs then outputs: dtype, shape, bytes
 *   DEVICES, cores[]               of each device the number of its core, among those the process may use; -1: it is none
 *   PARTS, parts[]                 device, folder, operands, what it waits for, and its turns: bits, of `every` frames those it does
 *   operands[], afters[], edges[]  tables that parts point into
 *   states[], kept[]               outputs that are inputs of the next frame, and those that each part keeps; STATE_SLOTS: most slots of one
 *   FRAMES                         in flight at most
 *   description[]
 *
 * Every part does one frame after another of those whose turn is its own. It may begin frame f when each part that it is `after` has ended
 * frame f - frames, if it does that one. That is all that orders parts: what they hand over has come (frames 0), and slots of edges are free again (frames = slots). Compiler and tests
 * verify that it is enough. A device runs, of its parts that may begin, the one with the oldest frame.
 *
 * A part that keeps a state copies that output, when it ends, to the slot where the next frame finds it. A frame that was given its state
 * reads that instead. A slot says whose state it holds: where a frame failed before its state was kept the next one has none, and fails.
 */
#include <dlfcn.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include "tw_handover.h"
#include "tw_host.h"

#define FAILURES 64
#define DEFAULT_SPIN_NS 50000L
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define OWN_NAMES RTLD_DEEPBIND /* kernels of parts have the same names, and a program may be linked with model.so besides */
#else
#define OWN_NAMES 0
#endif

struct failure {
    int64_t frame; /* -1: none */
    char said[256];
};

/* A part's library, opened. */
struct program {
    void *library;
    int (*run)(tw_instance *, const tw_tensor *, tw_tensor *);
    void (*destroy)(tw_instance *);
    const char *(*error)(void);
    tw_instance *instance;
    tw_tensor tensors[OPERANDS + 1];
};

struct progress {
    _Alignas(64) _Atomic int64_t done; /* the frame that a part does next: it has ended all before that are its own */
    _Atomic long work_ns;
};

/* A thread that sleeps until `there` answers. */
struct sleeper {
    int (*there)(tw_stream *, int64_t);
    int64_t about;
    pthread_cond_t wake;
    struct sleeper *next;
};

struct tw_stream {
    struct progress parts[PARTS];
    _Alignas(64) _Atomic int64_t submitted;
    _Atomic int stopping;
    struct sleeper *_Atomic sleepers; /* changed under `mutex` */
    int64_t holds[STATES + 1][STATE_SLOTS]; /* the frame whose state is in a slot; by whom waits order, as the slot */
    char *state[STATES + 1];
    _Atomic int64_t spoilt[FRAMES]; /* by slot of a frame: the last frame there that failed, + 1 */
    pthread_mutex_t mutex;   /* of sleepers, and of failures */
    pthread_mutex_t turn;    /* of who submits */
    pthread_t threads[DEVICES];
    _Atomic long numbers[DEVICES]; /* of threads, by which the system tells of them; 0: not known */
    int started;
    long spin_ns;        /* of a device's thread */
    long caller_spin_ns; /* 0 where it would take a core from a device */
    int pin;
    char *memory[EDGES + 1];
    void *bound[FRAMES][PORTS_IN + PORTS_OUT + 1];
    struct failure failures[FAILURES];
    int next_failure;
    struct program programs[PARTS];
};

/* Wakes those that have what they wait for, and nobody else: a caller that is woken in vain takes a device's core. */
static void wake_sleepers(tw_stream *s) {
    if (!atomic_load(&s->sleepers)) return;
    pthread_mutex_lock(&s->mutex);
    for (struct sleeper *one = atomic_load(&s->sleepers); one; one = one->next)
        if (one->there(s, one->about)) pthread_cond_signal(&one->wake);
    pthread_mutex_unlock(&s->mutex);
}

static int has_turn(int part, int64_t frame) { return parts[part].turns >> frame % parts[part].every & 1; }

static int64_t next_turn(int part, int64_t frame) {
    while (!has_turn(part, frame)) frame++;
    return frame;
}

static int has_ended(tw_stream *s, int64_t frame) {
    for (int part = 0; part < PARTS; part++)
        if (has_turn(part, frame) && atomic_load(&s->parts[part].done) <= frame) return 0;
    return 1;
}

/* A frame with all before it: of replicas one may be behind. */
static int have_ended(tw_stream *s, int64_t frame) {
    for (int part = 0; part < PARTS; part++)
        if (atomic_load(&s->parts[part].done) <= frame) return 0;
    return 1;
}

static void sleep_until(tw_stream *s, int (*there)(tw_stream *, int64_t), int64_t about) {
    struct sleeper own = {there, about, PTHREAD_COND_INITIALIZER, NULL};
    pthread_mutex_lock(&s->mutex);
    own.next = atomic_load(&s->sleepers);
    atomic_store(&s->sleepers, &own); /* before it asks: who makes it true afterwards sees that somebody sleeps */
    while (!there(s, about)) pthread_cond_wait(&own.wake, &s->mutex);
    if (atomic_load(&s->sleepers) == &own) atomic_store(&s->sleepers, own.next);
    else {
        struct sleeper *before = atomic_load(&s->sleepers);
        while (before->next != &own) before = before->next;
        before->next = own.next;
    }
    pthread_mutex_unlock(&s->mutex);
    pthread_cond_destroy(&own.wake);
}

/* Until `there` answers; spinning at first. */
static void await(tw_stream *s, int (*there)(tw_stream *, int64_t), int64_t about, long spin_ns) {
    long give_up = spin_ns ? now_ns() + spin_ns : 0;
    for (long spins = 0; !there(s, about); spins++) {
        if (!spin_ns || (spins % 64 == 63 && now_ns() > give_up)) {
            sleep_until(s, there, about);
            return;
        }
        relax();
    }
}

static int may_begin(tw_stream *s, int part, int64_t frame) {
    if (atomic_load(&s->submitted) <= frame) return 0;
    for (int at = 0; at < parts[part].afters; at++) {
        const struct after *after = &afters[parts[part].first_after + at];
        int64_t awaited = frame - after->frames;
        if (awaited >= 0 && has_turn(after->part, awaited) && atomic_load(&s->parts[after->part].done) <= awaited) return 0;
    }
    return 1;
}

/* The part of a device that may begin with the oldest frame; -1 where none may. */
static int next_part(tw_stream *s, int device) {
    int found = -1;
    int64_t oldest = 0;
    for (int part = 0; part < PARTS; part++) {
        if (parts[part].device != device) continue;
        int64_t frame = atomic_load_explicit(&s->parts[part].done, memory_order_relaxed);
        if ((found < 0 || frame < oldest) && may_begin(s, part, frame)) found = part, oldest = frame;
    }
    return found;
}

static int has_work(tw_stream *s, int64_t device) {
    return next_part(s, (int)device) >= 0 || (atomic_load(&s->stopping) && have_ended(s, atomic_load(&s->submitted) - 1));
}

static void spoil(tw_stream *s, int64_t frame, const char *said) {
    pthread_mutex_lock(&s->mutex);
    struct failure *failure = &s->failures[s->next_failure++ % FAILURES];
    failure->frame = frame;
    snprintf(failure->said, sizeof failure->said, "%s", said);
    pthread_mutex_unlock(&s->mutex);
    atomic_store(&s->spoilt[frame % FRAMES], frame + 1);
}

/* Processor time of the calling thread: another program that takes its core is no work of a part. A device that is no core works
 * while the thread waits for it. */
static long own_ns(int device) {
    struct timespec t;
    if (cores[device] < 0) return now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Where a frame finds a state. */
static char *state_slot(tw_stream *s, int state, int64_t frame) {
    return s->state[state] + (size_t)(frame % states[state].slots) * states[state].stride;
}

static void keep_states(tw_stream *s, int part, int64_t frame) {
    for (int at = 0; at < parts[part].kept; at++) {
        int state = kept[parts[part].first_kept + at].state, output = PORTS_IN + states[state].output;
        if (ports[output].bytes) memcpy(state_slot(s, state, frame + 1), s->bound[frame % FRAMES][output], ports[output].bytes);
        s->holds[state][(frame + 1) % states[state].slots] = frame + 1;
    }
}

static void run_part(tw_stream *s, int part, int64_t frame) {
    struct program *program = &s->programs[part];
    if (atomic_load(&s->spoilt[frame % FRAMES]) == frame + 1) return; /* nothing that it reads means anything */
    for (int at = 0; at < parts[part].ins + parts[part].outs; at++) {
        const struct operand *operand = &operands[parts[part].first_operand + at];
        void **bound = s->bound[frame % FRAMES], *data = NULL;
        if (operand->space == SPACE_EDGE) data = s->memory[operand->at] + (size_t)(frame % edges[operand->at].slots) * edges[operand->at].stride;
        else if (operand->space == SPACE_OUTPUT) data = bound[PORTS_IN + operand->at];
        else if (operand->space == SPACE_INPUT) data = bound[operand->at];
        else if (!(data = bound[states[operand->at].input])) {
            int slot = (int)(frame % states[operand->at].slots);
            if (s->holds[operand->at][slot] != frame) {
                char said[128];
                snprintf(said, sizeof said, "the state of input %d is lost, since frame %lld failed before it was made: give that input",
                         states[operand->at].input, (long long)frame - 1);
                spoil(s, frame, said);
                return;
            }
            data = state_slot(s, operand->at, frame);
        }
        program->tensors[at].data = data;
    }
    long begin = own_ns(parts[part].device);
    if (program->run(program->instance, program->tensors, program->tensors + parts[part].ins)) spoil(s, frame, program->error());
    else keep_states(s, part, frame);
    atomic_fetch_add_explicit(&s->parts[part].work_ns, own_ns(parts[part].device) - begin, memory_order_relaxed);
}

struct start {
    tw_stream *stream;
    int device;
};

static long own_number(void) {
#ifdef __linux__
    return syscall(SYS_gettid);
#else
    return 0;
#endif
}

static void *device_main(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    tw_stream *s = start.stream;
    atomic_store(&s->numbers[start.device], own_number());
    if (s->pin) pin(core_of(cores[start.device] + 1, -1));
    for (;;) {
        await(s, has_work, start.device, s->spin_ns);
        int part = next_part(s, start.device);
        if (part < 0) return NULL;
        int64_t frame = atomic_load_explicit(&s->parts[part].done, memory_order_relaxed);
        run_part(s, part, frame);
        atomic_store(&s->parts[part].done, next_turn(part, frame + 1));
        wake_sleepers(s);
    }
}

/* Creating a stream */

static int open_program(tw_stream *s, int part, const tw_stream_config *config, const tw_config *own) {
    struct program *program = &s->programs[part];
    char path[4096];
    if (config->libraries) snprintf(path, sizeof path, "%s", config->libraries[part]);
    else snprintf(path, sizeof path, "%s/%smodel.so", config->folder, parts[part].folder);
    program->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | OWN_NAMES);
    if (!program->library) return fail("cannot open the library of part %d: %.300s", part, dlerror());
    int (*version)(void) = (int (*)(void))dlsym(program->library, "tw_abi_version");
    int (*create)(const tw_config *, tw_instance **) = (int (*)(const tw_config *, tw_instance **))dlsym(program->library, "tw_create");
    program->run = (int (*)(tw_instance *, const tw_tensor *, tw_tensor *))dlsym(program->library, "tw_run");
    program->destroy = (void (*)(tw_instance *))dlsym(program->library, "tw_destroy");
    program->error = (const char *(*)(void))dlsym(program->library, "tw_last_error");
    if (!version || !create || !program->run || !program->destroy || !program->error) return fail("the library of part %d is none of this kind", part);
    if (version() != TW_ABI_VERSION) return fail("the library of part %d has ABI version %d, not %d", part, version(), TW_ABI_VERSION);
    if (create(own, &program->instance)) {
        program->instance = NULL;
        return fail("part %d cannot start: %.600s", part, program->error());
    }
    for (int at = 0; at < parts[part].ins + parts[part].outs; at++) {
        const struct operand *operand = &operands[parts[part].first_operand + at];
        const struct port *port = operand->space == SPACE_EDGE ? &edges[operand->at].port
                                  : operand->space == SPACE_STATE ? &ports[states[operand->at].input]
                                                                  : &ports[operand->space == SPACE_OUTPUT ? PORTS_IN + operand->at : operand->at];
        program->tensors[at] = (tw_tensor){NULL, TW_CPU, 0, port->code, port->bits, port->ndim, port->shape, NULL};
    }
    return 0;
}

static int start_stream(tw_stream *s, const tw_stream_config *config) {
    char weights[4096] = "";
    if (!config->folder && !(config->libraries && config->weights_path)) return fail("tw_stream_config.folder is missing: give the extracted artifact");
    if (!config->weights_path) snprintf(weights, sizeof weights, "%s/weights.bin", config->folder);
    tw_config own = {config->weights_path ? config->weights_path : weights, config->weights_offset, 0, -1, 0, 0, 0}; /* lanes: those of each part's one plan */
    for (int edge = 0; edge < EDGES; edge++)
        if (!(s->memory[edge] = aligned_alloc(4096, (edges[edge].stride * (size_t)edges[edge].slots + 4095) / 4096 * 4096)))
            return fail("out of memory: what lies between parts needs %zu bytes", edges[edge].stride * (size_t)edges[edge].slots);
    for (int state = 0; state < STATES; state++) {
        size_t bytes = (states[state].stride * (size_t)states[state].slots + 4095) / 4096 * 4096;
        if (!(s->state[state] = aligned_alloc(4096, bytes))) return fail("out of memory: a state needs %zu bytes", bytes);
        memset(s->state[state], 0, bytes);
        for (int slot = 0; slot < states[state].slots; slot++) s->holds[state][slot] = slot ? -1 : 0;
    }
    for (int part = 0; part < PARTS; part++)
        if (open_program(s, part, config, &own)) return -1;
    for (int device = 0; device < DEVICES; device++) {
        struct start *start = malloc(sizeof *start);
        if (!start) return fail("out of memory");
        *start = (struct start){s, device};
        int error = pthread_create(&s->threads[device], NULL, device_main, start);
        if (error) {
            free(start);
            return fail("cannot start a thread for device %d: %s", device, strerror(error));
        }
        s->started++;
    }
    return 0;
}

/* The C interface */

TW_EXPORT const char *tw_stream_describe(void) { return description; }
TW_EXPORT const char *tw_stream_error(void) { return last_error; }

TW_EXPORT void tw_stream_destroy(tw_stream *s) {
    if (!s) return;
    atomic_store(&s->stopping, 1);
    wake_sleepers(s);
    for (int device = 0; device < s->started; device++) pthread_join(s->threads[device], NULL);
    for (int part = 0; part < PARTS; part++) {
        if (s->programs[part].instance) s->programs[part].destroy(s->programs[part].instance);
        if (s->programs[part].library) dlclose(s->programs[part].library);
    }
    for (int edge = 0; edge < EDGES; edge++) free(s->memory[edge]);
    for (int state = 0; state < STATES; state++) free(s->state[state]);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->turn);
    free(s);
}

TW_EXPORT int tw_stream_create(const tw_stream_config *config, tw_stream **stream) {
    *stream = NULL;
    tw_stream *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s) return fail("out of memory");
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->turn, NULL);
    for (int at = 0; at < FAILURES; at++) s->failures[at].frame = -1;
    for (int part = 0; part < PARTS; part++) atomic_store(&s->parts[part].done, next_turn(part, 0));
    s->spin_ns = config->spin_us < 0 ? DEFAULT_SPIN_NS : config->spin_us * 1000L;
    s->caller_spin_ns = core_of(DEVICES + 1, -1) < 0 ? 0 : s->spin_ns;
    s->pin = config->pin;
    if (start_stream(s, config)) {
        tw_stream_destroy(s);
        return -1;
    }
    *stream = s;
    return 0;
}

static int is_state(int port) {
    for (int state = 0; state < STATES; state++)
        if (states[state].input == port) return 1;
    return 0;
}

TW_EXPORT int64_t tw_submit(tw_stream *s, const tw_tensor *in, tw_tensor *out) {
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) {
        const tw_tensor *t = at < PORTS_IN ? &in[at] : &out[at - PORTS_IN];
        const char *kind = at < PORTS_IN ? "input" : "output";
        int number = at < PORTS_IN ? at : at - PORTS_IN;
        if (t->device_type != TW_CPU) return fail("%s %d is not in CPU memory (device type %d): copy it to the host", kind, number, t->device_type);
        if (check_form(t, &ports[at], kind, number)) return -1;
        if (!is_row_major(t)) return fail("%s %d is not row-major: a stream uses tensors in place, so copy it first", kind, number);
        if (!t->data && ports[at].bytes && !is_state(at)) return fail("%s %d has no data", kind, number);
    }
    pthread_mutex_lock(&s->turn);
    int64_t frame = atomic_load(&s->submitted);
    if (frame >= FRAMES) await(s, has_ended, frame - FRAMES, s->caller_spin_ns);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) s->bound[frame % FRAMES][at] = at < PORTS_IN ? in[at].data : out[at - PORTS_IN].data;
    atomic_store(&s->submitted, frame + 1);
    pthread_mutex_unlock(&s->turn);
    wake_sleepers(s);
    return frame;
}

TW_EXPORT int tw_wait(tw_stream *s, int64_t frame) {
    if (frame < 0 || frame >= atomic_load(&s->submitted)) return fail("frame %lld was not submitted", (long long)frame);
    await(s, has_ended, frame, s->caller_spin_ns);
    int failed = 0;
    pthread_mutex_lock(&s->mutex);
    for (int at = 0; at < FAILURES; at++)
        if (s->failures[at].frame == frame) {
            s->failures[at].frame = -1;
            failed = fail("frame %lld failed: %s", (long long)frame, s->failures[at].said);
        }
    pthread_mutex_unlock(&s->mutex);
    return failed;
}

TW_EXPORT int64_t tw_stream_work(tw_stream *s, double *seconds) {
    int64_t ended = atomic_load(&s->submitted);
    for (int part = 0; part < PARTS; part++) {
        int64_t done = atomic_load(&s->parts[part].done);
        seconds[part] = 1e-9 * (double)atomic_load_explicit(&s->parts[part].work_ns, memory_order_relaxed);
        if (done < ended) ended = done;
    }
    return ended;
}

TW_EXPORT void tw_stream_delay(tw_stream *s, double *seconds) {
    for (int device = 0; device < DEVICES; device++) {
        char path[64];
        long long ran, waited;
        long number = atomic_load(&s->numbers[device]);
        seconds[device] = 0;
        snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", number);
        FILE *file = number ? fopen(path, "r") : NULL;
        if (!file) continue;
        if (fscanf(file, "%lld %lld", &ran, &waited) == 2) seconds[device] = 1e-9 * (double)waited;
        fclose(file);
    }
}
