/* The C interface of an artifact for several devices, beside that of model.h: many inferences (frames) in flight at once.
 *
 * Link stream.so, or open it with dlopen. Any threads may submit and wait at the same time. A function that can fail returns a negative
 * number; tw_stream_error() then says in one line, for the calling thread, what went wrong and what to do.
 */
#ifndef TW_STREAM_H
#define TW_STREAM_H
#include "model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *folder;           /* the extracted artifact; NULL: the libraries and the weights are named below */
    const char *const *libraries; /* one for each part, in the order of tw_stream_describe; NULL: those in `folder` */
    const char *weights_path;     /* as in tw_config; NULL: weights.bin in `folder` */
    int64_t weights_offset;
    int32_t spin_us; /* how long a device that has nothing to do spins before it sleeps, and a caller where it has a core besides; negative: the default */
    int32_t pin;     /* 1: each device's thread stays on its core, where there is one of that number; 0: it goes where the system likes */
} tw_stream_config;

typedef struct tw_stream tw_stream;

/* JSON: the devices, the parts with the folder of each and what it waits for, how many frames are in flight at most, and by number which
 * output is which input of the next frame (`carried`). */
const char *tw_stream_describe(void);
int tw_stream_create(const tw_stream_config *config, tw_stream **stream);
/* Begins a frame and returns its number, from 0; `in` and `out` as for tw_run, row-major. Their memory must stay as it is until the frame
 * has ended. While as many frames are in flight as may be it waits for the first of them: back-pressure. An input that is a state (`carried`
 * in tw_stream_describe) may have no data: it is what the frame before made for it, zeros in the first frame. Where that one failed before it
 * had made it this frame fails too; giving the input begins anew. */
int64_t tw_submit(tw_stream *stream, const tw_tensor *in, tw_tensor *out);
/* Until a frame has ended: 0, or -1 if this frame failed; others go on. A failure is kept until it was told, or 64 others came later. */
int tw_wait(tw_stream *stream, int64_t frame);
/* seconds[i] becomes the processor time of part i since the stream was created; returns how many frames have ended. */
int64_t tw_stream_work(tw_stream *stream, double *seconds);
/* seconds[i] becomes how long the thread of device i was ready to run and did not, since other threads had its core, by Linux's scheduler
 * and since the stream was created; 0 where the system does not say. */
void tw_stream_delay(tw_stream *stream, double *seconds);
/* Waits for the frames in flight. */
void tw_stream_destroy(tw_stream *stream);
const char *tw_stream_error(void);

#ifdef __cplusplus
}
#endif
#endif
