/* One small kernel per intrinsic: what each lane gives and gets goes through device memory, and the test knows the layout. */
#include "tw_cuda.h"
#include "tw_wgmma_bytes.h"
#include "tw_wgmma_sp.h"

/* ---- Conversions: n values ----------------------------------------------------------------------------------------- */

extern "C" __global__ void convert(const float *x, const unsigned short *halves, float *from_f16, float *from_bf16, unsigned short *to_f16,
                                   unsigned short *to_bf16, unsigned *to_tf32, int *to_s8, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tw_f16 f = {halves[i]};
    tw_bf16 b = {halves[i]};
    from_f16[i] = tw_to_float(f);
    from_bf16[i] = tw_to_float(b);
    to_f16[i] = tw_to_f16(x[i]).bits;
    to_bf16[i] = tw_to_bf16(x[i]).bits;
    to_tf32[i] = tw_to_tf32(x[i]);
    to_s8[i] = tw_to_s8(x[i]);
}

/* out[0..2]: f16 and bf16 pairs of x[0], x[1]; out[2..5]: those of the pairs, unpacked. */
extern "C" __global__ void pairs(const float *x, unsigned *packed, float *unpacked) {
    packed[0] = tw_pack_f16(x[0], x[1]);
    packed[1] = tw_pack_bf16(x[0], x[1]);
    float2 f = tw_unpack_f16(packed[0]), b = tw_unpack_bf16(packed[1]);
    unpacked[0] = f.x, unpacked[1] = f.y, unpacked[2] = b.x, unpacked[3] = b.y;
}

extern "C" __global__ void approximations(const float *x, float *exp2, float *tanh) {
    exp2[threadIdx.x] = tw_exp2_approx(x[threadIdx.x]);
    tanh[threadIdx.x] = tw_tanh_approx(x[threadIdx.x]);
}

/* ---- Collectives of a warp ------------------------------------------------------------------------------------------- */

/* Rows of 32 lanes of `out`: idx, up, down, xor, with sources or distances `by` and segments of `width`. */
extern "C" __global__ void shuffles(const int *x, int *out, int by, int width) {
    int lane = threadIdx.x, value = x[lane];
    out[lane] = __shfl_sync(0xffffffffu, value, by, width);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, value, by, width);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, value, by, width);
    out[96 + lane] = __shfl_xor_sync(0xffffffffu, value, by, width);
}

/* Two groups of lanes, those of `mask` and the others, vote apart. */
extern "C" __global__ void votes(const int *x, int *out, unsigned mask) {
    int lane = threadIdx.x, value = x[lane], same;
    unsigned group = mask >> lane & 1 ? mask : ~mask;
    int results[12];
    if (mask >> lane & 1) {
        results[0] = (int)__ballot_sync(group, value > 0);
    } else {
        results[0] = (int)__ballot_sync(group, value > 0);
    }
    results[1] = __any_sync(group, value > 2);
    results[2] = __all_sync(group, value > -3);
    results[3] = (int)__match_any_sync(group, value);
    results[4] = (int)__match_all_sync(group, value / 100, &same);
    results[5] = same;
    results[6] = __reduce_add_sync(group, value);
    results[7] = __reduce_min_sync(group, value);
    results[8] = __reduce_max_sync(group, value);
    results[9] = (int)__reduce_and_sync(group, (unsigned)value);
    results[10] = (int)__reduce_or_sync(group, (unsigned)value);
    results[11] = (int)__reduce_xor_sync(group, (unsigned)value);
    for (int i = 0; i < 12; i++) out[i * 32 + lane] = results[i];
}

/* How many of the block's threads have x > 0, in the first row; whether all, any in the others. */
extern "C" __global__ void block_votes(const int *x, int *out) {
    int positive = x[threadIdx.x] > 0;
    out[threadIdx.x] = __syncthreads_count(positive);
    out[blockDim.x + threadIdx.x] = __syncthreads_and(positive);
    out[2 * blockDim.x + threadIdx.x] = __syncthreads_or(positive);
}

/* The same for the first `live` threads, once the others have ended; then what the thread opposite has, through shared memory. */
extern "C" __global__ void block_votes_of_some(const int *x, int *out, int live) {
    if ((int)threadIdx.x >= live) return;
    int *values = (int *)tw_dynamic_shared(), positive = x[threadIdx.x] > 0;
    out[threadIdx.x] = __syncthreads_count(positive);
    out[live + threadIdx.x] = __syncthreads_and(positive);
    out[2 * live + threadIdx.x] = __syncthreads_or(positive);
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[3 * live + threadIdx.x] = values[live - 1 - threadIdx.x];
}

/* Every thread of every block contributes x[i] to each of the counters. */
extern "C" __global__ void atomics(const int *x, int *counters, float *sum, unsigned *wrapped, unsigned *swapped) {
    int value = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(counters, value);
    atomicMin(counters + 1, value);
    atomicMax(counters + 2, value);
    atomicAnd(counters + 3, value);
    atomicOr(counters + 4, value);
    atomicXor(counters + 5, value);
    atomicAdd(sum, (float)value);
    atomicInc(wrapped, 9u);
    unsigned seen = atomicExch(swapped, (unsigned)value), expected;
    do {
        expected = seen;
        seen = atomicCAS(swapped + 1, expected, expected + 1);
    } while (seen != expected);
}

/* ---- Copies ------------------------------------------------------------------------------------------------------------ */

/* 32 threads copy 16, 8 and 4 bytes each, of which `bytes` are read, to three parts of `out` of 512 bytes each. */
extern "C" __global__ void copies(const char *x, char *out, int bytes) {
    char *shared = (char *)tw_dynamic_shared();
    int i = threadIdx.x;
    tw_cp_async_16(shared + 16 * i, x + 16 * i, min(bytes, 16));
    tw_cp_async_commit();
    tw_cp_async_8(shared + 512 + 8 * i, x + 8 * i, min(bytes, 8));
    tw_cp_async_commit();
    tw_cp_async_4(shared + 1024 + 4 * i, x + 4 * i, min(bytes, 4));
    tw_cp_async_commit();
    tw_cp_async_wait<2>();
    for (int j = 0; j < 16; j++) out[16 * i + j] = shared[16 * i + j];
    tw_cp_async_wait<0>();
    for (int j = 0; j < 8; j++) out[512 + 8 * i + j] = shared[512 + 8 * i + j];
    for (int j = 0; j < 4; j++) out[1024 + 4 * i + j] = shared[1024 + 4 * i + j];
}

/* The second warp copies, the first waits at an mbarrier, for `rounds` phases; out = x + 1. */
extern "C" __global__ void copies_by_mbarrier(const float *x, float *out, int rounds) {
    unsigned long long *full = (unsigned long long *)tw_dynamic_shared(), *empty = full + 1;
    float *values = (float *)(full + 2);
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        tw_mbarrier_init(full, 32);
        tw_mbarrier_init(empty, 32);
        tw_mbarrier_fence_init();
    }
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x >= 32) {
            tw_mbarrier_wait(empty, (round + 1) % 2);
            tw_cp_async_4(values + lane, x + 32 * round + lane, 4);
            tw_cp_async_mbarrier_arrive(full);
        } else {
            tw_mbarrier_wait(full, round % 2);
            out[32 * round + lane] = values[31 - lane] + 1;
            tw_mbarrier_arrive(empty);
        }
    }
}

/* Warp 0 writes, warps 1 and 2 read: barriers 1 (full) and 2 (empty) of 96 threads; warp 3 takes no part. */
extern "C" __global__ void named_barriers(const float *x, float *out, int rounds) {
    __shared__ float values[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp == 3) return;
    for (int round = 0; round < rounds; round++) {
        if (warp == 0) {
            if (round) tw_barrier_sync(2, 96);
            values[lane] = x[32 * round + lane];
            tw_barrier_arrive(1, 96);
        } else {
            tw_barrier_sync(1, 96);
            out[(warp - 1) * 32 * rounds + 32 * round + lane] = values[31 - lane];
            if (round + 1 < rounds) tw_barrier_arrive(2, 96);
        }
    }
}

/* ---- Fragments: x is what lies in shared memory, out what each lane's registers hold ------------------------------------- */

#define LDMATRIX(name, registers)                                                                           \
    extern "C" __global__ void name(const unsigned short *x, unsigned *out, int rows, int pitch) {          \
        unsigned short *shared = (unsigned short *)tw_dynamic_shared();                                     \
        for (int i = threadIdx.x; i < rows * pitch; i += 32) shared[i] = x[i];                              \
        __syncthreads();                                                                                    \
        unsigned r[registers];                                                                              \
        tw_##name(r, shared + threadIdx.x % (8 * registers) * pitch);                                       \
        for (int i = 0; i < registers; i++) out[i * 32 + threadIdx.x] = r[i];                               \
    }
LDMATRIX(ldmatrix_x1, 1)
LDMATRIX(ldmatrix_x2, 2)
LDMATRIX(ldmatrix_x4, 4)
LDMATRIX(ldmatrix_x1_trans, 1)
LDMATRIX(ldmatrix_x2_trans, 2)
LDMATRIX(ldmatrix_x4_trans, 4)

#define MMA(name, T)                                                                                        \
    extern "C" __global__ void name(const unsigned *a, const unsigned *b, T *d) {                           \
        unsigned fragment_a[4], fragment_b[2];                                                              \
        T sums[4];                                                                                          \
        for (int i = 0; i < 4; i++) fragment_a[i] = a[i * 32 + threadIdx.x], sums[i] = d[i * 32 + threadIdx.x]; \
        for (int i = 0; i < 2; i++) fragment_b[i] = b[i * 32 + threadIdx.x];                                \
        tw_##name(sums, fragment_a, fragment_b);                                                            \
        for (int i = 0; i < 4; i++) d[i * 32 + threadIdx.x] = sums[i];                                      \
    }
MMA(mma_m16n8k16_f16, float)
MMA(mma_m16n8k16_bf16, float)
MMA(mma_m16n8k8_tf32, float)
MMA(mma_m16n8k32_s8, int)
MMA(mma_m16n8k32_u8, int)
MMA(mma_m16n8k32_u8_s8, int)
MMA(mma_m16n8k32_s8_u8, int)

#define MMA_SP(name, T, call)                                                                                        \
    extern "C" __global__ void name(const unsigned *a, const unsigned *b, const unsigned *metadata, T *d) {          \
        unsigned fragment_a[4], fragment_b[4];                                                                       \
        T sums[4];                                                                                                   \
        for (int i = 0; i < 4; i++) {                                                                                \
            fragment_a[i] = a[i * 32 + threadIdx.x], fragment_b[i] = b[i * 32 + threadIdx.x];                        \
            sums[i] = d[i * 32 + threadIdx.x];                                                                       \
        }                                                                                                            \
        tw_mma_sp_##call(sums, fragment_a, fragment_b, metadata[threadIdx.x]);                                       \
        for (int i = 0; i < 4; i++) d[i * 32 + threadIdx.x] = sums[i];                                               \
    }
MMA_SP(mma_sp_f16_0, float, m16n8k32_f16<0>)
MMA_SP(mma_sp_f16_1, float, m16n8k32_f16<1>)
MMA_SP(mma_sp_bf16_0, float, m16n8k32_bf16<0>)
MMA_SP(mma_sp_bf16_1, float, m16n8k32_bf16<1>)
MMA_SP(mma_sp_s8_0, int, m16n8k64_s8)
MMA_SP(mma_sp_s8_u8_0, int, m16n8k64_s8_u8)

#if TW_SM90
/* ---- Bulk copies and clusters -------------------------------------------------------------------------------------------- */

extern "C" __global__ void bulk(const char *x, char *out, int bytes) {
    unsigned long long *full = (unsigned long long *)tw_dynamic_shared();
    char *values = (char *)tw_dynamic_shared() + 128;
    if (threadIdx.x == 0) {
        tw_mbarrier_init(full, 1);
        tw_mbarrier_fence_init();
        tw_mbarrier_arrive_expect(full, bytes);
        tw_bulk_load(values, x, bytes, full);
    }
    __syncthreads();
    tw_mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = values[i];
}

#define TENSOR_LOAD(name, ...)                                                                              \
    extern "C" __global__ void name(const __grid_constant__ tw_tensor_map map, char *out, int bytes, int x, int y, int z, int w, int v) { \
        (void)z, (void)w, (void)v;                                                                          \
        unsigned long long *full = (unsigned long long *)(tw_dynamic_shared() + bytes);                     \
        if (threadIdx.x == 0) {                                                                             \
            tw_tma_prefetch(&map);                                                                          \
            tw_mbarrier_init(full, 1);                                                                      \
            tw_mbarrier_fence_init();                                                                       \
            tw_mbarrier_arrive_expect(full, bytes);                                                         \
            tw_##name(tw_dynamic_shared(), &map, full, __VA_ARGS__);                                        \
        }                                                                                                   \
        __syncthreads();                                                                                    \
        tw_mbarrier_wait(full, 0);                                                                          \
        for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = (char)tw_dynamic_shared()[i];        \
    }
TENSOR_LOAD(tma_load_2d, x, y)
TENSOR_LOAD(tma_load_3d, x, y, z)
TENSOR_LOAD(tma_load_4d, x, y, z, w)
TENSOR_LOAD(tma_load_5d, x, y, z, w, v)

/* Writes 0, 1, 2, ... as a dense box of 16-bit numbers to the tensor at (x, y). */
extern "C" __global__ void tma_store_2d(const __grid_constant__ tw_tensor_map map, int count, int x, int y) {
    unsigned short *box = (unsigned short *)tw_dynamic_shared();
    for (int i = threadIdx.x; i < count; i += blockDim.x) box[i] = (unsigned short)i;
    tw_fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        tw_tma_store_2d(&map, box, x, y);
        tw_bulk_commit();
        tw_bulk_wait_read<0>();
    }
}

/* Block 0 of a cluster of two brings one box to both; each adds its rank. */
extern "C" __global__ void multicast(const __grid_constant__ tw_tensor_map map, float *out, int count) {
    float *box = (float *)tw_dynamic_shared();
    unsigned long long *full = (unsigned long long *)(box + count);
    if (threadIdx.x == 0) {
        tw_mbarrier_init(full, 1);
        tw_mbarrier_fence_init();
        tw_mbarrier_arrive_expect(full, count * 4);
    }
    tw_cluster_arrive();
    tw_cluster_wait(); /* both barriers are there */
    if (tw_cluster_rank() == 0 && threadIdx.x == 0) tw_tma_load_multicast_2d(box, &map, full, 3, 0, 0);
    tw_mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[tw_cluster_rank() * count + i] = box[i] + tw_cluster_rank();
    tw_cluster_arrive();
    tw_cluster_wait();
}

/* Each block of a cluster writes its rank into the next one's memory and arrives at that one's mbarrier. */
extern "C" __global__ void ring(int *out) {
    int *value = (int *)tw_dynamic_shared();
    unsigned long long *full = (unsigned long long *)(value + 2);
    const unsigned rank = tw_cluster_rank(), next = (rank + 1) % tw_cluster_size();
    if (threadIdx.x == 0) {
        tw_mbarrier_init(full, 1);
        tw_mbarrier_fence_init();
    }
    tw_cluster_arrive();
    tw_cluster_wait();
    if (threadIdx.x == 0) {
        *(int *)tw_cluster_map(value, next) = (int)rank;
        tw_mbarrier_arrive_cluster(full, next);
        tw_mbarrier_wait(full, 0);
        out[blockIdx.x] = *value;
    }
    tw_cluster_arrive();
    tw_cluster_wait();
}
#endif

#if TW_SM90A
/* ---- wgmma: d (64 x n) = (accumulate ? d : 0) + a b over one product, operands as they lie in shared memory ----------------- */

#define WGMMA_OF(kind, name, registers, ...)                                                                \
    extern "C" __global__ void __launch_bounds__(128) name(const unsigned char *a, const unsigned char *b, kind *d, int a_bytes, int b_bytes, \
                                                           int leading, int stride, int swizzle, int accumulate) { \
        unsigned char *shared_a = tw_dynamic_shared(), *shared_b = shared_a + (a_bytes + 1023) / 1024 * 1024; \
        for (int i = threadIdx.x; i < a_bytes; i += 128) shared_a[i] = a[i];                                \
        for (int i = threadIdx.x; i < b_bytes; i += 128) shared_b[i] = b[i];                                \
        tw_fence_proxy_async();                                                                             \
        __syncthreads();                                                                                    \
        kind sums[registers];                                                                               \
        for (int i = 0; i < registers; i++) sums[i] = d[i * 128 + threadIdx.x];                             \
        tw_wgmma_fence();                                                                                   \
        __VA_ARGS__(sums, tw_wgmma_descriptor(shared_a, leading, stride, swizzle), tw_wgmma_descriptor(shared_b, leading, stride, swizzle), accumulate); \
        tw_wgmma_commit();                                                                                  \
        tw_wgmma_wait<0>();                                                                                 \
        for (int i = 0; i < registers; i++) d[i * 128 + threadIdx.x] = sums[i];                             \
    }
#define K16(type) tw_wgmma_k16_##type<0, 0>
#define K16_MN(type) tw_wgmma_k16_##type<1, 1>
#define WGMMA(name, call, registers) WGMMA_OF(float, name, registers, call)
#define BYTE_WGMMA(name, call, registers) WGMMA_OF(int, name, registers, call)
WGMMA(wgmma_f16_n8, K16(f16), 4)
WGMMA(wgmma_f16_n16, K16(f16), 8)
WGMMA(wgmma_f16_n64, K16(f16), 32)
WGMMA(wgmma_f16_n96, K16(f16), 48)
WGMMA(wgmma_f16_n256, K16(f16), 128)
WGMMA(wgmma_bf16_n32, K16(bf16), 16)
WGMMA(wgmma_bf16_n192, K16(bf16), 96)
WGMMA(wgmma_tf32_n128, tw_wgmma_k8_tf32, 64)
WGMMA(wgmma_f16_mn_n64, K16_MN(f16), 32)
WGMMA(wgmma_bf16_mn_n128, K16_MN(bf16), 64)
BYTE_WGMMA(byte_wgmma_s8_n8, tw_wgmma_k32_s8, 4)
BYTE_WGMMA(byte_wgmma_u8_s8_n16, tw_wgmma_k32_u8_s8, 8)
BYTE_WGMMA(byte_wgmma_s8_n32, tw_wgmma_k32_s8, 16)
BYTE_WGMMA(byte_wgmma_u8_s8_n64, tw_wgmma_k32_u8_s8, 32)
BYTE_WGMMA(byte_wgmma_u8_s8_n96, tw_wgmma_k32_u8_s8, 48)
BYTE_WGMMA(byte_wgmma_s8_n128, tw_wgmma_k32_s8, 64)
BYTE_WGMMA(byte_wgmma_s8_n192, tw_wgmma_k32_s8, 96)
BYTE_WGMMA(byte_wgmma_u8_s8_n256, tw_wgmma_k32_u8_s8, 128)

/* The same of an a of which two of each four along k are given: a row has 32 bytes of it and 64 of b. */
#define WGMMA_SP_OF(kind, name, registers, ...)                                                             \
    extern "C" __global__ void __launch_bounds__(128) name(const unsigned char *a, const unsigned char *b, kind *d, const unsigned *metadata, \
                                                           int a_bytes, int b_bytes, int a_stride, int b_stride, int a_swizzle, int b_swizzle, \
                                                           int accumulate) {                                \
        unsigned char *shared_a = tw_dynamic_shared(), *shared_b = shared_a + (a_bytes + 1023) / 1024 * 1024; \
        for (int i = threadIdx.x; i < a_bytes; i += 128) shared_a[i] = a[i];                                \
        for (int i = threadIdx.x; i < b_bytes; i += 128) shared_b[i] = b[i];                                \
        tw_fence_proxy_async();                                                                             \
        __syncthreads();                                                                                    \
        kind sums[registers];                                                                               \
        for (int i = 0; i < registers; i++) sums[i] = d[i * 128 + threadIdx.x];                             \
        tw_wgmma_fence();                                                                                   \
        __VA_ARGS__(sums, tw_wgmma_descriptor(shared_a, 16, a_stride, a_swizzle), tw_wgmma_descriptor(shared_b, 16, b_stride, b_swizzle), \
             metadata[threadIdx.x], accumulate);                                                            \
        tw_wgmma_commit();                                                                                  \
        tw_wgmma_wait<0>();                                                                                 \
        for (int i = 0; i < registers; i++) d[i * 128 + threadIdx.x] = sums[i];                             \
    }
#define WGMMA_SP(name, call, registers) WGMMA_SP_OF(float, name, registers, call)
#define BYTE_WGMMA_SP(name, call, registers) WGMMA_SP_OF(int, name, registers, call)
WGMMA_SP(sparse_wgmma_f16_0_n16, tw_wgmma_sp_k32_f16<0>, 8)
WGMMA_SP(sparse_wgmma_f16_1_n64, tw_wgmma_sp_k32_f16<1>, 32)
WGMMA_SP(sparse_wgmma_f16_0_n256, tw_wgmma_sp_k32_f16<0>, 128)
WGMMA_SP(sparse_wgmma_bf16_0_n128, tw_wgmma_sp_k32_bf16<0>, 64)
WGMMA_SP(sparse_wgmma_bf16_1_n32, tw_wgmma_sp_k32_bf16<1>, 16)
BYTE_WGMMA_SP(bytes_sparse_wgmma_s8_n16, tw_wgmma_sp_k64_s8, 8)
BYTE_WGMMA_SP(bytes_sparse_wgmma_s8_u8_n32, tw_wgmma_sp_k64_s8_u8, 16)
BYTE_WGMMA_SP(bytes_sparse_wgmma_s8_u8_n64, tw_wgmma_sp_k64_s8_u8, 32)
BYTE_WGMMA_SP(bytes_sparse_wgmma_s8_n128, tw_wgmma_sp_k64_s8, 64)
BYTE_WGMMA_SP(bytes_sparse_wgmma_s8_u8_n256, tw_wgmma_sp_k64_s8_u8, 128)
#endif
