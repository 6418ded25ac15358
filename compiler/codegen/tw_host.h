/* What the runtimes of all targets do on the host: errors, tensors as callers give them, the file of weights.
 *
 * model.c defines, before including this file, `struct port` and WEIGHT_BYTES.
 */
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "tw_system.h"

static __thread char last_error[1024];

static int fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return -1;
}

/* Tensors */

static int is_row_major(const tw_tensor *t) {
    int64_t expected = 1;
    if (!t->strides) return 1;
    for (int axis = 0; axis < t->ndim; axis++)
        if (!t->shape[axis]) return 1; /* nothing lies anywhere */
    for (int axis = t->ndim - 1; axis >= 0; axis--) {
        if (t->shape[axis] != 1 && t->strides[axis] != expected) return 0;
        expected *= t->shape[axis];
    }
    return 1;
}

/* Copies between a strided tensor and dense memory; `pack` says which way. */
static void copy_strided(const tw_tensor *t, char *dense, int pack) {
    int64_t index[16] = {0};
    size_t width = (size_t)t->bits / 8;
    int64_t total = 1;
    for (int axis = 0; axis < t->ndim; axis++) total *= t->shape[axis];
    for (int64_t at = 0; at < total; at++) {
        int64_t offset = 0;
        for (int axis = 0; axis < t->ndim; axis++) offset += index[axis] * t->strides[axis];
        char *strided = (char *)t->data + offset * (int64_t)width;
        memcpy(pack ? dense + (size_t)at * width : strided, pack ? strided : dense + (size_t)at * width, width);
        for (int axis = t->ndim - 1; axis >= 0 && ++index[axis] == t->shape[axis]; axis--) index[axis] = 0;
    }
}

/* Whether a tensor has a port's element type and shape; where it lies is not looked at. */
static int check_form(const tw_tensor *t, const struct port *port, const char *kind, int at) {
    if (t->code != port->code || t->bits != port->bits)
        return fail("%s %d has element type code %d with %d bits, expected code %d with %d bits", kind, at, t->code, t->bits, port->code, port->bits);
    if (t->ndim != port->ndim) return fail("%s %d has %d dimensions, expected %d", kind, at, t->ndim, port->ndim);
    for (int axis = 0; axis < port->ndim; axis++)
        if (t->shape[axis] != port->shape[axis])
            return fail("%s %d has extent %lld in dimension %d, expected %lld", kind, at, (long long)t->shape[axis], axis, (long long)port->shape[axis]);
    if (t->strides && t->ndim > 16) return fail("%s %d has strides and %d dimensions: pass it row-major", kind, at, t->ndim);
    return 0;
}

/* The file of weights, mapped, so that processes share one copy. */
struct weights {
    void *mapping;
    size_t mapping_bytes;
    const char *data;
};

static int map_weights(const tw_config *config, struct weights *weights) {
    if (!WEIGHT_BYTES) return 0;
    if (!config->weights_path) return fail("tw_config.weights_path is missing: give weights.bin, or the .tw with weights_offset");
    const int64_t unit = map_unit(), begin = config->weights_offset / unit * unit, end = config->weights_offset + (int64_t)WEIGHT_BYTES;
    weights->mapping_bytes = (size_t)(end - begin);
    weights->mapping = map_file(config->weights_path, begin, weights->mapping_bytes);
    if (!weights->mapping && errno == ERANGE) return fail("the weights file %.300s is too short: it needs %lld bytes", config->weights_path, (long long)end);
    if (!weights->mapping) return fail("cannot map the weights file %.300s: %s", config->weights_path, strerror(errno));
    weights->data = (const char *)weights->mapping + (config->weights_offset - begin);
    if ((uintptr_t)weights->data % 64) return fail("tw_config.weights_offset is %lld: it must be a multiple of 64", (long long)config->weights_offset);
    return 0;
}

static void unmap_weights(struct weights *weights) {
    if (weights->mapping) unmap(weights->mapping, weights->mapping_bytes);
    weights->mapping = NULL;
}
