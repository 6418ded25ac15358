/* Timing of kernels without a caller's overhead: compiled into a library of kernels, or on its own for the probes.
 *
 * A team is a number of lanes, each a thread on a core of its own when there is more than one. Lanes meet at counters, one cache
 * line each, as the lanes of a model do. stages.c follows in the same unit.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define TW_EXPORT __attribute__((visibility("default")))
#define MAX_LANES 256
#define SPINS_BEFORE_YIELD 16384
#define LINE 64

#ifndef TW_LANES
#define TW_LANES 8
#endif

typedef void tw_kernel(void *const *p, char *scratch, long begin, long end);

struct tw_region {
    const char *data;
    long bytes;
};

struct tw_sample {
    tw_kernel *kernel;
    void *const *tables; /* `copies` tables of `pointers` pointers each: run r takes table (first + r) % copies */
    long pointers, copies, first;
    char *scratch; /* one piece of `scratch_stride` bytes for each lane */
    long scratch_stride;
    long tiles, lanes, repeats;
    const struct tw_region *cold; /* driven out of all caches before the clock starts, where the CPU lets a program do so */
    long colds;
    const struct tw_region *warm; /* then read into the caches */
    long warms;
};

struct team {
    void (*body)(struct team *team, int lane);
    void *work;
    int lanes;
    struct {
        _Atomic long phase;
        char apart[LINE - sizeof(long)];
    } at[MAX_LANES];
};

struct member {
    struct team *team;
    int lane;
    const void *allowed; /* the cores this process may use */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for(struct team *team, int lane, long phase) {
    for (long spins = 0; atomic_load_explicit(&team->at[lane].phase, memory_order_acquire) < phase; spins++) {
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

/* Returns when every lane has reached `phase`. */
static void meet(struct team *team, int lane, long phase) {
    atomic_store_explicit(&team->at[lane].phase, phase, memory_order_release);
    for (int other = 0; other < team->lanes; other++) wait_for(team, other, phase);
}

#ifdef __linux__
/* The lane-th of the cores this process may use. */
static cpu_set_t core_of(const cpu_set_t *allowed, int lane) {
    int wanted = lane % CPU_COUNT(allowed);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && wanted-- == 0) CPU_SET(cpu, &one);
    return one;
}
#endif

/* Every thread keeps itself on its core, by no number: a sandbox may refuse to touch other threads, since numbers do not say whose they are. */
static void stay_on(const void *allowed, int lane) {
#ifdef __linux__
    cpu_set_t core = core_of(allowed, lane);
    sched_setaffinity(0, sizeof core, &core);
#else
    (void)allowed, (void)lane;
#endif
}

static void *member_main(void *argument) {
    struct member *member = argument;
    stay_on(member->allowed, member->lane);
    member->team->body(member->team, member->lane);
    return NULL;
}

/* Runs the body on every lane, the caller being lane 0. Returns nonzero when a thread cannot be started. */
static int run_team(struct team *team) {
    pthread_t threads[MAX_LANES];
    struct member members[MAX_LANES];
    const void *allowed = NULL;
    if (team->lanes < 1 || team->lanes > MAX_LANES) return -1;
    if (team->lanes == 1) {
        team->body(team, 0);
        return 0;
    }
#ifdef __linux__
    cpu_set_t before;
    if (sched_getaffinity(0, sizeof before, &before)) return -1;
    allowed = &before;
#endif
    int lanes = team->lanes, started = 1, failed = 0;
    while (started < lanes && !failed) {
        members[started] = (struct member){team, started, allowed};
        failed = pthread_create(&threads[started], NULL, member_main, &members[started]);
        if (!failed) started++;
    }
    if (failed) /* lanes that run wait for those that never will: reach every phase in their place */
        for (int lane = started; lane < lanes; lane++) atomic_store(&team->at[lane].phase, __LONG_MAX__);
    stay_on(allowed, 0);
    team->body(team, 0);
    for (int lane = 1; lane < started; lane++) pthread_join(threads[lane], NULL);
#ifdef __linux__
    sched_setaffinity(0, sizeof before, &before);
#endif
    return failed;
}

/* Kernels */

struct timing {
    const struct tw_sample *sample;
    double seconds;
};

static void flush(const char *line) {
#if defined(__x86_64__)
    __builtin_ia32_clflush(line);
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
#else
    (void)line;
#endif
}

static void cool_down(const struct tw_region *cold, long colds) {
    for (long at = 0; at < colds; at++)
        for (long byte = 0; byte < cold[at].bytes; byte += LINE) flush(cold[at].data + byte);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Each of several lanes writes its part of each region, as the lanes that shared the call before did; one alone reads all. */
static void warm_up(const struct tw_region *warm, long warms, int lane, long lanes) {
    for (long at = 0; at < warms; at++) {
        long lines = (warm[at].bytes + LINE - 1) / LINE;
        for (long line = lines * lane / lanes; line < lines * (lane + 1) / lanes; line++) {
            volatile char *byte = (volatile char *)(warm[at].data + line * LINE);
            if (lanes > 1) *byte = *byte;
            else (void)*byte;
        }
    }
}

static void run_tiles(const struct tw_sample *s, long run, char *scratch, long begin, long end) {
    s->kernel(s->tables + (s->first + run) % s->copies * s->pointers, scratch, begin, end);
}

static void time_alone(struct timing *timing, const struct tw_sample *s) {
    cool_down(s->cold, s->colds);
    warm_up(s->warm, s->warms, 0, 1);
    double started = now();
    for (long run = 0; run < s->repeats; run++) run_tiles(s, run, s->scratch, 0, s->tiles);
    timing->seconds = now() - started;
}

static void time_lane(struct team *team, int lane) {
    struct timing *timing = team->work;
    const struct tw_sample *s = timing->sample;
    if (s->lanes == 1) {
        time_alone(timing, s);
        return;
    }
    long begin = s->tiles * lane / s->lanes, end = s->tiles * (lane + 1) / s->lanes;
    if (lane == 0) cool_down(s->cold, s->colds);
    for (long run = 0; run < s->repeats; run++) {
        meet(team, lane, 3 * run + 1);
        warm_up(s->warm, s->warms, lane, s->lanes);
        meet(team, lane, 3 * run + 2);
        double started = now();
        run_tiles(s, run, s->scratch + lane * s->scratch_stride, begin, end);
        meet(team, lane, 3 * run + 3);
        if (lane == 0) timing->seconds += now() - started;
    }
}

/* Seconds for one run of all tiles, averaged over the repeats. On several lanes a run ends when every lane knows that all are done, and
 * before each the lanes write again what it reads. Negative when a thread cannot be started. */
TW_EXPORT double tw_time(const struct tw_sample *sample) {
    struct timing timing = {sample, 0};
    struct team team = {.body = time_lane, .work = &timing, .lanes = (int)sample->lanes};
    return run_team(&team) ? -1 : timing.seconds / (double)sample->repeats;
}

/* Probes */

typedef float fma_vector __attribute__((vector_size(4 * TW_LANES)));
#define FMA_CHAINS 10
#define FMA_STEPS 20000

struct probe {
    double rate[MAX_LANES];
    volatile float sink[MAX_LANES];
};

static void burn(struct team *team, int lane) {
    struct probe *probe = team->work;
    volatile float factor = 0.999f, term = 0.001f;
    fma_vector a[FMA_CHAINS], x = (fma_vector){0} + factor, y = (fma_vector){0} + term;
    for (int chain = 0; chain < FMA_CHAINS; chain++) a[chain] = (fma_vector){0} + (float)chain;
    meet(team, lane, 1);
    double started = now();
    for (long step = 0; step < FMA_STEPS; step++) {
#pragma GCC unroll 10
        for (int chain = 0; chain < FMA_CHAINS; chain++) a[chain] = a[chain] * x + y;
    }
    double seconds = now() - started;
    fma_vector sum = {0};
    for (int chain = 0; chain < FMA_CHAINS; chain++) sum += a[chain];
    probe->sink[lane] = sum[0];
    probe->rate[lane] = 2.0 * FMA_STEPS * FMA_CHAINS * TW_LANES / seconds;
}

/* FLOP/s of the slowest of `lanes` cores at nothing but multiply-adds: it falls when a core is taken away. Negative when a thread
 * cannot be started. */
TW_EXPORT double tw_probe_fma(long lanes) {
    struct probe probe = {.rate = {0}};
    struct team team = {.body = burn, .work = &probe, .lanes = (int)lanes};
    if (run_team(&team)) return -1;
    double least = probe.rate[0];
    for (long lane = 1; lane < lanes; lane++)
        if (probe.rate[lane] < least) least = probe.rate[lane];
    return least;
}

/* Dot products of bf16 pairs for a whole vector that one core makes in a second; 0 where the
 * compiler was given no instruction for it. */
TW_EXPORT double tw_probe_dot(void) {
#ifdef __AVX512BF16__
    volatile unsigned short bits = 0x3c00;
    __m512i factors = _mm512_set1_epi16((short)bits);
    __m512 a[FMA_CHAINS];
    for (int chain = 0; chain < FMA_CHAINS; chain++) a[chain] = _mm512_set1_ps((float)chain);
    double started = now();
    for (long step = 0; step < FMA_STEPS; step++) {
#pragma GCC unroll 10
        for (int chain = 0; chain < FMA_CHAINS; chain++)
            a[chain] = _mm512_dpbf16_ps(a[chain], (__m512bh)factors, (__m512bh)factors);
    }
    double seconds = now() - started;
    volatile float sink = 0;
    for (int chain = 0; chain < FMA_CHAINS; chain++) sink = sink + _mm512_reduce_add_ps(a[chain]);
    return FMA_STEPS * FMA_CHAINS / seconds;
#else
    return 0;
#endif
}

typedef long long read_vector __attribute__((vector_size(4 * TW_LANES)));
#define READ_VECTORS 8

struct reading {
    const char *data;
    long bytes, repeats;
    double rate[MAX_LANES];
    volatile long long sink[MAX_LANES];
};

/* All bytes ORed together, so that none of them is left unread. */
static long long read_all(const char *data, long bytes) {
    read_vector seen[READ_VECTORS] = {{0}};
    for (long at = 0; at < bytes; at += (long)sizeof seen) {
#pragma GCC unroll 8
        for (int i = 0; i < READ_VECTORS; i++) seen[i] |= *(const read_vector *)(data + at + i * (long)sizeof seen[i]);
    }
    for (int i = 1; i < READ_VECTORS; i++) seen[0] |= seen[i];
    long long all = 0;
    for (int i = 0; i < (int)(sizeof seen[0] / sizeof all); i++) all |= seen[0][i];
    return all;
}

static void read_lane(struct team *team, int lane) {
    struct reading *reading = team->work;
    const char *mine = reading->data + lane * reading->bytes;
    long long seen = read_all(mine, reading->bytes);
    meet(team, lane, 1);
    double started = now();
    for (long repeat = 0; repeat < reading->repeats; repeat++) {
        __asm__ volatile("" ::: "memory"); /* read it again, though nothing has changed */
        seen |= read_all(mine, reading->bytes);
    }
    double seconds = now() - started;
    reading->sink[lane] = seen;
    reading->rate[lane] = (double)reading->bytes * (double)reading->repeats / seconds;
}

/* Bytes/s that the slowest of `lanes` cores reads, each `bytes` (a multiple of READ_VECTORS vectors) of its own, one after the other
 * from `data` on, `repeats` times after a first time. Negative when a thread cannot be started. */
TW_EXPORT double tw_probe_read(const char *data, long bytes, long repeats, long lanes) {
    struct reading reading = {.data = data, .bytes = bytes, .repeats = repeats};
    struct team team = {.body = read_lane, .work = &reading, .lanes = (int)lanes};
    if (run_team(&team)) return -1;
    double least = reading.rate[0];
    for (long lane = 1; lane < lanes; lane++)
        if (reading.rate[lane] < least) least = reading.rate[lane];
    return least;
}

struct rally {
    long rounds;
    double seconds;
};

static void ping_pong(struct team *team, int lane) {
    struct rally *rally = team->work;
    meet(team, lane, 1);
    double started = now();
    for (long round = 2; round < 2 + rally->rounds; round++) {
        if (lane == 1) wait_for(team, 0, round);
        atomic_store_explicit(&team->at[lane].phase, round, memory_order_release);
        if (lane == 0) wait_for(team, 1, round);
    }
    if (lane == 0) rally->seconds = now() - started;
}

/* Nanoseconds until one core sees what another has stored: half of a round trip, averaged over `rounds`. Negative when a thread
 * cannot be started. */
TW_EXPORT double tw_handover(long rounds) {
    struct rally rally = {rounds, 0};
    struct team team = {.body = ping_pong, .work = &rally, .lanes = 2};
    return run_team(&team) ? -1 : 1e9 * rally.seconds / (2.0 * (double)rounds);
}

struct passing {
    char *data;
    long bytes, rounds;
    int before; /* the lane that touches the bytes before lane 0 is timed */
    double seconds;
    volatile long long sink;
};

static void write_all(char *data, long bytes, long value) {
    read_vector vector = (read_vector){0} + value;
    for (long at = 0; at < bytes; at += (long)sizeof vector) *(read_vector *)(data + at) = vector;
}

static void read_what_was_written(struct team *team, int lane) {
    struct passing *passing = team->work;
    for (long round = 0; round < passing->rounds; round++) {
        if (lane == passing->before) write_all(passing->data, passing->bytes, round);
        meet(team, lane, 2 * round + 1);
        if (lane == 0) {
            double started = now();
            passing->sink = read_all(passing->data, passing->bytes);
            passing->seconds += now() - started;
        }
        meet(team, lane, 2 * round + 2);
    }
}

/* Seconds in which one core reads `bytes` (a multiple of READ_VECTORS vectors) that were last written by itself or, if `apart`, by
 * another core; averaged over `rounds`. Negative when a thread cannot be started. */
TW_EXPORT double tw_probe_pass(char *data, long bytes, long rounds, long apart) {
    struct passing passing = {.data = data, .bytes = bytes, .rounds = rounds, .before = apart ? 1 : 0};
    struct team team = {.body = read_what_was_written, .work = &passing, .lanes = 2};
    return run_team(&team) ? -1 : passing.seconds / (double)rounds;
}

/* Lane 0 has written, the other reads: each of them then holds the cache lines, shared, and lane 0 may not change one until the other's
 * copy is gone. The fence waits for stores that are still under way. */
static void write_what_was_read(struct team *team, int lane) {
    struct passing *passing = team->work;
    if (lane == 0) write_all(passing->data, passing->bytes, 0);
    for (long round = 0; round < passing->rounds; round++) {
        meet(team, lane, 2 * round + 1);
        if (lane == passing->before) passing->sink = read_all(passing->data, passing->bytes);
        meet(team, lane, 2 * round + 2);
        if (lane == 0) {
            double started = now();
            write_all(passing->data, passing->bytes, round + 1);
            atomic_thread_fence(memory_order_seq_cst);
            passing->seconds += now() - started;
        }
    }
}

/* Seconds in which one core writes `bytes` (a multiple of READ_VECTORS vectors) that it wrote last and that have been read since by itself
 * or, if `apart`, by another core; averaged over `rounds`. Negative when a thread cannot be started. */
TW_EXPORT double tw_probe_upgrade(char *data, long bytes, long rounds, long apart) {
    struct passing passing = {.data = data, .bytes = bytes, .rounds = rounds, .before = apart ? 1 : 0};
    struct team team = {.body = write_what_was_read, .work = &passing, .lanes = 2};
    return run_team(&team) ? -1 : passing.seconds / (double)rounds;
}
