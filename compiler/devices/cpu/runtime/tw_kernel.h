/* What every generated kernel is written with: fp32 vectors of TW_LANES lanes, and scalar functions for the rest.
 *
 * Vector functions take and return whole vectors; `_n` forms touch the first n lanes of memory only. Errors of the
 * approximations, against the correctly rounded result over the whole range: exp 1.0 ULP, log 0.8 ULP, tanh 1.3 ULP,
 * sigmoid 2.5 ULP, erf 1.1 ULP, expm1 1.5 ULP, log1p 1.5 ULP (tests/compiler/devices/cpu/codegen/test_math.py).
 */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__) && !defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__) && __has_include(<avx2intrin.h>)
/* Where there is no AVX-512, GCC takes three times as long to read what it declares of it as to compile the kernels: its own headers
 * are included without that, which they permit where this name says that <immintrin.h> includes them. */
#define _IMMINTRIN_H_INCLUDED
#include <nmmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#ifdef __AVXVNNI__
#include <avxvnniintrin.h>
#endif
#elif defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#ifndef TW_LANES
#error "TW_LANES: lanes of an fp32 vector of the target"
#endif
#define TW_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * TW_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * TW_LANES)));
typedef float vf_any __attribute__((vector_size(4 * TW_LANES), aligned(4), may_alias));

/* What is read through p is read anew: keeps the compiler from carrying elements over to later turns of a loop, in registers that sums need. */
#define TW_OPAQUE(p) __asm__("" : "+r"(p))

/* f(s, 0), f(s, 1), ...: the lanes of a shuffle. */
#define TW_FOUR(f, s, c) f(s, c), f(s, c + 1), f(s, c + 2), f(s, c + 3)
#if TW_LANES == 16
#define TW_LISTED(f, s) TW_FOUR(f, s, 0), TW_FOUR(f, s, 4), TW_FOUR(f, s, 8), TW_FOUR(f, s, 12)
#elif TW_LANES == 8
#define TW_LISTED(f, s) TW_FOUR(f, s, 0), TW_FOUR(f, s, 4)
#else
#define TW_LISTED(f, s) TW_FOUR(f, s, 0)
#endif

/* x - 0 is x for every x, -0 included, so that this costs one broadcast. */
TW_INLINE vf tw_splat(float x) { return x - (vf){0}; }
TW_INLINE vf tw_load(const float *p) { return *(const vf_any *)p; }
TW_INLINE void tw_store(float *p, vf x) { *(vf_any *)p = x; }
TW_INLINE vf tw_bits(vi x) { return (vf)x; }
TW_INLINE vi tw_ibits(vf x) { return (vi)x; }
TW_INLINE vf tw_select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

#if defined(__AVX512F__) && TW_LANES == 16
TW_INLINE vf tw_load_n(const float *p, long n) { return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
TW_INLINE void tw_store_n(float *p, vf x, long n) {
    if (!__builtin_constant_p(n) && n == TW_LANES) tw_store(p, x); /* a store without a mask is the faster one beyond the caches */
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
}
TW_INLINE vf tw_max_of(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
TW_INLINE vf tw_min_of(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
TW_INLINE vf tw_max(vf a, vf b) { /* b's NaN is what the machine's max gives; where a is one, a stays */
    return (vf)_mm512_mask_max_ps((__m512)a, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q), (__m512)a, (__m512)b);
}
TW_INLINE vf tw_min(vf a, vf b) {
    return (vf)_mm512_mask_min_ps((__m512)a, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q), (__m512)a, (__m512)b);
}
TW_INLINE vf tw_below(vf a, vf b, vf x, vf y) {
    return (vf)_mm512_mask_mov_ps((__m512)y, _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ), (__m512)x);
}
TW_INLINE vf tw_first_n(vf x, long n, vf other) {
    return (vf)_mm512_mask_mov_ps((__m512)other, (__mmask16)((1u << n) - 1), (__m512)x);
}
TW_INLINE vf tw_sqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
TW_INLINE vf tw_floor(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
TW_INLINE vf tw_ceil(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
TW_INLINE vf tw_round(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(__AVX__) && TW_LANES == 8
TW_INLINE __m256i tw_first(long n) {
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(table + 8 - n));
}
TW_INLINE vf tw_load_n(const float *p, long n) { return (vf)_mm256_maskload_ps(p, tw_first(n)); }
/* A store by a mask is microcode on AMD before Zen 3: where n is known, parts are stored. */
TW_INLINE void tw_store_n(float *p, vf x, long n) {
    if (!__builtin_constant_p(n)) {
        _mm256_maskstore_ps(p, tw_first(n), (__m256)x);
        return;
    }
    if (n == TW_LANES) {
        tw_store(p, x);
        return;
    }
    __m128 part = _mm256_castps256_ps128((__m256)x);
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps((__m256)x, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}
TW_INLINE vf tw_max_of(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
TW_INLINE vf tw_min_of(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
TW_INLINE vf tw_sqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
TW_INLINE vf tw_floor(vf x) { return (vf)_mm256_floor_ps((__m256)x); }
TW_INLINE vf tw_ceil(vf x) { return (vf)_mm256_ceil_ps((__m256)x); }
TW_INLINE vf tw_round(vf x) { return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(__ARM_NEON) && TW_LANES == 4
TW_INLINE vf tw_load_n(const float *p, long n) {
    if (n == 4) return tw_load(p);
    float32x4_t x = vdupq_n_f32(0);
    if (n & 2) x = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    if (n == 3) x = vld1q_lane_f32(p + 2, x, 2);
    if (n == 1) x = vld1q_lane_f32(p, x, 0);
    return (vf)x;
}
TW_INLINE void tw_store_n(float *p, vf x, long n) {
    if (n == 4) tw_store(p, x);
    else {
        if (n & 2) vst1_f32(p, vget_low_f32((float32x4_t)x));
        if (n == 3) p[2] = x[2];
        if (n == 1) p[0] = x[0];
    }
}
TW_INLINE vf tw_max_of(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
TW_INLINE vf tw_min_of(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
TW_INLINE vf tw_sqrt(vf x) { return (vf)vsqrtq_f32((float32x4_t)x); }
TW_INLINE vf tw_floor(vf x) { return (vf)vrndmq_f32((float32x4_t)x); }
TW_INLINE vf tw_ceil(vf x) { return (vf)vrndpq_f32((float32x4_t)x); }
TW_INLINE vf tw_round(vf x) { return (vf)vrndnq_f32((float32x4_t)x); }
#else
TW_INLINE vf tw_load_n(const float *p, long n) {
    vf x = {0};
    for (long lane = 0; lane < n; lane++) x[lane] = p[lane];
    return x;
}
TW_INLINE void tw_store_n(float *p, vf x, long n) {
    for (long lane = 0; lane < n; lane++) p[lane] = x[lane];
}
#define TW_EACH_LANE(name, call) \
    TW_INLINE vf name(vf x) { \
        vf y; \
        for (int lane = 0; lane < TW_LANES; lane++) y[lane] = call(x[lane]); \
        return y; \
    }
TW_INLINE vf tw_max_of(vf a, vf b) { return tw_select(a > b, a, b); }
TW_INLINE vf tw_min_of(vf a, vf b) { return tw_select(a < b, a, b); }
TW_EACH_LANE(tw_sqrt, sqrtf)
TW_EACH_LANE(tw_floor, floorf)
TW_EACH_LANE(tw_ceil, ceilf)
TW_EACH_LANE(tw_round, nearbyintf)
#endif

#if !(defined(__AVX512F__) && TW_LANES == 16)
#if defined(__ARM_NEON) && TW_LANES == 4 /* max keeps a NaN of either */
TW_INLINE vf tw_max(vf a, vf b) { return tw_max_of(a, b); }
TW_INLINE vf tw_min(vf a, vf b) { return tw_min_of(a, b); }
#else
/* The machine's max returns its second argument when either is NaN: that keeps a NaN of `b`; one of `a` is put back. */
TW_INLINE vf tw_max(vf a, vf b) { return tw_select(a != a, a, tw_max_of(a, b)); }
TW_INLINE vf tw_min(vf a, vf b) { return tw_select(a != a, a, tw_min_of(a, b)); }
#endif
/* x where a < b, else y. */
TW_INLINE vf tw_below(vf a, vf b, vf x, vf y) { return tw_select(a < b, x, y); }
/* The first n lanes of x, `other` in the rest. */
TW_INLINE vf tw_first_n(vf x, long n, vf other) {
    static const int32_t live[2 * TW_LANES] = {[0 ... TW_LANES - 1] = -1};
    vi mask;
    memcpy(&mask, live + TW_LANES - n, sizeof mask);
    return tw_select(mask, x, other);
}
#endif
TW_INLINE vf tw_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
TW_INLINE vf tw_neg(vf x) { return (vf)((vi)x ^ (int32_t)0x80000000); }
TW_INLINE vf tw_sign(vf x) {
    vf unit = tw_select(x > 0, tw_splat(1), tw_select(x < 0, tw_splat(-1), x));
    return unit;
}
TW_INLINE vf tw_reciprocal(vf x) { return 1.0f / x; }
TW_INLINE vf tw_rsqrt(vf x) { return 1.0f / tw_sqrt(x); }

/* x 2^n for an integer-valued n in [-252, 254], rounded once where the result is subnormal: without an instruction for it, in two factors. */
TW_INLINE vf tw_scale2(vf x, vf n) {
#if defined(__AVX512F__) && TW_LANES == 16
    return (vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    vi whole = __builtin_convertvector(n, vi);
    vi half = whole >> 1;
    return x * tw_bits((half + 127) << 23) * tw_bits((whole - half + 127) << 23);
#endif
}

/* The same where x and the result are normal. */
TW_INLINE vf tw_scale2_normal(vf x, vf n) {
#if defined(__AVX512F__) && TW_LANES == 16
    return tw_scale2(x, n);
#else
    return tw_bits(tw_ibits(x) + (__builtin_convertvector(n, vi) << 23));
#endif
}

/* exp(x) = 2^n exp(r), |r| <= ln2 / 2: n, r, and exp(r) - 1 by a polynomial of degree 6 (Cephes, expf), for x in [-104, 89]. */
typedef struct { vf n, r, part; } tw_exponent;
TW_INLINE tw_exponent tw_split_exp(vf x) {
    vf n = tw_round(x * 1.44269504088896341f);
    vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = tw_splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (tw_exponent){n, r, p * (r * r) + r};
}
TW_INLINE vf tw_exp_within(vf x) {
    tw_exponent e = tw_split_exp(x);
    return tw_scale2(e.part + 1.0f, e.n);
}
TW_INLINE vf tw_exp(vf x) { return tw_exp_within(tw_min_of(tw_splat(89.0f), tw_max_of(tw_splat(-104.0f), x))); }
/* exp of what is not above 0, and 0 where that is subnormal, as of a masked score: making a subnormal may take as long as 50 others. */
TW_INLINE vf tw_exp_normal(vf x) {
    const vf least = tw_splat(-87.0f);
    tw_exponent e = tw_split_exp(tw_max_of(least, x));
    return tw_below(x, least, tw_splat(0), tw_scale2_normal(e.part + 1.0f, e.n));
}

/* expm1: 2^n (exp(r) - 1) + (2^n - 1); from 17 on, where the 1 is lost, exp. */
TW_INLINE vf tw_expm1(vf x) {
    tw_exponent e = tw_split_exp(tw_min_of(tw_splat(89.0f), tw_max_of(tw_splat(-104.0f), x)));
    vf small = tw_scale2(e.part, e.n) + (tw_scale2(tw_splat(1.0f), e.n) - 1.0f);
    vf y = tw_below(tw_splat(17.0f), x, tw_scale2(e.part + 1.0f, e.n), small);
    return tw_select(x == 0, x, y); /* -0 too */
}

/* log(x) = e ln2 + log(m), sqrt(1/2) <= m < sqrt(2) (Cephes, logf). Takes x apart as e and m in [1/2, 1): of 0, infinities, negative
 * numbers and NaN so that the logarithm comes out right where the machine can, else as anything. */
#if defined(__AVX512F__) && TW_LANES == 16
#define TW_TAKES_ALL_APART 1
TW_INLINE vf tw_mantissa(vf x, vf *e) {
    *e = (vf)_mm512_getexp_ps((__m512)x) + 1.0f;
    return (vf)_mm512_getmant_ps((__m512)x, _MM_MANT_NORM_p5_1, _MM_MANT_SIGN_nan);
}
#else
#define TW_TAKES_ALL_APART 0
TW_INLINE vf tw_mantissa(vf x, vf *e) {
    vi tiny = x < 1.17549435e-38f; /* subnormals are scaled up first */
    vi bits = tw_ibits(tw_select(tiny, x * 8388608.0f, x));
    *e = __builtin_convertvector(((bits >> 23) & 0xff) - 126, vf) - tw_select(tiny, tw_splat(23.0f), tw_splat(0.0f));
    return tw_bits((bits & 0x007fffff) | 0x3f000000);
}
#endif
TW_INLINE vf tw_log(vf x) {
    vf e, m = tw_mantissa(x, &e);
    vf half = tw_splat(0.707106781186547524f);
    e = tw_below(m, half, e - 1.0f, e);
    m = tw_below(m, half, m + m, m) - 1.0f;
    vf z = m * m;
    vf p = tw_splat(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    vf y = m * z * p - e * 2.12194440e-4f - 0.5f * z;
    y = m + y + e * 0.693359375f;
    if (TW_TAKES_ALL_APART) return tw_select((x == 0) | (x == INFINITY), e, y);
    y = tw_select(x == 0, tw_splat(-INFINITY), y);
    y = tw_select(x == INFINITY, x, y);
    return tw_select((x < 0) | (x != x), tw_splat(NAN), y);
}

/* log1p(x) = log(u) + (x - (u - 1)) / u for u = 1 + x rounded: the second term is what rounding lost. */
TW_INLINE vf tw_log1p(vf x) {
    vf u = 1.0f + x;
    vf y = tw_log(u) + (x - (u - 1.0f)) / u;
    y = tw_select((u == 0) | (u == INFINITY), tw_log(u), y);
    return tw_select(x == 0, x, y); /* -0 too */
}

/* 1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) below zero: neither overflows. */
TW_INLINE vf tw_sigmoid(vf x) {
    vf below = (vf)((vi)x | (int32_t)0x80000000);
    vf e = tw_exp_within(tw_max_of(tw_splat(-104.0f), below));
    return tw_below(x, tw_splat(0.0f), e, tw_splat(1.0f)) / (1.0f + e);
}

/* tanh: an odd polynomial near zero, else 1 - 2 / (exp(2|x|) + 1) with the sign of x (Cephes, tanhf). */
TW_INLINE vf tw_tanh(vf x) {
    vf a = tw_abs(x);
    vf z = x * x;
    vf p = tw_splat(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    vf near = p * z * x + x;
    vf far = 1.0f - 2.0f / (tw_exp_within(tw_min_of(tw_splat(89.0f), a + a)) + 1.0f);
    vf y = tw_below(a, tw_splat(0.625f), near, far);
    return (vf)((vi)y | ((vi)x & (int32_t)0x80000000)); /* -0 too */
}

/* erf: minimax fits of x P(x^2) for |x| < 0.92 (N. Juffa's erff, BSD), and beyond of 1 - 2^(x Q(x)), where that is below 1 in float32. */
TW_INLINE vf tw_erf(vf x) {
    vf t = tw_min_of(tw_splat(4.0f), tw_abs(x));
    vf s = t * t;
    vf r = tw_splat(3.08959774e-4f);
    r = r * t - 4.64036828e-3f;
    r = r * t + 3.30307148e-2f;
    r = r * t - 1.51873291e-1f;
    r = r * t - 9.17137444e-1f;
    vf first = t * -1.62810528f;
    vf n = tw_round(r * s + first);
    vf f = r * s + (first - n); /* the sum itself is never rounded */
    vf q = tw_splat(1.53533052e-4f);
    q = q * f + 1.33988727e-3f;
    q = q * f + 9.61843785e-3f;
    q = q * f + 5.55033237e-2f;
    q = q * f + 2.40226477e-1f;
    q = q * f + 6.93147182e-1f;
    q = q * f + 1.0f;
    vf far = 1.0f - tw_scale2_normal(q, n);
    far = (vf)((vi)far | ((vi)x & (int32_t)0x80000000));
    vf p = tw_splat(-5.96761703e-4f);
    p = p * s + 4.99119423e-3f;
    p = p * s + -2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s + -3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    vf near = p * x + x;
    return tw_below(tw_splat(0.921875f), t, far, near);
}

/* All lanes of a vector combined, in log2(TW_LANES) steps: lane c with lane c + s. */
#define TW_TURNED(s, c) ((c) + (s)) % TW_LANES
#define TW_FOLD(name, step) \
    TW_INLINE float name(vf x) { \
        vf y; \
        y = __builtin_shufflevector(x, x, TW_LISTED(TW_TURNED, 1)), x = step; \
        y = __builtin_shufflevector(x, x, TW_LISTED(TW_TURNED, 2)), x = step; \
        if (TW_LANES >= 8) y = __builtin_shufflevector(x, x, TW_LISTED(TW_TURNED, 4)), x = step; \
        if (TW_LANES >= 16) y = __builtin_shufflevector(x, x, TW_LISTED(TW_TURNED, 8)), x = step; \
        return x[0]; \
    }
TW_FOLD(tw_sum, x + y)
TW_FOLD(tw_product, x * y)
TW_FOLD(tw_greatest, tw_max(x, y))
TW_FOLD(tw_least, tw_min(x, y))

/* In each lane, the first lane of its group of `size`. */
#define TW_FIRST_OF(s, c) (c) / (s) * (s)
#define TW_GROUPS_OF(size) ((vi){TW_LISTED(TW_FIRST_OF, size)})
/* x[lanes[at]] in each lane `at`. */
TW_INLINE vf tw_permute(vf x, vi lanes) {
#if defined(__AVX512F__) && TW_LANES == 16
    return (vf)_mm512_permutexvar_ps((__m512i)lanes, (__m512)x);
#elif defined(__AVX2__) && TW_LANES == 8
    return (vf)_mm256_permutevar8x32_ps((__m256)x, (__m256i)lanes);
#elif defined(__ARM_NEON) && TW_LANES == 4
    return (vf)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)(lanes * 0x04040404 + 0x03020100)); /* bytes of lanes */
#else
    vf y;
    for (int at = 0; at < TW_LANES; at++) y[at] = x[lanes[at]];
    return y;
#endif
}

/* Two vectors, or 4 or 8, as one stretch of memory in which their elements alternate: perfect shuffles. */
#define TW_ZIP_LOW(s, c) (c) / 2 + (c) % 2 * TW_LANES
#define TW_ZIP_HIGH(s, c) TW_LANES / 2 + (c) / 2 + (c) % 2 * TW_LANES
TW_INLINE void tw_zip(vf *rows, int count) {
    vf was[8];
    for (int round = 1; round < count; round *= 2) {
        for (int row = 0; row < count; row++) was[row] = rows[row];
        for (int row = 0; row < count / 2; row++) {
            rows[2 * row] = __builtin_shufflevector(was[row], was[row + count / 2], TW_LISTED(TW_ZIP_LOW, 0));
            rows[2 * row + 1] = __builtin_shufflevector(was[row], was[row + count / 2], TW_LISTED(TW_ZIP_HIGH, 0));
        }
    }
}

/* Scalars. Integer division truncates; `mod` takes the sign of the divisor, `fmod` that of the dividend. */
#define tw_max1(a, b) ({ __typeof__(a) a_ = (a), b_ = (b); a_ > b_ || a_ != a_ ? a_ : b_; })
#define tw_min1(a, b) ({ __typeof__(a) a_ = (a), b_ = (b); a_ < b_ || a_ != a_ ? a_ : b_; })
TW_INLINE long tw_least_of(long a, long b) { return a < b ? a : b; }
TW_INLINE long tw_between(long low, long x, long high) { return x < low ? low : x < high ? x : high; }
TW_INLINE long tw_floordiv(long a, long b) { return a / b - (a % b < 0); }
TW_INLINE long tw_floormod(long a, long b) { long r = a % b; return r < 0 ? r + b : r; }
TW_INLINE double tw_clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
/* A float truncated to an integer type: `least` from `below` down, `greatest` from `past` up, 0 for NaN. */
#define tw_saturate(type, x, below, past, least, greatest) ({ \
    __typeof__(x) x_ = (x); \
    (type)(x_ != x_ ? 0 : x_ <= (below) ? (least) : x_ >= (past) ? (greatest) : (type)x_); })

/* Integers divided by 0 give 0, by -1 what wraps around: the machine traps on both. */
TW_INLINE int64_t tw_quotient(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
TW_INLINE int64_t tw_remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
TW_INLINE int64_t tw_floored(int64_t a, int64_t b) { int64_t r = tw_remainder(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
TW_INLINE uint64_t tw_quotient_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
TW_INLINE uint64_t tw_remainder_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
TW_INLINE uint64_t tw_floored_u(uint64_t a, uint64_t b) { return tw_remainder_u(a, b); }
TW_INLINE uint64_t tw_power_u(uint64_t a, uint64_t b) {
    uint64_t power = 1;
    for (; b; b >>= 1, a *= a) if (b & 1) power *= a;
    return power;
}
/* A negative power is the real result truncated: 0 but for bases 1 and -1. */
TW_INLINE int64_t tw_power(int64_t a, int64_t b) {
    if (b >= 0) return (int64_t)tw_power_u((uint64_t)a, (uint64_t)b);
    return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
}
TW_INLINE double tw_mod(double a, double b) { double r = fmod(a, b); return r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r; }
TW_INLINE float tw_modf(float a, float b) { float r = fmodf(a, b); return r == 0 ? copysignf(0, b) : (r < 0) != (b < 0) ? r + b : r; }

/* bfloat16 is stored as its bits, the upper half of a float's, and computed with as a float; rounding is half to even. */
typedef uint16_t tw_bf16;
TW_INLINE float tw_from_bf16(tw_bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}
TW_INLINE tw_bf16 tw_to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (tw_bf16)(bits >> 16 | 0x0040);
    return (tw_bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#include "tw_integer.h"
#include "tw_narrow.h"
#include "tw_transpose.h"
