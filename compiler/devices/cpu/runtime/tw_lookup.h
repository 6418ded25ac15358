/* For each lane one of the floats p[0] to p[TW_LANES - 1]: `which` has a byte for each lane that names it. */
#pragma once

#if defined(__AVX512F__) && TW_LANES == 16
TW_INLINE vf tw_lookup(const float *p, const uint8_t *which) {
    const __m512i places = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)which));
    return (vf)_mm512_permutexvar_ps(places, _mm512_loadu_ps(p));
}
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vf tw_lookup(const float *p, const uint8_t *which) {
    const __m256i places = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)which));
    return (vf)_mm256_permutevar8x32_ps(_mm256_loadu_ps(p), places);
}
#endif
