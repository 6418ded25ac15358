/* Floats quantised to short integers: rounded to the nearest, half to even, moved by a zero point, and saturated. */
#pragma once

/* Whole numbers of 32-bit lanes nearest to x, half to even; x within their range, or NaN. */
TW_INLINE vi tw_nearest_i(vf x) {
#if defined(__AVX512F__) && TW_LANES == 16
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX__) && TW_LANES == 8
    return (vi)_mm256_cvtps_epi32((__m256)x);
#elif defined(__aarch64__) && TW_LANES == 4
    return (vi)vcvtnq_s32_f32((float32x4_t)x);
#else
    return __builtin_convertvector(tw_round(x), vi);
#endif
}

/* round(x) + zero within [least, greatest], 0 for NaN. It is held before it is rounded: both ends are whole numbers. A NaN becomes
 * the lower end, which is 0 already where `least` is, but for machines whose maximum keeps it. */
TW_INLINE vi tw_quantised(vf x, int32_t least, int32_t greatest, int32_t zero) {
    vf held = tw_min_of(tw_max_of(x, tw_splat((float)(least - zero))), tw_splat((float)(greatest - zero)));
    vi y = tw_nearest_i(held) + zero;
#if defined(__ARM_NEON)
    return y & (x == x);
#else
    return least ? y & (x == x) : y;
#endif
}

#if defined(__AVX512BW__) && TW_LANES == 16
/* The nearest whole numbers, for bytes: above 2^30 a float is no 32-bit integer; below -2^31, and NaN, it becomes the least. */
TW_INLINE __m512i tw_quantised_whole_u8(vf x, int zero) {
    (void)zero;
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_set1_ps(0x1p30f), (__m512)x));
}
TW_INLINE __m512i tw_quantised_whole_i8(vf x, int zero) {
    __mmask16 is_number = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_ORD_Q);
    __m512 held = _mm512_min_ps(_mm512_set1_ps(0x1p30f), (__m512)x);
    return _mm512_mask_cvtps_epi32(_mm512_set1_epi32(-zero), is_number, held);
}

/* The elements of a table of 256 bytes at 64 indices. */
#if defined(__AVX512VBMI__)
TW_INLINE __m512i tw_quantised_looked_up(const void *table, __m512i at) {
    const char *p = (const char *)table;
    __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(p), at, _mm512_loadu_si512(p + 64));
    __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(p + 128), at, _mm512_loadu_si512(p + 192));
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(at), high);
}
#else
TW_INLINE __m512i tw_quantised_looked_up(const void *table, __m512i at) {
    uint8_t x[64];
    _mm512_storeu_si512(x, at);
    for (int lane = 0; lane < 64; lane++) x[lane] = ((const uint8_t *)table)[x[lane]];
    return _mm512_loadu_si512(x);
}
#endif

/* Four vectors of floats quantised as tw_quantised does: of each 16 bytes, which go to where `to` says. They are held within 16 bits
 * on the way, where the zero point is added. With `run` all 64 bytes go to to[0]. With `table` a byte becomes its element there, in
 * ascending order of bytes. */
#define TW_QUANTISED_ROWS(name, least, pack) \
    TW_INLINE void tw_quantised_rows_##name(void *const *to, const vf *x, int zero, int run, const void *table) { \
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); \
        const __m512i moved = _mm512_set1_epi16((short)zero); \
        __m512i whole[4]; \
        for (int row = 0; row < 4; row++) whole[row] = tw_quantised_whole_##name(x[row], zero); \
        __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(whole[0], whole[1]), moved); \
        __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(whole[2], whole[3]), moved); \
        __m512i rows = _mm512_permutexvar_epi32(order, pack(first, second)); \
        if (table) rows = tw_quantised_looked_up(table, _mm512_xor_si512(rows, _mm512_set1_epi8((char)(least)))); \
        if (run) { \
            _mm512_storeu_si512(to[0], rows); \
            return; \
        } \
        _mm_storeu_si128(to[0], _mm512_castsi512_si128(rows)); \
        _mm_storeu_si128(to[1], _mm512_extracti32x4_epi32(rows, 1)); \
        _mm_storeu_si128(to[2], _mm512_extracti32x4_epi32(rows, 2)); \
        _mm_storeu_si128(to[3], _mm512_extracti32x4_epi32(rows, 3)); \
    }
TW_QUANTISED_ROWS(u8, 0, _mm512_packus_epi16)
TW_QUANTISED_ROWS(i8, -128, _mm512_packs_epi16)
#endif
