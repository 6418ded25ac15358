/* Pools: threads that serve the lanes of any model of a process, and the memory of their runs.
 *
 * An instance of several lanes stands in a slot of its pool while it runs, and a counter rises that idle threads watch. A thread asks each
 * instance there for a lane that no thread has, and works on it by code of the instance's library. An instance waits for no thread: what
 * none comes for its caller does (tw_lanes.h). So a pool may have fewer threads than lanes are wanted, and they may leave amid a run.
 *
 * A pool is memory alone, which lives as long as the process, so that libraries share it. A thread belongs to the library that started it,
 * whose code it runs between offers, and ends with that library's last instance; whoever lacks it then starts one of its own. While a thread
 * is at an instance it says so, and an instance ends after that.
 *
 * Each run counts itself, of one lane too. Where callers and threads at work would be more than there are cores, a thread leaves the cores to
 * the callers: it takes no lane, leaves its own after a task, and sleeps instead of spinning.
 *
 * Memory that a run needs while it lasts it takes out of the pool and puts back: so there are as many pieces as runs at once, each as large
 * as the largest model that had it needs. Who has a piece has it alone, so that no lock is needed. A model that is closed frees those that
 * nobody has.
 */
#pragma once
#include "tw_handover.h"

#define POOL_VERSION 3 /* of the structures below: libraries of another one have pools of their own */
#define OFFERS 30
#define PIECES 16 /* that a pool keeps; what runs at once need beyond is freed after each */
#define PAGE 4096

struct offer {
    int (*serve)(struct offer *, int thread); /* takes lanes and works on them; 0 where none is to be had */
    long spin_ns; /* how long a thread that was there waits for what is next, before it sleeps */
};

struct thread {
    _Alignas(64) _Atomic(struct offer *) at; /* it looks at this offer, which must not end */
    _Atomic int leaving;
    int number, core; /* core -1: any */
    struct pool *pool;
    struct thread *next;
    const void *library;
    pthread_t handle;
};

/* In a page of its own, before the memory that it tells of. */
struct piece {
    size_t bytes;
};

struct pool {
    long version, process;
    pthread_mutex_t mutex; /* for what follows up to `asleep`, and to sleep */
    pthread_cond_t wake;
    pthread_mutex_t ending; /* whoever ends threads: none is left behind whose library is closed */
    struct thread *list; /* those that ended are in it until they were joined */
    int lanes;         /* that all instances have, but for those of their callers */
    _Atomic int limit; /* threads at work, callers included; 0: no limit but the cores */
    _Atomic int cores, target, threads, asleep; /* target: threads that it is to have */
    _Atomic int placed; /* threads that have begun, on their core if that is one */
    _Alignas(64) _Atomic long posted; /* rises with each offer, and where a core becomes free for one */
    _Atomic int callers, wanted; /* runs, and lanes that these offer */
    _Atomic(struct offer *) offers[OFFERS];
    _Alignas(64) _Atomic int busy; /* threads at work */
    _Alignas(64) _Atomic(struct piece *) pieces[PIECES]; /* that nobody has */
};

static struct pool own_pool = {.version = POOL_VERSION, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .ending = PTHREAD_MUTEX_INITIALIZER};
static struct pool *common_pool = &own_pool; /* of the instances that this library creates */

static long this_process(void) {
#if defined(_WIN32)
    return 0; /* nothing forks */
#else
    return getpid();
#endif
}

static int is_crowded(struct pool *pool, int more) {
    int callers = atomic_load_explicit(&pool->callers, memory_order_relaxed);
    return callers > 1 && callers + atomic_load_explicit(&pool->busy, memory_order_relaxed) + more > atomic_load_explicit(&pool->cores, memory_order_relaxed);
}

/* Works on lanes that are offered while there are any; the time to spin after that, -1 where there was none. */
static long serve_offers(struct thread *self) {
    struct pool *pool = self->pool;
    long spin_ns = -1;
    for (int slot = 0; slot < OFFERS; slot++) {
        struct offer *offer = atomic_load_explicit(&pool->offers[slot], memory_order_acquire);
        if (!offer) continue;
        if (is_crowded(pool, 1) || atomic_load_explicit(&self->leaving, memory_order_relaxed)) break;
        atomic_store(&self->at, offer);
        if (atomic_load(&pool->offers[slot]) == offer) { /* and does not end before `at` is another */
            atomic_fetch_add(&pool->busy, 1);
            if (offer->serve(offer, self->number)) {
                spin_ns = offer->spin_ns;
                slot = -1;
            }
            atomic_fetch_sub(&pool->busy, 1);
        }
        atomic_store_explicit(&self->at, NULL, memory_order_release);
    }
    return spin_ns;
}

static void *thread_main(void *argument) {
    struct thread *self = argument;
    struct pool *pool = self->pool;
    pin(self->core);
    atomic_fetch_add(&pool->placed, 1);
    for (long give_up = 0; !atomic_load(&self->leaving);) {
        long seen = atomic_load(&pool->posted), spin_ns = serve_offers(self);
        if (spin_ns >= 0) give_up = now_ns() + spin_ns;
        for (long spins = 1; atomic_load_explicit(&pool->posted, memory_order_acquire) == seen; spins++) {
            relax();
            if (spins % 64 || (!is_crowded(pool, 1) && now_ns() <= give_up)) continue;
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->asleep, 1);
            while (atomic_load(&pool->posted) == seen && !atomic_load(&self->leaving)) pthread_cond_wait(&pool->wake, &pool->mutex);
            atomic_fetch_sub(&pool->asleep, 1);
            pthread_mutex_unlock(&pool->mutex);
            break;
        }
    }
    return NULL;
}

/* Tells threads that there may be work, and wakes as many as lack for it and have a core. */
static void post(struct pool *pool) {
    atomic_fetch_add(&pool->posted, 1);
    int asleep = atomic_load(&pool->asleep);
    if (!asleep) return;
    int awake = atomic_load(&pool->threads) - asleep, callers = atomic_load(&pool->callers);
    int lacking = atomic_load(&pool->wanted) - awake, room = atomic_load(&pool->cores) - callers - awake;
    if (callers > 1 && lacking > room) lacking = room;
    if (lacking <= 0) return;
    pthread_mutex_lock(&pool->mutex);
    for (; lacking > 0 && asleep > 0; lacking--, asleep--) pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

/* A run begins, of which threads may serve `lanes`; the slot where it is offered, -1 where no thread can come. */
static int begin_run(struct pool *pool, struct offer *offer, int lanes) {
    int callers = atomic_fetch_add(&pool->callers, 1) + 1;
    if (!lanes || !atomic_load_explicit(&pool->threads, memory_order_relaxed)) return -1;
    for (int slot = 0; slot < OFFERS; slot++) {
        struct offer *none = NULL;
        if (atomic_load_explicit(&pool->offers[slot], memory_order_relaxed) || !atomic_compare_exchange_strong(&pool->offers[slot], &none, offer)) continue;
        atomic_fetch_add(&pool->wanted, lanes);
        if (callers == 1 || callers < atomic_load_explicit(&pool->cores, memory_order_relaxed)) post(pool);
        return slot;
    }
    return -1;
}

static void end_run(struct pool *pool, int slot, int lanes) {
    if (slot >= 0) {
        atomic_store(&pool->offers[slot], NULL);
        atomic_fetch_sub(&pool->wanted, lanes);
    }
    if (atomic_fetch_sub(&pool->callers, 1) > 1 && atomic_load(&pool->wanted)) post(pool);
}

/* Of threads that are wanted, as many as the limit leaves beside a caller. */
static int permitted(struct pool *pool, int wanted) {
    int limit = atomic_load_explicit(&pool->limit, memory_order_relaxed);
    return limit > 0 && wanted > limit - 1 ? limit - 1 : wanted;
}

/* Under the mutex: threads up to `wanted`, as far as the limit goes, which end with this library; 0, or an error's number. */
static int start_threads(struct pool *pool, int wanted, int core_beside) {
    wanted = permitted(pool, wanted);
    for (int number = atomic_load(&pool->threads); number < wanted; number++) {
        struct thread *thread = aligned_alloc(64, sizeof *thread);
        if (!thread) return ENOMEM;
        memset(thread, 0, sizeof *thread);
        thread->number = number;
        thread->core = core_beside >= 0 ? core_of(number + 1, core_beside) : -1;
        thread->pool = pool;
        thread->library = &own_pool;
        int error = pthread_create(&thread->handle, NULL, thread_main, thread);
        if (error) {
            free(thread);
            return error;
        }
        thread->next = pool->list;
        pool->list = thread;
        atomic_fetch_add(&pool->threads, 1);
    }
    return 0;
}

/* Puts a piece back. */
static void give_piece(struct pool *pool, struct piece *piece) {
    for (int slot = 0; slot < PIECES; slot++) {
        struct piece *none = NULL;
        if (!atomic_load_explicit(&pool->pieces[slot], memory_order_relaxed) && atomic_compare_exchange_strong(&pool->pieces[slot], &none, piece)) return;
    }
    free(piece);
}

/* A piece of at least `bytes`, where it may be the one that was `last` had, whose content may be in this core's cache; NULL: out of memory. */
static struct piece *take_piece(struct pool *pool, size_t bytes, struct piece *last) {
    struct piece *small = NULL, *found = NULL;
    for (int turn = last ? 0 : 1; turn < 2 && !found; turn++)
        for (int slot = 0; slot < PIECES && !found; slot++) {
            struct piece *one = atomic_load_explicit(&pool->pieces[slot], memory_order_relaxed);
            if (!one || (!turn && one != last) || !atomic_compare_exchange_strong(&pool->pieces[slot], &one, NULL)) continue;
            if (one->bytes >= bytes) found = one;
            else if (small) give_piece(pool, one);
            else small = one;
        }
    if (small && found) give_piece(pool, small);
    if (found) return found;
    free(small);
    if (!(found = aligned_alloc(PAGE, PAGE + bytes))) return NULL;
    found->bytes = bytes;
    return found;
}

/* Frees the pieces that nobody has. */
static void free_pieces(struct pool *pool) {
    for (int slot = 0; slot < PIECES; slot++) free(atomic_exchange(&pool->pieces[slot], NULL));
}

/* How many cores this process may use, many where that is unknown. */
static int count_cores(void) {
    cpu_set_t allowed;
    int count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1 << 20;
    for (int core = 0; core < CPU_SETSIZE; core++) count += CPU_ISSET(core, &allowed) != 0;
    return count;
}

/* Under the mutex: `lanes` more are there, or fewer. */
static void add_lanes(struct pool *pool, int lanes) {
    int cores = permitted(pool, count_cores() - 1) + 1;
    pool->lanes += lanes;
    atomic_store(&pool->cores, cores);
    atomic_store(&pool->target, pool->lanes < cores ? pool->lanes : cores - 1);
}

/* A pool as it is when nothing uses it; the child of a fork has none of the threads. */
static void reset_pool(struct pool *pool) {
    int limit = atomic_load(&pool->limit);
    memset(pool, 0, sizeof *pool);
    pool->version = POOL_VERSION;
    pool->process = this_process();
    atomic_store(&pool->limit, limit);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_mutex_init(&pool->ending, NULL);
}

/* Ends a library's threads of a pool, or those of any where `library` is NULL, each after what it works on, until it has no more than `most`. */
static void end_threads(struct pool *pool, const void *library, int most) {
    pthread_mutex_lock(&pool->ending);
    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        struct thread *one = pool->list;
        while (one && library && one->library != library) one = one->next;
        if (atomic_load(&pool->threads) <= most) one = NULL;
        if (one) {
            atomic_store(&one->leaving, 1);
            atomic_fetch_sub(&pool->threads, 1);
            atomic_fetch_add(&pool->posted, 1);
            pthread_cond_broadcast(&pool->wake);
        }
        pthread_mutex_unlock(&pool->mutex);
        if (!one) break;
        pthread_join(one->handle, NULL);
        pthread_mutex_lock(&pool->mutex);
        struct thread **place = &pool->list;
        while (*place != one) place = &(*place)->next;
        *place = one->next;
        pthread_mutex_unlock(&pool->mutex);
        free(one);
    }
    pthread_mutex_unlock(&pool->ending);
}

/* Until no thread is at an offer, which stands in no slot any more. */
static void outlast(struct pool *pool, struct offer *offer) {
    pthread_mutex_lock(&pool->mutex);
    for (struct thread *thread = pool->list; thread; thread = thread->next)
        while (atomic_load(&thread->at) == offer) sched_yield();
    pthread_mutex_unlock(&pool->mutex);
}
