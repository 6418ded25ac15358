/* A persistent kernel over two layers of tile tasks: z = 2 * (x + 1), tile by tile, where a task of the second layer waits for the
 * event counter of its tile. All blocks are resident; tasks are dealt round robin, so every task that is waited for was begun. */
#include "tw_cuda.h"

constexpr int THREADS = 64;

extern "C" __global__ void __launch_bounds__(THREADS)
two_layers(const float *__restrict__ x, float *y, float *z, unsigned *events, int tiles) {
    for (int task = blockIdx.x; task < 2 * tiles; task += gridDim.x) {
        const int tile = task % tiles, i = tile * THREADS + threadIdx.x;
        if (task < tiles) {
            y[i] = x[i] + 1.0f;
            __syncthreads();
            if (threadIdx.x == 0) tw_add_release(events + tile, 1);
        } else {
            if (threadIdx.x == 0)
                while (tw_load_acquire(events + tile) == 0) {
                }
            __syncthreads();
            z[i] = 2.0f * y[i];
        }
        __syncthreads();
    }
}
