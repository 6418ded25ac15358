/* y (m x n) = a (m x k) * b (n x k) transposed + bias, halves with float sums, for sm_90a. A block computes 128 x 64 with three
 * warpgroups: the first brings slices of 64 along k by tensor copies with 128-byte swizzle, the others multiply 64 rows each.
 * `full` of a stage ends when its bytes are there, `empty` when both multiplying warpgroups are done with it. */
#include "tw_cuda.h"
#if TW_SM90A

constexpr int BLOCK_M = 128, BLOCK_N = 64, BLOCK_K = 64, STAGES = 3, THREADS = 384;
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2, B_BYTES = BLOCK_N * BLOCK_K * 2;

/* The 1 fixes the registers at entry, without which setmaxnreg is ignored. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_sm90(const __grid_constant__ tw_tensor_map map_a, const __grid_constant__ tw_tensor_map map_b, const float *__restrict__ bias,
          tw_f16 *__restrict__ y, int m, int n, int k) {
    unsigned char *a_stages = tw_dynamic_shared(), *b_stages = a_stages + STAGES * A_BYTES;
    unsigned long long *full = (unsigned long long *)(b_stages + STAGES * B_BYTES), *empty = full + STAGES;
    const int slices = (k + BLOCK_K - 1) / BLOCK_K, m0 = blockIdx.x * BLOCK_M, n0 = blockIdx.y * BLOCK_N;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            tw_mbarrier_init(full + stage, 1);
            tw_mbarrier_init(empty + stage, 2);
        }
        tw_mbarrier_fence_init();
    }
    __syncthreads();

    const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
    if (warpgroup == 0) { /* one thread brings, the others have nothing to do */
        tw_registers_decrease<40>();
        if (thread == 0)
            for (int slice = 0; slice < slices; slice++) {
                const int stage = slice % STAGES, use = slice / STAGES;
                tw_mbarrier_wait(empty + stage, (use + 1) % 2); /* at the first use at once */
                tw_mbarrier_arrive_expect(full + stage, A_BYTES + B_BYTES);
                tw_tma_load_2d(a_stages + stage * A_BYTES, &map_a, full + stage, slice * BLOCK_K, m0);
                tw_tma_load_2d(b_stages + stage * B_BYTES, &map_b, full + stage, slice * BLOCK_K, n0);
            }
        return;
    }

    tw_registers_increase<232>();
    float sums[BLOCK_N / 2];
    for (int slice = 0; slice < slices; slice++) {
        const int stage = slice % STAGES;
        tw_mbarrier_wait(full + stage, slice / STAGES % 2);
        unsigned long long a = tw_wgmma_descriptor(a_stages + stage * A_BYTES + (warpgroup - 1) * 64 * BLOCK_K * 2, 1, 1024, 1);
        unsigned long long b = tw_wgmma_descriptor(b_stages + stage * B_BYTES, 1, 1024, 1);
        tw_wgmma_fence();
        for (int i = 0; i < BLOCK_K / 16; i++) tw_wgmma_k16_f16<0, 0>(sums, a + 2 * i, b + 2 * i, slice > 0 || i > 0);
        tw_wgmma_commit();
        tw_wgmma_wait<0>();
        if (thread == 0) tw_mbarrier_arrive(empty + stage);
    }

    const int lane = thread % 32, row = m0 + (warpgroup - 1) * 64 + thread / 32 * 16 + lane / 4;
    for (int j = 0; j < BLOCK_N / 8; j++)
        for (int half = 0; half < 2; half++) {
            const int i = row + half * 8, column = n0 + j * 8 + lane % 4 * 2;
            if (i < m && column < n)
                *(unsigned *)(y + (long)i * n + column) = tw_pack_f16(sums[j * 4 + half * 2] + bias[column], sums[j * 4 + half * 2 + 1] + bias[column + 1]);
        }
}
#endif
