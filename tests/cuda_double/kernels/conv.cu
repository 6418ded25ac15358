/* Convolution 3x3, stride 1, padding 1, of a 1 x 9 x 7 x 64 tensor to 80 channels, ReLU: an implicit matrix product
 *   y (63 x 80) = relu(windows of x (63 x 576) * w (80 x 576) transposed + bias)
 * in NHWC, halves with float sums. A block computes 64 x 32 of y with 4 warps of 32 x 16; slices of 32 along k go through 3 stages
 * of shared memory by cp.async. Rows in shared memory are 16 bytes longer than their data, so that ldmatrix meets no bank twice. */
#include "tw_cuda.h"

constexpr int H = 9, W = 7, C = 64, K = 80, R = 3, S = 3, PAD = 1;
constexpr int M = H * W, DEPTH = R * S * C;
constexpr int BLOCK_M = 64, BLOCK_N = 32, BLOCK_K = 32, STAGES = 3, THREADS = 128;
constexpr int ROW = BLOCK_K + 8;          /* halves of a row in shared memory */
constexpr int WARP_M = 32, WARP_N = 16;
constexpr int STAGE = (BLOCK_M + BLOCK_N) * ROW;
constexpr int CHUNKS = BLOCK_K / 8;       /* of 16 bytes in a row */
constexpr int SLICES = DEPTH / BLOCK_K;

/* Starts the copies of slice `slice` into a stage; what lies in the padding or beyond the last row is zero. */
__device__ void load_slice(const tw_f16 *x, const tw_f16 *w, int m0, int n0, int slice, tw_f16 *stage) {
    const int k0 = slice * BLOCK_K, tap = k0 / C, channel = k0 % C;
    for (int i = threadIdx.x; i < BLOCK_M * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS, m = m0 + row;
        int h = m / W + tap / S - PAD, v = m % W + tap % S - PAD;
        bool inside = m < M && h >= 0 && h < H && v >= 0 && v < W;
        const tw_f16 *from = inside ? x + (h * W + v) * C + channel + chunk * 8 : x;
        tw_cp_async_16(stage + row * ROW + chunk * 8, from, inside ? 16 : 0);
    }
    for (int i = threadIdx.x; i < BLOCK_N * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS, n = n0 + row;
        const tw_f16 *from = n < K ? w + n * DEPTH + k0 + chunk * 8 : w;
        tw_cp_async_16(stage + (BLOCK_M + row) * ROW + chunk * 8, from, n < K ? 16 : 0);
    }
}

__device__ void conv_tile(const tw_f16 *x, const tw_f16 *w, const float *bias, tw_f16 *y, tw_f16 *shared, int tile_m, int tile_n) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / 2 * WARP_M, warp_n = warp % 2 * WARP_N;
    const int m0 = tile_m * BLOCK_M, n0 = tile_n * BLOCK_N;
    float sums[2][2][4] = {};

    for (int slice = 0; slice < STAGES - 1; slice++) {
        load_slice(x, w, m0, n0, slice, shared + slice * STAGE);
        tw_cp_async_commit();
    }
    for (int slice = 0; slice < SLICES; slice++) {
        tw_cp_async_wait<STAGES - 2>();
        __syncthreads(); /* the slice is there for all, and all are done with the stage that is filled next */
        if (slice + STAGES - 1 < SLICES) load_slice(x, w, m0, n0, slice + STAGES - 1, shared + (slice + STAGES - 1) % STAGES * STAGE);
        tw_cp_async_commit(); /* an empty group too, so that the count stays right */

        const tw_f16 *a_tile = shared + slice % STAGES * STAGE + warp_m * ROW;
        const tw_f16 *b_tile = shared + slice % STAGES * STAGE + (BLOCK_M + warp_n) * ROW;
        for (int k = 0; k < BLOCK_K; k += 16) {
            unsigned a[2][4], b[4];
            for (int i = 0; i < 2; i++) tw_ldmatrix_x4(a[i], a_tile + (i * 16 + lane % 16) * ROW + k + lane / 16 * 8);
            tw_ldmatrix_x4(b, b_tile + (lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 8);
            for (int j = 0; j < 2; j++) {
                const unsigned b_half[2] = {b[j * 2], b[j * 2 + 1]};
                for (int i = 0; i < 2; i++) tw_mma_m16n8k16_f16(sums[i][j], a[i], b_half);
            }
        }
    }

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int half = 0; half < 2; half++) {
                int m = m0 + warp_m + i * 16 + lane / 4 + half * 8, n = n0 + warp_n + j * 8 + lane % 4 * 2;
                if (m >= M || n >= K) continue;
                float first = fmaxf(sums[i][j][half * 2] + bias[n], 0.0f), second = fmaxf(sums[i][j][half * 2 + 1] + bias[n + 1], 0.0f);
                *(unsigned *)(y + m * K + n) = tw_pack_f16(first, second);
            }
}

extern "C" __global__ void __launch_bounds__(THREADS)
conv3x3(const tw_f16 *__restrict__ x, const tw_f16 *__restrict__ w, const float *__restrict__ bias, tw_f16 *__restrict__ y) {
    conv_tile(x, w, bias, y, (tw_f16 *)tw_dynamic_shared(), blockIdx.x, blockIdx.y);
}
