/* Vectors of 32-bit integers, and dot products of 4-byte groups: what kernels over bytes, and over bf16, are written with.
 *
 * Bytes and 16-bit integers are loaded into 32-bit lanes; `_n` forms touch the first n elements of memory only. A group is four
 * bytes, two 16-bit integers or two bf16, which one instruction multiplies pairwise and adds to a 32-bit lane.
 */
#pragma once

typedef uint32_t vu __attribute__((vector_size(4 * TW_LANES)));
typedef int32_t vi_any __attribute__((vector_size(4 * TW_LANES), aligned(4), may_alias));

TW_INLINE vi tw_splat_i(int32_t x) { return (vi){0} + x; }
TW_INLINE vi tw_load_i(const int32_t *p) { return *(const vi_any *)p; }
TW_INLINE void tw_store_i(int32_t *p, vi x) { *(vi_any *)p = x; }
TW_INLINE vi tw_load_i_n(const int32_t *p, long n) { return tw_ibits(tw_load_n((const float *)p, n)); }
TW_INLINE void tw_store_i_n(int32_t *p, vi x, long n) { tw_store_n((float *)p, tw_bits(x), n); }

/* Integers wrap around, which C grants to unsigned ones only. */
TW_INLINE vi tw_add_i(vi a, vi b) { return (vi)((vu)a + (vu)b); }
TW_INLINE vi tw_sub_i(vi a, vi b) { return (vi)((vu)a - (vu)b); }
TW_INLINE vi tw_mul_i(vi a, vi b) { return (vi)((vu)a * (vu)b); }
TW_INLINE vi tw_select_i(vi mask, vi a, vi b) { return (mask & a) | (~mask & b); }
TW_INLINE vi tw_first_n_i(vi x, long n, vi other) { return tw_ibits(tw_first_n(tw_bits(x), n, tw_bits(other))); }
TW_INLINE vi tw_max_i(vi a, vi b) { return tw_select_i(a > b, a, b); }
TW_INLINE vi tw_min_i(vi a, vi b) { return tw_select_i(a < b, a, b); }
TW_INLINE int32_t tw_sum_i(vi x) {
    uint32_t total = 0;
    for (int lane = 0; lane < TW_LANES; lane++) total += (uint32_t)x[lane];
    return (int32_t)total;
}
TW_INLINE int32_t tw_greatest_i(vi x) {
    int32_t best = x[0];
    for (int lane = 1; lane < TW_LANES; lane++) best = x[lane] > best ? x[lane] : best;
    return best;
}
TW_INLINE int32_t tw_least_i(vi x) {
    int32_t best = x[0];
    for (int lane = 1; lane < TW_LANES; lane++) best = x[lane] < best ? x[lane] : best;
    return best;
}

/* Short integers widened to lanes, and lanes stored without their upper bits. */
#if defined(__AVX2__) && TW_LANES == 8
#define TW_WIDEN(name, x) tw_widen_##name(&(x))
TW_INLINE vi tw_widen_i8(const void *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
TW_INLINE vi tw_widen_u8(const void *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
TW_INLINE vi tw_widen_i16(const void *p) { return (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128(p)); }
TW_INLINE vi tw_widen_u16(const void *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(p)); }
/* A shuffle puts the low bytes of a half's lanes together; what GCC makes of a conversion takes four times as long. */
#define TW_NARROW(name, x) tw_narrow_##name(x)
typedef int64_t tw_eight __attribute__((vector_size(8)));
TW_INLINE __m128i tw_narrow_halves(vi x) {
    const char n = -1;
    const __m128i low = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, n, n, n, n, n, n, n, n);
    const __m256i each = _mm256_shuffle_epi8((__m256i)x, _mm256_broadcastsi128_si256(low));
    return _mm_unpacklo_epi64(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1));
}
TW_INLINE tw_eight tw_narrow_bytes(vi x) {
    const char n = -1;
    const __m128i low = _mm_setr_epi8(0, 4, 8, 12, n, n, n, n, n, n, n, n, n, n, n, n);
    const __m256i each = _mm256_shuffle_epi8((__m256i)x, _mm256_broadcastsi128_si256(low));
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1));
    return (tw_eight){_mm_cvtsi128_si64(both)};
}
#define tw_narrow_i8(x) (v_i8)tw_narrow_bytes(x)
#define tw_narrow_u8(x) (v_u8)tw_narrow_bytes(x)
#define tw_narrow_i16(x) (v_i16)tw_narrow_halves(x)
#define tw_narrow_u16(x) (v_u16)tw_narrow_halves(x)
#elif defined(__ARM_NEON) && TW_LANES == 4
#define TW_WIDEN(name, x) tw_widen_##name(&(x))
#define TW_NARROW(name, x) tw_narrow_##name(x)
TW_INLINE uint8x8_t tw_four_bytes(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vcreate_u8(four);
}
TW_INLINE vi tw_widen_i8(const void *p) { return (vi)vmovl_s16(vget_low_s16(vmovl_s8((int8x8_t)tw_four_bytes(p)))); }
TW_INLINE vi tw_widen_u8(const void *p) { return (vi)vmovl_u16(vget_low_u16(vmovl_u8(tw_four_bytes(p)))); }
TW_INLINE vi tw_widen_i16(const void *p) { return (vi)vmovl_s16(vld1_s16(p)); }
TW_INLINE vi tw_widen_u16(const void *p) { return (vi)vmovl_u16(vld1_u16(p)); }
typedef int8_t tw_bytes_of __attribute__((vector_size(4)));
typedef int16_t tw_halves_of __attribute__((vector_size(8)));
TW_INLINE tw_bytes_of tw_narrow_bytes(vi x) {
    int16x4_t halves = vmovn_s32((int32x4_t)x);
    tw_bytes_of bytes;
    uint32_t four = vget_lane_u32((uint32x2_t)vmovn_s16(vcombine_s16(halves, halves)), 0);
    memcpy(&bytes, &four, sizeof bytes);
    return bytes;
}
#define tw_narrow_i8(x) (v_i8)tw_narrow_bytes(x)
#define tw_narrow_u8(x) (v_u8)tw_narrow_bytes(x)
#define tw_narrow_i16(x) (v_i16)vmovn_s32((int32x4_t)(x))
#define tw_narrow_u16(x) (v_u16)vmovn_s32((int32x4_t)(x))
#else
#define TW_WIDEN(name, x) __builtin_convertvector(x, vi)
#endif
#ifndef TW_NARROW
#define TW_NARROW(name, x) __builtin_convertvector(x, v_##name)
#endif
#define TW_SHORT(name, type) \
    typedef type v_##name __attribute__((vector_size(sizeof(type) * TW_LANES), aligned(sizeof(type)), may_alias)); \
    TW_INLINE vi tw_load_##name(const type *p) { return TW_WIDEN(name, *(const v_##name *)p); } \
    TW_INLINE void tw_store_##name(type *p, vi x) { *(v_##name *)p = TW_NARROW(name, x); } \
    TW_INLINE vi tw_load_##name##_n(const type *p, long n) { \
        vi x = {0}; \
        for (long lane = 0; lane < n; lane++) x[lane] = p[lane]; \
        return x; \
    } \
    TW_INLINE void tw_store_##name##_n(type *p, vi x, long n) { \
        for (long lane = 0; lane < n; lane++) p[lane] = (type)x[lane]; \
    }
#if defined(__AVX512BW__) && TW_LANES == 16
#define TW_FIRST(n) ((__mmask16)((1u << (n)) - 1))
#define TW_SHORT_512(name, type, widen, narrow, load, load_n, store, store_n) \
    TW_INLINE vi tw_load_##name(const type *p) { return (vi)widen(load((const void *)p)); } \
    TW_INLINE void tw_store_##name(type *p, vi x) { store((void *)p, narrow((__m512i)x)); } \
    TW_INLINE vi tw_load_##name##_n(const type *p, long n) { return (vi)widen(load_n(TW_FIRST(n), p)); } \
    TW_INLINE void tw_store_##name##_n(type *p, vi x, long n) { store_n(p, TW_FIRST(n), narrow((__m512i)x)); }
#define TW_BYTES_512(name, type, widen) \
    TW_SHORT_512(name, type, widen, _mm512_cvtepi32_epi8, _mm_loadu_si128, _mm_maskz_loadu_epi8, _mm_storeu_si128, _mm_mask_storeu_epi8)
#define TW_HALVES_512(name, type, widen) \
    TW_SHORT_512(name, type, widen, _mm512_cvtepi32_epi16, _mm256_loadu_si256, _mm256_maskz_loadu_epi16, _mm256_storeu_si256, _mm256_mask_storeu_epi16)
TW_BYTES_512(i8, int8_t, _mm512_cvtepi8_epi32)
TW_BYTES_512(u8, uint8_t, _mm512_cvtepu8_epi32)
TW_HALVES_512(i16, int16_t, _mm512_cvtepi16_epi32)
TW_HALVES_512(u16, uint16_t, _mm512_cvtepu16_epi32)
#else
TW_SHORT(i8, int8_t)
TW_SHORT(u8, uint8_t)
TW_SHORT(i16, int16_t)
TW_SHORT(u16, uint16_t)
#endif

TW_INLINE vf tw_float_of(vi x) { return __builtin_convertvector(x, vf); }
/* Floats truncated to integers within [least, greatest], both exact in fp32; NaN becomes 0. */
TW_INLINE vi tw_saturated(vf x, float least, float greatest) {
    vf held = tw_min_of(tw_splat(greatest), tw_max_of(tw_splat(least), x));
    return __builtin_convertvector(held, vi) & (x == x);
}

/* Four bytes from anywhere, in every lane. */
TW_INLINE vi tw_group(const void *p) {
    int32_t group;
    memcpy(&group, p, sizeof group);
    return tw_splat_i(group);
}
TW_INLINE vi tw_groups(const void *p) { return *(const vi_any *)p; }

/* sum + a . b in each lane: four products of unsigned bytes with signed ones. Nothing saturates on the way. */
#if defined(__AVX512VNNI__) && TW_LANES == 16
TW_INLINE vi tw_dot_bytes(vi sum, vi a, vi b) { return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b); }
#elif defined(__AVXVNNI__) && TW_LANES == 8
TW_INLINE vi tw_dot_bytes(vi sum, vi a, vi b) { return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b); }
#elif defined(__ARM_FEATURE_MATMUL_INT8) && TW_LANES == 4
TW_INLINE vi tw_dot_bytes(vi sum, vi a, vi b) { return (vi)vusdotq_s32((int32x4_t)sum, (uint8x16_t)a, (int8x16_t)b); }
#endif
/* Four products of signed bytes with signed ones. */
#if defined(__ARM_FEATURE_DOTPROD) && TW_LANES == 4
TW_INLINE vi tw_dot_signed(vi sum, vi a, vi b) { return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)b); }
#endif

/* The same of two products of signed 16-bit integers. */
#if defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE vi tw_dot_halves(vi sum, vi a, vi b) { return sum + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_dot_halves(vi sum, vi a, vi b) { return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#elif defined(__SSE2__) && TW_LANES == 4
#include <emmintrin.h>
TW_INLINE vi tw_dot_halves(vi sum, vi a, vi b) { return sum + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b); }
#elif defined(__ARM_NEON) && TW_LANES == 4
TW_INLINE vi tw_dot_halves(vi sum, vi a, vi b) {
    int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b));
    int32x4_t high = vmull_high_s16((int16x8_t)a, (int16x8_t)b);
    return tw_add_i(sum, (vi)vpaddq_s32(low, high));
}
#else
TW_INLINE vi tw_dot_halves(vi sum, vi a, vi b) {
    vi low = ((vi)((vu)a << 16) >> 16) * ((vi)((vu)b << 16) >> 16);
    return sum + low + (a >> 16) * (b >> 16);
}
#endif

/* Pairs of 16-bit integers in each lane, of such or of bytes. */
typedef int8_t tw_pairs_of_bytes __attribute__((vector_size(2 * TW_LANES), aligned(1), may_alias));
typedef int16_t tw_pairs_of_halves __attribute__((vector_size(4 * TW_LANES), aligned(2), may_alias));
#if defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_pairs_i8(const int8_t *p) { return (vi)_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)); }
#else
TW_INLINE vi tw_pairs_i8(const int8_t *p) {
    return (vi)__builtin_convertvector(*(const tw_pairs_of_bytes *)p, tw_pairs_of_halves);
}
#endif
TW_INLINE vi tw_pairs_i16(const int16_t *p) { return (vi)*(const tw_pairs_of_halves *)p; }

/* The same of two products of bf16, added in fp32; subnormal numbers count as zero. */
#if defined(__AVX512BF16__) && TW_LANES == 16
TW_INLINE vf tw_dot_bf16(vf sum, vi a, vi b) { return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b); }
TW_INLINE __m256i tw_round_bf16(vf x) { return (__m256i)_mm512_cvtneps_pbh((__m512)x); }
TW_INLINE void tw_store_bf16(tw_bf16 *p, vf x) { _mm256_storeu_si256((__m256i_u *)p, tw_round_bf16(x)); }
TW_INLINE void tw_store_bf16_n(tw_bf16 *p, vf x, long n) { _mm256_mask_storeu_epi16(p, TW_FIRST(n), tw_round_bf16(x)); }
TW_INLINE vi tw_pair_bf16(vf a, vf b) {
    return (vi)_mm512_cvtepu16_epi32(tw_round_bf16(a)) | ((vi)_mm512_cvtepu16_epi32(tw_round_bf16(b)) << 16);
}
TW_INLINE void tw_copy_bf16(tw_bf16 *to, const float *from, long n) {
    long at = 0;
    for (; at + TW_LANES <= n; at += TW_LANES) tw_store_bf16(to + at, tw_load(from + at));
    if (at < n) tw_store_bf16_n(to + at, tw_load_n(from + at, n - at), n - at);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && TW_LANES == 4
TW_INLINE vf tw_dot_bf16(vf sum, vi a, vi b) { return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b); }
TW_INLINE uint16x4_t tw_round_bf16(vf x) { return (uint16x4_t)vget_low_bf16(vcvtq_low_bf16_f32((float32x4_t)x)); }
TW_INLINE void tw_store_bf16(tw_bf16 *p, vf x) { vst1_u16(p, tw_round_bf16(x)); }
TW_INLINE void tw_store_bf16_n(tw_bf16 *p, vf x, long n) {
    uint16x4_t rounded = tw_round_bf16(x);
    for (long lane = 0; lane < n; lane++) p[lane] = rounded[lane];
}
TW_INLINE vi tw_pair_bf16(vf a, vf b) {
    return (vi)vmovl_u16(tw_round_bf16(a)) | (vi)vshll_n_u16(tw_round_bf16(b), 16);
}
TW_INLINE void tw_copy_bf16(tw_bf16 *to, const float *from, long n) {
    long at = 0;
    for (; at + TW_LANES <= n; at += TW_LANES) tw_store_bf16(to + at, tw_load(from + at));
    if (at < n) tw_store_bf16_n(to + at, tw_load_n(from + at, n - at), n - at);
}
#endif

/* ARM multiplies by one lane of a vector: a group of A is loaded into the first lane of one, which takes no arithmetic unit, and
 * `_by` forms multiply it with every lane of b. */
#if defined(__ARM_NEON) && TW_LANES == 4
TW_INLINE vi tw_lone_group(const void *p) {
    vi x;
    __asm__("ldr %s0, %1" : "=w"(x) : "m"(*(const int32_t *)p));
    return x;
}
/* One of the first 16 registers: others have no lanes of 16 bits to multiply by. */
TW_INLINE vi tw_lone_halves(const void *p) {
    vi x;
    __asm__("ldr %s0, %1" : "=x"(x) : "m"(*(const int32_t *)p));
    return x;
}
/* Two products of 16-bit integers: b's first and second ones are taken apart, which is done once for all rows. */
TW_INLINE vi tw_dot_halves_by(vi sum, vi a, vi b) {
    int16x4_t first = vget_low_s16(vuzp1q_s16((int16x8_t)b, (int16x8_t)b)), second = vget_low_s16(vuzp2q_s16((int16x8_t)b, (int16x8_t)b));
    int32x4_t one = vmlal_laneq_s16((int32x4_t)sum, first, (int16x8_t)a, 0);
    return (vi)vmlal_laneq_s16(one, second, (int16x8_t)a, 1);
}
#if defined(__ARM_FEATURE_DOTPROD)
TW_INLINE vi tw_dot_signed_by(vi sum, vi a, vi b) {
    return (vi)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)b, (int8x16_t)a, 0);
}
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
TW_INLINE vi tw_dot_bytes_by(vi sum, vi a, vi b) {
    return (vi)vsudotq_laneq_s32((int32x4_t)sum, (int8x16_t)b, (uint8x16_t)a, 0);
}
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
TW_INLINE vf tw_dot_bf16_by(vf sum, vi a, vi b) {
    return (vf)vbfdotq_laneq_f32((float32x4_t)sum, (bfloat16x8_t)b, (bfloat16x8_t)a, 0);
}
#endif
#endif

/* Groups of the integers of each lane, cut to their width. */
TW_INLINE vi tw_four(vi a, vi b, vi c, vi d) { return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (vi)((vu)d << 24); }
TW_INLINE vi tw_pair(vi a, vi b) { return (a & 65535) | (vi)((vu)b << 16); }

/* n bytes copied with every bit of `flip` inverted: 0x80 turns signed bytes into unsigned ones that are 128 more. */
TW_INLINE void tw_copy_bytes(uint8_t *to, const void *from, long n, uint8_t flip) {
    typedef uint8_t bytes __attribute__((vector_size(4 * TW_LANES), aligned(1), may_alias));
    const uint8_t *p = from;
    long at = 0;
    for (; at + 4 * TW_LANES <= n; at += 4 * TW_LANES) *(bytes *)(to + at) = *(const bytes *)(p + at) ^ flip;
#if defined(__AVX512BW__) && TW_LANES == 16
    if (at < n) {
        __mmask64 rest = ~0ull >> (64 - (n - at));
        __m512i x = _mm512_maskz_loadu_epi8(rest, p + at);
        _mm512_mask_storeu_epi8(to + at, rest, _mm512_xor_si512(x, _mm512_set1_epi8((char)flip)));
    }
#else
    for (; at < n; at++) to[at] = p[at] ^ flip;
#endif
}

/* n bytes widened to 16 bits, less their zero point. */
#define TW_COPY_HALVES(name, type) \
    TW_INLINE void tw_copy_halves_##name(int16_t *to, const type *from, long n, int32_t zero) { \
        long at = 0; \
        for (; at + TW_LANES <= n; at += TW_LANES) tw_store_i16(to + at, tw_load_##name(from + at) - zero); \
        if (at < n) tw_store_i16_n(to + at, tw_load_##name##_n(from + at, n - at) - zero, n - at); \
    }
TW_COPY_HALVES(i8, int8_t)
TW_COPY_HALVES(u8, uint8_t)
