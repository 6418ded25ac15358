/* States: memory for what one run writes and the next one reads.
 *
 * model.c defines, before including this file, CARRIED and carried[]: output, input, and whether a run may write the one over the other.
 * Such a pair has one memory. Another one has two, of which a run reads one and writes the other. Programs of several bindings share states:
 * one that needs two memories adds the second, one that needs one leaves it alone.
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

static tw_tensor kept_tensor(int at, char *data) {
    return (tw_tensor){data, TW_CPU, 0, ports[at].code, ports[at].bits, ports[at].ndim, ports[at].shape, NULL};
}

TW_EXPORT int tw_state_run(tw_instance *m, tw_state *state, const tw_tensor *in, tw_tensor *out) {
    tw_tensor ins[PORTS_IN + 1], outs[PORTS_OUT + 1];
    if (state->count != CARRIED) return fail("the state is of another model");
    if (state_memory(state)) return -1;
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
