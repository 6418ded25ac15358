/* What generated CUDA kernels are written with: inline PTX behind names, and nothing else.
 *
 * Everything that CUDA C++ itself offers (threadIdx, float4, __syncthreads, __shfl_xor_sync, atomicAdd, ...) is used as it
 * is; NVRTC needs no header of the CUDA toolkit beside this one. It serves sm_80 and later; what a function needs beyond
 * that stands beside it, and where it is missing the function does not exist, so that a kernel which calls it does not
 * compile. Section names are those of the PTX ISA manual.
 *
 * tests/cuda_double/include/tw_cuda.h declares the same functions for g++, where a test compares the two lists.
 *
 * Words: a *fragment* is the part of a matrix operand that one lane holds; `g` is lane / 4 and `t` is lane % 4. Pointers named
 * `shared` point into the block's shared memory, `global` into device memory. An mbarrier is 8 bytes, aligned to 8.
 */
#pragma once

#define TW_DEVICE __device__ __forceinline__
#if __CUDA_ARCH__ >= 900
#define TW_SM90 1
#else
#define TW_SM90 0
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TW_SM90A 1
#else
#define TW_SM90A 0
#endif

/* ---- 16-bit floats: storage and conversion; arithmetic is done in float ------------------------------------------- */

struct tw_f16 { unsigned short bits; };  /* IEEE binary16 */
struct tw_bf16 { unsigned short bits; }; /* the upper half of a binary32 */

TW_DEVICE float tw_to_float(tw_f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
TW_DEVICE float tw_to_float(tw_bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
/* Rounded to nearest, ties to even; too large becomes infinity. */
TW_DEVICE tw_f16 tw_to_f16(float x) {
    tw_f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
TW_DEVICE tw_bf16 tw_to_bf16(float x) {
    tw_bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
/* Two values in one register, `low` in the lower half: the order in memory and in fragments. */
TW_DEVICE unsigned tw_pack_f16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
TW_DEVICE unsigned tw_pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
TW_DEVICE float2 tw_unpack_f16(unsigned pair) {
    float2 y;
    asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(y.x), "=f"(y.y) : "r"(pair));
    return y;
}
TW_DEVICE float2 tw_unpack_bf16(unsigned pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
/* The operand of a tf32 product: 10 bits of mantissa, rounded to nearest, ties away from zero. */
TW_DEVICE unsigned tw_to_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
/* Rounded to nearest, ties to even, saturated to [-128, 127]; NaN becomes 0. */
TW_DEVICE signed char tw_to_s8(float x) {
    int y;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(y) : "f"(x));
    return (signed char)y;
}
/* The same value, for the compiler a new one: what is computed of it stays in its loop instead of taking registers before it. */
TW_DEVICE float tw_anew(float x) {
    asm volatile("" : "+f"(x));
    return x;
}
/* 2^x with a relative error of 2^-22 (ex2.approx.ftz), and tanh with 2^-10.987 (tanh.approx). */
TW_DEVICE float tw_exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TW_DEVICE float tw_tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

/* The block's dynamic shared memory, aligned to 1024 bytes. A kernel that uses it declares no static `__shared__`, which
 * would move it. */
extern __shared__ __align__(1024) unsigned char tw_dynamic_shared_bytes[];
TW_DEVICE unsigned char *tw_dynamic_shared() { return tw_dynamic_shared_bytes; }

/* Address in the shared window, as instructions take it. */
TW_DEVICE unsigned tw_shared_address(const void *shared) { return (unsigned)__cvta_generic_to_shared(shared); }

/* 16 bytes that are read once, such as weights at batch 1: not kept in L1. The memory must not change during the kernel. Not by ld.global.nc,
 * which the assembler moves past a griddepcontrol.wait that follows. */
TW_DEVICE uint4 tw_load_once(const void *global) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(global));
    return x;
}

/* The same pointer, through which constants are read before a tw_grid_dependency_wait: loads that the assembler knows to be of constants
 * are moved past it. */
template <class T> TW_DEVICE const T *tw_early(const T *global) {
    asm volatile("" : "+l"(global));
    __builtin_assume(__isGlobal(global));
    return global;
}

/* Where a function that is not part of its caller gets pointers, loads and stores through them are of global memory all the same. */
template <class T> TW_DEVICE void tw_assume_global(const T *global) { __builtin_assume(__isGlobal(global)); }

/* Brings `bytes` of constants, a multiple of 16 that begins at a multiple of 16, to the second-level cache, without waiting for them.
 * `thread` of the block's `threads` say so together. Past sm_90 one request of the bulk copy engine, before it one for each line. */
TW_DEVICE void tw_prefetch(const void *global, unsigned bytes, unsigned thread, unsigned threads) {
#if TW_SM90
    if (thread == 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#else
    for (unsigned at = thread * 128; at < bytes; at += threads * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)global + at) : "memory");
#endif
}

/* Counters between blocks ("Memory Consistency Model"): what a thread wrote before a release is seen by whoever acquires the
 * value. A barrier of the block before the release, or after the acquire, extends both to the whole block. */
TW_DEVICE unsigned tw_load_acquire(const unsigned *global) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
    return value;
}
TW_DEVICE unsigned tw_load_relaxed(const unsigned *global) { /* for polling: orders nothing, and drops no line of L1 as an acquire does */
    unsigned value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
    return value;
}
TW_DEVICE void tw_store_release(unsigned *global, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}
TW_DEVICE unsigned tw_add_release(unsigned *global, unsigned value) { /* acquires too; returns the value before */
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(global), "r"(value) : "memory");
    return before;
}
TW_DEVICE void tw_count_release(unsigned *global) { /* adds 1; neither acquires nor returns anything */
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(global) : "memory");
}

/* Nanoseconds of a clock that all of the device shares; it may move on in steps of a microsecond. */
TW_DEVICE unsigned long long tw_global_timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* ---- Asynchronous copies of a thread ("cp.async") ----------------------------------------------------------------- */

/* 16 bytes from global to shared memory, of which the first `bytes` (0 to 16) are read and the rest is zero. Both addresses are
 * aligned to 16. Past L1. */
TW_DEVICE void tw_cp_async_16(void *shared, const void *global, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(tw_shared_address(shared)), "l"(global), "r"(bytes) : "memory");
}
/* The same for 8 and 4 bytes, through L1. */
TW_DEVICE void tw_cp_async_8(void *shared, const void *global, unsigned bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 ::"r"(tw_shared_address(shared)), "l"(global), "r"(bytes) : "memory");
}
TW_DEVICE void tw_cp_async_4(void *shared, const void *global, unsigned bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(tw_shared_address(shared)), "l"(global), "r"(bytes) : "memory");
}
/* Closes the group of all copies that this thread has issued since the last commit. */
TW_DEVICE void tw_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most the newest `pending` groups of this thread are under way. Other threads need a barrier after it. */
template <int pending> TW_DEVICE void tw_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- Matrix fragments of a warp ----------------------------------------------------------------------------------- */

/* "ldmatrix": 8x8 matrices of 16-bit elements. Lanes 0-7 give the row addresses of the first matrix, 8-15 of the second and so
 * on, each aligned to 16; addresses of further lanes are ignored. Lane l gets elements 2t and 2t + 1 of row g of each matrix;
 * with _trans, rows 2t and 2t + 1 of column g. All 32 lanes take part. */
TW_DEVICE void tw_ldmatrix_x1(unsigned (&r)[1], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0]) : "r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_ldmatrix_x2(unsigned (&r)[2], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_ldmatrix_x4(unsigned (&r)[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_ldmatrix_x1_trans(unsigned (&r)[1], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0]) : "r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_ldmatrix_x2_trans(unsigned (&r)[2], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_ldmatrix_x4_trans(unsigned (&r)[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(tw_shared_address(shared)) : "memory");
}

/* "Multiply-and-Accumulate Instruction: mma": d += a * b, a row-major (16 x k), b column-major (k x 8), d (16 x 8). Fragments:
 *   d[0..1]  row g, columns 2t, 2t + 1           d[2..3]  row g + 8, the same columns
 *   16-bit   a[0] row g, columns 2t, 2t + 1; a[1] row g + 8; a[2] row g, columns + 8; a[3] row g + 8, columns + 8
 *            b[0] column g, rows 2t, 2t + 1; b[1] rows + 8
 *   tf32     a[0] row g, column t; a[1] row g + 8; a[2] row g, column t + 4; a[3] both;  b[0] row t, column g; b[1] row t + 4
 *   8-bit    as 16-bit with four elements a register: columns 4t .. 4t + 3, the second half 16 further; sums wrap around.
 *            Of two dtypes in a name, the first is a's and the second b's */
TW_DEVICE void tw_mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k32_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k32_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k32_u8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TW_DEVICE void tw_mma_m16n8k32_s8_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* "Multiply-and-Accumulate Instruction: mma.sp": the same with k = 32 and two of each four neighbours in a row of a zero, of which
 * the other two are given. Their places in the four, the lower one first, are 2 bits each of `metadata`.
 *   a        as of m16n8k16: of the given elements, 16 a row
 *   b[i]     column g, rows 8i + 2t, 8i + 2t + 1
 *   metadata of lanes with t = 2 * selector, the others' is not read, for columns 0 .. 15 of a, and t = 2 * selector + 1 for 16 .. 31:
 *            in the lower half of row g, in the upper half of row g + 8, four bits for each four columns from the lowest on
 * 8-bit, with k = 64:
 *   a        as of m16n8k32: of the given elements, 32 a row;  b[i]  column g, rows 16i + 4t .. 16i + 4t + 3; sums wrap around
 *   metadata of all lanes (the selector is 0): of row g + 8 * (t % 2), columns 32 * (t / 2) and the 31 after it, likewise */
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define TW_MMA_SP "mma.sp::ordered_metadata" /* PTX ISA 8.5: mma.sp may be much slower on some architectures */
#else
#define TW_MMA_SP "mma.sp"
#endif
template <int selector>
TW_DEVICE void tw_mma_sp_m16n8k32_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata) {
    asm volatile(TW_MMA_SP ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                 "{%0, %1, %2, %3}, %12, %13;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata), "n"(selector));
}
template <int selector>
TW_DEVICE void tw_mma_sp_m16n8k32_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata) {
    asm volatile(TW_MMA_SP ".sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                 "{%0, %1, %2, %3}, %12, %13;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata), "n"(selector));
}
TW_DEVICE void tw_mma_sp_m16n8k64_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata) {
    asm volatile(TW_MMA_SP ".sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                 "{%0, %1, %2, %3}, %12, 0;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata));
}
TW_DEVICE void tw_mma_sp_m16n8k64_s8_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata) {
    asm volatile(TW_MMA_SP ".sync.aligned.m16n8k64.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                 "{%0, %1, %2, %3}, %12, 0;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata));
}

/* ---- Barriers ----------------------------------------------------------------------------------------------------- */

/* "barrier": named barriers 1 to 15 (0 is that of __syncthreads), for `threads` threads, a multiple of 32, in whole warps. */
TW_DEVICE void tw_barrier_sync(int id, int threads) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TW_DEVICE void tw_barrier_arrive(int id, int threads) { /* counts, but does not wait */
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TW_DEVICE int tw_barrier_or(int id, int threads, int said) { /* whether any of them has said so */
    int any;
    asm volatile("{ .reg .pred p, q; setp.ne.s32 q, %3, 0; barrier.red.or.pred.aligned p, %1, %2, q; selp.s32 %0, 1, 0, p; }"
                 : "=r"(any) : "r"(id), "r"(threads), "r"(said) : "memory");
    return any;
}

/* "mbarrier": a phase ends when `count` arrivals and all announced bytes are there. `parity` is that of the phase waited for:
 * 0 for the first. One thread initialises, then tw_mbarrier_fence_init, then a barrier of all who use it. */
TW_DEVICE void tw_mbarrier_init(unsigned long long *shared, unsigned count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(tw_shared_address(shared)), "r"(count) : "memory");
}
TW_DEVICE void tw_mbarrier_fence_init() {
#if TW_SM90
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
TW_DEVICE void tw_mbarrier_arrive(unsigned long long *shared) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(tw_shared_address(shared)) : "memory");
}
/* One arrival, without waiting for it, when all cp.async that this thread has issued have landed; counted in `count`. */
TW_DEVICE void tw_cp_async_mbarrier_arrive(unsigned long long *shared) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(tw_shared_address(shared)) : "memory");
}
TW_DEVICE void tw_mbarrier_wait(unsigned long long *shared, unsigned parity) {
    unsigned done;
    do {
#if TW_SM90
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(tw_shared_address(shared)), "r"(parity) : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(tw_shared_address(shared)), "r"(parity) : "memory");
#endif
    } while (!done);
}

/* ---- Programmatic dependent launch ("griddepcontrol") and register budgets; nothing before sm_90 -------------------- */

/* Waits until the kernels before this one are complete and their writes are seen. Before it, only weights may be read and
 * nothing that other kernels touch may be written. Returns at once where the launch is an ordinary one. */
TW_DEVICE void tw_grid_dependency_wait() {
#if TW_SM90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the dependent kernel start once every block has said so or ended. */
TW_DEVICE void tw_grid_launch_dependents() {
#if TW_SM90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if TW_SM90 /* ======================================= sm_90 and later ================================================ */

/* One arrival and the announcement of `bytes` that asynchronous copies will bring. */
TW_DEVICE void tw_mbarrier_arrive_expect(unsigned long long *shared, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(tw_shared_address(shared)), "r"(bytes) : "memory");
}
/* One arrival at the mbarrier at the same place of another block of the cluster. */
TW_DEVICE void tw_mbarrier_arrive_cluster(unsigned long long *shared, unsigned rank) {
    asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }"
                 ::"r"(tw_shared_address(shared)), "r"(rank) : "memory");
}
/* What this thread wrote to shared memory becomes visible to the asynchronous proxy: wgmma and bulk copies. */
TW_DEVICE void tw_fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Clusters: rank and number of the cluster's blocks, its barrier, and the place in another block's shared memory. */
TW_DEVICE unsigned tw_cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
TW_DEVICE unsigned tw_cluster_size() {
    unsigned size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}
TW_DEVICE void tw_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TW_DEVICE void tw_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TW_DEVICE void *tw_cluster_map(void *shared, unsigned rank) {
    void *remote;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(shared), "r"(rank));
    return remote;
}

/* The bulk copy engine ("cp.async.bulk", "cp.async.bulk.tensor"). A tensor map is made by cuTensorMapEncodeTiled and passed as
 * `const __grid_constant__ tw_tensor_map`. Coordinates are in elements, the innermost first; what lies outside of the tensor
 * reads as zero. `shared` is aligned to 128 bytes. Each copy adds its bytes to the mbarrier. One thread issues it. */
struct __align__(64) tw_tensor_map { unsigned long long opaque[16]; };

TW_DEVICE void tw_tma_prefetch(const tw_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* `bytes`, a multiple of 16, between addresses aligned to 16. */
TW_DEVICE void tw_bulk_load(void *shared, const void *global, unsigned bytes, unsigned long long *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(tw_shared_address(shared)), "l"(global), "r"(bytes), "r"(tw_shared_address(barrier)) : "memory");
}
TW_DEVICE void tw_tma_load_2d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(tw_shared_address(shared)), "l"(map), "r"(tw_shared_address(barrier)), "r"(x), "r"(y) : "memory");
}
TW_DEVICE void tw_tma_load_3d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(tw_shared_address(shared)), "l"(map), "r"(tw_shared_address(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
}
TW_DEVICE void tw_tma_load_4d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(tw_shared_address(shared)), "l"(map), "r"(tw_shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
TW_DEVICE void tw_tma_load_5d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z, int w, int v) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 ::"r"(tw_shared_address(shared)), "l"(map), "r"(tw_shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v) : "memory");
}
/* To the same place, and with its bytes on the mbarrier at the same place, of every block of the cluster whose bit is set in
 * `blocks`. */
TW_DEVICE void tw_tma_load_multicast_2d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, unsigned short blocks, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
                 ::"r"(tw_shared_address(shared)), "l"(map), "r"(tw_shared_address(barrier)), "h"(blocks), "r"(x), "r"(y) : "memory");
}
/* From shared memory to a tensor, after tw_fence_proxy_async and a barrier. Groups as with cp.async: the thread that issued
 * commits, and waits until the source may be written again (_read) or the writes are done. */
TW_DEVICE void tw_tma_store_2d(const tw_tensor_map *map, const void *shared, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(map), "r"(tw_shared_address(shared)), "r"(x), "r"(y) : "memory");
}
TW_DEVICE void tw_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending> TW_DEVICE void tw_bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending> TW_DEVICE void tw_bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

#endif /* sm_90 */

#if TW_SM90A /* =================================== sm_90a alone ====================================================== */

/* Registers per thread of the warps of a warpgroup, given back or taken: multiples of 8 from 24 to 256. */
template <int registers> TW_DEVICE void tw_registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> TW_DEVICE void tw_registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": d (64 x n) = a (64 x k) * b (k x n) + (accumulate ? d : 0) by the 128
 * threads of a warpgroup, both operands in shared memory. Warp w holds rows 16w to 16w + 15: d[4j + e] is row g + 8 (e / 2), column
 * 8j + 2t + e % 2. `fence` before the first product and after other writes to d; d belongs to the product until `wait`. */
TW_DEVICE void tw_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TW_DEVICE void tw_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> TW_DEVICE void tw_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* "Matrix Descriptor Format": `swizzle` is 0 (none), 1 (128 bytes), 2 (64) or 3 (32), as the tensor map wrote the matrix; in bytes,
 * `leading` and `stride` are the distances between repetitions of the swizzled atom:
 *   K-major, swizzled      stride from 8 rows to the next 8; leading unused (1)
 *   K-major, no swizzle    stride from 8 rows to the next 8, leading from 16 bytes of a row to the next 16
 *   MN-major, swizzled     leading from one width of the swizzle to the next along M or N, stride from 8 k to the next 8
 * Adding 2 to a descriptor moves it by 32 bytes: 16 elements along K of a K-major 16-bit matrix. */
TW_DEVICE unsigned long long tw_wgmma_descriptor(const void *shared, unsigned leading, unsigned stride, unsigned swizzle) {
    return (unsigned long long)((tw_shared_address(shared) & 0x3ffff) >> 4) | (unsigned long long)((leading & 0x3ffff) >> 4) << 16 |
           (unsigned long long)((stride & 0x3ffff) >> 4) << 32 | (unsigned long long)swizzle << 62;
}

#define TW_S0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TW_S1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define TW_S2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define TW_S3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define TW_S4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define TW_S5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TW_S6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define TW_S7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define TW_S8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define TW_S9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define TW_S10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define TW_S11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define TW_S12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define TW_S13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define TW_S14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define TW_S15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define TW_D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

/* transpose_a, transpose_b: the operand is MN-major. The dtype is that of a and b. */
#define TW_WGMMA_16(N, REGISTERS, NAMES, A, B, ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B, TYPE, ...)                                      \
    template <int transpose_a, int transpose_b>                                                                                  \
    TW_DEVICE void tw_wgmma_k16_##TYPE(float (&d)[REGISTERS], unsigned long long a, unsigned long long b, int accumulate) {      \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE \
                     " {" NAMES "}, " A ", " B ", p, 1, 1, " TRANSPOSE_A ", " TRANSPOSE_B "; }"                                   \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate), "n"(transpose_a), "n"(transpose_b));                        \
    }
#define TW_WGMMA_TF32(N, REGISTERS, NAMES, A, B, ACCUMULATE, ...)                                                                    \
    TW_DEVICE void tw_wgmma_k8_tf32(float (&d)[REGISTERS], unsigned long long a, unsigned long long b, int accumulate) {         \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32"    \
                     " {" NAMES "}, " A ", " B ", p, 1, 1; }"                                                                     \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate));                                                            \
    }
#define TW_WGMMA(N, REGISTERS, NAMES, A, B, C, D, E, ...)                 \
    TW_WGMMA_16(N, REGISTERS, NAMES, A, B, C, D, E, f16, __VA_ARGS__)     \
    TW_WGMMA_16(N, REGISTERS, NAMES, A, B, C, D, E, bf16, __VA_ARGS__)    \
    TW_WGMMA_TF32(N, REGISTERS, NAMES, A, B, C, __VA_ARGS__)

TW_WGMMA(8, 4, "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]))
TW_WGMMA(16, 8, TW_S0, "%8", "%9", "%10", "%11", "%12",
         TW_D8(d, 0))
TW_WGMMA(32, 16, TW_S0 ", " TW_S1, "%16", "%17", "%18", "%19", "%20",
         TW_D8(d, 0), TW_D8(d, 8))
TW_WGMMA(64, 32, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3, "%32", "%33", "%34", "%35", "%36",
         TW_D8(d, 0), TW_D8(d, 8), TW_D8(d, 16), TW_D8(d, 24))
TW_WGMMA(96, 48, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3 ", " TW_S4 ", " TW_S5, "%48", "%49", "%50", "%51", "%52",
         TW_D8(d, 0), TW_D8(d, 8), TW_D8(d, 16), TW_D8(d, 24), TW_D8(d, 32), TW_D8(d, 40))
TW_WGMMA(128, 64, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3 ", " TW_S4 ", " TW_S5 ", " TW_S6 ", " TW_S7, "%64", "%65", "%66", "%67", "%68",
         TW_D8(d, 0), TW_D8(d, 8), TW_D8(d, 16), TW_D8(d, 24), TW_D8(d, 32), TW_D8(d, 40), TW_D8(d, 48), TW_D8(d, 56))
TW_WGMMA(192, 96, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3 ", " TW_S4 ", " TW_S5 ", " TW_S6 ", " TW_S7 ", " TW_S8 ", " TW_S9 ", " TW_S10 ", " TW_S11, "%96", "%97", "%98", "%99", "%100",
         TW_D8(d, 0), TW_D8(d, 8), TW_D8(d, 16), TW_D8(d, 24), TW_D8(d, 32), TW_D8(d, 40), TW_D8(d, 48), TW_D8(d, 56), TW_D8(d, 64), TW_D8(d, 72), TW_D8(d, 80), TW_D8(d, 88))
TW_WGMMA(256, 128, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3 ", " TW_S4 ", " TW_S5 ", " TW_S6 ", " TW_S7 ", " TW_S8 ", " TW_S9 ", " TW_S10 ", " TW_S11 ", " TW_S12 ", " TW_S13 ", " TW_S14 ", " TW_S15, "%128", "%129", "%130", "%131", "%132",
         TW_D8(d, 0), TW_D8(d, 8), TW_D8(d, 16), TW_D8(d, 24), TW_D8(d, 32), TW_D8(d, 40), TW_D8(d, 48), TW_D8(d, 56), TW_D8(d, 64), TW_D8(d, 72), TW_D8(d, 80), TW_D8(d, 88), TW_D8(d, 96), TW_D8(d, 104), TW_D8(d, 112), TW_D8(d, 120))

#undef TW_WGMMA
#undef TW_WGMMA_16
#undef TW_WGMMA_TF32
#undef TW_D8
#undef TW_S0
#undef TW_S1
#undef TW_S2
#undef TW_S3
#undef TW_S4
#undef TW_S5
#undef TW_S6
#undef TW_S7
#undef TW_S8
#undef TW_S9
#undef TW_S10
#undef TW_S11
#undef TW_S12
#undef TW_S13
#undef TW_S14
#undef TW_S15

#endif /* sm_90a */
