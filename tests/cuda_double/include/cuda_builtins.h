/* What CUDA C++ offers without any header, for g++: included before a kernel's source (-include cuda_builtins.h). */
#pragma once
#include "double.h"
#include <climits>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#undef __noinline__
#define __noinline__ __attribute__((noinline))
/* All static shared variables of a module lie in one section: the runtime exchanges it between blocks. */
#define __shared__ static __attribute__((section("tw_shared")))

#define threadIdx (twd::current->thread)
#define blockIdx (twd::current->block)
#define blockDim (twd::current->block_dim)
#define gridDim (twd::current->grid_dim)
constexpr int warpSize = 32;

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) { return {x, y, z, w}; }

/* ---- Synchronisation and collectives: macros and defaults keep the place they were called from --------------------- */

#define __syncthreads() twd::barrier(0, 0, true, twd::Site::here())
#define __syncthreads_count(p) twd::barrier_count(0, 0, 0, p, twd::Site::here())
#define __syncthreads_and(p) twd::barrier_count(0, 0, 1, p, twd::Site::here())
#define __syncthreads_or(p) twd::barrier_count(0, 0, 2, p, twd::Site::here())
inline void __syncwarp(unsigned mask = 0xffffffffu, TW_AT) { twd::warp_barrier(mask, at); }
inline void __threadfence() { twd::fence(); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { twd::sleep(); }
inline unsigned __activemask() { return twd::active_mask(); }

namespace twd {
template <class T> uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> T shuffle(unsigned mask, T value, int source, Site at) { return from_bits<T>(exchange(mask, to_bits(value), source, at)); }
} // namespace twd

template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, TW_AT) {
    return twd::shuffle(mask, value, (twd::lane() & ~(width - 1)) | (lane & (width - 1)), at);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, TW_AT) {
    int own = twd::lane(), source = own ^ bits; /* a lane of a later segment is out of range and gives the own value */
    return twd::shuffle(mask, value, source / width <= own / width ? source : own, at);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, TW_AT) {
    int own = twd::lane();
    return twd::shuffle(mask, value, (own & (width - 1)) + (int)delta < width ? own + (int)delta : own, at);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, TW_AT) {
    int own = twd::lane();
    return twd::shuffle(mask, value, (own & (width - 1)) >= (int)delta ? own - (int)delta : own, at);
}
inline unsigned __ballot_sync(unsigned mask, int p, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Ballot, p != 0, at); }
inline int __any_sync(unsigned mask, int p, TW_AT) { return (int)twd::vote(mask, twd::Vote::Any, p != 0, at); }
inline int __all_sync(unsigned mask, int p, TW_AT) { return (int)twd::vote(mask, twd::Vote::All, p != 0, at); }
template <class T> unsigned __match_any_sync(unsigned mask, T value, TW_AT) {
    return (unsigned)twd::vote(mask, twd::Vote::MatchAny, twd::to_bits(value), at);
}
template <class T> unsigned __match_all_sync(unsigned mask, T value, int *same, TW_AT) {
    unsigned all = (unsigned)twd::vote(mask, twd::Vote::MatchAll, twd::to_bits(value), at);
    *same = all != 0;
    return all;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Add, x, at); }
inline int __reduce_add_sync(unsigned mask, int x, TW_AT) { return (int)twd::vote(mask, twd::Vote::AddSigned, (unsigned)x, at); }
inline unsigned __reduce_min_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Min, x, at); }
inline int __reduce_min_sync(unsigned mask, int x, TW_AT) { return (int)twd::vote(mask, twd::Vote::MinSigned, (unsigned)x, at); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Max, x, at); }
inline int __reduce_max_sync(unsigned mask, int x, TW_AT) { return (int)twd::vote(mask, twd::Vote::MaxSigned, (unsigned)x, at); }
inline unsigned __reduce_and_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::And, x, at); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Or, x, at); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned x, TW_AT) { return (unsigned)twd::vote(mask, twd::Vote::Xor, x, at); }

/* ---- Atomics: relaxed, for the whole device ------------------------------------------------------------------------ */

namespace twd {
template <class T, class F> T atomic_update(T *address, T operand, T compare, F, Site at) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics of 4 or 8 bytes");
    auto update = [](uint64_t before, uint64_t operand, uint64_t compare) -> uint64_t {
        return to_bits<T>(F::of(from_bits<T>(before), from_bits<T>(operand), from_bits<T>(compare)));
    };
    return from_bits<T>(atomic((void *)address, sizeof(T), update, to_bits(operand), to_bits(compare), at));
}
#define TWD_UPDATE(Name, expression) \
    struct Name { template <class T> static T of(T before, T x, T compare) { (void)before, (void)compare; return expression; } };
TWD_UPDATE(UpdateAdd, before + x)
TWD_UPDATE(UpdateMin, x < before ? x : before)
TWD_UPDATE(UpdateMax, x > before ? x : before)
TWD_UPDATE(UpdateAnd, before & x)
TWD_UPDATE(UpdateOr, before | x)
TWD_UPDATE(UpdateXor, before ^ x)
TWD_UPDATE(UpdateSet, x)
TWD_UPDATE(UpdateCompare, before == compare ? x : before)
TWD_UPDATE(UpdateInc, before >= x ? T(0) : before + 1)
#undef TWD_UPDATE
} // namespace twd
template <class T> T atomicAdd(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateAdd(), at); }
template <class T> T atomicMin(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateMin(), at); }
template <class T> T atomicMax(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateMax(), at); }
template <class T> T atomicAnd(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateAnd(), at); }
template <class T> T atomicOr(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateOr(), at); }
template <class T> T atomicXor(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateXor(), at); }
template <class T> T atomicExch(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateSet(), at); }
template <class T> T atomicInc(T *p, std::common_type_t<T> x, TW_AT) { return twd::atomic_update<T>(p, x, T(), twd::UpdateInc(), at); }
template <class T> T atomicCAS(T *p, std::common_type_t<T> compare, std::common_type_t<T> x, TW_AT) {
    return twd::atomic_update<T>(p, x, compare, twd::UpdateCompare(), at);
}

/* ---- Arithmetic ---------------------------------------------------------------------------------------------------- */

template <class T> T __ldg(const T *global) { return *global; }
inline unsigned __float_as_uint(float x) { return twd::from_bits<unsigned>(twd::to_bits(x)); }
inline int __float_as_int(float x) { return twd::from_bits<int>(twd::to_bits(x)); }
inline long long __double_as_longlong(double x) {
    long long bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned x) { return twd::from_bits<float>(twd::to_bits(x)); }
inline double __longlong_as_double(long long x) {
    double found;
    memcpy(&found, &x, sizeof found);
    return found;
}
inline float __int_as_float(int x) { return twd::from_bits<float>(twd::to_bits(x)); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
/* Rounded one by one: what is volatile is contracted with nothing. */
inline float __fmul_rn(float x, float y) {
    const volatile float found = x * y;
    return found;
}
inline float __fadd_rn(float x, float y) {
    const volatile float found = x + y;
    return found;
}
inline float __fsub_rn(float x, float y) {
    const volatile float found = x - y;
    return found;
}
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline int __float2int_rn(float x) {
    if (std::isnan(x)) return 0;
    return x >= 2147483648.0f ? INT_MAX : x < -2147483648.0f ? INT_MIN : (int)nearbyintf(x);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __dp4a(int x, int y, int sum) {
    for (int i = 0; i < 4; i++) sum = (int)((unsigned)sum + (unsigned)((int8_t)((unsigned)x >> 8 * i) * (int8_t)((unsigned)y >> 8 * i)));
    return sum;
}
template <class T> T min(T x, T y) { return y < x ? y : x; }
template <class T> T max(T x, T y) { return x < y ? y : x; }
using std::isinf;
using std::isnan;

/* ---- The table of contents of a module ----------------------------------------------------------------------------- */

namespace twd {
/* Reads the parameters, which lie in memory of the host: not reported. */
template <class... A, size_t... I> __attribute__((no_sanitize_thread)) void call_with(void (*kernel)(A...), void **p, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_const_t<A> *>(p[I])...);
}
template <auto kernel> struct Entry;
template <class... A, void (*kernel)(A...)> struct Entry<kernel> {
    static void call(void **p) { call_with(kernel, p, std::index_sequence_for<A...>()); }
    static Kernel describe(unsigned max_threads) { return {call, (int)sizeof...(A), {(uint32_t)sizeof(A)...}, max_threads}; }
};
} // namespace twd
#ifdef __SANITIZE_THREAD__
#define TWD_CHECKED true
#else
#define TWD_CHECKED false
#endif
extern "C" unsigned char __start_tw_shared[] __attribute__((weak, visibility("hidden"))), __stop_tw_shared[] __attribute__((weak, visibility("hidden")));
#define TWD_MODULE extern "C" twd::ModuleInfo twd_module() { return {__start_tw_shared, __stop_tw_shared, TWD_CHECKED}; }
#define TWD_KERNEL(name, max_threads) \
    extern "C" twd::Kernel twd_kernel_##name() { return twd::Entry<name>::describe(max_threads); }
