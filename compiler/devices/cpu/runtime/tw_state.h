/* States: memory for what one run writes and the next one reads.
 *
 * model.c defines, before including this file, CARRIED and carried[]: output, input, whether a run may write the one over the other, and how caches grow.
 * Such a pair has one memory. Another one has two, of which a run reads one and writes the other. Programs of several bindings share states:
 * one that needs two memories adds the second, one that needs one leaves it alone. What lies behind the length of caches that grow is zero.
 */
#pragma once

struct tw_state {
    int count; /* CARRIED of the program that made it */
    char *memory[CARRIED][2]; /* of each pair what the next run reads, and beside it another one or NULL */
};

TW_EXPORT void tw_state_destroy(tw_state *state) {
    if (!state) return;
    for (int at = 0; at < CARRIED; at++)
        for (int side = 0; side < 2; side++) free(state->memory[at][side]);
    free(state);
}

TW_EXPORT void tw_state_reset(tw_state *state) {
    for (int at = 0; at < CARRIED; at++) memset(state->memory[at][0], 0, ports[carried[at].input].bytes);
}

/* The memories that the runs of this program need. */
static int state_memory(tw_state *state) {
    for (int at = 0; at < CARRIED; at++)
        for (int side = 0; side < 2 - carried[at].in_place; side++) {
            size_t bytes = (ports[carried[at].input].bytes + 64) / 64 * 64;
            if (!state->memory[at][side]) state->memory[at][side] = aligned_alloc(64, bytes);
            if (!state->memory[at][side]) return fail("out of memory: a state needs %zu bytes", bytes);
        }
    return 0;
}

TW_EXPORT int tw_state_create(tw_state **state) {
    tw_state *made = calloc(1, sizeof *made);
    *state = NULL;
    if (!made) return fail("out of memory");
    made->count = CARRIED;
    if (state_memory(made)) {
        tw_state_destroy(made);
        return -1;
    }
    tw_state_reset(made);
    *state = made;
    return 0;
}

TW_EXPORT void *tw_state_data(tw_state *state, int input) {
    for (int at = 0; at < CARRIED; at++)
        if (carried[at].input == input) return state->memory[at][0];
    return NULL;
}

/* What grows: the place of the length in carried[]; -1 where nothing does. */
static int length_place(void) {
    for (int at = 0; at < CARRIED; at++)
        if (carried[at].rows) return at;
    return -1;
}

TW_EXPORT int64_t tw_state_length(const tw_state *state) {
    int at = length_place();
    return at < 0 ? -1 : *(const int64_t *)state->memory[at][0];
}

/* Rows of a cache from `from` to before `to` are zero. */
static void clear_rows(const tw_state *state, int at, int64_t from, int64_t to) {
    const struct port *port = &ports[carried[at].input];
    int axis = carried[at].axis;
    size_t blocks = 1;
    for (int before = 0; before < axis; before++) blocks *= (size_t)port->shape[before];
    size_t row = port->bytes / blocks / (size_t)port->shape[axis];
    for (size_t block = 0; block < blocks; block++)
        memset(state->memory[at][0] + (block * (size_t)port->shape[axis] + (size_t)from) * row, 0, (size_t)(to - from) * row);
}

TW_EXPORT int tw_state_truncate(tw_state *state, int64_t length) {
    int64_t held = tw_state_length(state);
    if (length < 0 || length > held) return fail("the state has %ld rows: %ld cannot be kept", (long)held, (long)length);
    for (int at = 0; at < CARRIED; at++)
        if (carried[at].axis >= 0) clear_rows(state, at, length, held);
    *(int64_t *)state->memory[length_place()][0] = length;
    return 0;
}

static tw_tensor kept_tensor(int at, char *data) {
    return (tw_tensor){data, TW_CPU, 0, ports[at].code, ports[at].bits, ports[at].ndim, ports[at].shape, NULL};
}

TW_EXPORT int tw_state_run(tw_instance *m, tw_state *state, const tw_tensor *in, tw_tensor *out) {
    tw_tensor ins[PORTS_IN + 1], outs[PORTS_OUT + 1];
    if (state->count != CARRIED) return fail("the state is of another model");
    if (state_memory(state)) return -1;
    int growing = length_place();
    if (growing >= 0 && tw_state_length(state) + carried[growing].rows > carried[growing].room)
        return fail("the caches hold %ld rows of %d, and a run adds %d: truncate or reset the state", (long)tw_state_length(state), carried[growing].room, carried[growing].rows);
    memcpy(ins, in, PORTS_IN * sizeof *in);
    memcpy(outs, out, PORTS_OUT * sizeof *out);
    for (int at = 0; at < CARRIED; at++) {
        ins[carried[at].input] = kept_tensor(carried[at].input, state->memory[at][0]);
        outs[carried[at].output] = kept_tensor(PORTS_IN + carried[at].output, state->memory[at][!carried[at].in_place]);
    }
    if (tw_run(m, ins, outs)) return -1;
    for (int at = 0; at < CARRIED; at++) {
        if (carried[at].in_place) continue;
        char *read = state->memory[at][0];
        state->memory[at][0] = state->memory[at][1];
        state->memory[at][1] = read;
    }
    return 0;
}
