/* A part's library as the stream runtime sees it: doubles its input and adds PART, at a speed that changes from run to run. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "model.h"

#define TW_EXPORT __attribute__((visibility("default")))
#define POISON (1000.0f + PART)

TW_EXPORT _Atomic int tw_test_hold, tw_test_runs;
struct tw_instance { unsigned drawn; };

TW_EXPORT int tw_abi_version(void) { return TW_ABI_VERSION; }
TW_EXPORT const char *tw_last_error(void) { return "poisoned"; }
TW_EXPORT void tw_destroy(tw_instance *m) { free(m); }

TW_EXPORT int tw_create(const tw_config *config, tw_instance **m) {
    if (config->lanes) return -1; /* those of its one plan */
    *m = calloc(1, sizeof **m);
    (*m)->drawn = PART + 1;
    return 0;
}

TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    const float *x = in[0].data;
    float *y = out[0].data;
    while (atomic_load(&tw_test_hold)) usleep(100);
    m->drawn = m->drawn * 1103515245u + 12345u;
    if (m->drawn >> 16 & 3) usleep((m->drawn >> 18) % 200);
    atomic_fetch_add(&tw_test_runs, 1);
    if (x[1] == POISON) return -1;
    for (int at = 0; at < 24; at++) y[at] = at == 1 ? x[at] : 2 * x[at] + PART;
    return 0;
}
