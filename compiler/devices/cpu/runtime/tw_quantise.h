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
