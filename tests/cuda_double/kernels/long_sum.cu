/* d (16 x 8) = a (16 x k) b (k x 8) in tf32 by one warp. Tensor cores cut off what they add: their sums are kept short, and added up by
 * threads, which round. */
#include "tw_cuda.h"

constexpr int SHORT = 64;

extern "C" __global__ void __launch_bounds__(32) long_sum(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ d, int k) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    float sums[4] = {}, total[4] = {};
    for (int first = 0; first < k; first += 8) {
        const unsigned x[4] = {tw_to_tf32(a[g * k + first + t]), tw_to_tf32(a[(g + 8) * k + first + t]), tw_to_tf32(a[g * k + first + t + 4]),
                               tw_to_tf32(a[(g + 8) * k + first + t + 4])};
        const unsigned y[2] = {tw_to_tf32(b[(first + t) * 8 + g]), tw_to_tf32(b[(first + t + 4) * 8 + g])};
        tw_mma_m16n8k8_tf32(sums, x, y);
        if ((first + 8) % SHORT == 0)
            for (int i = 0; i < 4; i++) total[i] += sums[i], sums[i] = 0;
    }
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = total[i] + sums[i];
}
