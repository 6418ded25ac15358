/* Tasks of several kernels on lanes with their waits, as in a model: timer.c, which comes before this in the same unit, times one kernel.
 *
 * A lane's tasks run in order; a counter of each lane says how many are done, over all runs. Waiting is spinning. Unlike a model's, no lane
 * runs another's tasks.
 */

struct tw_wait {
    long lane, count;
};

struct tw_task {
    tw_kernel *kernel;
    void *const *tables; /* `copies` tables of `pointers` pointers each: run r takes table r % copies */
    long pointers, copies;
    long begin, end; /* tiles */
    const struct tw_wait *waits;
    long wait_count;
};

struct tw_stage {
    const struct tw_task *tasks; /* lane after lane, each in its lane's order */
    const long *first;           /* where each lane's begin; one more says where the last one's end */
    char *scratch;               /* one piece of `scratch_stride` bytes for each lane */
    long scratch_stride;
    long lanes, runs;
    const struct tw_region *cold; /* driven out of all caches before each run, where the CPU lets a program do so */
    long colds;
    const struct tw_region *warm; /* written by all lanes, each its part, before each run */
    long warms;
    double *seconds; /* of each run */
};

struct staging {
    const struct tw_stage *stage;
    struct {
        _Atomic long count;
        char apart[LINE - sizeof(long)];
    } done[MAX_LANES];
};

static void await_tasks(struct team *team, long run, long lane, long count) {
    struct staging *staging = team->work;
    const long *first = staging->stage->first;
    long wanted = run * (first[lane + 1] - first[lane]) + count;
    for (long spins = 0; atomic_load_explicit(&staging->done[lane].count, memory_order_acquire) < wanted; spins++) {
        if (spins < SPINS_BEFORE_YIELD) {
            relax();
            continue;
        }
        if (atomic_load(&team->at[lane].phase) == __LONG_MAX__) return; /* its thread could not be started */
        sched_yield();
    }
}

static void run_tasks(struct team *team, long run, int lane) {
    struct staging *staging = team->work;
    const struct tw_stage *stage = staging->stage;
    long before = run * (stage->first[lane + 1] - stage->first[lane]);
    for (long at = stage->first[lane]; at < stage->first[lane + 1]; at++) {
        const struct tw_task *task = &stage->tasks[at];
        for (long w = 0; w < task->wait_count; w++) await_tasks(team, run, task->waits[w].lane, task->waits[w].count);
        task->kernel(task->tables + run % task->copies * task->pointers, stage->scratch + lane * stage->scratch_stride, task->begin, task->end);
        atomic_store_explicit(&staging->done[lane].count, before + at - stage->first[lane] + 1, memory_order_release);
    }
}

static void time_stage(struct team *team, int lane) {
    struct staging *staging = team->work;
    const struct tw_stage *stage = staging->stage;
    for (long run = 0; run < stage->runs; run++) {
        if (lane == 0) cool_down(stage->cold, stage->colds);
        warm_up(stage->warm, stage->warms, lane, stage->lanes);
        meet(team, lane, 2 * run + 1);
        double started = now();
        run_tasks(team, run, lane);
        for (int other = 0; lane == 0 && other < stage->lanes; other++) await_tasks(team, run, other, stage->first[other + 1] - stage->first[other]);
        if (lane == 0) stage->seconds[run] = now() - started;
        meet(team, lane, 2 * run + 2);
    }
}

/* Runs the tasks `runs` times and times each run, from the moment at which all lanes may begin until the first one knows that all tasks
 * are done. Negative when a thread cannot be started. */
TW_EXPORT double tw_stages(const struct tw_stage *stage) {
    struct staging staging = {.stage = stage};
    struct team team = {.body = time_stage, .work = &staging, .lanes = (int)stage->lanes};
    return run_team(&team) ? -1 : 0;
}
