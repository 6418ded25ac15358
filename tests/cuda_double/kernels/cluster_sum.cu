/* out[row] = sum of x[row] over `columns` floats, for sm_90: a cluster of blocks shares a row, and the first one reads the others'
 * sums out of their shared memory. */
#include "tw_cuda.h"
#if TW_SM90

constexpr int THREADS = 64;

extern "C" __global__ void __launch_bounds__(THREADS) cluster_sum(const float *__restrict__ x, float *__restrict__ out, int columns) {
    float *part = (float *)tw_dynamic_shared();
    const unsigned rank = tw_cluster_rank(), size = tw_cluster_size(), row = blockIdx.x / size;

    float sum = 0;
    for (int i = rank * THREADS + threadIdx.x; i < columns; i += size * THREADS) sum += x[(long)row * columns + i];
    for (int distance = 16; distance; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    tw_cluster_arrive();
    tw_cluster_wait();
    if (rank == 0 && threadIdx.x == 0) {
        float total = 0;
        for (unsigned block = 0; block < size; block++) {
            const float *theirs = (const float *)tw_cluster_map(part, block);
            total += theirs[0] + theirs[1];
        }
        out[row] = total;
    }
    tw_cluster_arrive(); /* no block ends while its memory is read */
    tw_cluster_wait();
}
#endif
