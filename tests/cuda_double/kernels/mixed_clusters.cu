/* One launch of two kernels: in its first blocks a cluster shares a row of `columns` floats and its first block adds up what all of them
 * have in shared memory; each further block has a row for itself. These come in clusters too, and are of any rank there. */
#include "tw_cuda.h"
#if TW_SM90

constexpr int THREADS = 64;

TW_DEVICE float own_part(const float *x, int columns, unsigned part, unsigned parts) {
    float sum = 0;
    for (int i = part * THREADS + threadIdx.x; i < columns; i += parts * THREADS) sum += x[i];
    for (int distance = 16; distance; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) mixed_clusters(const float *__restrict__ x, float *__restrict__ out, int columns, int shared_rows) {
    float *part = (float *)tw_dynamic_shared();
    const unsigned size = tw_cluster_size(), together = shared_rows * size;
    if (blockIdx.x < together) {
        const unsigned row = blockIdx.x / size, rank = tw_cluster_rank();
        const float sum = own_part(x + (long)row * columns, columns, rank, size);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
        tw_cluster_arrive();
        tw_cluster_wait();
        float total = 0;
        if (rank == 0 && threadIdx.x == 0)
            for (unsigned block = 0; block < size; block++) {
                const float *theirs = (const float *)tw_cluster_map(part, block);
                total += theirs[0] + theirs[1];
            }
        tw_cluster_arrive();
        if (rank == 0 && threadIdx.x == 0) out[row] = total;
        tw_cluster_wait();
    } else {
        const unsigned row = shared_rows + blockIdx.x - together, rank = 0, parts = 1;
        const float sum = own_part(x + (long)row * columns, columns, rank, parts);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
        const float *mine = part;
        __syncthreads();
        if (threadIdx.x == 0) out[row] = mine[0] + mine[1];
    }
}
#endif
