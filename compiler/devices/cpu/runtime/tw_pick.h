/* Elements picked for each lane out of a window of neighbours: `near` ones out of 16 bytes that every part of a vector holds,
 * byte by byte; others out of the 64 bytes of a whole vector. `which` names them. */
#pragma once

#if defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE vi tw_pick_near_window(const void *p) { return (vi)_mm512_broadcast_i32x4(_mm_loadu_si128(p)); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)_mm512_shuffle_epi8((__m512i)x, (__m512i)which); }
TW_INLINE vi tw_pick_halves(vi x, vi which) { return (vi)_mm512_permutexvar_epi16((__m512i)which, (__m512i)x); }
#if defined(__AVX512VBMI__)
TW_INLINE vi tw_pick_bytes(vi x, vi which) { return (vi)_mm512_permutexvar_epi8((__m512i)which, (__m512i)x); }
#endif
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_pick_near_window(const void *p) { return (vi)_mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)_mm256_shuffle_epi8((__m256i)x, (__m256i)which); }
#elif defined(__aarch64__) && TW_LANES == 4
TW_INLINE vi tw_pick_near_window(const void *p) { return tw_groups(p); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)which); }
#endif

/* The bytes at p, a number for each lane. */
TW_INLINE vi tw_pick_which(const uint8_t *p) {
#if defined(__AVX512BW__) && TW_LANES == 16
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(__AVX2__) && TW_LANES == 8
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    vi which = {0};
    for (int lane = 0; lane < TW_LANES; lane++) which[lane] = p[lane];
    return which;
#endif
}

/* Of the 8, 16 or 32 floats at x the one that `which` names, for each lane. */
#if defined(__AVX512F__) && TW_LANES == 16
TW_INLINE vf tw_pick_float_of_16(const float *x, vi which) {
    return (vf)_mm512_permutexvar_ps((__m512i)which, _mm512_loadu_ps(x));
}
TW_INLINE vf tw_pick_float_of_32(const float *x, vi which) {
    return (vf)_mm512_permutex2var_ps(_mm512_loadu_ps(x), (__m512i)which, _mm512_loadu_ps(x + 16));
}
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vf tw_pick_float_of_8(const float *x, vi which) {
    return (vf)_mm256_permutevar8x32_ps(_mm256_loadu_ps(x), (__m256i)which);
}
TW_INLINE vf tw_pick_float_of_16(const float *x, vi which) {
    const __m256 low = (__m256)tw_pick_float_of_8(x, which), high = (__m256)tw_pick_float_of_8(x + 8, which);
    return (vf)_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32((__m256i)which, 28)));
}
#elif defined(__aarch64__) && TW_LANES == 4
TW_INLINE vf tw_pick_float_of_16(const float *x, vi which) {
    const uint8x16x4_t window = {{(uint8x16_t)vld1q_f32(x), (uint8x16_t)vld1q_f32(x + 4),
                                  (uint8x16_t)vld1q_f32(x + 8), (uint8x16_t)vld1q_f32(x + 12)}};
    return (vf)vqtbl4q_u8(window, (uint8x16_t)(which * 0x04040404 + 0x03020100));
}
#else
TW_INLINE vf tw_pick_float_of_16(const float *x, vi which) {
    vf picked = {0};
    for (int lane = 0; lane < TW_LANES; lane++) picked[lane] = x[which[lane]];
    return picked;
}
#endif
