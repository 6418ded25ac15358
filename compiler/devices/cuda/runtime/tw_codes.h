/* Constants kept as numbers of few bits, made floats in registers: plain CUDA C++, the same for NVRTC and for g++, after `tw_scalar.h`. */
#pragma once

/* One of the four words of 16 bytes, by a number that is known once loops are unrolled. */
TW_DEVICE unsigned tw_word(uint4 x, int word) { return word == 0 ? x.x : word == 1 ? x.y : word == 2 ? x.z : x.w; }

/* to[i] = scale * (code - zero) for the codes of a word, from its lowest bits on: rounded once, so that it is to the bit what the dense
 * constant holds. In the mantissa of 2^23 a code that begins at bit `at` is 2^23 + code * 2^at; a multiply-add makes code - zero of that
 * without rounding, for bits below 16. `zero` is a whole number below 2^bits. */
template <int bits> TW_DEVICE void tw_weights(float (&to)[32 / bits], unsigned word, float scale, float zero) {
#pragma unroll
    for (int i = 0; i < 32 / bits; i++) {
        const int at = i * bits % 16;
        const unsigned half = i * bits < 16 ? word : word >> 16;
        const float held = __uint_as_float(0x4b000000u | (half & (((1u << bits) - 1) << at)));
        to[i] = fmaf(held, 1.0f / (float)(1 << at), -(8388608.0f / (float)(1 << at) + zero)) * scale;
    }
}
