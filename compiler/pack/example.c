/* Runs this artifact from C on made-up inputs and prints its latency. In the folder that the .tw was extracted to:
 *
 *     cc -O2 -o example example.c ./model.so -Wl,-rpath,'$ORIGIN' && ./example
 *
 * model.h is the whole interface. An argument names another weights file. The names of inputs and outputs are in manifest.json.
 *
 * The last SIZES inputs are sizes of dimensions that are open: an int64 each, in the order of `open.dimensions` in manifest.json. Every
 * tensor is as large as its axes may become. What lies beyond the sizes must be zero in inputs, and means nothing in outputs, whose own
 * sizes are among the last outputs: `open.outputs` there has, for each axis, the number of the output that holds its size, from 0.
 */
#define _POSIX_C_SOURCE 200112L
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define free _aligned_free
#endif

#define INPUTS @INPUTS@
#define OUTPUTS @OUTPUTS@
#define SIZES @SIZES@
#define RUNS 100

struct port {
    int code, bits, ndim, first_dim;
};

static const int64_t dims[] = {@DIMS@};
static const struct port ports[] = {
@PORTS@
};

/* Of each open dimension the largest size, with which this runs. */
static const int64_t sizes[] = {@LARGEST@};

static int64_t elements(const tw_tensor *t) {
    int64_t count = 1;
    for (int axis = 0; axis < t->ndim; axis++) count *= t->shape[axis];
    return count;
}

static int allocate(tw_tensor *t, const struct port *port) {
    memset(t, 0, sizeof *t);
    t->device_type = TW_CPU;
    t->code = port->code;
    t->bits = port->bits;
    t->ndim = port->ndim;
    t->shape = dims + port->first_dim;
    size_t bytes = (size_t)elements(t) * (size_t)port->bits / 8;
    t->data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (t->data) memset(t->data, 0, bytes);
    return t->data ? 0 : -1;
}

/* Floats from -1 to 1; everything else stays 0. */
static void fill(tw_tensor *t) {
    uint32_t state = 1;
    for (int64_t i = 0; i < elements(t); i++) {
        state = state * 1664525u + 1013904223u;
        double value = (double)(state >> 8) / 8388608.0 - 1.0;
        if (t->code == TW_FLOAT && t->bits == 32) ((float *)t->data)[i] = (float)value;
        if (t->code == TW_FLOAT && t->bits == 64) ((double *)t->data)[i] = value;
    }
}

static void print(int at, const tw_tensor *t) {
    int64_t count = elements(t);
    printf("output %d: %lld elements", at, (long long)count);
    for (int64_t i = 0; i < count && i < 4; i++) {
        if (t->code == TW_FLOAT && t->bits == 32) printf(" %g", (double)((float *)t->data)[i]);
        if (t->code == TW_FLOAT && t->bits == 64) printf(" %g", ((double *)t->data)[i]);
        if (t->code == TW_INT && t->bits == 64) printf(" %lld", (long long)((int64_t *)t->data)[i]);
    }
    printf("\n");
}

@LIMITS@static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **arguments) {
    tw_config config = {.weights_path = count > 1 ? arguments[1] : "weights.bin", .spin_us = -1};
    tw_instance *model;
    tw_tensor tensors[INPUTS + OUTPUTS + 1];
    if (tw_abi_version() != TW_ABI_VERSION || tw_create(&config, &model)) {
        fprintf(stderr, "%s\n", tw_last_error());
        return 1;
    }
    for (int at = 0; at < INPUTS + OUTPUTS; at++) {
        if (allocate(&tensors[at], &ports[at])) return 1;
        if (at < INPUTS - SIZES) fill(&tensors[at]);
        else if (at < INPUTS) memcpy(tensors[at].data, &sizes[at - (INPUTS - SIZES)], sizeof(int64_t));
    }
    double least = 1e30;
    for (int run = 0; run < RUNS; run++) {
        double begin = now();
        if (tw_run(model, tensors, tensors + INPUTS)) {
            fprintf(stderr, "%s\n", tw_last_error());
            return 1;
        }
        double seconds = now() - begin;
        if (seconds < least) least = seconds;
    }
@COMPARED@    for (int at = 0; at < OUTPUTS; at++) print(at, &tensors[INPUTS + at]);
    printf("least latency of %d runs: %.3f ms\n", RUNS, least * 1e3);
    tw_destroy(model);
    for (int at = 0; at < INPUTS + OUTPUTS; at++) free(tensors[at].data);
    return 0;
}
