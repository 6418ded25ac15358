/* The part of model.c that is the same for every model in a module for browsers: one instance of the model, which one thread runs, or
 * where memory may be shared several (tw_page_lanes.h).
 *
 * model.c defines, before including this file, the tables of the model and of its plans (see tw_runtime.h), of which the last one is
 * taken: what a hand-over takes is not measured. The caller, model.js, puts weights and inputs where tw_weights and tw_port say, and reads
 * the outputs there. Memory is never given back: it ends with the module.
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
static const struct plan *const plan = &plans[PLANS - 1];
static int threads; /* that run lanes */

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

/* The instance, for so many threads; -1 where memory does not suffice. */
TW_EXPORT int tw_start(int count) {
    size_t bytes = aligned(plan->arena_bytes) + aligned((size_t)LANES * SCRATCH_BYTES);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) bytes += aligned(ports[at].bytes);
    char *arena = pages(bytes), *next = arena + aligned(plan->arena_bytes);
    if (!arena) return -1;
    threads = count;
    scratch = next;
    next += aligned((size_t)LANES * SCRATCH_BYTES);
    for (int at = 0; at < PORTS_IN + PORTS_OUT; at++) {
        memory[at] = next;
        next += aligned(ports[at].bytes);
    }
    make_constants(weights);
    for (int at = 0; at < OPERANDS; at++) {
        const struct operand *one = &plan->operands[at];
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

static void run_task(int at, int scratch_of) {
    const struct task *task = &plan->tasks[at];
    const struct call *call = &plan->calls[task->call];
    call->kernel(bound + call->first_operand, scratch + (size_t)scratch_of * SCRATCH_BYTES, task->first, task->last);
}

static void run_alone(void) {
    for (int at = 0; at < plan->count; at++) run_task(at, 0);
}

#ifndef __wasm_atomics__
TW_EXPORT void tw_step(void) { run_alone(); }
#endif
