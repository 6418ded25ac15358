/* Scalars in generated CUDA kernels: plain CUDA C++, the same for NVRTC and for g++, after `tw_cuda.h`.
 *
 * The functions mean what those of the same names in compiler/codegen/tw_kernel.h mean in C.
 */
#pragma once
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#define INT64_MIN (-9223372036854775807L - 1)
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#endif

/* NaN where an argument is one. */
template <class A, class B> TW_DEVICE auto tw_max1(A a, B b) { return a > b || a != a ? a : b; }
template <class A, class B> TW_DEVICE auto tw_min1(A a, B b) { return a < b || a != a ? a : b; }
TW_DEVICE double tw_clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
/* A float truncated to an integer type: `least` from `below` down, `greatest` from `past` up, 0 for NaN. */
template <class T, class F> TW_DEVICE T tw_saturated(F x, F below, F past, T least, T greatest) {
    return x != x ? (T)0 : x <= below ? least : x >= past ? greatest : (T)x;
}
#define tw_saturate(type, x, below, past, least, greatest) tw_saturated<type>(x, below, past, least, greatest)

/* Division that rounds down, of indices. */
template <class T> TW_DEVICE T tw_floordiv(T a, int b) { return a / b - (a % b < 0); }
template <class T> TW_DEVICE T tw_floormod(T a, int b) {
    T r = a % b;
    return r < 0 ? r + b : r;
}

/* Integers divided by 0 give 0, by -1 what wraps around. */
TW_DEVICE int64_t tw_quotient(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
TW_DEVICE int64_t tw_remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
TW_DEVICE int64_t tw_floored(int64_t a, int64_t b) {
    int64_t r = tw_remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TW_DEVICE uint64_t tw_quotient_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
TW_DEVICE uint64_t tw_remainder_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
TW_DEVICE uint64_t tw_floored_u(uint64_t a, uint64_t b) { return tw_remainder_u(a, b); }
TW_DEVICE uint64_t tw_power_u(uint64_t a, uint64_t b) {
    uint64_t power = 1;
    for (; b; b >>= 1, a *= a)
        if (b & 1) power *= a;
    return power;
}
/* A negative power is the real result truncated: 0 but for bases 1 and -1. */
TW_DEVICE int64_t tw_power(int64_t a, int64_t b) {
    if (b >= 0) return (int64_t)tw_power_u((uint64_t)a, (uint64_t)b);
    return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
}
TW_DEVICE double tw_mod(double a, double b) {
    double r = fmod(a, b);
    return r == 0 ? copysign(0.0, b) : (r < 0) != (b < 0) ? r + b : r;
}
TW_DEVICE float tw_modf(float a, float b) {
    float r = fmodf(a, b);
    return r == 0 ? copysignf(0.0f, b) : (r < 0) != (b < 0) ? r + b : r;
}

/* 1 / (1 + exp(-x)) by one exponential that cannot overflow. */
TW_DEVICE float tw_sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1 + e);
}
TW_DEVICE double tw_sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1 + e);
}

/* Up to 16 bytes of consecutive elements, moved by one instruction. */
template <class T, int count> struct alignas(sizeof(T) * count) tw_vector { T element[count]; };

/* The value of the lane whose number differs in `bits`. All 32 lanes take part. */
template <class T> TW_DEVICE T tw_of_lane(T x, int bits) { return (T)__shfl_xor_sync(0xffffffffu, x, bits); }

/* `count` elements in a row, by accesses of up to `bytes`, to which their place is aligned. */
template <int bytes, class T, int count> TW_DEVICE void tw_read(T (&to)[count], const T *from) {
    constexpr int step = bytes / (int)sizeof(T) < count ? bytes / (int)sizeof(T) : count;
#pragma unroll
    for (int at = 0; at < count; at += step) {
        const tw_vector<T, step> part = *(const tw_vector<T, step> *)(from + at);
#pragma unroll
        for (int i = 0; i < step; i++) to[at + i] = part.element[i];
    }
}
/* The same where they are `inside`; elsewhere nothing is read and each is `otherwise`. */
template <int bytes, class T, int count> TW_DEVICE void tw_read_or(T (&to)[count], const T *from, bool inside, T otherwise) {
#pragma unroll
    for (int i = 0; i < count; i++) to[i] = otherwise;
    if (inside) tw_read<bytes>(to, from);
}
template <int bytes, class T, int count> TW_DEVICE void tw_write(T *to, const T (&from)[count]) {
    constexpr int step = bytes / (int)sizeof(T) < count ? bytes / (int)sizeof(T) : count;
#pragma unroll
    for (int at = 0; at < count; at += step) {
        tw_vector<T, step> part;
#pragma unroll
        for (int i = 0; i < step; i++) part.element[i] = from[at + i];
        *(tw_vector<T, step> *)(to + at) = part;
    }
}

/* 16 bytes of consecutive elements as floats; the last argument says of which type they are. */
TW_DEVICE void tw_widen(float (&to)[4], uint4 x, const float *) {
    to[0] = __uint_as_float(x.x), to[1] = __uint_as_float(x.y), to[2] = __uint_as_float(x.z), to[3] = __uint_as_float(x.w);
}
TW_DEVICE void tw_widen(float (&to)[8], uint4 x, const tw_f16 *) {
    const float2 pairs[4] = {tw_unpack_f16(x.x), tw_unpack_f16(x.y), tw_unpack_f16(x.z), tw_unpack_f16(x.w)};
#pragma unroll
    for (int i = 0; i < 4; i++) to[2 * i] = pairs[i].x, to[2 * i + 1] = pairs[i].y;
}
TW_DEVICE void tw_widen(float (&to)[8], uint4 x, const tw_bf16 *) {
    const float2 pairs[4] = {tw_unpack_bf16(x.x), tw_unpack_bf16(x.y), tw_unpack_bf16(x.z), tw_unpack_bf16(x.w)};
#pragma unroll
    for (int i = 0; i < 4; i++) to[2 * i] = pairs[i].x, to[2 * i + 1] = pairs[i].y;
}
