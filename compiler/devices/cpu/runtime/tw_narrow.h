/* Whole numbers of 24 bits, three bytes each, as fp32: exact, and 256 times as large, for their bytes become the upper ones of a
 * lane. Up to 16 bytes after the numbers are read as well. */
#pragma once

#if defined(__AVX512VBMI__) && TW_LANES == 16
TW_INLINE vf tw_load_24(const uint8_t *p) {
    const __m512i order = _mm512_setr_epi32(
        0x02010000, 0x05040300, 0x08070600, 0x0b0a0900, 0x0e0d0c00, 0x11100f00, 0x14131200, 0x17161500,
        0x1a191800, 0x1d1c1b00, 0x201f1e00, 0x23222100, 0x26252400, 0x29282700, 0x2c2b2a00, 0x2f2e2d00);
    const __m512i wide = _mm512_maskz_permutexvar_epi8(0xeeeeeeeeeeeeeeee, order, _mm512_loadu_si512(p));
    return (vf)_mm512_cvtepi32_ps(wide);
}
#elif defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE vf tw_load_24(const uint8_t *p) {
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11));
    const __m512i spread = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11); /* 12 bytes to each 16 */
    const __m512i parts = _mm512_permutexvar_epi32(spread, _mm512_loadu_si512(p));
    return (vf)_mm512_cvtepi32_ps(_mm512_shuffle_epi8(parts, order));
}
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vf tw_load_24(const uint8_t *p) {
    const __m256i order = _mm256_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11,
                                           -1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11);
    const __m128i low = _mm_loadu_si128((const __m128i *)p), high = _mm_loadu_si128((const __m128i *)(p + 12));
    return (vf)_mm256_cvtepi32_ps(_mm256_shuffle_epi8(_mm256_set_m128i(high, low), order));
}
#elif defined(__SSSE3__) && TW_LANES == 4
#include <tmmintrin.h>
TW_INLINE vf tw_load_24(const uint8_t *p) {
    const __m128i order = _mm_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11);
    return (vf)_mm_cvtepi32_ps(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p), order));
}
#elif defined(__ARM_NEON) && TW_LANES == 4
TW_INLINE vf tw_load_24(const uint8_t *p) {
    const uint8x16_t order = {255, 0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11}; /* 255: a byte of 0 */
    return (vf)vcvtq_f32_s32((int32x4_t)vqtbl1q_u8(vld1q_u8(p), order));
}
#else
TW_INLINE vf tw_load_24(const uint8_t *p) {
    vi x;
    for (int lane = 0; lane < TW_LANES; lane++)
        x[lane] = (int32_t)((uint32_t)p[3 * lane] << 8 | (uint32_t)p[3 * lane + 1] << 16 | (uint32_t)p[3 * lane + 2] << 24);
    return __builtin_convertvector(x, vf);
}
#endif
