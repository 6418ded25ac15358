/* States of a model that was compiled with the option `carry`: what it hands on from run to run, in memory of their own.
 *
 * A state belongs to no instance: any instance of the same model.so may run from it, one at a time, and of the model.so of another binding of
 * the same artifact. It begins as zeros. It needs no more memory for a run than it has from the beginning, but in the first run of a binding
 * that reads a tensor in one memory and writes it in another, where bindings before needed one.
 */
#ifndef TW_STATE_H
#define TW_STATE_H
#include "model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_state tw_state;

int tw_state_create(tw_state **state);
/* As tw_run. What the state carries of `in` and `out` is not looked at: it is read from the state and written there. A run that fails leaves
 * the state as it was. */
int tw_state_run(tw_instance *instance, tw_state *state, const tw_tensor *in, tw_tensor *out);
/* Zeros again. */
void tw_state_reset(tw_state *state);
/* Rows of caches that grow, of which a run adds some; -1 without such caches. A run for which there is no room fails and leaves the state as
 * it was. */
int64_t tw_state_length(const tw_state *state);
/* Forgets rows from `length` on, which is no more than there are. */
int tw_state_truncate(tw_state *state, int64_t length);
/* The memory from which the next run reads an input, row-major, to be read and written between runs; NULL for one that is not carried. The run
 * may move it: ask again. */
void *tw_state_data(tw_state *state, int input);
void tw_state_destroy(tw_state *state);

#ifdef __cplusplus
}
#endif
#endif
