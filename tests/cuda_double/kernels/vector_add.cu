/* z = x + y over n floats: four at a time where 16-byte accesses are possible, one thread per group of four. */
#include "tw_cuda.h"

extern "C" __global__ void __launch_bounds__(256) vector_add(const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ z, int n) {
    int i = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (i + 4 <= n) {
        float4 a = *(const float4 *)(x + i), b = *(const float4 *)(y + i);
        *(float4 *)(z + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else {
        for (; i < n; i++) z[i] = x[i] + y[i];
    }
}
