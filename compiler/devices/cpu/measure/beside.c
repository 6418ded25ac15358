/* Two kernels at a time: timer.c, which comes before this in the same unit, times one. */

#define STREAM_CHUNK 16384

struct stream {
    long bytes, at; /* of the data, a multiple of STREAM_CHUNK; the next byte to be read */
    volatile long long sink;
};

/* The standard load, a kernel that reads on where it left off: p[0] the data, p[1] a `struct stream`. Each tile is STREAM_CHUNK bytes. */
TW_EXPORT void tw_stream(void *const *p, char *scratch, long begin, long end) {
    struct stream *stream = p[1];
    (void)scratch;
    for (long tile = begin; tile < end; tile++) {
        stream->sink = read_all((const char *)p[0] + stream->at, STREAM_CHUNK);
        stream->at = (stream->at + STREAM_CHUNK) % stream->bytes;
    }
}

struct pairing {
    const struct tw_sample *samples[2];
    _Atomic int over;
    double seconds[2]; /* of one run */
};

/* Lane 0 runs as often as it is told, lane 1 until lane 0 is done: what it does meanwhile is timed. */
static void time_beside(struct team *team, int lane) {
    struct pairing *pairing = team->work;
    const struct tw_sample *s = pairing->samples[lane];
    if (s) {
        cool_down(s->cold, s->colds);
        warm_up(s->warm, s->warms, 0, 1);
    }
    meet(team, lane, 1);
    if (s) {
        long run = 0;
        double started = now();
        while (lane ? !atomic_load_explicit(&pairing->over, memory_order_relaxed) : run < s->repeats) run_tiles(s, run++, s->scratch, 0, s->tiles);
        if (lane == 0) atomic_store_explicit(&pairing->over, 1, memory_order_relaxed);
        if (run) pairing->seconds[lane] = (now() - started) / (double)run;
    }
    meet(team, lane, 2);
}

/* Seconds of one run of `one` while another core runs `other` over and over (NULL: while it waits), and of one run of `other`, in
 * `seconds`. Both are samples of one lane. Nonzero when a thread cannot be started. */
TW_EXPORT double tw_beside(const struct tw_sample *one, const struct tw_sample *other, double *seconds) {
    struct pairing pairing = {.samples = {one, other}};
    struct team team = {.body = time_beside, .work = &pairing, .lanes = 2};
    int failed = run_team(&team);
    seconds[0] = pairing.seconds[0];
    seconds[1] = pairing.seconds[1];
    return failed ? -1 : 0;
}
