/* What it costs one lane's thread to see what another has stored, and which cores the threads stay on.
 *
 * The two threads play rallies: each stores a number in a cache line of its own when it has seen the other's. A rally's time over its
 * strokes is what a hand-over takes, the median of the rallies what counts: a thread may lose its core during one of them.
 */
#pragma once
#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include "tw_system.h"
#if !defined(_WIN32)
#include <pthread.h>
#include <sched.h>
#endif

#define SPINS_BEFORE_YIELD 4096
#define RALLIES 9
#define LEAST_RALLIES 3
#define STROKES 128 /* of both threads, in one rally */
#define RALLIES_NS 3000000L /* by then the rallies are long over, or there is no telling */
#define ARRIVAL_NS 5000000L /* a thread that has just been started needs some time */

struct rally {
    _Alignas(64) _Atomic long served; /* the caller's; negative: the play is over */
    _Alignas(64) _Atomic long returned; /* the other's; 1: it is there */
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

/* Until `counter` has reached `number`, or is negative; 0 if it has not by `deadline`. */
static int comes(_Atomic long *counter, long number, long deadline) {
    for (long spins = 1;; spins++) {
        long there = atomic_load_explicit(counter, memory_order_acquire);
        if (there >= number || there < 0) return 1;
        if (spins % 64 == 0 && now_ns() > deadline) return 0;
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    }
}

/* The other thread's part: returns what is served until the play is over. */
static void return_strokes(struct rally *rally) {
    long deadline = now_ns() + ARRIVAL_NS + RALLIES_NS;
    for (long stroke = 1;; stroke++) {
        atomic_store_explicit(&rally->returned, stroke, memory_order_release);
        if (!comes(&rally->served, stroke, deadline) || atomic_load_explicit(&rally->served, memory_order_relaxed) < 0) return;
    }
}

static double median(double *values, int count) {
    for (int at = 1; at < count; at++)
        for (int to = at; to > 0 && values[to - 1] > values[to]; to--) {
            double smaller = values[to];
            values[to] = values[to - 1];
            values[to - 1] = smaller;
        }
    return values[count / 2];
}

/* The caller's part: nanoseconds of a hand-over; INFINITY where the other does not answer in time, as when both share one core. */
static double measure_handover(struct rally *rally) {
    double ns[RALLIES];
    int played = 0;
    if (comes(&rally->returned, 1, now_ns() + ARRIVAL_NS)) {
        long deadline = now_ns() + RALLIES_NS, stroke = 0, in_time = 1;
        while (played < RALLIES && in_time) {
            long begin = now_ns();
            for (int at = 0; at < STROKES / 2 && in_time; at++) {
                atomic_store_explicit(&rally->served, ++stroke, memory_order_release);
                in_time = comes(&rally->returned, stroke + 1, deadline);
            }
            if (in_time) ns[played++] = (double)(now_ns() - begin) / STROKES;
        }
    }
    atomic_store_explicit(&rally->served, -1, memory_order_release);
    return played < LEAST_RALLIES ? INFINITY : median(ns, played);
}

/* The core that a lane from 1 on is to stay on, of those this process may use but for `taken`; -1 where there are not so many. */
static int core_of(int lane, int taken) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return -1;
    for (int core = 0, found = 0; core < CPU_SETSIZE; core++)
        if (core != taken && CPU_ISSET(core, &allowed) && ++found == lane) return core;
    return -1;
}

/* Keeps the calling thread on one core, if that is one; without effect where the system refuses it. A thread does this for itself, by no
 * number: a sandbox may refuse to touch other threads, since numbers do not say whose they are. */
static void pin(int core) {
    cpu_set_t only;
    CPU_ZERO(&only);
    if (core < 0) return;
    CPU_SET(core, &only);
    sched_setaffinity(0, sizeof only, &only);
}
