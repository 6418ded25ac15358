/* out[0] = sum of x over n floats. Each block sums a part: lanes by shuffles, warps through shared memory. The block that finds
 * itself to be the last adds the parts, in a fixed order, and sets the counter back for the next launch. */
#include "tw_cuda.h"

constexpr int THREADS = 256, WARPS = THREADS / 32;

__device__ float warp_sum(float x) {
    for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

/* The sum over the block, in every thread of the first warp. */
__device__ float block_sum(float x, float *of_warp) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < WARPS ? of_warp[threadIdx.x] : 0.0f) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_sum(const float *__restrict__ x, float *__restrict__ parts, unsigned *__restrict__ counter, float *__restrict__ out, int n) {
    __shared__ float of_warp[WARPS];
    __shared__ unsigned before;

    float sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += x[i];
    sum = block_sum(sum, of_warp);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        before = atomicAdd(counter, 1u);
    }
    __syncthreads();
    if (before + 1 < gridDim.x) return;

    __threadfence();
    sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) sum += parts[i];
    sum = block_sum(sum, of_warp);
    if (threadIdx.x == 0) {
        out[0] = sum;
        *counter = 0;
    }
}
