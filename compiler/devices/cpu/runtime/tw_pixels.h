/* Pixels of bf16 whose channels lie side by side: made of planes of fp32, one for each channel, and read where a run of them is odd. */
#pragma once

/* The last element of a run in every lane, without what follows it. */
TW_INLINE vi tw_pixel_end(const void *p) {
    uint16_t element;
    memcpy(&element, p, sizeof element);
    return tw_splat_i(element);
}

/* Pixels of `channels` elements, 1 to 4 of them, of planes that lie `plane` elements apart. */
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE void tw_pixels_of_planes(tw_bf16 *to, const float *from, long plane, int channels, long count) {
    int16_t from_words[64]; /* of the 64 words of 4 x 16 pixels, which one becomes each of the result */
    for (int at = 0; at < 64; at++) from_words[at] = (int16_t)(at < 16 * channels ? at % channels * 16 + at / channels : 0);
    const __m512i low = _mm512_loadu_si512(from_words), high = _mm512_loadu_si512(from_words + 32);
    for (long at = 0; at < count; at += 16) {
        const long live = tw_least_of(16, count - at), words = live * channels;
        __m256i rounded[4] = {0};
        for (int channel = 0; channel < channels; channel++)
            rounded[channel] = tw_round_bf16(tw_load_n(from + channel * plane + at, live));
        const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(rounded[0]), rounded[1], 1);
        const __m512i b = _mm512_inserti64x4(_mm512_castsi256_si512(rounded[2]), rounded[3], 1);
        const __mmask32 first = words >= 32 ? 0xffffffff : (1u << words) - 1;
        const __mmask32 second = words >= 64 ? 0xffffffff : words > 32 ? (1u << (words - 32)) - 1 : 0;
        _mm512_mask_storeu_epi16(to + at * channels, first, _mm512_permutex2var_epi16(a, low, b));
        if (second) _mm512_mask_storeu_epi16(to + at * channels + 32, second, _mm512_permutex2var_epi16(a, high, b));
    }
}
#else
TW_INLINE void tw_pixels_of_planes(tw_bf16 *to, const float *from, long plane, int channels, long count) {
    for (long at = 0; at < count; at++)
        for (int channel = 0; channel < channels; channel++) to[at * channels + channel] = tw_to_bf16(from[channel * plane + at]);
}
#endif
