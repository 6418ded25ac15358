/* The C interface of a Tilewright artifact: link model.so, or open it with dlopen.
 *
 * Instances are independent: any number may run at once, each from one thread at a time. A function that can fail returns 0
 * on success; otherwise tw_last_error() says in one line, for the calling thread, what went wrong and what to do.
 */
#ifndef TW_MODEL_H
#define TW_MODEL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* 2 added `device` to tw_config, at its end; 3 added `plan` and `pin` there, and the functions tw_plan and tw_trace. */
#define TW_ABI_VERSION 3

/* Element types and device types have DLPack's numbers. */
enum { TW_INT = 0, TW_UINT = 1, TW_FLOAT = 2, TW_BFLOAT = 4, TW_BOOL = 6 };
enum { TW_CPU = 1, TW_CUDA = 2 };

/* A model for a GPU takes tensors in host memory, which it copies, and in the memory of its GPU, which it uses in place if they begin at a
 * multiple of 256 bytes. Work that uses one must be complete before a run, or be in the legacy default stream. A TW_CUDA tensor whose
 * `data` is NULL is the instance's own memory of that input or output, as the last run from or to the host left it. */
typedef struct {
    void *data;
    int32_t device_type; /* TW_CPU, or TW_CUDA for a model that runs there */
    int32_t device_id;   /* of a GPU: tw_config.device */
    int32_t code; /* TW_INT ... */
    int32_t bits;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL: row-major */
} tw_tensor;

typedef struct {
    const char *weights_path; /* the file that holds the weights: weights.bin, or the .tw itself; on Windows in UTF-8 */
    int64_t weights_offset;   /* where in it they begin: a multiple of the page size, 0 for weights.bin */
    int32_t lanes;            /* threads; 0: as many as the plan was made for. Fewer also works. See tw_share. */
    int32_t spin_us;          /* how long an idle lane spins before it sleeps; negative: the default (see docs) */
    int32_t device;           /* which GPU, for a model that runs on one: 0 is the first that CUDA_VISIBLE_DEVICES leaves */
    int32_t plan;             /* which of the model's plans runs, from 1; 0: the one for cores between which a hand-over costs what it does here */
    int32_t pin;              /* 1: each lane's thread stays on a core of its own, but for the caller's, which is lane 0 and stays as it is */
} tw_config;

typedef struct tw_instance tw_instance;

int tw_abi_version(void);
/* JSON: dtype and shape of inputs and outputs in order (their names are in manifest.json); lanes; arena and weight bytes; the plans. */
const char *tw_describe(void);
int tw_create(const tw_config *config, tw_instance **instance);
/* `in` and `out` in the order of tw_describe: the model's own and, where the shapes of these are open, the sizes behind them, an int64 each
 * (see example.c). Row-major tensors are used in place, others are copied. Returns when the outputs are there. */
int tw_run(tw_instance *instance, const tw_tensor *in, tw_tensor *out);
/* As tw_run, and seconds[i] becomes the time of call i (one lane at a time, so the sum exceeds a normal run). */
int tw_profile(tw_instance *instance, const tw_tensor *in, tw_tensor *out, double *seconds);
/* As tw_run, and task i of the plan that runs, in the plan's order, was at work from begins[i] to ends[i]: seconds since the run began. */
int tw_trace(tw_instance *instance, const tw_tensor *in, tw_tensor *out, double *begins, double *ends);
/* Which plan runs, from 1 in the order of tw_describe. *handover_s becomes what a hand-over between two lanes was measured to take when the
 * instance was created: 0 where nothing was measured, because no choice depended on it; infinity where the lanes had no two cores. */
int tw_plan(const tw_instance *instance, double *handover_s);
void tw_destroy(tw_instance *instance);
/* Of models on CPUs under Linux, since version 3; older libraries lack it. Instances of one library share their threads, and the memory
 * of runs, but for pinned ones; with this, so do those of several libraries in one process: `pool` is what the first of them gave for NULL, or NULL. `threads` is how
 * many of the process may be at work, callers included; 0: as many as it has cores. Returns the pool; NULL, and the library's threads stay
 * its own, if the pool is of another version, the library has instances already, or memory ends. To be called before tw_create, by one
 * thread at a time. A pool lives as long as the process; with the last instance of a library its threads end. */
void *tw_share(void *pool, int threads);
/* How many threads may be at work from now on, callers included, in models of this library and of those that share its pool; 0: as many as
 * the process has cores. At any time, from any thread, amid runs too: threads that are too many have ended when it returns, each after its
 * lane of a run; of those that lack, the next run starts its own. Of models on CPUs, since version 3; older libraries lack it. */
int tw_set_threads(int threads);
/* Fills with a byte the memory that the next run of this instance takes, so that a result of what no kernel wrote shows: of 255 each float
 * is NaN. No other instance may run at the time. Of models on CPUs, since version 3; older libraries lack it. */
int tw_poison(tw_instance *instance, int byte);
const char *tw_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
