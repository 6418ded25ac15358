/* Vectors of bytes, four to a lane of fp32: their extremes. `_n` forms touch the first n bytes of memory only. */
#pragma once

typedef uint8_t tw_bytes __attribute__((vector_size(4 * TW_LANES)));
typedef int8_t tw_signed_bytes __attribute__((vector_size(4 * TW_LANES)));
typedef uint8_t tw_bytes_any __attribute__((vector_size(4 * TW_LANES), aligned(1), may_alias));

TW_INLINE tw_bytes tw_splat_bytes(int x) { return (tw_bytes){0} + (uint8_t)x; }
TW_INLINE tw_bytes tw_load_bytes(const void *p) { return *(const tw_bytes_any *)p; }
TW_INLINE void tw_store_bytes(void *p, tw_bytes x) { *(tw_bytes_any *)p = x; }
#if defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE tw_bytes tw_load_bytes_n(const void *p, long n) {
    if (n == 16) return (tw_bytes)_mm512_zextsi128_si512(_mm_loadu_si128(p));
    if (n == 32) return (tw_bytes)_mm512_zextsi256_si512(_mm256_loadu_si256(p));
    return (tw_bytes)_mm512_maskz_loadu_epi8(~0ull >> (64 - n), p);
}
TW_INLINE void tw_store_bytes_n(void *p, tw_bytes x, long n) {
    if (n == 16) _mm_storeu_si128(p, _mm512_castsi512_si128((__m512i)x));
    else if (n == 32) _mm256_storeu_si256(p, _mm512_castsi512_si256((__m512i)x));
    else _mm512_mask_storeu_epi8(p, ~0ull >> (64 - n), (__m512i)x);
}
#else
TW_INLINE tw_bytes tw_load_bytes_n(const void *p, long n) {
    tw_bytes x = {0};
    memcpy(&x, p, n);
    return x;
}
TW_INLINE void tw_store_bytes_n(void *p, tw_bytes x, long n) { memcpy(p, &x, n); }
#endif

#if defined(__AVX512BW__) && TW_LANES == 16
#define TW_EXTREME(name, of, form, type, better) \
    TW_INLINE tw_bytes tw_##name##_##form(tw_bytes a, tw_bytes b) { return (tw_bytes)_mm512_##name##_##of((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__) && TW_LANES == 8
#define TW_EXTREME(name, of, form, type, better) \
    TW_INLINE tw_bytes tw_##name##_##form(tw_bytes a, tw_bytes b) { return (tw_bytes)_mm256_##name##_##of((__m256i)a, (__m256i)b); }
#else
#define TW_EXTREME(name, of, form, type, better) \
    TW_INLINE tw_bytes tw_##name##_##form(tw_bytes a, tw_bytes b) { \
        tw_bytes is_a = (tw_bytes)((type)a better (type)b); \
        return (is_a & a) | (~is_a & b); \
    }
#endif
TW_EXTREME(max, epu8, u8, tw_bytes, >)
TW_EXTREME(min, epu8, u8, tw_bytes, <)
TW_EXTREME(max, epi8, i8, tw_signed_bytes, >)
TW_EXTREME(min, epi8, i8, tw_signed_bytes, <)

/* All bytes of each of the first n lanes, their lower two, or their lower three, one after another. */
TW_INLINE void tw_bytes_fours(void *p, vi x, long n) { memcpy(p, &x, 4 * n); }
TW_INLINE void tw_bytes_eights(void *p, vi x, vi y, long n) { /* of x, then of y */
    vf rows[2] = {tw_bits(x), tw_bits(y)};
    tw_zip(rows, 2);
    memcpy(p, rows, 8 * n);
}
TW_INLINE void tw_bytes_twos(void *p, vi x, long n) {
#if defined(__AVX512BW__) && TW_LANES == 16
    __m256i dense = _mm512_cvtepi32_epi16((__m512i)x);
#else
    typedef uint16_t halves __attribute__((vector_size(2 * TW_LANES)));
    halves dense = __builtin_convertvector((vu)x, halves);
#endif
    memcpy(p, &dense, 2 * n);
}
TW_INLINE void tw_bytes_threes(void *p, vi x, long n) {
#if defined(__AVX512BW__) && TW_LANES == 16
    const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m512i full = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    __m512i dense = _mm512_permutexvar_epi32(full, _mm512_shuffle_epi8((__m512i)x, low));
    _mm512_mask_storeu_epi8(p, ~0ull >> (64 - 3 * n), dense);
#else
    for (long lane = 0; lane < n; lane++) memcpy((char *)p + 3 * lane, (const char *)&x + 4 * lane, 3);
#endif
}
