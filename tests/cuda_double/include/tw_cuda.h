/* The intrinsics of compiler/devices/cuda/runtime/tw_cuda.h for g++: the same names and types, carried out by the double's runtime. */
#pragma once
#include "double.h"

#define TW_DEVICE inline
#ifndef TW_SM90
#define TW_SM90 1
#define TW_SM90A 1
#endif

struct tw_f16 { unsigned short bits; };
struct tw_bf16 { unsigned short bits; };

TW_DEVICE float tw_to_float(tw_f16 x) { return twd::f16_to_float(x.bits); }
TW_DEVICE float tw_to_float(tw_bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
TW_DEVICE tw_f16 tw_to_f16(float x) { return {twd::float_to_f16(x)}; }
TW_DEVICE tw_bf16 tw_to_bf16(float x) { return {twd::float_to_bf16(x)}; }
TW_DEVICE unsigned tw_pack_f16(float low, float high) { return twd::float_to_f16(low) | (unsigned)twd::float_to_f16(high) << 16; }
TW_DEVICE unsigned tw_pack_bf16(float low, float high) { return twd::float_to_bf16(low) | (unsigned)twd::float_to_bf16(high) << 16; }
TW_DEVICE float2 tw_unpack_f16(unsigned pair) { return {twd::f16_to_float((uint16_t)pair), twd::f16_to_float((uint16_t)(pair >> 16))}; }
TW_DEVICE float2 tw_unpack_bf16(unsigned pair) { return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)}; }
TW_DEVICE unsigned tw_to_tf32(float x) {
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
    return bits & 0xffffe000u;
}
TW_DEVICE signed char tw_to_s8(float x) { return std::isnan(x) ? 0 : (signed char)(x > 127 ? 127 : x < -128 ? -128 : nearbyintf(x)); }
TW_DEVICE float tw_anew(float x) { return x; }
TW_DEVICE float tw_exp2_approx(float x) { return exp2f(x); }
TW_DEVICE float tw_tanh_approx(float x) { return tanhf(x); }

TW_DEVICE unsigned char *tw_dynamic_shared() { return twd::dynamic_shared(); }
TW_DEVICE unsigned tw_shared_address(const void *shared) { return twd::shared_address(shared); }
TW_DEVICE uint4 tw_load_once(const void *global, TW_AT) {
    twd::check_unwritten(global, sizeof(uint4), at);
    return *(const uint4 *)global;
}
template <class T> TW_DEVICE void tw_assume_global(const T *global) { (void)global; }
template <class T> TW_DEVICE const T *tw_early(const T *global) { return global; }
TW_DEVICE void tw_prefetch(const void *global, unsigned bytes, unsigned thread, unsigned threads, TW_AT) {
    twd::prefetch(global, bytes, thread, threads, at);
}
TW_DEVICE unsigned tw_load_acquire(const unsigned *global, TW_AT) { return twd::load_acquire(global, at); }
TW_DEVICE unsigned tw_load_relaxed(const unsigned *global, TW_AT) { return twd::load_relaxed(global, at); }
TW_DEVICE void tw_store_release(unsigned *global, unsigned value, TW_AT) { twd::store_release(global, value, at); }
TW_DEVICE unsigned tw_add_release(unsigned *global, unsigned value, TW_AT) { return twd::add_release(global, value, at); }
TW_DEVICE unsigned long long tw_global_timer() { return twd::global_timer(); }
TW_DEVICE void tw_count_release(unsigned *global, TW_AT) { twd::count_release(global, at); }

TW_DEVICE void tw_cp_async_16(void *shared, const void *global, unsigned bytes, TW_AT) { twd::copy_async(shared, global, 16, bytes, at); }
TW_DEVICE void tw_cp_async_8(void *shared, const void *global, unsigned bytes, TW_AT) { twd::copy_async(shared, global, 8, bytes, at); }
TW_DEVICE void tw_cp_async_4(void *shared, const void *global, unsigned bytes, TW_AT) { twd::copy_async(shared, global, 4, bytes, at); }
TW_DEVICE void tw_cp_async_commit() { twd::copy_commit(); }
template <int pending> TW_DEVICE void tw_cp_async_wait() { twd::copy_wait(pending); }

TW_DEVICE void tw_ldmatrix_x1(unsigned (&r)[1], const void *shared, TW_AT) { twd::ldmatrix(r, 1, false, shared, at); }
TW_DEVICE void tw_ldmatrix_x2(unsigned (&r)[2], const void *shared, TW_AT) { twd::ldmatrix(r, 2, false, shared, at); }
TW_DEVICE void tw_ldmatrix_x4(unsigned (&r)[4], const void *shared, TW_AT) { twd::ldmatrix(r, 4, false, shared, at); }
TW_DEVICE void tw_ldmatrix_x1_trans(unsigned (&r)[1], const void *shared, TW_AT) { twd::ldmatrix(r, 1, true, shared, at); }
TW_DEVICE void tw_ldmatrix_x2_trans(unsigned (&r)[2], const void *shared, TW_AT) { twd::ldmatrix(r, 2, true, shared, at); }
TW_DEVICE void tw_ldmatrix_x4_trans(unsigned (&r)[4], const void *shared, TW_AT) { twd::ldmatrix(r, 4, true, shared, at); }
TW_DEVICE void tw_mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::F16, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::BF16, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::TF32, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k32_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::S8, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k32_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::U8, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k32_u8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::U8_S8, d, a, b, at); }
TW_DEVICE void tw_mma_m16n8k32_s8_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], TW_AT) { twd::mma(twd::Type::S8_U8, d, a, b, at); }
template <int selector>
TW_DEVICE void tw_mma_sp_m16n8k32_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata, TW_AT) { twd::mma_sp(twd::Type::F16, d, a, b, metadata, selector, at); }
template <int selector>
TW_DEVICE void tw_mma_sp_m16n8k32_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata, TW_AT) { twd::mma_sp(twd::Type::BF16, d, a, b, metadata, selector, at); }
TW_DEVICE void tw_mma_sp_m16n8k64_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata, TW_AT) { twd::mma_sp(twd::Type::S8, d, a, b, metadata, 0, at); }
TW_DEVICE void tw_mma_sp_m16n8k64_s8_u8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned metadata, TW_AT) { twd::mma_sp(twd::Type::S8_U8, d, a, b, metadata, 0, at); }

TW_DEVICE void tw_barrier_sync(int id, int threads, TW_AT) { twd::barrier(id, threads, true, at); }
TW_DEVICE void tw_barrier_arrive(int id, int threads, TW_AT) { twd::barrier(id, threads, false, at); }
TW_DEVICE int tw_barrier_or(int id, int threads, int said, TW_AT) { return twd::barrier_count(id, threads, 2, said, at); }
TW_DEVICE void tw_mbarrier_init(unsigned long long *shared, unsigned count, TW_AT) { twd::mbarrier_init((uint64_t *)shared, count, at); }
TW_DEVICE void tw_mbarrier_fence_init() { twd::mbarrier_fence_init(); }
TW_DEVICE void tw_mbarrier_arrive(unsigned long long *shared, TW_AT) { twd::mbarrier_arrive((uint64_t *)shared, 0, at); }
TW_DEVICE void tw_cp_async_mbarrier_arrive(unsigned long long *shared, TW_AT) { twd::mbarrier_arrive_copies((uint64_t *)shared, at); }
TW_DEVICE void tw_mbarrier_wait(unsigned long long *shared, unsigned parity, TW_AT) { twd::mbarrier_wait((uint64_t *)shared, parity, at); }
TW_DEVICE void tw_grid_dependency_wait(TW_AT) { twd::dependency_wait(at); }
TW_DEVICE void tw_grid_launch_dependents() { twd::launch_dependents(); }

#if TW_SM90
TW_DEVICE void tw_mbarrier_arrive_expect(unsigned long long *shared, unsigned bytes, TW_AT) { twd::mbarrier_arrive((uint64_t *)shared, bytes, at); }
TW_DEVICE void tw_mbarrier_arrive_cluster(unsigned long long *shared, unsigned rank, TW_AT) { twd::mbarrier_arrive_cluster((uint64_t *)shared, rank, at); }
TW_DEVICE void tw_fence_proxy_async() { twd::proxy_fence(); }
TW_DEVICE unsigned tw_cluster_rank() { return twd::cluster_rank(); }
TW_DEVICE unsigned tw_cluster_size() { return twd::cluster_size(); }
TW_DEVICE void tw_cluster_arrive(TW_AT) { twd::cluster_arrive(at); }
TW_DEVICE void tw_cluster_wait(TW_AT) { twd::cluster_wait(at); }
TW_DEVICE void *tw_cluster_map(void *shared, unsigned rank) { return twd::cluster_map(shared, rank); }

struct __align__(64) tw_tensor_map { unsigned long long opaque[16]; };

TW_DEVICE void tw_tma_prefetch(const tw_tensor_map *map) { (void)map; }
TW_DEVICE void tw_bulk_load(void *shared, const void *global, unsigned bytes, unsigned long long *barrier, TW_AT) {
    twd::bulk_load(shared, global, bytes, (uint64_t *)barrier, at);
}
#define TWD_LOAD(rank, blocks, ...) \
    const int coordinates[] = {__VA_ARGS__}; \
    twd::tensor_load(shared, map, (uint64_t *)barrier, rank, coordinates, blocks, at)
TW_DEVICE void tw_tma_load_2d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, TW_AT) { TWD_LOAD(2, 0, x, y); }
TW_DEVICE void tw_tma_load_3d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z, TW_AT) { TWD_LOAD(3, 0, x, y, z); }
TW_DEVICE void tw_tma_load_4d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z, int w, TW_AT) { TWD_LOAD(4, 0, x, y, z, w); }
TW_DEVICE void tw_tma_load_5d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, int x, int y, int z, int w, int v, TW_AT) { TWD_LOAD(5, 0, x, y, z, w, v); }
TW_DEVICE void tw_tma_load_multicast_2d(void *shared, const tw_tensor_map *map, unsigned long long *barrier, unsigned short blocks, int x, int y, TW_AT) { TWD_LOAD(2, blocks, x, y); }
#undef TWD_LOAD
TW_DEVICE void tw_tma_store_2d(const tw_tensor_map *map, const void *shared, int x, int y, TW_AT) {
    const int coordinates[] = {x, y};
    twd::tensor_store(map, shared, 2, coordinates, at);
}
TW_DEVICE void tw_bulk_commit() { twd::bulk_commit(); }
template <int pending> TW_DEVICE void tw_bulk_wait_read() { twd::bulk_wait(pending, true); }
template <int pending> TW_DEVICE void tw_bulk_wait() { twd::bulk_wait(pending, false); }
#endif

#if TW_SM90A
template <int registers> TW_DEVICE void tw_registers_decrease() { static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "setmaxnreg"); }
template <int registers> TW_DEVICE void tw_registers_increase() { static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "setmaxnreg"); }
TW_DEVICE void tw_wgmma_fence() { twd::wgmma_fence(); }
TW_DEVICE void tw_wgmma_commit() { twd::wgmma_commit(); }
template <int pending> TW_DEVICE void tw_wgmma_wait(TW_AT) { twd::wgmma_wait(pending, at); }
TW_DEVICE unsigned long long tw_wgmma_descriptor(const void *shared, unsigned leading, unsigned stride, unsigned swizzle) {
    return twd::wgmma_descriptor(shared, leading, stride, swizzle);
}
#define TW_WGMMA_16(TYPE, NAME) \
    template <int transpose_a, int transpose_b, int registers> \
    TW_DEVICE void tw_wgmma_k16_##TYPE(float (&d)[registers], unsigned long long a, unsigned long long b, int accumulate, TW_AT) { \
        twd::wgmma(twd::Type::NAME, d, 2 * registers, a, b, accumulate, transpose_a, transpose_b, at); \
    }
TW_WGMMA_16(f16, F16)
TW_WGMMA_16(bf16, BF16)
#undef TW_WGMMA_16
template <int registers>
TW_DEVICE void tw_wgmma_k8_tf32(float (&d)[registers], unsigned long long a, unsigned long long b, int accumulate, TW_AT) {
    twd::wgmma(twd::Type::TF32, d, 2 * registers, a, b, accumulate, false, false, at);
}
#endif
