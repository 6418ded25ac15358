/* Weights looked up in a codebook (compiler.encodings.codebook): a vector of values by a vector of indices in the lowest bits of its lanes.
 *
 * Up to 4 bits the table has 16 values, and higher bits of a lane do not matter. */
#pragma once

#if defined(__AVX512F__) && TW_LANES == 16
typedef struct { __m512 values; } tw_coded_table;
TW_INLINE tw_coded_table tw_coded_at(const uint8_t *p) { return (tw_coded_table){_mm512_loadu_ps((const float *)p)}; }
TW_INLINE vf tw_coded(vi lanes, tw_coded_table table) { return (vf)_mm512_permutexvar_ps((__m512i)lanes, table.values); }
#elif defined(__AVX2__) && TW_LANES == 8
typedef struct { __m256 low, high; } tw_coded_table;
TW_INLINE tw_coded_table tw_coded_at(const uint8_t *p) {
    return (tw_coded_table){_mm256_loadu_ps((const float *)p), _mm256_loadu_ps((const float *)p + 8)};
}
TW_INLINE vf tw_coded(vi lanes, tw_coded_table table) { /* a permutation reads 3 bits, the fourth says of which half */
    const __m256 low = _mm256_permutevar8x32_ps(table.low, (__m256i)lanes), high = _mm256_permutevar8x32_ps(table.high, (__m256i)lanes);
    return (vf)_mm256_blendv_ps(low, high, (__m256)_mm256_slli_epi32((__m256i)lanes, 28));
}
#elif defined(__aarch64__) && defined(__ARM_NEON) && TW_LANES == 4
typedef struct { uint8x16x4_t octets; } tw_coded_table;
TW_INLINE tw_coded_table tw_coded_at(const uint8_t *p) {
    return (tw_coded_table){{{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}}};
}
TW_INLINE vf tw_coded(vi lanes, tw_coded_table table) { /* the four bytes of value i begin at byte 4 i */
    const vi places = (lanes & 15) * 0x04040404 + 0x03020100;
    return (vf)vqtbl4q_u8(table.octets, (uint8x16_t)places);
}
#else
typedef const float *tw_coded_table;
TW_INLINE tw_coded_table tw_coded_at(const uint8_t *p) { return (tw_coded_table)p; }
TW_INLINE vf tw_coded(vi lanes, tw_coded_table table) {
    vf x;
    for (int lane = 0; lane < TW_LANES; lane++) x[lane] = table[lanes[lane] & 15];
    return x;
}
#endif

typedef uint32_t tw_coded_words __attribute__((vector_size(4 * TW_LANES), aligned(4), may_alias));
TW_INLINE vi tw_coded_load(const uint8_t *p) { return (vi)*(const tw_coded_words *)p; }
TW_INLINE vi tw_coded_next(vi lanes, int bits) { return (vi)((tw_coded_words)lanes >> bits); }

#if defined(__AVX512VBMI__) && TW_LANES == 16
/* Of 8 bits: byte by byte of the values, from four tables of 64 bytes each. */
typedef struct { __m512i octets[4][4]; } tw_coded_bytes;
TW_INLINE tw_coded_bytes tw_coded_bytes_at(const uint8_t *p) {
    tw_coded_bytes table;
    for (int octet = 0; octet < 4; octet++)
        for (int part = 0; part < 4; part++) table.octets[octet][part] = _mm512_loadu_si512(p + 256 * octet + 64 * part);
    return table;
}
TW_INLINE __m512i tw_coded_octet(__m512i indices, const __m512i *parts) {
    const __m512i low = _mm512_permutex2var_epi8(parts[0], indices, parts[1]), high = _mm512_permutex2var_epi8(parts[2], indices, parts[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(indices), low, high);
}
/* 64 values by as many bytes: y[q][4 p + e] is that of byte 16 p + 4 q + e. */
TW_INLINE void tw_coded_64(const uint8_t *p, const tw_coded_bytes *table, vf *y) {
    const __m512i indices = _mm512_loadu_si512(p);
    const __m512i first = tw_coded_octet(indices, table->octets[0]), second = tw_coded_octet(indices, table->octets[1]);
    const __m512i third = tw_coded_octet(indices, table->octets[2]), fourth = tw_coded_octet(indices, table->octets[3]);
    const __m512i low = _mm512_unpacklo_epi8(first, second), high = _mm512_unpackhi_epi8(first, second);
    const __m512i upper_low = _mm512_unpacklo_epi8(third, fourth), upper_high = _mm512_unpackhi_epi8(third, fourth);
    y[0] = (vf)_mm512_unpacklo_epi16(low, upper_low), y[1] = (vf)_mm512_unpackhi_epi16(low, upper_low);
    y[2] = (vf)_mm512_unpacklo_epi16(high, upper_high), y[3] = (vf)_mm512_unpackhi_epi16(high, upper_high);
}
#endif
