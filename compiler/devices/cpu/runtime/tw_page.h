/* The part of model.c that is the same for every model in a module for browsers: one instance, which one thread runs.
 *
 * model.c defines, before including this file, the tables of the model and of its plans (see tw_runtime.h); there is one plan. The caller,
 * model.js, puts weights and inputs where tw_weights and tw_port say, and reads the outputs there. Memory is never given back: it ends
 * with the module.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define TW_EXPORT __attribute__((visibility("default")))
#define WASM_PAGE 65536
#ifndef MADE_BYTES
#define MADE_BYTES 0
#define make_constants(first) ((void)0)
#endif

static char *weights, *memory[PORTS_IN + PORTS_OUT + 1], *scratch;
static void *bound[OPERANDS + 1];

static size_t aligned(size_t bytes) { return (bytes + 127) / 64 * 64; }

/* Memory that nobody had before, so that it is zeros; NULL where there is no more. */
static char *pages(size_t bytes) {
    size_t first = __builtin_wasm_memory_grow(0, (bytes + WASM_PAGE - 1) / WASM_PAGE);
    return first == SIZE_MAX ? NULL : (char *)(first * WASM_PAGE);
}

TW_EXPORT const char *tw_describe(void) { return description; }

/* Where weights.bin goes, before tw_start; NULL where memory does not suffice. */
TW_EXPORT void *tw_weights(void) {
    char *whole = pages(aligned(MADE_BYTES) + aligned(WEIGHT_BYTES));
    return whole ? weights = whole + aligned(MADE_BYTES) : NULL;
}

/* The instance; -1 where memory does not suffice. */
TW_EXPORT int tw_start(void) {
    size_t bytes = aligned(plans->arena_bytes) + aligned(SCRATCH_BYTES);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) bytes += aligned(ports[at].bytes);
    char *arena = pages(bytes), *next = arena + aligned(plans->arena_bytes);
    if (!arena) return -1;
    scratch = next;
    next += aligned(SCRATCH_BYTES);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) {
        memory[at] = next;
        next += aligned(ports[at].bytes);
    }
    make_constants(weights);
    for (int at = 0; at < OPERANDS; at++) {
        const struct operand *one = &plans->operands[at];
        char *const spaces[] = {
            [SPACE_INPUT] = memory[one->port],
            [SPACE_OUTPUT] = memory[PORTS_IN + one->port],
            [SPACE_ARENA] = arena,
            [SPACE_WEIGHTS] = weights,
        };
        bound[at] = spaces[one->space] + one->offset;
    }
    return 0;
}

/* The memory of an input, or behind these of an output. */
TW_EXPORT void *tw_port(int at) { return memory[at]; }

TW_EXPORT void tw_step(void) {
    for (int at = 0; at < plans->count; at++) {
        const struct task *task = &plans->tasks[at];
        const struct call *call = &plans->calls[task->call];
        call->kernel(bound + call->first_operand, scratch, task->first, task->last);
    }
}
