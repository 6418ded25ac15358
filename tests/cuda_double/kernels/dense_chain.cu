/* y = relu(w x) with w (rows x columns) floats: one warp per row. The weights' row is fetched before the kernel waits for the one
 * that writes x, so that with programmatic dependent launch it is there when x is. */
#include "tw_cuda.h"

constexpr int THREADS = 128, COLUMNS = 128;

extern "C" __global__ void __launch_bounds__(THREADS) dense(const float *__restrict__ w, const float *x, float *y, int rows) {
    const int lane = threadIdx.x % 32, row = (blockIdx.x * THREADS + threadIdx.x) / 32;
    float4 weights = make_float4(0, 0, 0, 0);
    if (row < rows) weights = *(const float4 *)(w + row * COLUMNS + lane * 4);
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    if (row >= rows) return;
    float4 values = *(const float4 *)(x + lane * 4);
    float sum = weights.x * values.x + weights.y * values.y + weights.z * values.z + weights.w * values.w;
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) y[row] = fmaxf(sum, 0.0f);
}
