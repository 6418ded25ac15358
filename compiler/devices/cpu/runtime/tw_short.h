/* Vectors of bf16 in memory as fp32: the upper half of each lane. What stores them is in tw_integer.h. `_n` forms touch the first n
 * elements of memory only. And vectors of finite fp16. */
#pragma once

#if defined(__AVX512F__) && TW_LANES == 16
TW_INLINE vf tw_load_f16(const uint16_t *p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p)); }
#elif defined(__F16C__) && TW_LANES == 8
TW_INLINE vf tw_load_f16(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p)); }
#elif defined(__aarch64__) && TW_LANES == 4
TW_INLINE vf tw_load_f16(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
#else
/* Exponents are moved from one bias to the other; numbers without one are whole multiples of the least. */
TW_INLINE vf tw_load_f16(const uint16_t *p) {
    vi x = {0};
    for (long lane = 0; lane < TW_LANES; lane++) x[lane] = p[lane];
    const vi magnitude = x & 0x7fff, normal = (magnitude << 13) + (112 << 23);
    const vf least = __builtin_convertvector(magnitude, vf) * 0x1p-24f;
    const vi chosen = magnitude < 0x400;
    return (vf)(((vi)least & chosen) | (normal & ~chosen) | ((x & 0x8000) << 16));
}
#endif

#if defined(__AVX512BF16__) && TW_LANES == 16
TW_INLINE vf tw_load_bf16(const tw_bf16 *p) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p)), 16);
}
TW_INLINE vf tw_load_bf16_n(const tw_bf16 *p, long n) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(TW_FIRST(n), p)), 16);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && TW_LANES == 4
TW_INLINE vf tw_load_bf16(const tw_bf16 *p) { return (vf)vshll_n_u16(vld1_u16(p), 16); }
TW_INLINE vf tw_load_bf16_n(const tw_bf16 *p, long n) {
    uint16x4_t x = vdup_n_u16(0);
    for (long lane = 0; lane < n; lane++) x[lane] = p[lane];
    return (vf)vshll_n_u16(x, 16);
}
#elif defined(__AVX512BW__) && defined(__AVX512VL__) && TW_LANES == 16
TW_INLINE vf tw_load_bf16(const tw_bf16 *p) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p)), 16);
}
TW_INLINE vf tw_load_bf16_n(const tw_bf16 *p, long n) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p)), 16);
}
#else
TW_INLINE vf tw_load_bf16_n(const tw_bf16 *p, long n) {
    vu x = {0};
    for (long lane = 0; lane < n; lane++) x[lane] = (uint32_t)p[lane] << 16;
    return (vf)x;
}
#if defined(__AVX2__) && TW_LANES == 8
TW_INLINE vf tw_load_bf16(const tw_bf16 *p) {
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p)), 16);
}
#else
TW_INLINE vf tw_load_bf16(const tw_bf16 *p) { return tw_load_bf16_n(p, TW_LANES); }
#endif
#endif
