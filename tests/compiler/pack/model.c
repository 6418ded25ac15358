/* An artifact's library written by hand: y = w * x + n and z = x > 0, for x: f32[2, 3], n: i64, w: f32[3] in the weights file.
 *
 * Macros make it misbehave: ABI (the version it reports), MISSING (a CPU feature it claims to lack), SLIP (what is added
 * to the last element). With SEVERAL it has two plans.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

#ifndef ABI
#define ABI TW_ABI_VERSION
#endif
#ifdef SEVERAL
#define PLANS GREEDY LAST
#define CHOSEN 2
#else
#define PLANS LAST
#define CHOSEN 1
#endif
#ifndef SLIP
#define SLIP 0
#endif
#ifndef MISSING
#define MISSING ""
#endif

struct tw_instance {
    const float *weights;
    int lanes, plan;
};

static __thread char last_error[256];

static int fail(const char *what, const char *about) {
    snprintf(last_error, sizeof last_error, "%s %s", what, about);
    return -1;
}

int tw_abi_version(void) { return ABI; }
const char *tw_last_error(void) { return last_error; }
#define LAST "{\"scheduler\": \"sequential\", \"lanes\": 2, \"tasks\": 3, \"most_handover_ns\": null}"
#define GREEDY "{\"scheduler\": \"greedy\", \"lanes\": 2, \"tasks\": 2, \"most_handover_ns\": 100}, "
const char *tw_describe(void) { return "{\"lanes\": 2, \"plans\": [" PLANS "]}"; }

int tw_create(const tw_config *config, tw_instance **instance) {
    if (*MISSING) return fail("this CPU lacks", MISSING);
    int file = open(config->weights_path, O_RDONLY);
    if (file < 0) return fail("cannot open", config->weights_path);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, config->weights_offset);
    close(file);
    if (mapped == MAP_FAILED) return fail("cannot map", config->weights_path);
    *instance = malloc(sizeof **instance);
    (*instance)->weights = mapped;
    (*instance)->lanes = config->lanes;
    (*instance)->plan = config->plan ? config->plan : CHOSEN;
    return 0;
}

void tw_destroy(tw_instance *instance) {
    munmap((void *)instance->weights, 4096);
    free(instance);
}

static float *at(const tw_tensor *t, int row, int column) {
    int64_t down = t->strides ? t->strides[0] : 3, along = t->strides ? t->strides[1] : 1;
    return (float *)t->data + row * down + column * along;
}

int tw_run(tw_instance *instance, const tw_tensor *in, tw_tensor *out) {
    int64_t n;
    if (in[0].ndim != 2 || in[0].shape[1] != 3 || in[0].bits != 32 || in[1].ndim != 0) return fail("bad", "tensors");
    if (out[1].code != TW_BOOL || out[1].bits != 8 || out[1].strides) return fail("bad", "output 1");
    memcpy(&n, in[1].data, sizeof n);
    if (n == 13) return fail("this model refuses", "13");
    for (int row = 0; row < 2; row++)
        for (int column = 0; column < 3; column++) {
            *at(&out[0], row, column) = instance->weights[column] * *at(&in[0], row, column) + (float)n
                + (row == 1 && column == 2 ? SLIP : 0);
            ((char *)out[1].data)[row * 3 + column] = *at(&in[0], row, column) > 0;
        }
    return 0;
}

int tw_profile(tw_instance *instance, const tw_tensor *in, tw_tensor *out, double *seconds) {
    seconds[0] = 3e-6;
    seconds[1] = 1e-6;
    return tw_run(instance, in, out);
}

int tw_plan(const tw_instance *instance, double *handover_s) {
    *handover_s = CHOSEN == 1 ? 0 : 2.5e-7;
    return instance->plan;
}

int tw_trace(tw_instance *instance, const tw_tensor *in, tw_tensor *out, double *begins, double *ends) {
    static int runs;
    for (int task = 0; task < (instance->plan == CHOSEN ? 3 : 2); task++) {
        begins[task] = task + runs % 2 * 0.5;
        ends[task] = task + 1;
    }
    runs++;
    return tw_run(instance, in, out);
}
