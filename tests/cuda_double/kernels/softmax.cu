/* y[row] = softmax(x[row]) over `columns` halves: one block per row, two passes over the row in shared memory. Maximum and sum
 * are combined as one pair, (m, s) and (n, t) to (max, s e^(m - max) + t e^(n - max)), so that there is one reduction. */
#include "tw_cuda.h"

constexpr int THREADS = 128, WARPS = THREADS / 32;
constexpr float LOG2E = 1.4426950408889634f;

struct Pair { float maximum, sum; };

__device__ Pair combine(Pair a, Pair b) {
    float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum, a.sum * tw_exp2_approx(a.maximum - maximum) + b.sum * tw_exp2_approx(b.maximum - maximum)};
}

__device__ Pair warp_combine(Pair x) {
    for (int distance = 16; distance; distance /= 2) {
        Pair other = {__shfl_xor_sync(0xffffffffu, x.maximum, distance), __shfl_xor_sync(0xffffffffu, x.sum, distance)};
        x = combine(x, other);
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax_row(const tw_f16 *__restrict__ x, tw_f16 *__restrict__ y, int columns) {
    float *row = (float *)tw_dynamic_shared();              /* columns floats */
    Pair *of_warp = (Pair *)(row + (columns + 1) / 2 * 2); /* WARPS pairs */
    const long first = (long)blockIdx.x * columns;

    Pair own = {-1e30f, 0.0f};
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float value = tw_to_float(x[first + i]) * LOG2E;
        row[i] = value;
        own = combine(own, {value, 1.0f});
    }
    own = warp_combine(own);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    Pair all = of_warp[0];
    for (int warp = 1; warp < WARPS; warp++) all = combine(all, of_warp[warp]);

    float scale = 1.0f / all.sum;
    for (int i = threadIdx.x; i < columns; i += THREADS) y[first + i] = tw_to_f16(tw_exp2_approx(row[i] - all.maximum) * scale);
}
