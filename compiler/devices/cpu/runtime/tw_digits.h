/* Rows of floats as whole numbers of two or three signed digits to base 256, which instructions for bytes multiply by codes of few
 * bits.
 *
 * x[k] is unit * (d0 + 256 d1 + 65536 d2). Of three digits it is off by at most 2^-23 of the largest magnitude of its chunk, which is
 * what rounding each product to fp32 costs; of two by 2^-15. Sums of products of digits are exact in 32 bits. */
#pragma once

/* Of a chunk: its unit, the sum of what its digits stand for, and where sums of products with each digit start. */
typedef struct { float unit, total; int32_t starts[3]; } tw_digits_head;

/* The digits of n floats as int8_t[digits][chunk], zeros from n on. What is multiplied by them is `centre` too large, for which sums
 * start below 0. Returns 0 where a float is not finite, and makes nothing then. */
TW_INLINE int tw_digits_of(const float *x, long n, long chunk, int digits, int32_t centre, int8_t *to, tw_digits_head *head) {
    vi greatest = {0};
    long k = 0;
    for (; k + TW_LANES <= n; k += TW_LANES) greatest = tw_max_i(greatest, tw_ibits(tw_load(x + k)) & 0x7fffffff);
    if (k < n) greatest = tw_max_i(greatest, tw_ibits(tw_load_n(x + k, n - k)) & 0x7fffffff);
    const int32_t most = tw_greatest_i(greatest);
    if (most >= 0x7f800000) return 0;
    /* The unit is a power of two: the largest magnitude has `bits` bits and one more, but of numbers near the least normal one. */
    const int32_t bits = 8 * digits - 2, held = digits == 3 ? 0x7efefe : 0x7efe00; /* mantissas of 127 (1 + 256 + ...) */
    int32_t exponent = (most >> 23) - bits;
    exponent = exponent < 1 ? 1 : exponent;
    exponent += most > (((exponent + bits) << 23) | held);
    const float unit = tw_bits(tw_splat_i(exponent << 23))[0], inverse = tw_bits(tw_splat_i((254 - exponent) << 23))[0];
    vi sums[3] = {{0}, {0}, {0}};
    for (k = 0; k < chunk; k += TW_LANES) {
        vf part = {0};
        if (k + TW_LANES <= n) part = tw_load(x + k);
        else if (k < n) part = tw_load_n(x + k, n - k);
        vi whole = __builtin_convertvector(tw_round(part * inverse), vi);
        for (int digit = 0; digit < digits; digit++) {
            const vi low = (vi)((vu)whole << 24) >> 24;
            tw_store_i8(to + digit * chunk + k, low);
            sums[digit] += low;
            whole = (whole - low) >> 8;
        }
    }
    const int32_t first = tw_sum_i(sums[0]), second = tw_sum_i(sums[1]), third = digits == 3 ? tw_sum_i(sums[2]) : 0;
    *head = (tw_digits_head){
        unit, unit * (65536.0f * (float)third + (256.0f * (float)second + (float)first)), {-centre * first, -centre * second, -centre * third}
    };
    return 1;
}

/* Sums of products of codes with each digit as floats: in units of the chunk. */
TW_INLINE vf tw_digits_two(vi first, vi second) { return tw_float_of((vi)((vu)second << 8) + first); }
TW_INLINE vf tw_digits_three(vi first, vi second, vi third) {
    return tw_float_of(third) * 65536.0f + tw_digits_two(first, second);
}

/* sum + a . b in each lane, of bytes. Without an instruction for it a is less than 16, and `pairs` adds up two products in each
 * 16-bit half of a lane, eight times at most; `wide` adds both halves, so many times, to a sum. TW_IN_ORDER keeps sums as they are
 * written: GCC adds products up in pairs otherwise, which it keeps in memory until then (1.2 to 1.3 times as long). */
#define TW_IN_ORDER(sums) __asm__("" : "+v"(sums))
#if (defined(__AVX512VNNI__) && TW_LANES == 16) || (defined(__AVXVNNI__) && TW_LANES == 8)
TW_INLINE vi tw_digits_dot(vi sum, vi a, vi b) { return tw_dot_bytes(sum, a, b); }
#elif defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE vi tw_digits_pairs(vi sums, vi a, vi b) {
    sums = (vi)_mm512_add_epi16((__m512i)sums, _mm512_maddubs_epi16((__m512i)a, (__m512i)b));
    TW_IN_ORDER(sums);
    return sums;
}
TW_INLINE vi tw_digits_wide(vi sum, vi sums, short times) {
    return sum + (vi)_mm512_madd_epi16((__m512i)sums, _mm512_set1_epi16(times));
}
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_digits_pairs(vi sums, vi a, vi b) {
    sums = (vi)_mm256_add_epi16((__m256i)sums, _mm256_maddubs_epi16((__m256i)a, (__m256i)b));
    TW_IN_ORDER(sums);
    return sums;
}
TW_INLINE vi tw_digits_wide(vi sum, vi sums, short times) {
    return sum + (vi)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(times));
}
#elif defined(__SSSE3__) && TW_LANES == 4
#include <tmmintrin.h>
TW_INLINE vi tw_digits_pairs(vi sums, vi a, vi b) {
    sums = (vi)_mm_add_epi16((__m128i)sums, _mm_maddubs_epi16((__m128i)a, (__m128i)b));
    TW_IN_ORDER(sums);
    return sums;
}
TW_INLINE vi tw_digits_wide(vi sum, vi sums, short times) { return sum + (vi)_mm_madd_epi16((__m128i)sums, _mm_set1_epi16(times)); }
#elif defined(__ARM_FEATURE_DOTPROD) && TW_LANES == 4
TW_INLINE vi tw_digits_dot(vi sum, vi a, vi b) { return tw_dot_signed(sum, a, b); }
#endif
