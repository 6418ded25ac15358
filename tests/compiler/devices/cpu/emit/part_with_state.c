/* A part that sums its inputs and its number CALL, after a random time. INS is how many inputs it has. Element 1, which goes from first input
 * to output as it is, is an error where it is CALL + 1000. */
#include "model.h"
#include <stdlib.h>
#include <unistd.h>

#define TW_EXPORT __attribute__((visibility("default")))
#define ELEMENTS 24
#define POISON (1000.0f + CALL)

struct tw_instance {
    unsigned drawn;
};

TW_EXPORT int tw_abi_version(void) { return TW_ABI_VERSION; }
TW_EXPORT const char *tw_last_error(void) { return "poisoned"; }
TW_EXPORT void tw_destroy(tw_instance *m) { free(m); }

TW_EXPORT int tw_create(const tw_config *config, tw_instance **m) {
    (void)config;
    *m = calloc(1, sizeof **m);
    (*m)->drawn = CALL + 1;
    return 0;
}

TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) {
    m->drawn = m->drawn * 1103515245u + 12345u;
    if (m->drawn >> 16 & 3) usleep((m->drawn >> 18) % 200);
    for (int at = 0; at < ELEMENTS; at++) {
        float sum = at == 1 ? 0.0f : CALL;
        for (int number = 0; number < INS; number++) {
            const float *x = in[number].data;
            if (x[1] == POISON) return -1;
            if (at != 1 || number == 0) sum += x[at];
        }
        ((float *)out[0].data)[at] = sum;
    }
    return 0;
}
