/* Three kernels in a chain of programmatic edges. The second reads nothing of the first, but the third reads both: the edge from the
 * first to the third is left out, since the one over the second implies it. */
#include "tw_cuda.h"

constexpr int THREADS = 64;

extern "C" __global__ void __launch_bounds__(THREADS) plus_one(const float *x, float *y) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    y[blockIdx.x * THREADS + threadIdx.x] = x[blockIdx.x * THREADS + threadIdx.x] + 1;
}

extern "C" __global__ void __launch_bounds__(THREADS) counted(float *y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    tw_grid_launch_dependents();
    tw_grid_dependency_wait(); /* for whoever waits for this kernel */
    y[i] = i;
}

extern "C" __global__ void __launch_bounds__(THREADS) sum_in_ring(const float *x, const float *y, float *z, float *ring) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    float *own = ring + (blockIdx.x * THREADS);
    own[threadIdx.x] = x[i] + y[i];
    __syncthreads();
    z[i] = own[THREADS - 1 - threadIdx.x];
}
