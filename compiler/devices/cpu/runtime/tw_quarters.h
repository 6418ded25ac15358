/* Vectors of bytes in quarters: every fourth byte in 32-bit lanes, of which four vectors make up one of bytes again. */
#pragma once

/* Every fourth byte of a vector, from the one numbered `quarter` on, in lanes; and the low bytes of four such vectors in turn. */
TW_INLINE vi tw_quarter_u8(tw_bytes x, int quarter) { return (vi)((vu)x >> (8 * quarter) & 255); }
TW_INLINE vi tw_quarter_i8(tw_bytes x, int quarter) { return (vi)((vu)x << (24 - 8 * quarter)) >> 24; }
TW_INLINE tw_bytes tw_quarters_joined_u8(vi a, vi b, vi c, vi d) {
    return (tw_bytes)((vu)(a & 255) | (vu)(b & 255) << 8 | (vu)(c & 255) << 16 | (vu)d << 24);
}
#define tw_quarters_joined_i8 tw_quarters_joined_u8

/* Four vectors of floats quantised, in turn, as tw_quantised does. They are held within 16 bits on the way, where the zero point is
 * added. */
#if defined(__AVX512BW__) && TW_LANES == 16
#define TW_QUANTISED_QUARTERS(name, pack, whole) \
    TW_INLINE tw_bytes tw_quantised_quarters_##name(vf a, vf b, vf c, vf d, int zero) { \
        const __m512i turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15)); \
        const __m512i moved = _mm512_set1_epi16((short)zero); \
        __m512i even = _mm512_adds_epi16(_mm512_packs_epi32(whole(a, zero), whole(c, zero)), moved); \
        __m512i odd = _mm512_adds_epi16(_mm512_packs_epi32(whole(b, zero), whole(d, zero)), moved); \
        return (tw_bytes)_mm512_shuffle_epi8(pack(even, odd), turn); \
    }
TW_QUANTISED_QUARTERS(u8, _mm512_packus_epi16, tw_quantised_whole_u8)
TW_QUANTISED_QUARTERS(i8, _mm512_packs_epi16, tw_quantised_whole_i8)
#else
#define tw_quantised_quarters_u8(a, b, c, d, zero) TW_QUANTISED_EACH(a, b, c, d, 0, 255, zero)
#define tw_quantised_quarters_i8(a, b, c, d, zero) TW_QUANTISED_EACH(a, b, c, d, -128, 127, zero)
#define TW_QUANTISED_EACH(a, b, c, d, least, greatest, zero) \
    tw_quarters_joined_u8(tw_quantised(a, least, greatest, zero), tw_quantised(b, least, greatest, zero), \
                          tw_quantised(c, least, greatest, zero), tw_quantised(d, least, greatest, zero))
#endif

/* Sums of up to 257 vectors of unsigned bytes, in halves of lanes: `whole` of both bytes of each half, modulo 2^16, `upper` of the
 * upper ones. */
typedef uint16_t tw_halves __attribute__((vector_size(4 * TW_LANES)));
typedef struct { tw_halves whole, upper; } tw_quarter_sums;

TW_INLINE void tw_quarter_add(tw_quarter_sums *sum, tw_bytes x) {
    sum->whole += (tw_halves)x;
    sum->upper += (tw_halves)x >> 8;
}
TW_INLINE void tw_quarter_join(tw_quarter_sums *sum, const tw_quarter_sums *other) {
    sum->whole += other->whole;
    sum->upper += other->upper;
}
/* As many times the same byte in each place. */
TW_INLINE tw_quarter_sums tw_quarter_times(int count, int byte) {
    tw_halves upper = (tw_halves){0} + (uint16_t)(count * byte);
    return (tw_quarter_sums){upper + (upper << 8), upper};
}
/* The sums of every fourth byte, from the one numbered `quarter` on, in lanes. */
TW_INLINE vi tw_quarter_total(tw_quarter_sums sum, int quarter) {
    vu halves = (vu)(quarter & 1 ? sum.upper : sum.whole - (sum.upper << 8));
    return (vi)(quarter & 2 ? halves >> 16 : halves & 65535);
}
