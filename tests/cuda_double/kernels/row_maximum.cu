/* out[row] = the largest of `columns` floats of x[row]; a block has a row, in shared memory with room for THREADS of them. */
#include "tw_cuda.h"

constexpr int THREADS = 64;

extern "C" __global__ void __launch_bounds__(THREADS) row_maximum(const float *__restrict__ x, float *__restrict__ out, int columns) {
    float *values = (float *)tw_dynamic_shared();
    if (threadIdx.x < columns) values[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
    __syncthreads();
    if (threadIdx.x) return;
    float largest = values[0];
    for (int i = 1; i < columns; i++) largest = fmaxf(largest, values[i]);
    out[blockIdx.x] = largest;
}
