/* Tables of 256 bytes: in each lane the element at an index of 0 to 255. Nothing beside the table is read. */
#pragma once

#if defined(__AVX512BW__) && TW_LANES == 16
/* Pairs of bytes as 16-bit elements, 32 to a register: two registers at a time are permuted by the index of a pair. */
TW_INLINE vi tw_table_pairs(const void *table, vi at) {
    const char *p = table;
    __m512i pair = _mm512_srli_epi32((__m512i)at, 1);
    __m512i low = _mm512_permutex2var_epi16(_mm512_loadu_si512(p), pair, _mm512_loadu_si512(p + 64));
    __m512i high = _mm512_permutex2var_epi16(_mm512_loadu_si512(p + 128), pair, _mm512_loadu_si512(p + 192));
    return (vi)_mm512_mask_mov_epi32(low, _mm512_test_epi32_mask((__m512i)at, _mm512_set1_epi32(128)), high);
}
TW_INLINE vi tw_table_u8(const uint8_t *table, vi at) {
    __m512i odd = _mm512_slli_epi32(_mm512_and_si512((__m512i)at, _mm512_set1_epi32(1)), 3);
    return (vi)_mm512_srlv_epi32((__m512i)tw_table_pairs(table, at), odd) & 255;
}
TW_INLINE vi tw_table_i8(const int8_t *table, vi at) {
    return ((tw_table_u8((const uint8_t *)table, at) ^ 128) - 128);
}
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_table_u8(const uint8_t *table, vi at) {
    __m256i word = _mm256_i32gather_epi32((const int *)table, _mm256_srli_epi32((__m256i)at, 2), 4);
    __m256i bits = _mm256_slli_epi32(_mm256_and_si256((__m256i)at, _mm256_set1_epi32(3)), 3);
    return (vi)_mm256_srlv_epi32(word, bits) & 255;
}
TW_INLINE vi tw_table_i8(const int8_t *table, vi at) {
    return ((tw_table_u8((const uint8_t *)table, at) ^ 128) - 128);
}
#else
#define TW_TABLE(name, type) \
    TW_INLINE vi tw_table_##name(const type *table, vi at) { \
        vi y; \
        for (int lane = 0; lane < TW_LANES; lane++) y[lane] = table[at[lane]]; \
        return y; \
    }
TW_TABLE(u8, uint8_t)
TW_TABLE(i8, int8_t)
#endif
