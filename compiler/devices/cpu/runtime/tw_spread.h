/* Bytes of a vector of channels brought to the lanes that multiply them: four, or two widened to 16 bits, to a lane.
 * TW_LANES bytes are read. */
#pragma once

/* In each lane the four bytes from 4 * lanes[lane] on. */
TW_INLINE vi tw_spread_bytes(const void *p, vi lanes) {
#if defined(__AVX512F__) && TW_LANES == 16
    return (vi)_mm512_permutexvar_epi32((__m512i)lanes, _mm512_castsi128_si512(_mm_loadu_si128(p)));
#elif defined(__AVX2__) && TW_LANES == 8
    return (vi)_mm256_permutevar8x32_epi32(_mm256_castsi128_si256(_mm_loadl_epi64(p)), (__m256i)lanes);
#else
    vi y;
    for (int lane = 0; lane < TW_LANES; lane++) {
        int32_t four;
        memcpy(&four, (const char *)p + 4 * lanes[lane], sizeof four);
        y[lane] = four;
    }
    return y;
#endif
}

/* In each lane the two bytes from 2 * lanes[lane] on as 16-bit integers, less their zero point. */
#define TW_SPREAD_EACH(name, type) \
    TW_INLINE vi tw_spread_halves_##name(const type *p, vi lanes, int zero) { \
        vi y; \
        for (int lane = 0; lane < TW_LANES; lane++) { \
            const type *pair = p + 2 * lanes[lane]; \
            y[lane] = ((pair[0] - zero) & 65535) | (int32_t)((uint32_t)(pair[1] - zero) << 16); \
        } \
        return y; \
    }
#if defined(__AVX512BW__) && TW_LANES == 16
#define TW_SPREAD_HALVES(name, type, widen) \
    TW_INLINE vi tw_spread_halves_##name(const type *p, vi lanes, int zero) { \
        __m256i wide = widen(_mm_loadu_si128((const void *)p)); \
        if (zero) wide = _mm256_sub_epi16(wide, _mm256_set1_epi16((short)zero)); \
        return (vi)_mm512_permutexvar_epi32((__m512i)lanes, _mm512_castsi256_si512(wide)); \
    }
TW_SPREAD_HALVES(u8, uint8_t, _mm256_cvtepu8_epi16)
TW_SPREAD_HALVES(i8, int8_t, _mm256_cvtepi8_epi16)
#elif defined(__AVX2__) && TW_LANES == 8
#define TW_SPREAD_HALVES(name, type, widen) \
    TW_INLINE vi tw_spread_halves_##name(const type *p, vi lanes, int zero) { \
        __m128i wide = widen(_mm_loadl_epi64((const void *)p)); \
        if (zero) wide = _mm_sub_epi16(wide, _mm_set1_epi16((short)zero)); \
        return (vi)_mm256_permutevar8x32_epi32(_mm256_castsi128_si256(wide), (__m256i)lanes); \
    }
TW_SPREAD_HALVES(u8, uint8_t, _mm_cvtepu8_epi16)
TW_SPREAD_HALVES(i8, int8_t, _mm_cvtepi8_epi16)
#else
TW_SPREAD_EACH(u8, uint8_t)
TW_SPREAD_EACH(i8, int8_t)
#endif
